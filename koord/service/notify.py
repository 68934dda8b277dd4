"""The process's side of systemd's notification protocol (sd_notify(3)), without libsystemd.

Invariant: telling the service manager never stops the work, and a process that is out of descriptors still tells it
(the watchdog would end it otherwise). Without ``NOTIFY_SOCKET`` every call is a no-op that returns False; a message
that cannot be sent is logged and returns False too. Only a malformed environment raises (``NotifyEnvironmentError``,
naming variable and value), once, at start.
"""

from __future__ import annotations

import array
import logging
import socket
import time
import weakref
from collections.abc import Mapping, MutableMapping, Sequence

log = logging.getLogger("koord.service.notify")

_PASSED_ON = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")


class NotifyEnvironmentError(ValueError):
    """A variable that the service manager set cannot be understood."""

    def __init__(self, variable: str, value: str, reason: str) -> None:
        super().__init__(f"{variable}={value!r}: {reason}")
        self.variable = variable
        self.value = value


class Notifier:
    """Sends state changes to the socket in ``NOTIFY_SOCKET``, from one socket that it opens at the first of them.

    ``address`` is that variable's value: an absolute path, or ``@name`` for the abstract namespace; None or ""
    means that no manager is listening.
    """

    def __init__(self, address: str | None) -> None:
        self._address = _socket_address(address) if address else None
        self._sender: socket.socket | None = None

    @property
    def enabled(self) -> bool:
        return self._address is not None

    def send(self, *assignments: str, fds: Sequence[int] = ()) -> bool:
        """Sends ``NAME=value`` lines in one datagram, with ``fds`` attached; True if the manager's socket took it."""
        if self._address is None:
            return False
        ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds).tobytes())] if fds else []
        flags = socket.MSG_NOSIGNAL | socket.MSG_DONTWAIT  # a manager whose queue is full must not stop the loop
        try:
            self._opened().sendmsg(["\n".join(assignments).encode()], ancillary, flags, self._address)
        except OSError as error:
            log.warning("service manager not notified of %s: %s", assignments[0], error)
            return False
        return True

    def _opened(self) -> socket.socket:
        if self._sender is None:
            self._sender = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
            weakref.finalize(self, self._sender.close)
        return self._sender

    def ready(self, status: str = "", main_pid: int | None = None) -> bool:
        """Says that the service is up. ``main_pid`` names the main process when a successor has taken over."""
        lines = ["READY=1"]
        if main_pid is not None:
            lines.append(f"MAINPID={main_pid}")
        if status:
            lines.append(f"STATUS={status}")
        return self.send(*lines)

    def reloading(self, monotonic_us: int | None = None) -> bool:
        """Says that a reload has begun; ``ready()`` ends it. CLOCK_MONOTONIC in µs, as Type=notify-reload needs."""
        now_us = time.monotonic_ns() // 1000 if monotonic_us is None else monotonic_us
        return self.send("RELOADING=1", f"MONOTONIC_USEC={now_us}")

    def stopping(self, status: str = "") -> bool:
        return self.send("STOPPING=1", *([f"STATUS={status}"] if status else []))

    def status(self, text: str) -> bool:
        return self.send(f"STATUS={text}")

    def watchdog(self) -> bool:
        return self.send("WATCHDOG=1")

    def store_fds(self, name: str, fds: Sequence[int]) -> bool:
        """Puts descriptors into the manager's store under ``name``; they come back by LISTEN_FDS after a restart."""
        return self.send("FDSTORE=1", f"FDNAME={name}", fds=fds)

    def remove_fds(self, name: str) -> bool:
        """Drops every stored descriptor of that name."""
        return self.send("FDSTOREREMOVE=1", f"FDNAME={name}")


def watchdog_interval_us(environ: Mapping[str, str], pid: int) -> int | None:
    """Returns the longest silence in µs that the manager tolerates from process ``pid``; None if it does not watch it.

    Callers ping at half of it, as sd_watchdog_enabled(3) advises.
    """
    text = environ.get("WATCHDOG_USEC")
    if not text:
        return None
    watched = environ.get("WATCHDOG_PID")
    if watched and _positive("WATCHDOG_PID", watched) != pid:
        return None
    return _positive("WATCHDOG_USEC", text)


def strip_notify_environ(environ: MutableMapping[str, str]) -> None:
    """Removes the variables of this protocol, so that a child does not speak in our name."""
    for variable in _PASSED_ON:
        environ.pop(variable, None)


def _socket_address(address: str) -> str:
    if address.startswith("@") and len(address) > 1:
        return "\0" + address[1:]
    if address.startswith("/"):
        return address
    raise NotifyEnvironmentError("NOTIFY_SOCKET", address, "neither an absolute path nor @abstract")


def _positive(variable: str, text: str) -> int:
    if not (text.isascii() and text.isdigit()) or int(text) == 0:
        raise NotifyEnvironmentError(variable, text, "not a positive number")
    return int(text)

"""Upgrades with an overlap: a successor takes the same listening sockets before the old process lets go.

The successor is this process's own command line, executed anew, and so the version that is installed at that path by
then. It gets the descriptors named in ``KOORD_LISTEN_FDS`` and one end of a socket pair in ``KOORD_READY_FD``. When it
serves it writes its pid there; end of file means that it died. It is started through a process in between that exits at
once, so its parent is the service manager, which thus learns of its death even while the old process still drains.

Invariant: until the successor has said that it serves, nothing changes for the old process; on any failure the
successor is killed and ``UpgradeError`` says why. A successor whose predecessor dies before that leaves: the service
manager starts another main process, and there must not be two.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
import os
import signal
import socket
from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from contextlib import suppress
from typing import NoReturn

from koord.service import startsignals
from koord.service.listen_fds import Inherited, ListenFdsError, format_named_fds, take_named_fds

log = logging.getLogger("runtimeproxy.upgrade")

LISTEN_VARIABLE = "KOORD_LISTEN_FDS"
READY_VARIABLE = "KOORD_READY_FD"
READY_TIMEOUT_S = 60.0  # a start takes 0.1 s, and 12 s on emulated CPUs that others use too; the old process serves on
_NOT_FOR_SUCCESSOR = ("WATCHDOG_PID",)  # names the old process; without it the watchdog applies to any

LATE_MODULES = (
    "koord.pb.cri.api_pb2",
    "koord.pb.hooks.api_pb2",
    "koord.service.inotify",
    "encodings.idna",
    "json",
    "linecache",
    "traceback",
)
"""Modules that serving or draining may need after the start. An upgrade may replace their files before that.

PyYAML and prometheus_client (5 MiB) are not among them: a draining process neither reloads nor is scraped.
"""


class UpgradeError(Exception):
    """The upgrade failed and there is no successor; the text says why."""


class Predecessor:
    """The process that waits for this one, its successor, to serve."""

    def __init__(self, ready: socket.socket) -> None:
        self._ready = ready

    @property
    def is_gone(self) -> bool:
        """Whether it has died or given us up: it sends nothing, so only the end of file can come."""
        try:
            return self._ready.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b""
        except BlockingIOError:
            return False
        except OSError:
            return True

    def announce(self, pid: int) -> bool:
        """Says that we serve and the service manager knows. Returns False if it has gone, which is no error."""
        try:
            self._ready.sendall(b"%d\n" % pid)
        except OSError as error:
            log.warning("the old process is gone: %s", error)
            return False
        finally:
            self._ready.close()
        return True


def own_command(executable: str, original: Sequence[str], arguments: Sequence[str]) -> list[str]:
    """Returns the command line that starts this program anew, from ``sys.executable``, ``orig_argv`` and ``argv``.

    A program file is executed by its own path: the file or link that is there by then names its interpreter and its
    version's directory. The interpreter that runs now may be the old version's, in an environment that will be removed.
    """
    if list(original[-len(arguments) :]) == list(arguments) and os.access(arguments[0], os.X_OK):
        return list(arguments)
    return [executable, *original[1:]]


def take_predecessor(environ: MutableMapping[str, str]) -> tuple[tuple[Inherited, ...], Predecessor | None]:
    """Returns the descriptors that a predecessor handed over, and the predecessor; ``((), None)`` without one.

    Raises ListenFdsError for variables that name no open descriptor.
    """
    text = environ.pop(READY_VARIABLE, "")
    inherited = take_named_fds(environ, LISTEN_VARIABLE)
    if not text:
        return inherited, None
    try:
        ready = socket.socket(fileno=int(text))
    except (ValueError, OSError) as error:
        raise ListenFdsError(READY_VARIABLE, text, str(error)) from error
    ready.set_inheritable(False)
    return inherited, Predecessor(ready)


def preload(modules: Iterable[str] = LATE_MODULES) -> list[str]:
    """Imports what may be needed later; returns those that cannot be imported (their use will fail, too)."""
    missing = []
    for name in modules:
        try:
            importlib.import_module(name)
        except Exception as error:  # noqa: BLE001 - a file that is being replaced may raise anything
            log.warning("%s cannot be imported: %s", name, error)
            missing.append(name)
    return missing


async def start_successor(
    command: Sequence[str],
    environ: Mapping[str, str],
    inherited: tuple[Inherited, ...],
    timeout_s: float,
) -> int:
    """Starts ``command`` with the descriptors and waits until it serves; returns its pid.

    Raises UpgradeError if it dies, says nonsense, or is silent for ``timeout_s``. When cancelled, the successor is
    killed.
    """
    try:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    except OSError as error:
        raise UpgradeError(f"no socket pair for the successor: {error.strerror}") from error
    with ours:
        with theirs:
            child_environ = _successor_environ(environ, inherited, theirs.fileno())
            kept = [*(entry.fd for entry in inherited), theirs.fileno()]
            pid = _spawn_orphan(command, child_environ, kept)
        ours.setblocking(False)
        try:
            async with asyncio.timeout(timeout_s):
                answer = await asyncio.get_running_loop().sock_recv(ours, 64)
            if not answer:
                raise UpgradeError(f"successor {pid} ended before it served; see its own messages")
            if answer.strip() != b"%d" % pid:
                raise UpgradeError(f"successor {pid} answered {answer!r}")
        except BaseException as error:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            if isinstance(error, TimeoutError):
                raise UpgradeError(f"successor {pid} did not serve within {timeout_s:g} s") from error
            raise
    return pid


def _successor_environ(environ: Mapping[str, str], inherited: tuple[Inherited, ...], ready_fd: int) -> dict[str, str]:
    kept = {name: value for name, value in environ.items() if name not in _NOT_FOR_SUCCESSOR}
    return {**kept, LISTEN_VARIABLE: format_named_fds(inherited), READY_VARIABLE: str(ready_fd)}


def _spawn_orphan(command: Sequence[str], environ: Mapping[str, str], kept_fds: Sequence[int]) -> int:
    """Forks twice and executes ``command`` in the grandchild; returns its pid. UpgradeError if it cannot be forked."""
    read_fd = write_fd = -1
    try:
        read_fd, write_fd = os.pipe2(os.O_CLOEXEC)
        middle = os.fork()
        if middle == 0:
            _run_intermediate(command, environ, kept_fds, write_fd)
        os.waitpid(middle, 0)
        os.close(write_fd)
        write_fd = -1
        text = os.read(read_fd, 32)
    except OSError as error:
        raise UpgradeError(f"no process for the successor: {error.strerror}") from error
    finally:
        for fd in (read_fd, write_fd):
            if fd >= 0:
                os.close(fd)
    if not text:
        raise UpgradeError("no process for the successor: the second fork failed")
    return int(text)


def _run_intermediate(
    command: Sequence[str], environ: Mapping[str, str], kept_fds: Sequence[int], write_fd: int
) -> NoReturn:
    """Starts the grandchild from the process in between, tells its pid, leaves. Never returns into the event loop."""
    try:
        pid = os.fork()
        if pid == 0:
            for fd in kept_fds:
                os.set_inheritable(fd, True)
            startsignals.ignore()
            os.execve(command[0], list(command), dict(environ))
        os.write(write_fd, b"%d" % pid)
    finally:
        os._exit(1)

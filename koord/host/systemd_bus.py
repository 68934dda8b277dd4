"""systemd on the system bus, as far as Koord needs it: setting properties of units at runtime.

Many units are told at once: all calls are sent, then their answers awaited. Errors are values, a sentence per unit, so
that one unit that is gone costs nothing else. Invariant: one ``tell`` takes no longer than its time limit, whatever the
bus does; after any trouble with it the connection is given up, and the next ``tell`` makes a new one.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from koord.host.systemd import Setting

SOCKET = "run/dbus/system_bus_socket"
"""Below the node's root."""
TIMEOUT_S = 2.0
_MANAGER = ("/org/freedesktop/systemd1", "org.freedesktop.systemd1", "org.freedesktop.systemd1.Manager")
_BUS = ("/org/freedesktop/DBus", "org.freedesktop.DBus", "org.freedesktop.DBus")
_AT_ONCE = 64  # the system bus allows 128 unanswered calls to a connection
_CHUNK_BYTES = 1 << 16

Call = tuple[str, Sequence[Setting]]
"""A unit's name and the properties that it is to have."""


class SystemBus:
    """A client of the bus at ``path``; it connects when it first has something to say. One thread at a time.

    ``trouble``: why the last ``tell`` got no answer for some units; "" if it got all.
    """

    def __init__(self, path: Path, timeout_s: float = TIMEOUT_S) -> None:
        self._path, self._timeout_s = path, timeout_s
        self._connection: _Connection | None = None
        self.trouble = ""

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def tell(self, units: Sequence[Call]) -> list[str | None]:
        """Sets each unit's properties until it ends. Returns for each unit why systemd refused, or ""; None: no
        answer."""
        answers: list[str | None] = [None] * len(units)
        deadline_s = time.monotonic() + self._timeout_s
        self.trouble = ""
        try:
            if self._connection is None:
                self._connection = _Connection(self._path, deadline_s)
            for first in range(0, len(units), _AT_ONCE):
                for index, answer in self._connection.set(units[first : first + _AT_ONCE], deadline_s):
                    answers[first + index] = answer
        except (ImportError, OSError, ValueError) as error:
            self.close()
            self.trouble = f"{self._path}: {'timed out' if isinstance(error, TimeoutError) else error}"
        return answers


class _Connection:
    """An authenticated connection. Every method raises OSError (TimeoutError past the deadline) or ValueError."""

    def __init__(self, path: Path, deadline_s: float) -> None:
        import jeepney  # type: ignore[import-untyped]  # noqa: PLC0415 - 2 MiB that only a node with units needs
        from jeepney import auth  # noqa: PLC0415

        self._jeepney: Any = jeepney
        self._parser = jeepney.Parser()
        self._serial = 0
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        try:
            self._limit(deadline_s)
            self._socket.connect(str(path))
            self._authenticate(auth, deadline_s)
            hello = self._call(_BUS, "Hello", None, (), deadline_s)
            if why := dict(self._answers(deadline_s, {hello: 0}))[0]:
                raise ConnectionRefusedError(why)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self._socket.close()

    def set(self, units: Sequence[Call], deadline_s: float) -> Iterator[tuple[int, str]]:
        """SetUnitProperties for each unit; (its index, why not or "") as the answers come."""
        waiting = {}
        for index, (unit, settings) in enumerate(units):
            properties = [(one.name, (one.signature, one.value)) for one in settings]
            body = (unit, True, properties)
            waiting[self._call(_MANAGER, "SetUnitProperties", "sba(sv)", body, deadline_s)] = index
        yield from self._answers(deadline_s, waiting)

    def _authenticate(self, auth: ModuleType, deadline_s: float) -> None:
        """Authenticates as this process's user, which the bus reads from the socket's own credentials."""
        dialogue = auth.Authenticator()
        for line in dialogue:
            self._send(line, deadline_s)
            dialogue.feed(self._receive(deadline_s))
        self._send(auth.BEGIN, deadline_s)

    def _call(
        self, to: tuple[str, str, str], method: str, signature: str | None, body: tuple[Any, ...], deadline_s: float
    ) -> int:
        """Send a method call; its serial number."""
        self._serial += 1
        call = self._jeepney.new_method_call(self._jeepney.DBusAddress(*to), method, signature, body)
        self._send(call.serialise(serial=self._serial), deadline_s)
        return self._serial

    def _answers(self, deadline_s: float, waiting: dict[int, int]) -> Iterator[tuple[int, str]]:
        """(value of ``waiting``, why not or "") of each call whose serial number is in ``waiting``."""
        while waiting:
            message = self._parser.get_next_message()
            if message is None:
                self._parser.add_data(self._receive(deadline_s))
                continue
            fields = message.header.fields
            index = waiting.pop(fields.get(self._jeepney.HeaderFields.reply_serial, 0), None)
            if index is not None:
                yield index, self._refusal(message)

    def _refusal(self, message: Any) -> str:
        """Returns the error of an answer; "" if it has none."""
        if message.header.message_type is not self._jeepney.MessageType.error:
            return ""
        name = str(message.header.fields.get(self._jeepney.HeaderFields.error_name, "error")).rpartition(".")[2]
        return f"{name}: {message.body[0]}" if message.body else name

    def _send(self, data: bytes, deadline_s: float) -> None:
        self._limit(deadline_s)
        self._socket.sendall(data)

    def _receive(self, deadline_s: float) -> bytes:
        self._limit(deadline_s)
        data = self._socket.recv(_CHUNK_BYTES)
        if not data:
            raise ConnectionResetError("the bus closed the connection")
        return data

    def _limit(self, deadline_s: float) -> None:
        left_s = deadline_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError
        self._socket.settimeout(left_s)

"""A system bus of a test's own: the D-Bus protocol on a unix socket, with a systemd that answers as it is told."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from jeepney import Message, MessageType, Parser, new_error, new_method_return  # type: ignore[import-untyped]

Answer = Callable[[str, list[tuple[str, Any]]], str | None]
"""Of a unit and its properties: "" done, else the error's text; None to say nothing."""
NO_SUCH_UNIT = "org.freedesktop.systemd1.NoSuchUnit"


class FakeBus:
    """``said``: every call's (unit, runtime, {property: value}), in order. ``connections``: how many there were."""

    def __init__(self, path: Path, answer: Answer, greeting: bytes) -> None:
        self.said: list[tuple[str, bool, dict[str, Any]]] = []
        self.connections = 0
        self._answer, self._greeting = answer, greeting
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.bind(str(path))
        self._socket.listen()
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def hang_up(self) -> None:
        """End every connection, as a bus that is restarted."""
        for connection in self._open:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        self._open.clear()

    def close(self) -> None:
        self._socket.close()
        self.hang_up()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._socket.accept()
                self.connections += 1
                self._open.append(connection)
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError), connection:
            lines = connection.makefile("rb")
            assert lines.readline().startswith(b"\0AUTH EXTERNAL ")
            connection.sendall(self._greeting)
            if not self._greeting or lines.readline() != b"BEGIN\r\n":
                return
            parser = Parser()
            while data := lines.read1():
                for message in parser.feed(data):
                    self._take(connection, message)

    def _take(self, connection: socket.socket, message: Message) -> None:
        if not message.body:
            self._reply(connection, new_method_return(message, "s", (":1.1",)))
            return
        unit, runtime, properties = message.body
        self.said.append((unit, runtime, {name: value for name, (_, value) in properties}))
        answer = self._answer(unit, properties)
        if answer is not None:
            error = new_error(message, NO_SUCH_UNIT, "s", (answer,))
            self._reply(connection, error if answer else new_method_return(message))

    @staticmethod
    def _reply(connection: socket.socket, message: Message) -> None:
        assert message.header.message_type in (MessageType.method_return, MessageType.error)
        connection.sendall(message.serialise(serial=1))


@contextlib.contextmanager
def serving(
    path: Path, answer: Answer = lambda unit, properties: "", greeting: bytes = b"OK 0123\r\n"
) -> Iterator[FakeBus]:
    bus = FakeBus(path, answer, greeting)
    try:
        yield bus
    finally:
        bus.close()

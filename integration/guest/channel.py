"""The host's end of the virtio port on which the guest's agent answers.

Invariant: each request gets its own answer, however many threads ask at once. A reboot of the guest, or a new start of
its agent, fails what was not answered with ``AgentGone``. A request that is not answered in time raises
``TimeoutError`` naming it if the agent answers others, and ``GuestHung`` if it answers none, as does each later one.
"""

from __future__ import annotations

import base64
import json
import os
import socket
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from integration.harness.processes import HarnessError, wait_for

CONNECTS_S = 20.0
PING_S = 30.0


class AgentGone(HarnessError):
    """The guest or its agent was started anew, or QEMU ended, before the answer."""


class GuestHung(HarnessError):
    """The guest runs, but its agent answers nothing any more."""


@dataclass(frozen=True, slots=True)
class Done:
    """How a program in the guest ended."""

    argv: tuple[str, ...]
    returncode: int
    stdout: str
    stderr: str


class Channel:
    """A connection to the chardev socket ``path`` of QEMU.

    ``ping_s``: how long the agent has for an answer that waits for nothing. ``boot_id``: of a guest that goes on from
    where it was saved, and whose agent has said hello to another host.
    """

    def __init__(self, path: Path, ping_s: float = PING_S, boot_id: str = "") -> None:
        self._ping_s = ping_s
        self._socket = wait_for(lambda: _connected(path), CONNECTS_S, f"QEMU to listen at {path}")
        self._changed = threading.Condition()
        self._answers: dict[int, dict[str, Any]] = {}
        self._next = 0
        self._boot_id = boot_id
        self._boots = int(bool(boot_id))
        self._starts = 0
        self._closed = False
        self._hung = ""
        threading.Thread(target=self._receive, daemon=True).start()

    def close(self) -> None:
        self._socket.close()

    @property
    def boot_id(self) -> str:
        """Of the newest boot."""
        return self._boot_id

    @property
    def boots(self) -> int:
        """How many boots have said hello."""
        return self._boots

    def wait_boot(self, number: int, timeout_s: float) -> None:
        """Until the guest has booted ``number`` times since the channel was opened."""
        end = time.monotonic() + timeout_s
        with self._changed:
            while self._boots < number:
                if self._closed:
                    raise AgentGone("QEMU ended before the guest's agent spoke")
                if not self._changed.wait(end - time.monotonic()):
                    raise TimeoutError(f"the guest's agent has not spoken within {timeout_s:g} s")

    def ask(self, request: Mapping[str, object], timeout_s: float) -> dict[str, Any]:
        """The answer to one request. Raises HarnessError for what the agent itself could not do."""
        if self._hung:
            raise GuestHung(self._hung)
        try:
            answer = self._answer(request, timeout_s)
        except TimeoutError as error:
            self._ping(str(error))
            raise
        if text := answer.get("error"):
            raise HarnessError(f"{_named(request)}: {text}")
        return answer

    def _answer(self, request: Mapping[str, object], timeout_s: float) -> dict[str, Any]:
        end = time.monotonic() + timeout_s
        with self._changed:
            self._next += 1
            number, starts = self._next, self._starts
            self._send({**request, "id": number})
            while number not in self._answers:
                if self._closed or self._starts != starts:
                    raise AgentGone(f"the guest's agent went away during {_named(request)}")
                if not self._changed.wait(end - time.monotonic()):
                    raise TimeoutError(f"no answer within {timeout_s:g} s to {_named(request)}")
            return self._answers.pop(number)

    def _send(self, request: Mapping[str, object]) -> None:
        try:
            self._socket.sendall(json.dumps(request).encode() + b"\n")
        except OSError as error:
            raise AgentGone(f"QEMU ended before {_named(request)}: {error}") from error

    def _ping(self, text: str) -> None:
        """Raises GuestHung, with ``text``, unless the agent answers something that waits for nothing."""
        try:
            self._answer({"read": ["/proc/uptime"]}, self._ping_s)
        except TimeoutError:
            self._hung = f"{text}, nor within {self._ping_s:g} s to anything else"
            raise GuestHung(self._hung) from None

    def run(
        self, argv: Sequence[str], timeout_s: float, data: bytes = b"", environment: Mapping[str, str] | None = None
    ) -> Done:
        request = {"argv": list(argv), "input": base64.b64encode(data).decode(), "env": dict(environment or {})}
        answer = self.ask(request, timeout_s)
        out, errors = (base64.b64decode(answer[name]).decode(errors="replace") for name in ("stdout", "stderr"))
        return Done(tuple(argv), answer["returncode"], out, errors)

    def read(self, paths: Sequence[str], timeout_s: float) -> list[bytes | int]:
        """Each file's bytes, or the errno for which it cannot be read."""
        found = self.ask({"read": list(paths)}, timeout_s)["files"]
        return [each if isinstance(each, int) else base64.b64decode(each) for each in found]

    def get(self, port: int, path: str, timeout_s: float) -> bytes | None:
        """What a server on the guest's loopback answers with status 200; None if it answers anything else."""
        body = self.ask({"get": path, "port": port}, timeout_s)["body"]
        return None if body is None else base64.b64decode(body)

    def write(self, path: str, data: bytes, mode: int | None, timeout_s: float) -> None:
        self.ask({"write": path, "data": base64.b64encode(data).decode(), "mode": mode}, timeout_s)

    def _receive(self) -> None:
        pending = b""
        while True:
            try:
                chunk = self._socket.recv(1 << 16)
            except OSError:
                chunk = b""
            *lines, pending = (pending + chunk).split(b"\n")
            with self._changed:
                self._closed = not chunk
                for line in lines:
                    self._take(_message(line))
                self._changed.notify_all()
            if not chunk:
                return

    def _take(self, message: dict[str, Any]) -> None:
        if (boot_id := message.get("hello")) is None:
            self._answers[message["id"]] = message
        else:
            self._starts += 1
            self._boots += boot_id != self._boot_id
            self._boot_id = boot_id


def _connected(path: Path) -> socket.socket | None:
    """None while the socket's file exists and no process listens yet."""
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.connect(os.fspath(path))
    except ConnectionRefusedError:
        connection.close()
        return None
    return connection


def _message(line: bytes) -> dict[str, Any]:
    """An agent that is killed leaves half a line, which the hello of the next one ends."""
    begin = max(line.rfind(b'{"hello"'), 0)
    return dict(json.loads(line[begin:]))


def _named(request: Mapping[str, object]) -> str:
    argv = request.get("argv")
    if isinstance(argv, list):
        return " ".join(map(str, argv))[:200]
    return str(request.get("read") or request.get("write") or request.get("get"))[:200]

"""Calls the daemon, and turns a failed call into an error that says what to do about it."""

from __future__ import annotations

import os
from typing import TypeVar

import click
from google.protobuf.message import Message

from koord.http2 import blocking
from koord.http2.grpc import DEADLINE_EXCEEDED, UNAVAILABLE, UNIMPLEMENTED, UnaryError
from koordctl.exits import NoAnswer, Refused

_SERVICE = "/koord.node.v1.NodeInspect/"
IN_POD = "KUBERNETES_SERVICE_HOST"
"""A variable that kubelet sets in every container: no unit runs koord-qosd there."""

_NAMES = {1: "CANCELLED", 2: "UNKNOWN", 3: "INVALID_ARGUMENT", 5: "NOT_FOUND", 8: "RESOURCE_EXHAUSTED"}
_NAMES |= {9: "FAILED_PRECONDITION", 13: "INTERNAL"}
Answer = TypeVar("Answer", bound=Message)


class Daemon:
    """koord-qosd on ``socket`` (a path, or ``unix:///path``); every call is bounded by ``timeout_s``."""

    def __init__(self, socket: str, timeout_s: float) -> None:
        self.path = socket.removeprefix("unix://").removeprefix("unix:")
        self._timeout_s = timeout_s

    def ask(self, method: str, request: Message, answer: type[Answer]) -> Answer:
        """Returns the answer of NodeInspect's ``method``; raises NoAnswer or Refused."""
        _check(self.path)
        try:
            reply = blocking.call(self.path, _SERVICE + method, request.SerializeToString(), self._timeout_s)
        except UnaryError as error:
            raise self._meaning(error, method) from error
        return answer.FromString(reply)

    def _meaning(self, error: UnaryError, method: str) -> click.ClickException:
        if error.code == DEADLINE_EXCEEDED:
            return NoAnswer(f"koord-qosd on {self.path} did not answer within {self._timeout_s:g} s.")
        if error.code == UNIMPLEMENTED:
            return Refused(
                f"koord-qosd on {self.path} does not know {method}: it is older than this koordctl. "
                "Restart it, or use the koordctl it came with."
            )
        if error.code == UNAVAILABLE:
            return NoAnswer(f"nothing listens on {self.path}: koord-qosd has ended or is restarting ({error.message}).")
        name = _NAMES.get(error.code, f"gRPC status {error.code}")
        return Refused(f"koord-qosd answered {name}: {error.message}")


def _check(path: str) -> None:
    """Raises NoAnswer with the cause where a connection would fail with a vague "unavailable"."""
    if not os.path.exists(path):
        how = "kubectl logs of the koordlet pod" if IN_POD in os.environ else "systemctl status koord-qosd"
        raise NoAnswer(f"no socket at {path}: is koord-qosd running ({how})? Name another path with --socket.")
    if not os.access(path, os.R_OK | os.W_OK):
        raise NoAnswer(f"no permission for {path}: only its owner may ask; try as root.")

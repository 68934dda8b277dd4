"""The seam between the relay, which knows frames, and the hooks, which know CRI.

The relay asks for a plan once per stream, at its HEADERS; everything else on the connection passes byte for byte.
Invariant: an implementation never blocks and never keeps a stream longer than its deadline, and what it raises never
reaches kubelet (the relay forwards the original bytes, or refuses where the plan says so).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol


class Treatment(Enum):
    PASS = "pass"  # bytes go on as they come
    TAP = "tap"  # the request is copied while it passes
    HOLD = "hold"  # the request is kept until it has been edited or refused
    REWRITE = "rewrite"  # the request passes, and the messages of its answer are rewritten


@dataclass(frozen=True, slots=True)
class StreamPlan:
    """The treatment of streams of a path, chosen before their messages are known."""

    treatment: Treatment
    wants_answer: bool = False  # the answer's message is needed (ids for the cache and post hooks)
    fail_closed: bool = False  # a hook server of this stage has policy Fail: refuse what cannot be asked about


PASS = StreamPlan(Treatment.PASS)


@dataclass(slots=True)
class Call:
    """One intercepted stream, from its HEADERS to its answer.

    ``timeout_s`` is the caller's ``grpc-timeout``, None if it set none; ``started`` is monotonic seconds.
    ``note`` is the interceptor's own memory of the call.
    """

    path: str
    timeout_s: float | None
    started: float
    note: object = field(default=None)


@dataclass(frozen=True, slots=True)
class Forward:
    """Sends this message on; ``then`` is called once it has gone. The object of the question means "unedited"."""

    message: bytes
    then: Callable[[], None] | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Refuse:
    """Answers the client with this gRPC status; the runtime never sees the request."""

    code: int
    message: str


class CannotBeEdited(Exception):
    """Raised by ``request``: this request cannot be edited.

    ``reason``: the metric's label; ``code``: the status under policy Fail.
    """

    def __init__(self, reason: str, code: int) -> None:
        super().__init__(reason)
        self.reason, self.code = reason, code


class Interceptor(Protocol):
    version: int  # another number = plans have changed

    def plan(self, path: str) -> StreamPlan:
        """Returns what to do with streams of this path, until ``version`` changes."""

    async def request(self, call: Call, message: bytes) -> Forward | Refuse:
        """Decides on a held request. Cancelled when the client gives the stream up."""

    def tapped(self, call: Call, message: bytes) -> None:
        """Notes that a tapped request has passed to the runtime."""

    def answered(self, call: Call, status: int, message: bytes | None) -> None:
        """Notes that the runtime has answered; ``message`` only where the plan wants it and ``status`` is 0."""

    def rewritten(self, path: str, message: bytes) -> bytes:
        """Returns the message that replaces an answer's, in as many bytes; the same object if nothing changes."""

    def forget(self) -> None:
        """Notes that requests have passed unseen: the cache may be wrong by now."""

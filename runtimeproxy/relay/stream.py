"""What the relay remembers of one stream.

A stream that only passes costs one reference to its Route. One that is tapped or held has a Stream of its own.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from enum import Enum

from runtimeproxy.intercept import Call, Plan

PREFIX_BYTES = 5  # gRPC's message prefix: a compression flag and a 32-bit length


@dataclass(frozen=True, slots=True)
class Route:
    """A path and what it calls for; ``label`` is the path as metrics show it (paths past a bound share one)."""

    path: str
    label: str
    plan: Plan
    passes: bool


class State(Enum):
    TAPPED = "tapped"        # passes; the request is copied
    HOLDING = "holding"      # DATA is collected
    ASKING = "asking"        # the request is complete, the hooks have it
    RELEASED = "released"    # goes to the runtime as its windows allow; the stream window stays ours
    REFUSING = "refusing"    # reset towards the runtime, the barrier is out


class Stream:
    """One tapped or held stream.

    ``window_bytes`` is what the runtime lets us send on it, ``uncredited_bytes`` what the client sent and was not
    given back on the stream's window, ``held_bytes`` what counts against the process's budget.
    """

    __slots__ = (
        "answer", "answered", "call", "chunks", "client_ended", "end_sent", "held_bytes", "id", "out", "out_offset",
        "route", "state", "task", "uncredited_bytes", "verdict", "window_bytes",
    )  # fmt: skip

    def __init__(self, stream: int, route: Route, call: Call, state: State, window_bytes: int) -> None:
        self.id = stream
        self.route = route
        self.call = call
        self.state = state
        self.chunks: list[bytes] = []
        self.held_bytes = 0
        self.client_ended = False
        self.out = b""
        self.out_offset = 0
        self.end_sent = False
        self.window_bytes = window_bytes
        self.uncredited_bytes = 0
        self.task: asyncio.Task[None] | None = None
        self.verdict: tuple[int, str] | None = None  # what the client is told once the barrier is back
        self.answer: list[bytes] | None = [] if route.plan.wants_answer else None
        self.answered = False  # the runtime's own headers have gone to the client

    @property
    def out_left_bytes(self) -> int:
        return len(self.out) - self.out_offset


def grpc_message(body: bytes) -> bytes | None:
    """The one uncompressed message of a unary body; None if the body is anything else."""
    if len(body) < PREFIX_BYTES or body[0] or int.from_bytes(body[1:PREFIX_BYTES]) != len(body) - PREFIX_BYTES:
        return None
    return body[PREFIX_BYTES:]


def grpc_body(message: bytes) -> bytes:
    return b"\0" + len(message).to_bytes(4) + message


_UNITS = {"H": 3600.0, "M": 60.0, "S": 1.0, "m": 1e-3, "u": 1e-6, "n": 1e-9}


def grpc_timeout_s(value: bytes | None) -> float | None:
    """Seconds of a ``grpc-timeout`` value such as ``119999864u``; None if absent or malformed."""
    if not value or not value[:-1].isdigit() or len(value) > 9:
        return None
    unit = _UNITS.get(chr(value[-1]))
    return None if unit is None else int(value[:-1]) * unit

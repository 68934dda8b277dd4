"""The state of one stream that is tapped or held, and of the route of one that passes.

A stream that only passes costs one reference to its Route. One that is tapped or held has a Stream of its own.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from enum import Enum

from koord.http2.grpc import grpc_body
from koord.service.metrics import Histogram
from runtimeproxy.intercept import Call, StreamPlan

MAX_ANSWER_BYTES = 1 << 20  # of an answer that is kept for the ids in it


@dataclass(frozen=True, slots=True)
class Route:
    """A path and its treatment; ``label`` is the path as metrics show it (paths past a bound share one).

    ``passes``: the request is neither tapped nor held.

    ``latency``: where the time that its calls take is counted.
    """

    path: str
    label: str
    plan: StreamPlan
    passes: bool
    latency: Histogram = field(default_factory=Histogram, compare=False)


class StreamState(Enum):
    TAPPED = "tapped"  # passes; the request is copied
    HOLDING = "holding"  # DATA is collected
    ASKING = "asking"  # the request is complete, the hooks have it
    RELEASED = "released"  # goes to the runtime as its windows allow; the stream window stays ours
    REFUSING = "refusing"  # reset towards the runtime, the barrier is out


class Stream:
    """One tapped or held stream.

    ``window_bytes`` is what the runtime lets us send on it, ``uncredited_bytes`` what the client sent since the release
    and the runtime has not got, ``owed_bytes`` what can be given back on the stream's window and is too little for a
    frame of its own, ``held_bytes`` what counts against the budget. ``data`` is the request as far as it is here: so
    long as it is collected, and what is left to be sent; ``message`` is the request while it is asked about.
    ``verdict``: what the client is told once the barrier is back; ``answered``: the runtime's own headers have gone to
    the client. Attributes that most streams never set are defaults of the class: a pod waits while a stream is made.
    """

    held_bytes = uncredited_bytes = owed_bytes = _offset = 0
    client_ended = end_sent = answered = False
    data: bytes | bytearray = b""
    message: bytes | None = None
    task: asyncio.Task[None] | None = None
    verdict: tuple[int, str] | None = None

    def __init__(self, stream: int, route: Route, call: Call, state: StreamState, window_bytes: int) -> None:
        self.id, self.route, self.call = stream, route, call
        self.state, self.window_bytes = state, window_bytes
        self.answer = bytearray() if route.plan.wants_answer else None

    @property
    def left_bytes(self) -> int:
        """The number of bytes of ``data`` that are left to be sent."""
        return len(self.data) - self._offset

    def put(self, payload: bytes) -> None:
        """Adds a piece of the request. Only its bytes are kept, however small the pieces are."""
        if not self.data:
            self.data = payload
        elif isinstance(self.data, bytearray):
            self.data += payload
        else:
            self.data = bytearray(self.data[self._offset :])
            self.data += payload
            self._offset = 0

    def take(self, most_bytes: int) -> bytes:
        """Returns the next piece for the runtime; empty if there is none."""
        data = self.data
        if isinstance(data, bytearray):
            piece = bytes(data[:most_bytes])
            del data[:most_bytes]
            return piece
        piece = data[self._offset : self._offset + most_bytes]
        self._offset += len(piece)
        if self._offset == len(data):
            self.replace(b"")
        return piece

    def replace(self, data: bytes) -> None:
        """Replaces what there is of the request."""
        self.data, self._offset, self.message = data, 0, None

    def stop_asking(self) -> None:
        if self.task is not None:
            self.task.cancel()
            self.task = None

    def take_back(self) -> None:
        """Restores the request as it came, and stops asking servers about it."""
        self.stop_asking()
        if self.message is not None:
            self.replace(grpc_body(self.message))

    def note_answer(self, payload: bytes) -> None:
        """Keeps bytes of the runtime's answer, if it is wanted and not too long."""
        if self.answer is not None:
            self.answer += payload
            if len(self.answer) > MAX_ANSWER_BYTES:
                self.answer = None

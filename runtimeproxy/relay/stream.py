"""What the relay remembers of one stream.

A stream that only passes costs one reference to its Route. One that is tapped or held has a Stream of its own.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from enum import Enum
from functools import partial

from koord.http2.prompt import PromptTask
from runtimeproxy.intercept import Call, Plan


@dataclass(frozen=True, slots=True)
class Route:
    """A path and what it calls for; ``label`` is the path as metrics show it (paths past a bound share one)."""

    path: str
    label: str
    plan: Plan
    passes: bool


class State(Enum):
    TAPPED = "tapped"  # passes; the request is copied
    HOLDING = "holding"  # DATA is collected
    ASKING = "asking"  # the request is complete, the hooks have it
    RELEASED = "released"  # goes to the runtime as its windows allow; the stream window stays ours
    REFUSING = "refusing"  # reset towards the runtime, the barrier is out


class Stream:
    """One tapped or held stream.

    ``window_bytes`` is what the runtime lets us send on it, ``uncredited_bytes`` what the client sent and was not
    given back on the stream's window, ``held_bytes`` what counts against the process's budget, ``out_offset`` is into
    the first of ``out``. ``verdict``: what the client is told once the barrier is back; ``answered``: the runtime's own
    headers have gone to the client. What most streams never need is a default of the class: a pod waits for them.
    """

    held_bytes = out_offset = out_left_bytes = uncredited_bytes = 0
    client_ended = end_sent = answered = False
    out: deque[bytes] | None = None
    task: PromptTask | None = None
    verdict: tuple[int, str] | None = None

    def __init__(self, stream: int, route: Route, call: Call, state: State, window_bytes: int) -> None:
        self.id, self.route, self.call = stream, route, call
        self.state, self.window_bytes = state, window_bytes
        self.chunks: list[bytes] = []
        self.answer: list[bytes] | None = [] if route.plan.wants_answer else None

    def put_out(self, data: bytes) -> None:
        """More for the runtime."""
        if data:
            if self.out is None:
                self.out = deque()
            self.out.append(data)
            self.out_left_bytes += len(data)

    def take_out(self, most_bytes: int) -> bytes:
        """The next piece for the runtime, of one chunk at most; empty if there is none."""
        if not self.out:
            return b""
        chunk, offset = self.out[0], self.out_offset
        piece = chunk[offset : offset + most_bytes]
        self.out_offset += len(piece)
        self.out_left_bytes -= len(piece)
        if self.out_offset == len(chunk):
            self.out.popleft()
            self.out_offset = 0
        return piece

    def take_rest(self) -> bytes:
        """All that is left for the runtime."""
        return b"".join(iter(partial(self.take_out, self.out_left_bytes), b""))

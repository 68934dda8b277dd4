"""Rewrites answers on their way to the client: message by message, each in as many bytes as it came in.

So no frame changes its size, and no window of either end notices. The frames of a message wait here until it is whole;
mostly it is one frame, and nothing waits.

Invariants: an answer delays nothing but itself, and that for ``PATIENCE_S`` at most; every byte that the runtime sent
reaches the client, because the runtime waits for the client's credit for it. A message that cannot be rewritten goes on
as it came, and is counted. That is so if the message needs more than half of the client's windows (the client gives no
credit for bytes that wait here, so the rest of a longer message might never come), if memory is short, and if the
message is compressed.
"""

from __future__ import annotations

import asyncio
from functools import partial

from koord.http2.frames import DEFAULT_WINDOW_BYTES, HEADER_BYTES, PADDED, Frame, data_payload
from koord.http2.grpc import PREFIX_BYTES, body_bytes
from runtimeproxy.relay.pair import ConnectionPair

PATIENCE_S = 0.25
MOST_BYTES = DEFAULT_WINDOW_BYTES // 2
"""Most bytes of a connection's answers that wait here: its window is never smaller than the default."""
FRAME_BYTES = 200
"""Memory of a frame that waits, beside its own bytes; it counts as well, so that tiny frames are bounded."""


class _Answer:
    """An answer that is rewritten. ``frames``: those that wait, with their payloads' bounds; ``body``: these together.

    ``kept_bytes``: what counts against the budget.
    """

    __slots__ = ("body", "frames", "kept_bytes", "path", "timer")

    def __init__(self, path: str) -> None:
        self.path = path
        self.frames: list[tuple[bytes, int, int]] = []
        self.body = bytearray()
        self.kept_bytes = 0
        self.timer: asyncio.TimerHandle | None = None

    def as_it_came(self) -> bytes:
        return b"".join([raw for raw, _, _ in self.frames])

    def with_body(self) -> bytes:
        """Returns the frames with ``body`` in the place of their payloads."""
        out: list[bytes] = []
        at = 0
        for raw, start, stop in self.frames:
            out += (raw[:start], bytes(self.body[at : at + stop - start]), raw[stop:])
            at += stop - start
        return b"".join(out)


class Rewrites:
    """Rewrites the answers of one pair; ``answers``: by stream.

    ``stream_window_bytes``: what the client lets the runtime send on a new stream.
    """

    def __init__(self, pair: ConnectionPair) -> None:
        self._pair = pair
        self._budget = pair.policy.budget
        self.answers: dict[int, _Answer] = {}
        self._kept_bytes = 0
        self.stream_window_bytes = DEFAULT_WINDOW_BYTES
        self._is_window_shrinking = False

    def client_allows(self, window_bytes: int) -> None:
        """Notes ``window_bytes`` for each stream, of SETTINGS of the client that are not acknowledged yet."""
        self._is_window_shrinking |= window_bytes < self.stream_window_bytes
        self.stream_window_bytes = window_bytes

    def before_acknowledgement(self, data: bytes, frame: Frame, is_last: bool) -> bytes | None:
        """Returns what replaces the runtime's acknowledgement of the client's SETTINGS; None: the frame itself.

        What the runtime sent before it may be more than the smaller window, and must not come behind it. ``is_last``:
        no other SETTINGS of the client's wait for theirs.
        """
        if not self._is_window_shrinking:
            return None
        self._is_window_shrinking = not is_last
        waiting = [stream for stream, answer in self.answers.items() if answer.frames]
        if not waiting:
            return None
        self._pair.metrics.not_rewritten["smaller client window"] += len(waiting)
        return b"".join([*map(self.end, waiting), data[frame[3] : frame[4]]])

    def open(self, stream: int, path: str) -> None:
        """Begins to rewrite the answer on this stream."""
        self.answers[stream] = _Answer(path)

    def take(self, data: bytes, frame: Frame) -> bytes | None:
        """Returns what replaces a DATA frame; None: the frame itself. Raises FrameError."""
        _, flags, stream, begin, end = frame
        answer = self.answers.get(stream)
        if answer is None:
            return None
        payload = data_payload(data, frame)
        start = HEADER_BYTES + (1 if flags & PADDED else 0)
        answer.frames.append((data[begin:end], start, start + len(payload)))
        answer.body += payload
        bounds, whole_bytes = _messages(answer.body)
        if whole_bytes > len(answer.body):
            self._keep(stream, answer, end - begin, whole_bytes)
            return b""
        frames = answer.with_body() if self._rewrite(answer, bounds) else answer.as_it_came()
        is_alone = len(answer.frames) == 1
        self._release(answer)
        return None if is_alone and frames == data[begin:end] else frames

    def end(self, stream: int) -> bytes:
        """Ends an answer; returns the frames of it that still wait."""
        answer = self.answers.pop(stream, None)
        if answer is None:
            return b""
        frames = answer.as_it_came()
        self._release(answer)
        return frames

    def close(self, stream: int) -> None:
        """Ends a stream otherwise than by a frame behind what waits: that goes to the client now."""
        frames = self.end(stream)
        if frames:
            self._pair.to_client.inject(frames)

    def give_up_all(self) -> None:
        """Keeps no frame of any answer."""
        for stream in [stream for stream, answer in self.answers.items() if answer.frames]:
            self._give_up(stream, "held bytes over budget")

    def _keep(self, stream: int, answer: _Answer, size_bytes: int, whole_bytes: int) -> None:
        """Keeps the last frame until its message is whole, ``whole_bytes`` behind the first one's begin."""
        answer.kept_bytes += size_bytes + FRAME_BYTES
        self._count(size_bytes + FRAME_BYTES)
        if whole_bytes > self.stream_window_bytes // 2 or self._kept_bytes > MOST_BYTES:
            self._give_up(stream, "over half of the client's window")
        elif self._budget.is_exceeded:
            self._budget.relieve()
        elif answer.timer is None:
            answer.timer = self._pair.loop.call_later(PATIENCE_S, partial(self._give_up, stream, "late"))

    def _give_up(self, stream: int, reason: str) -> None:
        self._pair.metrics.not_rewritten[reason] += 1
        self.close(stream)

    def _release(self, answer: _Answer) -> None:
        if answer.timer is not None:
            answer.timer.cancel()
            answer.timer = None
        self._count(-answer.kept_bytes)
        answer.kept_bytes = 0
        answer.frames.clear()
        answer.body.clear()

    def _count(self, size_bytes: int) -> None:
        if size_bytes:
            self._kept_bytes += size_bytes
            self._budget.copy(self._pair.share, size_bytes)

    def _rewrite(self, answer: _Answer, bounds: list[tuple[int, int]]) -> bool:
        """Rewrites each message in ``answer.body``; returns whether any was changed."""
        changed = False
        for begin, end in bounds:
            if answer.body[begin]:
                self._pair.metrics.not_rewritten["compressed"] += 1
                continue
            message = bytes(answer.body[begin + PREFIX_BYTES : end])
            rewritten = self._pair.policy.interceptor.rewritten(answer.path, message)
            if rewritten is not message and len(rewritten) == len(message):
                answer.body[begin + PREFIX_BYTES : end] = rewritten
                changed = True
        return changed


def _messages(body: bytearray) -> tuple[list[tuple[int, int]], int]:
    """Returns the bounds of each whole message of ``body``, its prefix included, and the length of a body that ends
    with its last message: that of ``body`` itself if it is whole messages.
    """
    bounds: list[tuple[int, int]] = []
    at = 0
    while at < len(body):
        size_bytes = body_bytes(body[at : at + PREFIX_BYTES]) or PREFIX_BYTES
        if at + size_bytes > len(body):
            return bounds, at + size_bytes
        bounds.append((at, at + size_bytes))
        at += size_bytes
    return bounds, at

"""HTTP/2 as bare bytes, for those who break its rules.

Header blocks here use the static table only, so that any number of streams can be opened with one constant block.
"""

from __future__ import annotations

import asyncio
from functools import lru_cache
from typing import cast

from tests.runtimeproxy.relay.ledger import FRAME_HEADER_BYTES, PREFACE, FrameCutter

DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)
END_STREAM, ACK, END_HEADERS, PADDED = 1, 1, 4, 8
OPENING = PREFACE + bytes(3) + bytes([SETTINGS, 0]) + bytes(4)
ANSWER_BLOCK = b"\x88\x0f\x10\x10application/grpc"  # :status 200, content-type
_SEEN = 1_000
TRAILER_BLOCK = b"\x00\x0bgrpc-status\x010"


def frame(kind: int, flags: int = 0, stream: int = 0, payload: bytes = b"", *, length: int | None = None) -> bytes:
    """A frame; ``length`` is what its header claims, if that is not the truth."""
    size = len(payload) if length is None else length
    return size.to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


@lru_cache
def request_block(path: str) -> bytes:
    """HPACK for a gRPC request, all literals without indexing."""
    return (
        b"\x83\x86"
        + b"".join(
            prefix + bytes([len(value)]) + value
            for prefix, value in [(b"\x04", path.encode()), (b"\x01", b"localhost"), (b"\x0f\x10", b"application/grpc")]
        )
        + b"\x00\x02te\x08trailers"
    )


def headers(stream: int, path: str, flags: int = END_HEADERS) -> bytes:
    return frame(HEADERS, flags, stream, request_block(path))


def window_update(stream: int, size: int) -> bytes:
    return frame(WINDOW_UPDATE, 0, stream, size.to_bytes(4, "big"))


def rst_stream(stream: int, code: int = 8) -> bytes:
    return frame(RST_STREAM, 0, stream, code.to_bytes(4, "big"))


class Sink(asyncio.Protocol):
    """A runtime that swallows everything, or stops reading, or answers each request with endless DATA.

    ``frames`` counts what arrived, ``seen`` has (kind, stream) of the first that concern a stream; no window is ever
    credited.
    """

    def __init__(
        self, *, reads: bool = True, blasts: bool = False, greets: bool = True, acknowledges: bool = False
    ) -> None:
        self.frames = 0
        self.seen: list[tuple[int, int]] = []
        self.written = 0
        self._reads, self._blasts, self._greets = reads, blasts, greets
        self._acknowledges = acknowledges  # PINGs and SETTINGS
        self._cutter = FrameCutter(preface=True)
        self._transport: asyncio.Transport | None = None
        self._may_write = asyncio.Event()
        self._may_write.set()
        self._task: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport = cast(asyncio.Transport, transport)
        if self._greets:
            transport.write(frame(SETTINGS))
        if not self._reads:  # asyncio of 3.11.2 begins to read after this call, whatever was paused in it
            asyncio.get_running_loop().call_soon(transport.pause_reading)

    @property
    def connected(self) -> bool:
        return self._transport is not None

    def data_received(self, data: bytes) -> None:
        for whole in self._cutter.feed(data):
            self.frames += 1
            kind, stream = whole[3], int.from_bytes(whole[5:FRAME_HEADER_BYTES], "big")
            if stream and not whole.startswith(b"PRI") and len(self.seen) < _SEEN:
                self.seen.append((kind, stream))
            if kind in (PING, SETTINGS) and self._acknowledges and not whole[4] & ACK and not whole.startswith(b"PRI"):
                self.say(frame(kind, ACK, 0, whole[FRAME_HEADER_BYTES:] if kind == PING else b""))
            if kind == HEADERS and self._blasts and self._task is None and not whole.startswith(b"PRI"):
                self._task = asyncio.get_running_loop().create_task(self._blast(stream))

    def pause_writing(self) -> None:
        self._may_write.clear()

    def resume_writing(self) -> None:
        self._may_write.set()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._task is not None:
            self._task.cancel()

    def hang_up(self) -> None:
        assert self._transport is not None
        self._transport.abort()

    def say(self, data: bytes) -> None:
        """Write bytes to the relay, whatever they are."""
        assert self._transport is not None
        self._transport.write(data)

    async def _blast(self, stream: int) -> None:
        assert self._transport is not None
        self._transport.write(frame(HEADERS, END_HEADERS, stream, ANSWER_BLOCK))
        chunk = frame(DATA, 0, stream, bytes(16_384))
        while True:
            await self._may_write.wait()
            self._transport.write(chunk)
            self.written += len(chunk)
            await asyncio.sleep(0)

"""Attacks without an end: what one client can say for ever that costs the proxy memory, if it is not bounded.

Pure but for ``lay``. A siege is a connection's opening and then pieces without end; when the proxy hangs up, or stops
reading for ``STUCK_S``, the next connection begins anew. One that does not read takes no answer, credit or
acknowledgement.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from integration.fuzz.attacks import BIG, GONE, LARGEST_WINDOW, SERVICE
from koord.http2.hpack import literal
from koord.pb.cri import api_pb2 as pb
from tests.runtimeproxy.relay import raw
from tests.runtimeproxy.relay.ledger import FRAME_HEADER_BYTES, FrameCutter

CREATE, STOP, VERSION = SERVICE + "CreateContainer", SERVICE + "StopContainer", SERVICE + "Version"
UPDATE = SERVICE + "UpdateContainerResources"
STUCK_S = 1.0
STAY_S = 3.0  # how long a connection stays that has said everything
MEMBERS_S = 0.25  # between two connections of a siege that has several
PIECE_BYTES = 1 << 15
PREFIX = b"\0" + (16 << 20).to_bytes(4, "big")  # of a message of 16 MiB
SHARE = bytes(15_000)
CALLS = 32  # in one piece
LAST_STREAM = 2**31 - 1
OPEN_WINDOWS = raw.frame(raw.SETTINGS, 0, 0, b"\0\4" + LARGEST_WINDOW.to_bytes(4, "big")) + raw.window_update(0, 2**30)


@dataclass(frozen=True, slots=True)
class Siege:
    """``pieces`` makes what follows ``opening``, without end (or nothing: then the connection only stays).

    ``members``: connections at the same time. ``windowed_bytes``: DATA in each piece, for which one that reads waits
    until its connection's window has room.
    """

    name: str
    opening: bytes
    pieces: Callable[[], Iterator[bytes]]
    reads: bool = False
    members: int = 1
    windowed_bytes: int = 0


def again(piece: bytes) -> Callable[[], Iterator[bytes]]:
    """The same frames for ever, as many at once as make a good write."""
    return lambda: itertools.repeat(piece * max(1, PIECE_BYTES // len(piece)))


def on_new_streams(frames: Callable[[int], bytes]) -> Callable[[], Iterator[bytes]]:
    """The same with the next stream's number."""
    return lambda: map(frames, range(1, LAST_STREAM, 2))


def held(payload: bytes, path: str = CREATE) -> Siege:
    """A message of 16 MiB in frames of this payload."""
    opening = raw.headers(1, path) + raw.frame(raw.DATA, 0, 1, PREFIX)
    name = f"{path.rpartition('/')[2]} in DATA of {len(payload)} bytes"
    return Siege(name, opening, again(raw.frame(raw.DATA, 0, 1, payload)))


def unfinished(path: str) -> Siege:
    """Messages that all begin and never end."""

    def frames(stream: int) -> bytes:
        return raw.headers(stream, path) + raw.frame(raw.DATA, 0, stream, PREFIX + SHARE)

    name, size = f"unfinished {path.rpartition('/')[2]}", len(PREFIX + SHARE)
    return Siege(name, b"", on_new_streams(frames), reads=True, windowed_bytes=size)


def long_paths(size: int) -> Siege:
    """Calls of unknown methods, whose paths all differ in the first bytes, and in the last."""

    def frames(stream: int) -> bytes:
        path = b"/%d/" % stream + b"p" * size + b"/%d" % stream
        return b"".join(_header_block(stream, b"\x83\x86" + literal(b":path", path))) + raw.rst_stream(stream)

    return Siege(f"paths of {size} bytes", b"", on_new_streams(frames), reads=True)


def _header_block(stream: int, block: bytes) -> Iterator[bytes]:
    parts = [block[n : n + 16_384] for n in range(0, len(block), 16_384)]
    for number, part in enumerate(parts):
        flags = raw.END_HEADERS if number == len(parts) - 1 else 0
        yield raw.frame(raw.CONTINUATION if number else raw.HEADERS, flags, stream, part)


def asking(path: str, members: int) -> Siege:
    """Clients that ask for megabytes and take none of them."""
    opening = OPEN_WINDOWS + raw.headers(1, path) + raw.frame(raw.DATA, raw.END_STREAM, 1, bytes(5))
    return Siege(f"{members} deaf clients of {path.rpartition('/')[2]}", opening, lambda: iter(()), members=members)


def asked(members: int) -> Siege:
    """Clients that open whole small requests, as many as the proxy reads, about which a silent hook server is asked."""
    message = pb.UpdateContainerResourcesRequest(container_id="c" * 64).SerializeToString()
    body = b"\0" + len(message).to_bytes(4, "big") + message

    def calls(first: int) -> bytes:
        ids = range(first, first + 2 * CALLS, 2)
        return b"".join(raw.headers(each, UPDATE) + raw.frame(raw.DATA, raw.END_STREAM, each, body) for each in ids)

    def pieces() -> Iterator[bytes]:
        return map(calls, range(1, LAST_STREAM - 2 * CALLS, 2 * CALLS))

    return Siege(f"{members} clients' asked calls", b"", pieces, True, members, CALLS * len(body))


SIEGES = (
    held(b"z"),
    held(b""),
    held(b"z", STOP),
    held(b"", STOP),
    held(b"", VERSION),
    unfinished(CREATE),
    unfinished(STOP),
    long_paths(4_000),
    long_paths(500_000),
    asking(BIG, 16),
    asking(GONE, 16),
    asked(16),
    Siege("unread PINGs", b"", again(raw.frame(raw.PING, 0, 0, bytes(8)))),
    Siege("unread SETTINGS", b"", again(raw.frame(raw.SETTINGS))),
    Siege("resets of held streams", b"", on_new_streams(
        lambda n: raw.headers(n, CREATE) + raw.frame(raw.DATA, 0, n, PREFIX) + raw.rst_stream(n)
    )),
)  # fmt: skip


async def lay(path: Path, siege: Siege, sent: Callable[[int], None]) -> None:
    """Besiege the socket for ever; ``sent`` is told of every write, in bytes."""
    async with asyncio.TaskGroup() as cgroup:
        for _ in range(siege.members):
            cgroup.create_task(_member(path, siege, sent))
            await asyncio.sleep(MEMBERS_S)


async def _member(path: Path, siege: Siege, sent: Callable[[int], None]) -> None:
    while True:
        with contextlib.suppress(ConnectionError, TimeoutError):
            await _one_connection(path, siege, sent)
        await asyncio.sleep(0.01)


async def _one_connection(path: Path, siege: Siege, sent: Callable[[int], None]) -> None:
    """Until the proxy hangs up or reads no more."""
    reader, writer = await asyncio.open_unix_connection(str(path), limit=1)
    window = Window()
    reading = asyncio.create_task(window.follow(reader)) if siege.reads else None
    try:
        for piece in itertools.chain([raw.OPENING + siege.opening], siege.pieces()):
            async with asyncio.timeout(STUCK_S):
                await window.take(siege.windowed_bytes)
                writer.write(piece)
                await writer.drain()
            sent(len(piece))
            await asyncio.sleep(0)
        await asyncio.sleep(STAY_S)  # who does not read does not see the end either
    finally:
        writer.transport.abort()
        if reading is not None:
            reading.cancel()


class Window:
    """The connection's flow-control window, from the proxy's WINDOW_UPDATEs."""

    def __init__(self) -> None:
        self._room = 65_535
        self._credited = asyncio.Event()

    async def take(self, size: int) -> None:
        """Wait until there is room for DATA of this size."""
        while self._room < size:
            self._credited.clear()
            await self._credited.wait()
        self._room -= size

    async def follow(self, reader: asyncio.StreamReader) -> None:
        """Read all that comes, until the end."""
        cutter = FrameCutter(preface=False)
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(1 << 16):
                for frame in cutter.feed(data):
                    if frame[3] == raw.WINDOW_UPDATE and not any(frame[5:FRAME_HEADER_BYTES]):
                        self._room += int.from_bytes(frame[FRAME_HEADER_BYTES:], "big")
                        self._credited.set()

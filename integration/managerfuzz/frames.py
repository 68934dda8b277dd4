"""A node's HTTP/2 as it likes: it has a certificate of a node that the cluster has.

The server ends a connection for most of these frames after one write or a few; such a flood measures what it costs to
make and prove the next connection, which is its worst then.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import struct
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache

from integration.managerfuzz.apiserver import ATTACKER
from integration.managerfuzz.target import PAUSE_S, Attack, Target, opened
from koord.http2.frames import (
    CANCEL,
    CONTINUATION,
    DATA,
    DEFAULT_MAX_FRAME_BYTES,
    DEFAULT_WINDOW_BYTES,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    INITIAL_WINDOW_SIZE,
    PING,
    PREFACE,
    PRIORITY,
    SETTINGS,
    frame,
    rst_stream,
    settings,
    split,
    window_update,
)
from koord.http2.hpack import literal, table_size_update
from koord_manager.nodelink.gate import NODE_CONNECTIONS
from koord_manager.nodelink.server import MAX_CALLS, MAX_MESSAGE_BYTES

REPORT = "/koord.nodelink.v1.NodeLink/Report"
_BLOCK_BYTES = 1 << 20
_HELD_S = 2.0
_BURST_S = 0.3
"""As long as this nothing is taken: the connection has had its burst."""
Frames = Callable[[Iterator[int]], bytes]
"""From the numbers of streams that were not used yet."""


@cache
def _head() -> bytes:
    """The header block of a call."""
    pseudo = (b":method", b"POST"), (b":scheme", b"https"), (b":path", REPORT.encode()), (b":authority", b"x")
    return b"".join(literal(*each) for each in (*pseudo, (b"content-type", b"application/grpc"), (b"te", b"trailers")))


def _indexed(name: bytes, value: bytes) -> bytes:
    """A field that becomes an entry of the table."""
    return b"\x40" + literal(name, value)[1:]


def _headers(stream: int, block: bytes, flags: int = END_STREAM, *, ends: bool = True) -> bytes:
    """HEADERS, and CONTINUATIONs for what one frame does not hold. ``ends``: is the last one said to be the last?"""
    parts = [block[at : at + DEFAULT_MAX_FRAME_BYTES] for at in range(0, len(block), DEFAULT_MAX_FRAME_BYTES)]
    last, frames = len(parts) - 1, list[bytes]()
    for number, part in enumerate(parts):
        end = END_HEADERS if ends and number == last else 0
        frames.append(frame(CONTINUATION, end, stream, part) if number else frame(HEADERS, flags | end, stream, part))
    return b"".join(frames)


# control frames


def _pings(streams: Iterator[int]) -> bytes:
    return frame(PING, 0, 0, b"12345678") * 1000


def _empty_settings(streams: Iterator[int]) -> bytes:
    return frame(SETTINGS, 0, 0) * 1500


def _long_settings(streams: Iterator[int]) -> bytes:
    """A frame's worth of entries."""
    return settings(tuple((INITIAL_WINDOW_SIZE, number) for number in range(2730))) * 4


def _windows(streams: Iterator[int]) -> bytes:
    return window_update(0, 1) * 1200


def _priorities(streams: Iterator[int]) -> bytes:
    return frame(PRIORITY, 0, next(streams), bytes(5)) * 1200


# streams


def _open_and_reset(streams: Iterator[int]) -> bytes:
    return _reset(streams, 0)


def _ended_and_reset(streams: Iterator[int]) -> bytes:
    return _reset(streams, END_STREAM)


def _reset(streams: Iterator[int], flags: int) -> bytes:
    numbers = itertools.islice(streams, 200)
    return b"".join(_headers(number, _head(), flags) + rst_stream(number, CANCEL) for number in numbers)


def _empty_data(streams: Iterator[int]) -> bytes:
    number = next(streams)
    return _headers(number, _head(), 0) + frame(DATA, 0, number) * 1500


# header blocks


def _within_bounds(streams: Iterator[int]) -> bytes:
    """Fields as small and as many as the server takes."""
    return b"".join(_headers(number, _head() + _tiny_fields(150)) for number in itertools.islice(streams, MAX_CALLS))


def _beyond_bounds(streams: Iterator[int]) -> bytes:
    return _headers(next(streams), _tiny_fields(100_000)[:_BLOCK_BYTES])


@cache
def _tiny_fields(count: int) -> bytes:
    return b"".join(literal(b"x%d" % number, b"v") for number in range(count))


def _endless(streams: Iterator[int]) -> bytes:
    return _headers(next(streams), _tiny_fields(100_000)[:_BLOCK_BYTES], ends=False)


def _empty_continuations(streams: Iterator[int]) -> bytes:
    number = next(streams)
    return frame(HEADERS, END_STREAM, number, _head()) + frame(CONTINUATION, 0, number) * 1500


def _huffman(streams: Iterator[int]) -> bytes:
    """One name of 1.6 million characters, as 5 bits each."""
    name = bytearray(literal(bytes(_BLOCK_BYTES // 5 * 5), b""))
    name[1] |= 0x80
    return _headers(next(streams), bytes(name))


def _repeated(streams: Iterator[int]) -> bytes:
    """A long entry of the table a million times."""
    return _headers(next(streams), _indexed(b"a", b"v" * 4000) + b"\xbe" * _BLOCK_BYTES)


def _resized(streams: Iterator[int]) -> bytes:
    """The table is made empty and large again and again."""
    pair = table_size_update(4096) + table_size_update(0)
    return _headers(next(streams), pair * (_BLOCK_BYTES // len(pair)))


def _churned(streams: Iterator[int]) -> bytes:
    """Each entry of the table takes another's place."""
    return _headers(next(streams), _indexed(b"a", b"") * (_BLOCK_BYTES // 4))


CONTROL: tuple[Frames, ...] = _pings, _empty_settings, _long_settings, _windows, _priorities
STREAMS: tuple[Frames, ...] = _open_and_reset, _ended_and_reset, _empty_data
HEADS: tuple[Frames, ...] = (
    *(_within_bounds, _beyond_bounds, _endless, _empty_continuations, _huffman, _repeated, _resized, _churned),
)


def floods(kinds: tuple[Frames, ...]) -> Attack:
    """Sends one kind after the other, each for its part of the time, on two connections of a node. A connection sends
    as fast as the server reads; once the server reads no more, a new connection takes its place. One of the two reads
    no answer."""

    async def attack(target: Target) -> None:
        begun_s = time.monotonic()
        part_s = (target.end_s - begun_s) / len(kinds)
        for number, kind in enumerate(kinds, 1):
            part = replace(target, end_s=begun_s + number * part_s)
            await asyncio.gather(*[_flooded(part, kind, is_deaf) for is_deaf in (True, False)])

    return attack


async def _flooded(target: Target, frames: Frames, is_deaf: bool) -> None:
    tls = target.node_context(ATTACKER)
    while not target.is_over:
        with contextlib.suppress(OSError, TimeoutError):
            reader, writer = await opened(target.nodelink, tls)
            draining = None
            try:
                streams = await _proven(reader, writer)
                draining = None if is_deaf else asyncio.create_task(_drained(reader))
                while not target.is_over and not writer.is_closing():
                    writer.write(frames(streams))
                    async with asyncio.timeout(_BURST_S):
                        await writer.drain()
            finally:
                if draining is not None:
                    draining.cancel()
                writer.transport.abort()
        await asyncio.sleep(PAUSE_S)


async def _proven(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Iterator[int]:
    """Makes one call, by which the manager knows the node. Returns the streams that follow. Raises OSError and
    TimeoutError."""
    call = frame(HEADERS, END_HEADERS, 1, _head()) + frame(DATA, END_STREAM, 1, bytes(5))
    writer.write(PREFACE + frame(SETTINGS, 0, 0) + call)
    said = b""
    async with asyncio.timeout(5):
        while not any(each[1] & END_STREAM and each[2] == 1 for each in split(said, 0, DEFAULT_MAX_FRAME_BYTES)[0]):
            if not (more := await reader.read(1 << 16)):
                raise ConnectionResetError
            said += more
    return itertools.count(3, 2)


async def _drained(reader: asyncio.StreamReader) -> None:
    with contextlib.suppress(OSError):
        while await reader.read(1 << 16):
            pass


async def unfinished_messages(target: Target) -> None:
    """Begins as many calls as a connection may have and ends none of their messages, on one connection more than the
    gate keeps of a node, so that the oldest is always cut off."""
    tls = target.node_context(ATTACKER)

    async def hold() -> None:
        while not target.is_over:
            with contextlib.suppress(OSError, TimeoutError):
                reader, writer = await opened(target.nodelink, tls)
                try:
                    streams = await _proven(reader, writer)
                    writer.write(_unfinished(streams))
                    async with asyncio.timeout(_HELD_S):
                        await _drained(reader)
                finally:
                    writer.transport.abort()
            await asyncio.sleep(PAUSE_S)

    await asyncio.gather(*[hold() for _ in range(NODE_CONNECTIONS + 1)])


def _unfinished(streams: Iterator[int]) -> bytes:
    """All together are what a connection's window lets through before the server widens it."""
    head = bytes(1) + struct.pack(">I", MAX_MESSAGE_BYTES)
    part = head + bytes(DEFAULT_WINDOW_BYTES // MAX_CALLS - 100)
    numbers = itertools.islice(streams, MAX_CALLS)
    return b"".join(_headers(number, _head(), 0) + frame(DATA, 0, number, part) for number in numbers)

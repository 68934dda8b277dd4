"""The hook servers around a proxy under attack: one that lies, one that edits, one that never answers, and some
that flood.

They speak just enough HTTP/2 to be believed at first. The editor marks each container with an annotation, by which the
runtime, and so the client that asked, sees that a creation was edited. A flooding server edits too, so that the proxy
has a reason to keep its connection.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from functools import partial
from pathlib import Path
from random import Random
from typing import cast

from integration.fuzz.peers import EDITED, ENDING, STATUS_OK
from koord.pb.hooks import api_pb2 as hooks
from tests.runtimeproxy.relay import raw
from tests.runtimeproxy.relay.ledger import FRAME_HEADER_BYTES, PREFACE, FrameCutter

FLOODS = {
    "pings": raw.frame(raw.PING, 0, 0, bytes(8)) * 1_000,
    "settings": raw.frame(raw.SETTINGS) * 1_000,
    "cheap frames": (raw.frame(raw.PRIORITY, 0, 1, bytes(5)) + raw.frame(0xFA, 0, 0, b"x")) * 1_000,
}
EDIT = hooks.ContainerResourceHookResponse(container_annotations=dict([EDITED])).SerializeToString()


class HookServer(asyncio.Protocol):
    """One connection of the proxy's to a hook server, whose ``answer`` to a call are frames for its stream.

    ``flood`` is written for as long as the connection lasts. One that does not ``read`` stops after its first answer.
    """

    def __init__(self, answer: Callable[[int], bytes], flood: bytes = b"", *, reads: bool = True) -> None:
        self._answer, self._flood, self._reads = answer, flood, reads
        self._cutter = FrameCutter(preface=True)
        self._transport: asyncio.Transport | None = None
        self._blocked = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport = cast(asyncio.Transport, transport)
        transport.write(raw.frame(raw.SETTINGS))
        if self._flood:
            asyncio.get_running_loop().call_soon(self._pour)

    def pause_writing(self) -> None:
        self._blocked = True

    def resume_writing(self) -> None:
        self._blocked = False
        if self._flood:
            self._pour()

    def _pour(self) -> None:
        assert self._transport is not None
        while not self._blocked and not self._transport.is_closing():
            self._transport.write(self._flood)

    def data_received(self, data: bytes) -> None:
        assert self._transport is not None
        for whole in self._cutter.feed(data):
            if whole == PREFACE:
                continue
            kind, flags, stream = whole[3], whole[4], int.from_bytes(whole[5:9], "big")
            if kind == raw.SETTINGS and not flags & raw.ACK:
                self._transport.write(raw.frame(raw.SETTINGS, raw.ACK))
            elif kind == raw.DATA and len(whole) > FRAME_HEADER_BYTES:
                self._transport.write(raw.window_update(0, len(whole) - FRAME_HEADER_BYTES))
            if kind == raw.DATA and flags & raw.END_STREAM:
                self.reply(stream)
                if not self._reads:
                    self._transport.pause_reading()

    def reply(self, stream: int) -> None:
        """Answer the call of this stream."""
        assert self._transport is not None
        if not self._transport.is_closing():
            self._transport.write(self._answer(stream))


def edit(stream: int) -> bytes:
    """The answer that marks the container."""
    body = b"\0" + len(EDIT).to_bytes(4, "big") + EDIT
    opening = raw.frame(raw.HEADERS, raw.END_HEADERS, stream, raw.ANSWER_BLOCK)
    return opening + raw.frame(raw.DATA, 0, stream, body) + raw.frame(raw.HEADERS, ENDING, stream, STATUS_OK)


class Liar(HookServer):
    """Each call gets the next lie of ``chance``; now and then the connection ends with it."""

    def __init__(self, chance: Random) -> None:
        super().__init__(partial(lie, chance))
        self._chance = chance

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._chance.random() < 0.05 and self._transport is not None:
            self._transport.close()


def lie(chance: Random, stream: int) -> bytes:
    """An answer to one hook call: honest and empty once in a while, wrong in one way otherwise."""
    opening = raw.frame(raw.HEADERS, raw.END_HEADERS, stream, raw.ANSWER_BLOCK)
    ending = raw.frame(raw.HEADERS, ENDING, stream, STATUS_OK)
    if chance.random() < 0.5:
        return opening + _lying_body(chance, stream) + ending
    return chance.choice([
        opening + ending,                                                    # no message
        ending + opening,                                                    # the wrong way round
        raw.frame(raw.HEADERS, raw.END_HEADERS, stream, chance.randbytes(50)) + ending,  # bad HPACK
        raw.frame(raw.HEADERS, 0, stream) + raw.frame(raw.CONTINUATION, 0, stream) * 1_000,
        raw.frame(raw.HEADERS, ENDING, stream, b"\x88"),                     # no status
        raw.frame(raw.HEADERS, ENDING, stream, b"\x8d"),                     # HTTP 404
        raw.rst_stream(stream), raw.frame(raw.GOAWAY, 0, 0, bytes(8)), raw.window_update(0, 2**31 - 1) * 3,
        chance.randbytes(200), b"",
    ])  # fmt: skip


def _lying_body(chance: Random, stream: int) -> bytes:
    body = chance.randbytes(chance.randrange(60))

    def data(length: int, payload: bytes, *, claimed: int | None = None, compressed: bool = False) -> bytes:
        prefix = bytes([compressed]) + length.to_bytes(4, "big")
        return raw.frame(raw.DATA, 0, stream, prefix + payload, length=claimed)

    match chance.randrange(10):
        case 0 | 1:
            return data(0, b"")  # honest
        case 2:
            return data(len(body), body)  # random protobuf
        case 3:
            return data(len(body) + 1, body)  # message longer than the body
        case 4:
            return data(2**32 - 1, body)  # message of 4 GiB
        case 5:
            return data(0, body + b"x")  # message shorter than the body
        case 6:
            return data(0, b"", claimed=(1 << 24) - 1)  # frame of 16 MiB that never comes
        case 7:
            return data(5, b"", claimed=2)  # frame shorter than its payload
        case 8:
            return data(40 << 20, b"") + raw.frame(raw.DATA, 0, stream, bytes(16_384)) * 2_600  # 40 MiB
        case _:
            return data(0, b"", compressed=True) + data(0, b"")  # compressed, it says; two messages


Maker = Callable[[], HookServer]


def editor() -> HookServer:
    return HookServer(edit)


def silent() -> HookServer:
    return HookServer(lambda stream: b"")


def floods() -> dict[str, Maker]:
    """Those that flood, by name."""
    makers: dict[str, Maker] = {name: partial(HookServer, edit, flood) for name, flood in FLOODS.items()}
    return {"deaf pings": lambda: HookServer(edit, FLOODS["pings"], reads=False), **makers}


@contextlib.asynccontextmanager
async def hook_servers(directory: Path, makers: Mapping[str, Maker]) -> AsyncIterator[dict[str, Path]]:
    """Servers of these connections for the time of the block: sockets by name."""
    sockets = {name: directory / f"hooks-{name.replace(' ', '-')}.sock" for name in makers}
    loop = asyncio.get_running_loop()
    listeners = [await loop.create_unix_server(make, str(sockets[name])) for name, make in makers.items()]
    try:
        yield sockets
    finally:
        for listener in listeners:
            listener.close()

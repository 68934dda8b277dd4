"""Connections of one event loop take turns, however much one of them has sent."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from functools import partial
from typing import cast

import pytest
import uvloop

from koord.http2.reading import READ_BYTES, FairProtocol
from tests.support.waiting import HANG_S, until

SENT_BYTES = 6 * READ_BYTES


class Recorder(FairProtocol):
    """Writes down what is read of ``name``, and of how many bytes, beside what the others write down."""

    def __init__(self, name: int, reads: list[tuple[int, bytes]]) -> None:
        super().__init__()
        self._name, self._reads = name, reads
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._reads.append((self._name, data))

    def pause_for_turn(self) -> None:
        assert self._transport is not None
        self._transport.pause_reading()
        asyncio.get_running_loop().call_soon(self._transport.resume_reading)


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_nobody_is_read_twice_while_others_wait(new_loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    reads: list[tuple[int, bytes]] = []
    sent = [bytes([name]) * SENT_BYTES for name in range(3)]

    async def run() -> None:
        loop = asyncio.get_running_loop()
        peers = []
        for name in range(len(sent)):
            peer, ours = socket.socketpair()
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 * SENT_BYTES)
            peers.append(peer)
            await loop.connect_accepted_socket(partial(Recorder, name, reads), ours)
        for peer, data in zip(peers, sent, strict=True):  # all of it has come before anything is read
            peer.sendall(data)
            peer.close()
        async with asyncio.timeout(HANG_S):
            await until(lambda: sum(len(data) for _, data in reads) == sum(map(len, sent)))

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(run())
    assert [b"".join(data for of, data in reads if of == name) for name in range(3)] == sent
    assert {len(data) for _, data in reads} == {READ_BYTES}
    order = [of for of, _ in reads]
    assert all(len(set(order[turn : turn + 3])) == 3 for turn in range(0, len(order), 3)), order

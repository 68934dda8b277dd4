"""Calls that end with their connection, and what passed while nothing was intercepted."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.runtimeproxy.relay.endpoint import Stream
from tests.runtimeproxy.relay.peers import ANY, grpc_frame
from tests.runtimeproxy.relay.rig import CREATE, VERSION, holding, passing, rigged
from tests.support.waiting import HANG_S, until

CANCELLED, UNAVAILABLE = 1, 14


@pytest.mark.parametrize(("who", "status"), [("client", CANCELLED), ("runtime", UNAVAILABLE)])
async def test_calls_in_flight_are_counted(tmp_path: Path, who: str, status: int) -> None:
    async def hang(stream: Stream) -> None:
        await asyncio.Event().wait()

    async with asyncio.timeout(HANG_S), rigged(tmp_path, holding(bytes), {ANY: hang}, settle=False) as rig:
        for path in (VERSION, CREATE):  # one that passes and one that is held
            stream = rig.client.open(path)
            await rig.client.endpoint.send(stream.id, grpc_frame(b"m"), end=True)
        await rig.arrived(0)
        await until(lambda: rig.relay.metrics.held_streams)
        await (rig.client.endpoint if who == "client" else rig.server.connections[0]).close()
        await until(lambda: rig.relay.metrics.calls.total() == 2)
        assert dict(rig.relay.metrics.calls) == {(VERSION, status): 1, (CREATE, status): 1}


async def test_after_a_bypass_the_interceptor_forgets(tmp_path: Path) -> None:
    interceptor = passing()
    async with rigged(tmp_path, interceptor) as rig:
        for bypass, forgotten in ((False, 0), (True, 0), (True, 0), (False, 1), (False, 1)):
            rig.relay.set_bypass(bypass)
            assert interceptor.forgotten == forgotten


async def test_a_request_whose_edit_failed_is_one_that_passed(tmp_path: Path) -> None:
    def fail(message: bytes) -> bytes:
        raise ValueError

    interceptor = holding(fail, opened=True)
    async with asyncio.timeout(HANG_S), rigged(tmp_path, interceptor) as rig:
        reply = await rig.client.call(CREATE, b"original")
        assert reply.grpc_status == 0
        assert interceptor.tapped_messages == [b"original"]

"""One connection over a real socket: both directions at once, and an end with a reason whatever the peer does."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from koord.pb.nri import api_pb2 as nri
from koord.pb.nri import ttrpc_pb2 as pb
from qosd.nri import mux, ttrpc
from qosd.nri.connection import NRIConnection
from tests.qosd.nri.runtimes import PLUGIN, RUNTIME, Attached, Runtime, packed

ECHO = {(PLUGIN, "Echo"): lambda message: message, (PLUGIN, "Huge"): lambda message: bytes(mux.MAX_SENT_BYTES)}


@asynccontextmanager
async def connected(tmp_path: Path) -> AsyncIterator[tuple[NRIConnection, Attached, list[str]]]:
    """A connection, the runtime's end of it, and the reasons for which it ended."""
    reasons: list[str] = []
    async with Runtime(tmp_path / "nri.sock").listening() as runtime:
        _, connection = await asyncio.get_running_loop().create_unix_connection(
            lambda: NRIConnection(ECHO, reasons.append), str(runtime.path)
        )
        try:
            yield connection, await runtime.plugin(), reasons
        finally:
            connection.close("the test is over")


@pytest.mark.parametrize(
    ("sent", "why"),
    [
        (struct.pack(">II", 1, 1 << 31), "claims 2147483648 bytes"),
        (packed(1, 1, 1, b"\xff"), "a request that is no protobuf"),
        (packed(1, 2, 1, b""), "stream id 2 is even"),
        (packed(1, 1, 1, b"")[:8] + struct.pack(">IIBB", 5 << 20, 1, 1, 0), "a message of 5242880 bytes"),
    ],
)
async def test_what_breaks_the_protocol_ends_it_with_a_reason(tmp_path: Path, sent: bytes, why: str) -> None:
    async with connected(tmp_path) as (connection, runtime, reasons):
        runtime.send(sent)
        await asyncio.wait_for(runtime.gone.wait(), 5)
        with pytest.raises(ttrpc.CallError, match=why):
            await connection.call(RUNTIME, "RegisterPlugin", b"", 1)
    assert len(reasons) == 1
    assert why in reasons[0]


async def test_a_broken_answer_ends_it_and_the_call(tmp_path: Path) -> None:
    async with connected(tmp_path) as (connection, runtime, _):
        call = asyncio.create_task(connection.call(RUNTIME, "RegisterPlugin", nri.Empty().SerializeToString(), 5))
        await asyncio.sleep(0)
        runtime.send(packed(2, 1, 2, b"\xff"))
        with pytest.raises(ttrpc.CallError, match="an answer that is no protobuf"):
            await call


@pytest.mark.parametrize(
    "ignored",
    [
        packed(7, 1, 1, b"\xff\xff"),  # a connection that nobody opened
        packed(0, 1, 1, b"\xff\xff"),  # the reserved one
        packed(1, 1, 3, b"data"),  # a stream's
        packed(1, 1, 77, b"later"),
        packed(2, 9, 2, pb.Response(payload=b"late").SerializeToString()),  # answers nothing that was asked
        struct.pack(">II", 1, 0),
    ],
)
async def test_what_is_not_for_us_is_skipped(tmp_path: Path, ignored: bytes) -> None:
    async with connected(tmp_path) as (_, runtime, reasons):
        runtime.send(ignored)
        assert (await runtime.response("Echo", nri.Empty())).status.code == 0
    assert reasons == ["the test is over"]


@pytest.mark.parametrize(
    ("service", "method", "code"),
    [(PLUGIN, "Later", ttrpc.UNIMPLEMENTED), ("other.Service", "Echo", ttrpc.UNIMPLEMENTED),
     (PLUGIN, "Huge", ttrpc.RESOURCE_EXHAUSTED)],
)  # fmt: skip
async def test_what_cannot_be_answered_is_refused_with_its_code(
    tmp_path: Path, service: str, method: str, code: int
) -> None:
    async with connected(tmp_path) as (_, runtime, reasons):
        assert (await runtime.response(method, nri.Empty(), service)).status.code == code
        assert (await runtime.response("Echo", nri.Empty())).status.code == 0
    assert reasons == ["the test is over"]


async def test_both_directions_at_once(tmp_path: Path) -> None:
    """The runtime's call is answered while ours waits; a large message passes."""
    async with connected(tmp_path) as (connection, runtime, _):
        register = nri.RegisterPluginRequest(plugin_name="p").SerializeToString()
        ours = asyncio.create_task(connection.call(RUNTIME, "RegisterPlugin", register, 5))
        pods = nri.SynchronizeRequest(pods=[nri.PodSandbox(id=str(n), name="x" * 100) for n in range(3000)])
        theirs = [runtime.call("Echo", pods, nri.SynchronizeRequest) for _ in range(3)]
        assert await asyncio.gather(*theirs) == [pods] * 3
        assert await ours == b""
        assert (await runtime.registered).plugin_name == "p"


async def test_an_end_from_the_other_side_ends_the_calls_that_wait(tmp_path: Path) -> None:
    async with connected(tmp_path) as (connection, runtime, reasons):
        call = asyncio.create_task(connection.call("no.Service", "Never", b"", 5))
        await asyncio.sleep(0)
        runtime.close()
        with pytest.raises(ttrpc.CallError, match="connection"):
            await call
    assert len(reasons) == 1


async def test_a_call_without_an_answer_has_a_deadline(tmp_path: Path) -> None:
    async with connected(tmp_path) as (connection, runtime, _):
        runtime._task.cancel()  # it no longer reads
        with pytest.raises(ttrpc.CallError) as caught:
            await connection.call(RUNTIME, "RegisterPlugin", b"", 0.05)
        assert caught.value.code == ttrpc.DEADLINE_EXCEEDED

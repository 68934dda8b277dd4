"""Windows: of held streams, which are the proxy's own, and of the connection, when the runtime is slow to credit it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from runtimeproxy.intercept import Refuse
from tests.runtimeproxy.relay.endpoint import Stream, Tuning
from tests.runtimeproxy.relay.peers import answer, grpc_frame
from tests.runtimeproxy.relay.rig import CREATE, VERSION, Rig, holding, passing, rigged, text
from tests.support.waiting import HANG_S, until

STINGY = Tuning(credit_batch=None, initial_window=1 << 20)
ROOMY = Tuning(initial_window=1 << 20, connection_window=1 << 22, largest_frame=1 << 17)


@pytest.mark.parametrize("start", [1_000, 65_535])
@pytest.mark.parametrize(
    "changes",
    [
        pytest.param([1 << 20], id="up"),
        pytest.param([100], id="down"),
        pytest.param([0, 30_000], id="to nothing and back"),
        pytest.param([1 << 20, 500, 70_000], id="up, down, up"),
    ],
)
async def test_the_runtime_changes_its_initial_window_while_a_stream_is_held(
    tmp_path: Path, start: int, changes: list[int]
) -> None:
    scripted = holding(lambda message: text(100_000))
    runtime = Tuning(initial_window=start)
    async with asyncio.timeout(HANG_S), rigged(tmp_path, scripted, runtime=runtime) as rig:
        held = asyncio.create_task(rig.client.call(CREATE, b"original"))
        await until(lambda: scripted.asked)
        for value in changes[:-1]:
            rig.server.connections[0].change(initial_window_size=value)
        scripted.gate.set()
        rig.server.connections[0].change(initial_window_size=changes[-1])
        assert (await held).messages == [text(100_000)]


async def test_the_initial_window_falls_below_what_a_held_stream_has_already_sent(tmp_path: Path) -> None:
    scripted = holding(lambda message: text(200_000), opened=True)
    async with asyncio.timeout(HANG_S), rigged(tmp_path, scripted, runtime=Tuning(credit_batch=None)) as rig:
        held = asyncio.create_task(rig.client.call(CREATE, b"original"))
        stream = await rig.arrived(0)
        await stream.until(lambda s: len(s.data) == 65_535)
        rig.server.connections[0].change(initial_window_size=100)
        while not stream.ended:
            if stream.uncredited:
                stream.endpoint.credit(stream, min(stream.uncredited, 40_000))
            await asyncio.sleep(0)
        assert (await held).messages == [text(200_000)]
        stream.endpoint.credit_all()


@pytest.mark.parametrize("later", [1 << 14, 1 << 15, 1 << 18])
async def test_edited_messages_keep_to_the_runtimes_frame_size(tmp_path: Path, later: int) -> None:
    scripted = holding(lambda message: text(400_000))
    async with asyncio.timeout(HANG_S), rigged(tmp_path, scripted, runtime=ROOMY) as rig:
        held = asyncio.create_task(rig.client.call(CREATE, text(300_000)))
        await until(lambda: scripted.asked)
        rig.server.connections[0].change(max_frame_size=later)
        assert (await rig.client.call(VERSION, b"x")).messages == [b"x"]
        scripted.gate.set()
        assert (await held).messages == [text(400_000)]


async def test_an_edited_message_without_stream_window_keeps_nobody_waiting(tmp_path: Path) -> None:
    async def stingy(stream: Stream) -> None:
        await stream.until(lambda s: len(s.data) == 1_000)
        await released.wait()
        while not stream.ended:
            stream.endpoint.h2.increment_flow_control_window(1_000, stream.id)
            stream.endpoint.flush()
            await asyncio.sleep(0)
        await answer(stream, bytes(stream.data))

    released = asyncio.Event()
    scripted = holding(lambda message: text(30_000), opened=True)
    runtime = Tuning(initial_window=1_000, credit_batch=None, connection_window=1 << 20)
    async with asyncio.timeout(HANG_S), rigged(tmp_path, scripted, {CREATE: stingy}, runtime=runtime) as rig:
        held = asyncio.create_task(rig.client.call(CREATE, b"original"))
        for _ in range(5):
            assert (await rig.client.call(VERSION, text(500))).messages == [text(500)]
        assert not held.done()
        released.set()
        assert (await held).messages == [text(30_000)]


async def test_passing_data_goes_before_held_data_when_the_connection_window_is_empty(tmp_path: Path) -> None:
    scripted = holding(lambda message: text(300_000), opened=True)
    runtime = Tuning(initial_window=1 << 20, credit_batch=None)
    async with asyncio.timeout(HANG_S), rigged(tmp_path, scripted, runtime=runtime, settle=False) as rig:
        asyncio.create_task(rig.client.call(CREATE, b"original")).add_done_callback(lambda task: task.exception())
        held = await rig.arrived(0)
        await held.until(lambda s: len(s.data) == 65_535)
        call = asyncio.create_task(rig.client.call(VERSION, b"twelve bytes"))
        passing = await rig.arrived(1)
        assert not passing.data
        held.endpoint.h2.increment_flow_control_window(17)
        held.endpoint.flush()
        assert (await call).messages == [b"twelve bytes"]
        assert len(held.data) == 65_535


# --- the runtime's connection window is spent -------------------------------------------------------------------------


async def _spent(rig: Rig) -> Stream:
    """A stream that has used up the runtime's connection window."""
    stream = rig.client.open(VERSION)
    await rig.client.endpoint.send(stream.id, text(65_535), end=False)
    await (await rig.arrived(0)).until(lambda s: len(s.data) == 65_535)
    return stream


@pytest.mark.parametrize("pad", [None, 0, 255])
async def test_padded_data_that_had_to_wait_arrives_and_costs_no_window(tmp_path: Path, pad: int | None) -> None:
    async with asyncio.timeout(HANG_S), rigged(tmp_path, passing(), runtime=STINGY) as rig:
        spender = await _spent(rig)
        waiting = [asyncio.create_task(rig.client.call("/a/b", text(3_000), pad=pad, chunk=50)) for _ in range(3)]
        await rig.client.endpoint.send(spender.id, text(2_000), end=False, pad=pad, chunk=50)
        await rig.arrived(3)
        await asyncio.sleep(0.02)
        assert not any(stream.data for stream in rig.server.streams[1:])
        rig.server.connections[0].credit_all()
        assert [reply.data for reply in await asyncio.gather(*waiting)] == [grpc_frame(text(3_000))] * 3
        await rig.settled()  # the spender is still open: its window is compared too
        await rig.client.endpoint.send(spender.id, b"")
        assert len((await spender.finished()).data) == 67_535


async def test_data_that_waited_and_was_reset_gives_its_credit_back(tmp_path: Path) -> None:
    async with asyncio.timeout(HANG_S), rigged(tmp_path, passing(), runtime=STINGY) as rig:
        spender = await _spent(rig)
        given_up = rig.client.open("/a/b")
        await rig.client.endpoint.send(given_up.id, text(40_000), end=False)
        await asyncio.sleep(0.02)
        rig.client.endpoint.reset(given_up.id)
        await (await rig.arrived(1)).until(lambda s: s.reset is not None)
        rig.server.connections[0].credit_all()
        await rig.client.endpoint.send(spender.id, b"")
        assert len((await spender.finished()).data) == 65_535
        assert not rig.server.streams[1].data


@pytest.mark.parametrize("size", [1, 1_000, 16_383, 16_384, 30_000])
@pytest.mark.parametrize("pad", [None, 255])
async def test_each_byte_of_an_open_request_is_given_back_or_owed(tmp_path: Path, size: int, pad: int | None) -> None:
    """While it is held, and after it has gone on."""
    async with asyncio.timeout(HANG_S), rigged(tmp_path, holding(bytes), runtime=STINGY) as rig:
        stream = rig.client.open(CREATE)
        await rig.client.endpoint.send(stream.id, text(size), end=False, pad=pad)
        await rig.settled()
        assert not rig.server.streams[0].data
        rig.relay.set_bypass(True)
        await rig.client.endpoint.send(stream.id, text(size), end=False, pad=pad)
        await (await rig.arrived(0)).until(lambda s: len(s.data) == 2 * size)
        await rig.settled()
        await rig.client.endpoint.send(stream.id, b"")
        assert (await stream.finished()).data == text(2 * size)


async def test_padding_of_a_held_message_does_not_use_up_its_window(tmp_path: Path) -> None:
    scripted = holding(lambda message: message, opened=True)
    async with asyncio.timeout(HANG_S), rigged(tmp_path, scripted, runtime=Tuning(initial_window=1_000)) as rig:
        assert (await rig.client.call(CREATE, text(20_000), pad=255, chunk=40)).messages == [text(20_000)]


async def test_order_is_kept_behind_trailers_that_wait(tmp_path: Path) -> None:
    """Header blocks cannot overtake each other (HPACK), so a held stream's may wait, and its refusal with them."""
    scripted = holding(lambda message: Refuse(8, "no room"), opened=True)
    async with asyncio.timeout(HANG_S), rigged(tmp_path, scripted, runtime=STINGY) as rig:
        spender = await _spent(rig)
        await rig.client.endpoint.send(spender.id, b"behind the window", end=False)
        rig.client.endpoint.send_headers(spender.id, [(b"x-last", b"word")], end=True)
        refused = rig.client.open(CREATE, [(b"x-new", b"field")])
        await rig.client.endpoint.send(refused.id, grpc_frame(b"original"))
        await until(lambda: scripted.asked)
        rig.client.endpoint.change(initial_window_size=100_000)
        rig.client.endpoint.change(initial_window_size=30_000)
        await asyncio.sleep(0.02)
        assert not refused.ended
        rig.server.connections[0].credit_all()
        assert (await refused.finished()).grpc_status == 8
        assert rig.server.streams[1].reset == 8
        assert rig.server.streams[1].header(b"x-new") == b"field"
        assert len((await spender.finished()).data) == 65_535 + 17
        assert rig.server.streams[0].trailers == [(b"x-last", b"word")]


@pytest.mark.parametrize("pad", [None, 0, 200])
@pytest.mark.parametrize("path", [VERSION, CREATE])
async def test_padding_costs_no_window_on_a_stream_that_is_not_edited(
    tmp_path: Path, path: str, pad: int | None
) -> None:
    """Four windows full of a request that is compressed, so that CreateContainer goes on as it comes."""
    body = b"\1" + (65_535 * 4).to_bytes(4) + bytes(65_535 * 4)
    async with asyncio.timeout(HANG_S), rigged(tmp_path, holding(bytes, opened=True)) as rig:
        stream = rig.client.open(path, [(b"grpc-encoding", b"gzip")])
        await rig.client.endpoint.send(stream.id, body, pad=pad, chunk=200)
        assert bytes((await stream.finished()).data) == body

"""A held request reaches the runtime edited, and nothing else on its connection notices."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from runtimeproxy.intercept import StreamPlan, Treatment
from tests.runtimeproxy.relay.endpoint import PeerGone, Stream, Tuning
from tests.runtimeproxy.relay.peers import grpc_frame
from tests.runtimeproxy.relay.rig import CREATE, VERSION, Rig, holding, rigged, text
from tests.support.waiting import HANG_S, until

LIMIT_BYTES = 16 * 1024 * 1024
TIGHT = Tuning(initial_window=1_000)
ROOMY = Tuning(initial_window=1 << 20, connection_window=1 << 22, largest_frame=1 << 17)

edits = [
    pytest.param(1_000, 10, id="shorter"),
    pytest.param(1_000, 1_000, id="same length"),
    pytest.param(10, 1_000, id="longer"),
    pytest.param(0, 100, id="from empty"),
    pytest.param(100, 0, id="to empty"),
    pytest.param(100, 16_384, id="one byte over a frame with its prefix"),
    pytest.param(100, 300_000, id="over the window"),
    pytest.param(300_000, 100, id="from over the window"),
    pytest.param(300_000, 299_000, id="over the window both ways"),
]
tunings = [
    pytest.param(Tuning(), Tuning(), id="defaults"),
    pytest.param(TIGHT, TIGHT, id="tight"),
    pytest.param(ROOMY, TIGHT, id="roomy client"),
    pytest.param(TIGHT, ROOMY, id="roomy runtime"),
]


@pytest.mark.parametrize(("client", "runtime"), tunings)
@pytest.mark.parametrize(("before", "after"), edits)
async def test_the_runtime_gets_the_edited_message(
    tmp_path: Path, before: int, after: int, client: Tuning, runtime: Tuning
) -> None:
    scripted = holding(lambda message: text(after, b"e"), opened=True)
    async with asyncio.timeout(HANG_S), rigged(tmp_path, scripted, client=client, runtime=runtime) as rig:
        reply = await rig.client.call(CREATE, text(before))
        assert scripted.asked == [text(before)]
        assert rig.server.streams[0].messages == reply.messages == [text(after, b"e")]


async def test_what_follows_is_done_once_the_request_has_gone_on_and_may_fail(tmp_path: Path) -> None:
    done: list[int] = []

    def follow() -> None:
        done.append(len(scripted.asked))
        raise ValueError("what follows")

    scripted = holding(lambda message: text(5, b"e"), opened=True)
    scripted.then = follow
    async with asyncio.timeout(HANG_S), rigged(tmp_path, scripted) as rig:
        for _ in range(2):
            assert (await rig.client.call(CREATE, text(3))).messages == [text(5, b"e")]
    assert done == [1, 2]


@pytest.mark.parametrize("chunk", [1, 7, 300])
@pytest.mark.parametrize("pad", [None, 0, 255])
async def test_however_the_client_cuts_and_pads(tmp_path: Path, chunk: int, pad: int | None) -> None:
    scripted = holding(lambda message: message + b"!", opened=True)
    async with asyncio.timeout(HANG_S), rigged(tmp_path, scripted) as rig:
        for number in range(20):
            message = text(20 * chunk + number)
            reply = await rig.client.call(CREATE, message, pad=pad, chunk=chunk)
            assert reply.messages == [message + b"!"]


async def test_other_streams_pass_while_one_is_held(tmp_path: Path) -> None:
    scripted = holding(lambda message: b"edited")
    async with asyncio.timeout(HANG_S), rigged(tmp_path, scripted) as rig:
        held = asyncio.create_task(rig.client.call(CREATE, b"original"))
        for number in range(20):
            reply = await rig.client.call(VERSION, text(number * 5_000))
            assert reply.messages == [text(number * 5_000)]
        assert scripted.asked == [b"original"]
        assert not any(stream.data for stream in rig.server.streams if stream.header(b":path") == CREATE.encode())
        scripted.gate.set()
        assert (await held).messages == [b"edited"]


# --- giving up and going away while a stream is held -------------------------------------------------------------


async def test_a_client_reset_cancels_the_hook_and_resets_the_runtime(tmp_path: Path) -> None:
    scripted = holding(lambda message: b"never")
    async with asyncio.timeout(HANG_S), rigged(tmp_path, scripted) as rig:
        stream = rig.client.open(CREATE)
        await rig.client.endpoint.send(stream.id, grpc_frame(text(50_000)))
        await until(lambda: scripted.asked)
        rig.client.endpoint.reset(stream.id)
        assert (await rig.client.call(VERSION, b"x")).messages == [b"x"]
        assert scripted.cancelled == 1
        assert rig.server.streams[0].reset == 8
        assert not rig.server.streams[0].data


async def test_a_client_reset_in_the_middle_of_a_held_message_gives_its_credit_back(tmp_path: Path) -> None:
    scripted = holding(lambda message: b"never")
    async with asyncio.timeout(HANG_S), rigged(tmp_path, scripted) as rig:
        for _ in range(10):
            stream = rig.client.open(CREATE)
            await rig.client.endpoint.send(stream.id, grpc_frame(text(50_000))[:-1], end=False)
            rig.client.endpoint.reset(stream.id)
        assert (await rig.client.call(VERSION, b"x")).messages == [b"x"]
        assert scripted.asked == []


async def test_a_client_reset_while_the_edited_message_waits_for_the_runtimes_window(tmp_path: Path) -> None:
    scripted = holding(lambda message: text(200_000), opened=True)
    slow = Tuning(credit_batch=None)
    async with asyncio.timeout(HANG_S), rigged(tmp_path, scripted, runtime=slow, settle=False) as rig:
        stream = rig.client.open(CREATE)
        await rig.client.endpoint.send(stream.id, grpc_frame(b"original"))
        held = await rig.arrived(0)
        await held.until(lambda s: len(s.data) == 65_535)
        rig.client.endpoint.reset(stream.id)
        await held.until(lambda s: s.reset is not None)
        held.endpoint.credit(held, held.uncredited)
        assert (await _credited_call(rig, text(60_000))).messages == [text(60_000)]


@pytest.mark.parametrize("who", ["client", "runtime"])
async def test_a_goaway_that_covers_the_held_stream_lets_it_finish(tmp_path: Path, who: str) -> None:
    scripted = holding(lambda message: b"edited")
    async with asyncio.timeout(HANG_S), rigged(tmp_path, scripted) as rig:
        held = asyncio.create_task(rig.client.call(CREATE, b"original"))
        await until(lambda: scripted.asked)
        near, far = rig.client.endpoint, rig.server.connections[0]
        sender, hearer = (near, far) if who == "client" else (far, near)
        sender.goaway(0 if who == "client" else 1)
        await hearer.until(lambda: bool(hearer.goaways))
        scripted.gate.set()
        assert (await held).messages == [b"edited"]


async def test_a_goaway_that_leaves_the_held_stream_out_reaches_the_client_and_nobody_hangs(tmp_path: Path) -> None:
    scripted = holding(lambda message: b"edited")
    async with asyncio.timeout(HANG_S), rigged(tmp_path, scripted, settle=False) as rig:
        held = asyncio.create_task(rig.client.call(CREATE, b"original"))
        await until(lambda: scripted.asked)
        near, far = rig.client.endpoint, rig.server.connections[0]
        far.goaway(0)
        await near.until(lambda: near.goaways == [(0, 0)])
        await far.close()
        with pytest.raises(PeerGone):
            await held
        assert (await (await rig.another()).call(VERSION, b"x")).messages == [b"x"]


@pytest.mark.parametrize("who", ["client", "runtime"])
async def test_an_end_that_vanishes_takes_the_other_with_it(tmp_path: Path, who: str) -> None:
    scripted = holding(lambda message: b"never")
    async with asyncio.timeout(HANG_S), rigged(tmp_path, scripted, settle=False) as rig:
        held = asyncio.create_task(rig.client.call(CREATE, b"original"))
        await until(lambda: scripted.asked)
        near, far = rig.client.endpoint, rig.server.connections[0]
        gone, left = (near, far) if who == "client" else (far, near)
        await gone.close()
        with pytest.raises(PeerGone):
            await left.until(lambda: False)
        with pytest.raises(PeerGone):
            await held
        await until(lambda: scripted.cancelled)


async def test_an_answer_of_the_runtime_while_its_request_is_held_is_passed_on(tmp_path: Path) -> None:
    async def refuse_early(stream: Stream) -> None:
        stream.endpoint.send_headers(stream.id, [(b":status", b"200"), (b"grpc-status", b"8")], end=True)
        stream.endpoint.reset(stream.id)

    scripted = holding(lambda message: b"late")
    async with asyncio.timeout(HANG_S), rigged(tmp_path, scripted, {CREATE: refuse_early}) as rig:
        stream = rig.client.open(CREATE)
        assert (await stream.finished()).grpc_status == 8
        assert (await rig.client.call(VERSION, b"x")).messages == [b"x"]


# --- what is not edited ----------------------------------------------------------------------------------------------

whole = grpc_frame(b"original")
untouchable = [
    pytest.param([(b"content-length", b"13")], whole, id="content-length"),
    pytest.param([(b"grpc-encoding", b"gzip")], grpc_frame(b"squeezed", compressed=True), id="grpc-encoding"),
    pytest.param([(b"grpc-encoding", b"zstd")], whole, id="an encoding nobody knows"),
    pytest.param([], grpc_frame(b"original", compressed=True), id="compressed flag"),
    pytest.param([], whole + grpc_frame(b"second"), id="two messages"),
    pytest.param([], whole[:-1], id="ends inside the message"),
    pytest.param([], whole[:3], id="ends inside the prefix"),
    pytest.param([], whole + b"\0", id="a byte too many"),
    pytest.param([], b"", id="no message"),
]


@pytest.mark.parametrize(("metadata", "body"), untouchable)
async def test_a_request_that_cannot_be_edited_goes_on_as_it_is(
    tmp_path: Path, metadata: list[tuple[bytes, bytes]], body: bytes
) -> None:
    scripted = holding(lambda message: b"edited", opened=True)
    async with asyncio.timeout(HANG_S), rigged(tmp_path, scripted) as rig:
        stream = rig.client.open(CREATE, metadata)
        await rig.client.endpoint.send(stream.id, body)
        assert bytes((await stream.finished()).data) == body


async def test_a_request_that_ends_with_its_headers_is_passed_on(tmp_path: Path) -> None:
    scripted = holding(lambda message: b"edited", opened=True)
    async with asyncio.timeout(HANG_S), rigged(tmp_path, scripted) as rig:
        reply = await rig.client.open(CREATE, end=True).finished()
        assert (reply.grpc_status, bytes(reply.data), scripted.asked) == (0, b"", [])


async def test_grpc_encoding_identity_is_edited(tmp_path: Path) -> None:
    scripted = holding(lambda message: b"edited", opened=True)
    async with asyncio.timeout(HANG_S), rigged(tmp_path, scripted) as rig:
        reply = await rig.client.call(CREATE, b"original", [(b"grpc-encoding", b"identity")])
        assert reply.messages == [b"edited"]


async def test_a_hook_that_raises_lets_the_original_pass(tmp_path: Path) -> None:
    def broken(message: bytes) -> bytes:
        raise ValueError("a bug of ours")

    async with asyncio.timeout(HANG_S), rigged(tmp_path, holding(broken, opened=True)) as rig:
        assert (await rig.client.call(CREATE, b"original")).messages == [b"original"]


async def test_a_hook_that_raises_is_a_refusal_where_a_policy_says_fail(tmp_path: Path) -> None:
    def broken(message: bytes) -> bytes:
        raise ValueError("a bug of ours")

    plan = StreamPlan(Treatment.HOLD, fail_closed=True)
    async with asyncio.timeout(HANG_S), rigged(tmp_path, holding(broken, opened=True, plan=plan)) as rig:
        reply = await rig.client.call(CREATE, b"original")
        assert reply.grpc_status not in (0, None)
        assert not rig.server.streams[0].data


@pytest.mark.parametrize("fail_closed", [False, True])
async def test_an_edit_beyond_16_mib_is_not_made(tmp_path: Path, fail_closed: bool) -> None:
    plan = StreamPlan(Treatment.HOLD, fail_closed=fail_closed)
    original = text(LIMIT_BYTES - 3)
    scripted = holding(lambda message: message + b"too much", opened=True, plan=plan)
    async with asyncio.timeout(15), rigged(tmp_path, scripted) as rig:
        reply = await rig.client.call(CREATE, original)
        if fail_closed:
            assert reply.grpc_status not in (0, None)
        else:
            assert reply.messages == [original]


@pytest.mark.parametrize("fail_closed", [False, True])
async def test_what_exceeds_the_budget_is_not_held(tmp_path: Path, fail_closed: bool) -> None:
    scripted = holding(lambda message: b"edited", plan=StreamPlan(Treatment.HOLD, fail_closed=fail_closed))
    async with asyncio.timeout(HANG_S), rigged(tmp_path, scripted, held_budget_bytes=280_000) as rig:
        within = [asyncio.create_task(rig.client.call(CREATE, text(100_000))) for _ in range(2)]
        await until(lambda: len(scripted.asked) == 2)
        beyond = await rig.client.call(CREATE, text(100_000))
        assert (beyond.grpc_status, len(beyond.data)) == ((8, 0) if fail_closed else (0, 100_005))
        scripted.gate.set()
        assert [reply.messages for reply in await asyncio.gather(*within)] == [[b"edited"]] * 2
        long = await rig.client.call(CREATE, text(1 << 20))  # found too long when much of it is held already
        assert (long.grpc_status, len(long.data)) == ((8, 0) if fail_closed else (0, (1 << 20) + 5))
        later = [rig.client.call(CREATE, text(100_000)) for _ in range(2)]
        assert [reply.messages for reply in await asyncio.gather(*later)] == [[b"edited"]] * 2


async def test_trailers_of_the_client_follow_the_message_which_is_not_edited(tmp_path: Path) -> None:
    scripted = holding(lambda message: b"edited", opened=True)
    async with asyncio.timeout(HANG_S), rigged(tmp_path, scripted) as rig:
        stream = rig.client.open(CREATE)
        await rig.client.endpoint.send(stream.id, grpc_frame(text(100_000)), end=False)
        rig.client.endpoint.send_headers(stream.id, [(b"x-last", b"word")], end=True)
        assert (await stream.finished()).messages == [text(100_000)]
        assert rig.server.streams[0].trailers == [(b"x-last", b"word")]


# --- what the interceptor is told ------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 100, 500_000])
async def test_a_tapped_request_passes_and_is_copied(tmp_path: Path, size: int) -> None:
    scripted = holding(lambda message: message, plan=StreamPlan(Treatment.TAP, wants_answer=True))
    async with asyncio.timeout(HANG_S), rigged(tmp_path, scripted) as rig:
        assert (await rig.client.call(CREATE, text(size), chunk=7_000, pad=3)).messages == [text(size)]
        assert scripted.tapped_messages == [text(size)]
        assert scripted.answers == [(CREATE, 0, text(size))]
        assert scripted.asked == []


@pytest.mark.parametrize(("wants", "status", "told"), [(True, 0, b"id"), (False, 0, None), (True, 5, None)])
async def test_the_interceptor_hears_the_answer(tmp_path: Path, wants: bool, status: int, told: bytes | None) -> None:
    async def respond(stream: Stream) -> None:
        await stream.finished()
        stream.endpoint.send_headers(stream.id, [(b":status", b"200")])
        await stream.endpoint.send(stream.id, grpc_frame(b"id"), end=False, chunk=2)
        stream.endpoint.send_headers(stream.id, [(b"grpc-status", str(status).encode())], end=True)

    scripted = holding(lambda message: message, opened=True, plan=StreamPlan(Treatment.HOLD, wants_answer=wants))
    async with asyncio.timeout(HANG_S), rigged(tmp_path, scripted, {CREATE: respond}) as rig:
        assert (await rig.client.call(CREATE, b"original")).grpc_status == status
        assert scripted.answers == [(CREATE, status, told)]


async def test_draining_lets_a_held_call_finish_and_then_closes(tmp_path: Path) -> None:
    scripted = holding(lambda message: b"edited")
    async with asyncio.timeout(HANG_S), rigged(tmp_path, scripted, settle=False) as rig:
        held = asyncio.create_task(rig.client.call(CREATE, b"original"))
        await until(lambda: scripted.asked)
        rig.relay.drain()
        near = rig.client.endpoint
        await near.until(lambda: bool(near.goaways))
        scripted.gate.set()
        assert (await held).messages == [b"edited"]
        await rig.relay.drained(5.0)
        with pytest.raises(PeerGone):
            await near.until(lambda: False)


async def _credited_call(rig: Rig, message: bytes) -> Stream:
    """A Version call to a runtime that credits nothing by itself."""
    call = asyncio.create_task(rig.client.call(VERSION, message))
    while not call.done():
        for stream in rig.server.streams:
            if stream.uncredited:
                stream.endpoint.credit(stream, stream.uncredited)
        await asyncio.sleep(0)
    return await call

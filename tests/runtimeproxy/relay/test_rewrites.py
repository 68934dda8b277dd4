"""Answers that are rewritten: the client gets other bytes, as many of them, and neither end's books notice."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from runtimeproxy.intercept import StreamPlan, Treatment
from runtimeproxy.relay.rewrites import FRAME_BYTES, MOST_BYTES, PATIENCE_S
from tests.runtimeproxy.relay.endpoint import Stream, Tuning
from tests.runtimeproxy.relay.peers import Handler, answer, grpc_frame
from tests.runtimeproxy.relay.rig import VERSION, Rig, Scripted, rigged, text
from tests.support.waiting import HANG_S, until

STATUS = "/runtime.v1.RuntimeService/ContainerStatus"
TOO_LONG, LATE, MEMORY = "over half of the client's window", "late", "held bytes over budget"
LONGEST = MOST_BYTES - 2 * (9 + FRAME_BYTES)  # two frames, and what the last one needs
LARGE_FRAMES = Tuning(largest_frame=1 << 20, initial_window=1 << 20, connection_window=1 << 20)


def rewriting() -> Scripted:
    return Scripted({STATUS: StreamPlan(Treatment.REWRITE)}, rewrite=bytes.swapcase)


def answering(*messages: bytes, chunk: int = 1 << 20, pad: int | None = None, compressed: bool = False) -> Handler:
    """A runtime whose answer is these messages, in DATA frames of at most ``chunk`` bytes, each padded by ``pad``."""

    async def handle(stream: Stream) -> None:
        await stream.finished()
        endpoint = stream.endpoint
        endpoint.send_headers(stream.id, [(b":status", b"200")])
        body = b"".join(grpc_frame(message, compressed=compressed) for message in messages)
        await endpoint.send(stream.id, body, end=False, pad=pad, chunk=chunk)
        endpoint.send_headers(stream.id, [(b"grpc-status", b"0")], end=True)

    return handle


def beginning(begin: bytes) -> Handler:
    """A runtime that sends the begin of an answer, and then nothing."""

    async def handle(stream: Stream) -> None:
        await stream.finished()
        stream.endpoint.send_headers(stream.id, [(b":status", b"200")])
        await stream.endpoint.send(stream.id, begin, end=False)

    return handle


def not_rewritten(rig: Rig) -> dict[str, int]:
    return dict(rig.watched.pair.metrics.not_rewritten)


@pytest.mark.parametrize("pad", [None, 0, 255])
@pytest.mark.parametrize("chunk", [1, 4, 5, 6, 100, 1 << 20])
@pytest.mark.parametrize(
    "messages",
    [
        pytest.param([b""], id="an empty message"),
        pytest.param([b"Status"], id="one"),
        pytest.param([b"One", b"", b"Two" * 20], id="several"),
        pytest.param([text(50, b"S")], id="of many frames"),
    ],
)
async def test_each_message_is_rewritten_however_it_is_cut(
    tmp_path: Path, messages: list[bytes], chunk: int, pad: int | None
) -> None:
    handlers = {STATUS: answering(*messages, chunk=chunk, pad=pad)}
    async with asyncio.timeout(HANG_S), rigged(tmp_path, rewriting(), handlers) as rig:
        reply = await rig.client.call(STATUS, b"id")
        assert reply.messages == [message.swapcase() for message in messages]
        assert reply.grpc_status == 0
        assert not_rewritten(rig) == {}


async def test_other_answers_pass_as_they_are(tmp_path: Path) -> None:
    handlers = {STATUS: answering(b"Status"), VERSION: answering(b"Version")}
    async with asyncio.timeout(HANG_S), rigged(tmp_path, rewriting(), handlers) as rig:
        replies = await asyncio.gather(*(rig.client.call(path, b"id") for path in (VERSION, STATUS) * 20))
        assert [reply.messages for reply in replies] == [[b"Version"], [b"sTATUS"]] * 20


@pytest.mark.parametrize(
    ("handler", "client", "told", "reasons"),
    [
        pytest.param(answering(b"Status", compressed=True), None, b"Status", {"compressed": 1}, id="compressed"),
        pytest.param(answering(text(LONGEST, b"S")), None, text(LONGEST, b"s"), {}, id="longest"),
        pytest.param(answering(text(MOST_BYTES, b"S")), None, text(MOST_BYTES, b"S"), {TOO_LONG: 1}, id="too long"),
        pytest.param(
            answering(text(200, b"S"), chunk=1), None, text(200, b"S"), {TOO_LONG: 1}, id="in too many pieces"
        ),
        pytest.param(answering(text(500_000, b"S")), None, text(500_000, b"S"), {TOO_LONG: 1}, id="over all windows"),
        pytest.param(
            answering(text(500_000, b"S")), LARGE_FRAMES, text(500_000, b"s"), {}, id="long, and in one frame"
        ),
        pytest.param(
            answering(text(60, b"S"), chunk=20), Tuning(initial_window=100), text(60, b"S"), {TOO_LONG: 1},
            id="a client with small windows",
        ),
    ],
)  # fmt: skip
async def test_what_is_not_rewritten_goes_on_as_it_came(
    tmp_path: Path, handler: Handler, client: Tuning | None, told: bytes, reasons: dict[str, int]
) -> None:
    async with asyncio.timeout(HANG_S), rigged(tmp_path, rewriting(), {STATUS: handler}, client=client) as rig:
        reply = await rig.client.call(STATUS, b"id")
        assert bytes(reply.data[5:]) == told
        assert not_rewritten(rig) == reasons


async def test_a_rewrite_of_another_length_is_not_taken(tmp_path: Path) -> None:
    scripted = rewriting()
    scripted.rewrite = lambda message: message + b"!"
    async with asyncio.timeout(HANG_S), rigged(tmp_path, scripted, {STATUS: answering(b"Status")}) as rig:
        assert (await rig.client.call(STATUS, b"id")).messages == [b"Status"]


async def test_a_client_that_credits_late_gets_all_of_its_answer(tmp_path: Path) -> None:
    """It gives nothing back before it has received as much as it allows: what waits in the relay is part of that."""
    client = Tuning(credit_batch=65_535)
    handlers = {STATUS: answering(text(30_000, b"S"), chunk=10_000), VERSION: answering(text(50_000, b"V"))}
    async with asyncio.timeout(HANG_S), rigged(tmp_path, rewriting(), handlers, client=client, settle=False) as rig:
        for path, told in ((VERSION, b"V"), (STATUS, b"S")):
            reply = await rig.client.call(path, b"id")
            assert bytes(reply.data[5:]).upper() == text(len(reply.data) - 5, told)


async def test_an_answer_that_does_not_go_on_is_passed_on_in_time(tmp_path: Path) -> None:
    handlers = {STATUS: beginning(grpc_frame(b"Status")[:8])}
    async with asyncio.timeout(HANG_S), rigged(tmp_path, rewriting(), handlers, settle=False) as rig:
        stream = rig.client.open(STATUS)
        await rig.client.endpoint.send(stream.id, grpc_frame(b"id"))
        await stream.until(lambda s: bool(s.headers))
        assert not stream.data
        begun = asyncio.get_running_loop().time()
        await stream.until(lambda s: len(s.data) == 8)
        assert asyncio.get_running_loop().time() - begun < 20 * PATIENCE_S
        assert not_rewritten(rig) == {LATE: 1}


@pytest.mark.parametrize("who", ["client resets", "runtime resets", "runtime ends"])
async def test_every_byte_that_waited_reaches_the_client(tmp_path: Path, who: str) -> None:
    handlers = {STATUS: beginning(grpc_frame(b"Status")[:8])}
    async with asyncio.timeout(HANG_S), rigged(tmp_path, rewriting(), handlers) as rig:
        stream = rig.client.open(STATUS)
        await rig.client.endpoint.send(stream.id, grpc_frame(b"id"))
        await until(lambda: rig.watched.pair.share.copied_bytes or stream.data)  # on a busy machine it waited already
        (runtime,) = rig.server.connections
        if who == "client resets":
            rig.client.endpoint.reset(stream.id)
        elif who == "runtime resets":
            runtime.reset(stream.id)
        else:
            runtime.send_headers(stream.id, [(b"grpc-status", b"13")], end=True)
        if who != "client resets":
            await stream.finished()
            assert bytes(stream.data) == grpc_frame(b"Status")[:8]
        await until(lambda: not rig.watched.pair.share.copied_bytes)
        assert (await rig.client.call(VERSION, b"v")).messages == [b"v"]


async def test_what_waits_counts_against_the_budget_and_gives_way(tmp_path: Path) -> None:
    handlers = {STATUS: beginning(grpc_frame(text(3_000, b"S"))[:2_000])}
    async with (
        asyncio.timeout(HANG_S),
        rigged(tmp_path, rewriting(), handlers, settle=False, held_budget_bytes=1_000) as rig,
    ):
        stream = rig.client.open(STATUS)
        await rig.client.endpoint.send(stream.id, grpc_frame(b"id"))
        await stream.until(lambda s: len(s.data) == 2_000)
        assert not_rewritten(rig) == {MEMORY: 1}
        assert rig.watched.pair.policy.budget.used_bytes == 0


async def test_answers_of_one_connection_together_keep_no_more_than_half_of_its_window(tmp_path: Path) -> None:
    handlers = {STATUS: beginning(grpc_frame(text(12_000, b"S"))[:10_000])}
    async with asyncio.timeout(HANG_S), rigged(tmp_path, rewriting(), handlers, settle=False) as rig:
        streams = [rig.client.open(STATUS) for _ in range(6)]
        for stream in streams:
            await rig.client.endpoint.send(stream.id, grpc_frame(b"id"))
        await until(lambda: rig.watched.pair.metrics.not_rewritten[TOO_LONG])
        assert rig.watched.pair.share.copied_bytes <= MOST_BYTES
        await asyncio.gather(*(stream.until(lambda s: len(s.data) == 10_000) for stream in streams))


async def test_a_compressed_and_a_plain_message_of_one_answer_are_told_apart(tmp_path: Path) -> None:
    body = grpc_frame(b"Compressed", compressed=True) + grpc_frame(b"Plain")

    async def handle(stream: Stream) -> None:
        await stream.finished()
        await answer(stream, body)

    async with asyncio.timeout(HANG_S), rigged(tmp_path, rewriting(), {STATUS: handle}) as rig:
        reply = await rig.client.call(STATUS, b"id")
        assert bytes(reply.data) == body.replace(b"Plain", b"pLAIN")


async def test_what_waits_does_not_come_behind_the_acknowledgement_of_a_smaller_window(tmp_path: Path) -> None:
    """The runtime has sent more than that before it knew: the client closes a connection that sends it later."""
    begun = asyncio.Event()

    async def handle(stream: Stream) -> None:
        await stream.finished()
        stream.endpoint.send_headers(stream.id, [(b":status", b"200")])
        message = grpc_frame(text(5000, b"S"))
        await stream.endpoint.send(stream.id, message[:3000], end=False)
        begun.set()
        await asyncio.sleep(PATIENCE_S / 5)
        await stream.endpoint.send(stream.id, message[3000:], end=False)
        stream.endpoint.send_headers(stream.id, [(b"grpc-status", b"0")], end=True)

    async with asyncio.timeout(HANG_S), rigged(tmp_path, rewriting(), {STATUS: handle}) as rig:
        call = asyncio.create_task(rig.client.call(STATUS, b"id"))
        await begun.wait()
        rig.client.endpoint.change(initial_window_size=100)
        reply = await call
        assert bytes(reply.data[5:]) == text(5000, b"S")
        assert not_rewritten(rig) == {"smaller client window": 1}

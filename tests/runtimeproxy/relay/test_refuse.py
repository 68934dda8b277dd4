"""A refused request never reaches the runtime, and the connection is as good afterwards as before.

The runtime sees HEADERS and a reset; the client sees the status. What makes this hard is HPACK: an answer that the
runtime wrote before it read the reset has changed a table that client and runtime share.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from koord.http2.grpc import MAX_TEXT_BYTES
from runtimeproxy.intercept import Refuse
from tests.runtimeproxy.relay.endpoint import ACK, RST_STREAM, SETTINGS, Endpoint, Stream, Tuning
from tests.runtimeproxy.relay.ledger import End
from tests.runtimeproxy.relay.peers import ANY, grpc_frame
from tests.runtimeproxy.relay.rig import CREATE, VERSION, Rig, Scripted, holding, rigged
from tests.support.waiting import HANG_S, until


def refusing(code: int = 8, text: str = "no room") -> Scripted:
    return holding(lambda message: Refuse(code, text), opened=True)


@pytest.mark.parametrize(
    ("code", "text", "encoded"),
    [
        (8, "no room", b"no room"),
        (14, "", b""),
        (13, "hook server err: 100 %\nof ü", b"hook server err: 100 %25%0Aof %C3%BC"),
        (2, "x" * 5_000, b"x" * 5_000),
        (14, "x" * 20_000, b"x" * MAX_TEXT_BYTES),
        (14, "ü" * 20_000, b"%C3%BC" * (MAX_TEXT_BYTES // 6)),
    ],
)
async def test_the_client_gets_status_and_message(tmp_path: Path, code: int, text: str, encoded: bytes) -> None:
    async with asyncio.timeout(HANG_S), rigged(tmp_path, refusing(code, text)) as rig:
        reply = await rig.client.call(CREATE, b"original")
        assert (reply.grpc_status, reply.header(b"grpc-message") or b"") == (code, encoded)
        assert (reply.header(b":status"), bytes(reply.data)) == (b"200", b"")
        assert reply.header(b"content-type") == b"application/grpc"
        await until(lambda: rig.server.streams[0].reset is not None)
        assert not rig.server.streams[0].data


async def test_refusals_leave_header_compression_in_step(tmp_path: Path) -> None:
    """Fresh headers in both directions after every refusal; one lost table entry would garble all that follow."""

    async def tell(stream: Stream) -> None:
        number = stream.header(b"x-number") or b""
        stream.endpoint.send_headers(stream.id, [(b":status", b"200"), (b"x-answer-" + number, b"a" + number)])
        await stream.finished()
        if stream.reset is None:
            stream.endpoint.send_headers(stream.id, [(b"grpc-status", b"0"), (b"x-last", b"t" + number)], end=True)

    async with asyncio.timeout(HANG_S), rigged(tmp_path, refusing(), {ANY: tell}) as rig:
        for number in range(150):
            word = str(number).encode()
            path = CREATE if number % 3 == 0 else VERSION
            reply = await rig.client.call(path, b"m", [(b"x-number", word), (b"x-" + word, b"new")])
            assert reply.grpc_status == (8 if path == CREATE else 0)
            if path == VERSION:
                assert reply.header(b"x-answer-" + word) == b"a" + word
                assert reply.header(b"x-last") == b"t" + word
        assert rig.server.streams[-1].header(b"x-149") == b"new"


@pytest.mark.parametrize("first", ["refusal", "answer"])
@pytest.mark.parametrize("changes", [[], [0], [64], [1_024], [4_096], [65_536], [0, 4_096], [65_536, 300]])
@pytest.mark.parametrize("start", [0, 64, 1_024, 4_096, 65_536])
async def test_a_refusal_keeps_to_the_clients_header_table(
    tmp_path: Path, start: int, changes: list[int], first: str
) -> None:
    """The client is strict: after it has lowered its table's size the next block must begin by saying so."""

    async def tell(stream: Stream) -> None:
        await stream.finished()
        fields = [(b":status", b"200"), (b"x-%d" % stream.id, b"a new entry"), (b"x-always", b"the same")]
        if stream.reset is None:
            stream.endpoint.send_headers(stream.id, [*fields, (b"grpc-status", b"0")], end=True)

    tuning = Tuning(header_table=start)
    async with asyncio.timeout(HANG_S), rigged(tmp_path, refusing(), {VERSION: tell}, client=tuning) as rig:
        near = rig.client.endpoint
        if first == "answer":
            assert (await rig.client.call(VERSION, b"x")).grpc_status == 0
        for change in changes:
            near.change(header_table_size=change)
        size = changes[-1] if changes else start
        await near.until(lambda: near.h2.local_settings.header_table_size == size)
        for path in (CREATE, CREATE, VERSION, VERSION, CREATE, VERSION):
            reply = await rig.client.call(path, b"x")
            assert reply.grpc_status == (8 if path == CREATE else 0)
            assert path == CREATE or reply.header(b"x-%d" % reply.id) == b"a new entry"
        assert not rig.relay.metrics.blind_connections


async def test_a_table_that_shrinks_behind_the_last_answer_is_minded(tmp_path: Path) -> None:
    """The runtime's answer and its acknowledgement of the smaller table may come in one read."""
    async with asyncio.timeout(HANG_S), rigged(tmp_path, refusing(), {VERSION: _late}) as rig:
        near, far = rig.client.endpoint, rig.server.connections[0]
        for size in (1_000, 0):
            late = rig.client.open(VERSION, end=True)
            await (await rig.arrived(late.id // 2)).until(lambda s: s.ended)
            far.park = lambda kind, flags, stream_id: kind == SETTINGS and not flags & ACK
            near.change(header_table_size=size)
            await until(lambda: far.parked)
            far.send_headers(late.id, [(b"grpc-status", b"0"), (b"x-%d" % size, b"a new entry")], end=True)
            far.read_again()
            assert (await late.finished()).grpc_status == 0
            assert (await rig.client.call(CREATE, b"x")).grpc_status == 8


async def test_many_at_once_and_others_between(tmp_path: Path) -> None:
    async with asyncio.timeout(HANG_S), rigged(tmp_path, refusing()) as rig:
        calls = [rig.client.call(CREATE if n % 2 else VERSION, b"%d" % n) for n in range(100)]
        replies = await asyncio.gather(*calls)
        assert [reply.grpc_status for reply in replies] == [8 if n % 2 else 0 for n in range(100)]


async def test_headers_that_the_runtime_sent_early_are_followed_by_the_status(tmp_path: Path) -> None:
    async def eager(stream: Stream) -> None:
        stream.endpoint.send_headers(stream.id, [(b":status", b"200"), (b"x-eager", b"yes")])

    scripted = holding(lambda message: Refuse(8, "no room"))
    async with asyncio.timeout(HANG_S), rigged(tmp_path, scripted, {CREATE: eager}) as rig:
        stream = rig.client.open(CREATE)
        await rig.client.endpoint.send(stream.id, grpc_frame(b"original"))
        await stream.until(lambda s: bool(s.headers))
        scripted.gate.set()
        assert (await stream.finished()).grpc_status == 8
        assert stream.header(b"x-eager") == b"yes"
        assert (await rig.client.call(VERSION, b"x")).messages == [b"x"]


@pytest.mark.parametrize("data_bytes", [0, 10, 60_000])
async def test_an_answer_sent_before_the_runtime_read_the_reset_wins(tmp_path: Path, data_bytes: int) -> None:
    async with asyncio.timeout(HANG_S), rigged(tmp_path, refusing(), {CREATE: _nothing}) as rig:
        stream, far = await _refused_but_unread(rig)
        far.send_headers(stream.id, [(b":status", b"200"), (b"x-new", b"in the table")])
        await far.send(stream.id, grpc_frame(b"d" * data_bytes), end=False)
        far.send_headers(stream.id, [(b"grpc-status", b"3"), (b"x-other", b"in the table")], end=True)
        far.read_again()
        reply = await stream.finished()
        assert (reply.grpc_status, reply.messages) == (3, [b"d" * data_bytes])
        for _ in range(3):
            later = await rig.client.call(VERSION, b"x", [(b"x-new", b"in the table")])
            assert later.messages == [b"x"]


async def test_half_an_answer_is_ended_by_the_refusal(tmp_path: Path) -> None:
    """DATA of a refused stream counts in the connection window even where the client never gets it."""
    async with asyncio.timeout(HANG_S), rigged(tmp_path, refusing(), {CREATE: _nothing}) as rig:
        for _ in range(4):
            stream, far = await _refused_but_unread(rig)
            far.send_headers(stream.id, [(b":status", b"200"), (b"x-half", b"an answer")])
            await far.send(stream.id, grpc_frame(b"d" * 30_000), end=False)
            far.read_again()
            assert (await stream.finished()).grpc_status == 8
            assert (await rig.client.call(VERSION, b"x" * 60_000)).messages == [b"x" * 60_000]


async def test_a_reset_by_the_runtime_that_crosses_the_refusal(tmp_path: Path) -> None:
    async with asyncio.timeout(HANG_S), rigged(tmp_path, refusing(), {CREATE: _nothing}) as rig:
        stream, far = await _refused_but_unread(rig)
        far.reset(stream.id)
        far.read_again()
        await stream.finished()
        assert stream.reset is not None or stream.grpc_status == 8
        assert (await rig.client.call(VERSION, b"x")).messages == [b"x"]


async def test_a_client_reset_that_crosses_the_refusal(tmp_path: Path) -> None:
    async with asyncio.timeout(HANG_S), rigged(tmp_path, refusing(), {CREATE: _nothing}) as rig:
        stream, far = await _refused_but_unread(rig)
        rig.client.endpoint.reset(stream.id)
        await asyncio.sleep(0.02)
        far.read_again()
        assert (await rig.client.call(VERSION, b"x")).messages == [b"x"]
        await asyncio.sleep(0.02)
        assert rig.client.endpoint.fault is None


async def test_settings_acknowledgements_keep_their_order(tmp_path: Path) -> None:
    """Barrier, then the client's SETTINGS: the client's new window must not count before *its own* ACK."""
    async with asyncio.timeout(HANG_S), rigged(tmp_path, refusing(), {VERSION: _late}) as rig:
        far = rig.server.connections[0]
        late = rig.client.open(VERSION, end=True)
        await until(lambda: len(far.streams) == 1)
        far.park = lambda kind, flags, stream_id: kind == SETTINGS and not flags & ACK
        refused = asyncio.create_task(rig.client.call(CREATE, b"original"))
        await until(lambda: far.parked)
        rig.client.endpoint.change(initial_window_size=0)
        rig.client.endpoint.change(initial_window_size=100_000)
        await asyncio.sleep(0.02)
        far.read_one()  # the barrier, and only that, is acknowledged
        assert (await refused).grpc_status == 8
        await far.send(late.id, b"d" * 65_535, end=False)  # legal: the client's zero window is not acknowledged
        await late.until(lambda s: len(s.data) == 65_535)
        far.read_again()
        await rig.client.endpoint.until(lambda: rig.client.endpoint.h2.local_settings.initial_window_size == 100_000)
        assert rig.client.endpoint.fault is None
        far.send_headers(late.id, [(b"grpc-status", b"0")], end=True)
        await late.finished()


async def test_the_barrier_is_acknowledged_once_and_not_to_the_client(tmp_path: Path) -> None:
    async with asyncio.timeout(HANG_S), rigged(tmp_path, refusing()) as rig:
        for _ in range(5):
            assert (await rig.client.call(CREATE, b"original")).grpc_status == 8
        sent = [(end, kind) for end, kind, _ in rig.ledger.near.frames if kind == "SettingsFrame"]
        assert sent.count((End.CLIENT, "SettingsFrame")) == sent.count((End.RUNTIME, "SettingsFrame")) == 2
        assert 1 <= rig.ledger.barriers() <= 5


async def test_a_refused_stream_does_not_stop_others_whose_windows_are_tight(tmp_path: Path) -> None:
    tight = Tuning(initial_window=500)
    async with asyncio.timeout(HANG_S), rigged(tmp_path, refusing(), client=tight, runtime=tight) as rig:
        calls = [rig.client.call(CREATE if n % 2 else VERSION, b"m" * 3_000) for n in range(20)]
        assert [reply.grpc_status for reply in await asyncio.gather(*calls)] == [8 if n % 2 else 0 for n in range(20)]


async def _refused_but_unread(rig: Rig) -> tuple[Stream, Endpoint]:
    """A refused call whose reset lies unread before the runtime; the runtime's end, to answer from."""
    far = rig.server.connections[0]
    far.park = lambda kind, flags, stream_id: kind == RST_STREAM
    stream = rig.client.open(CREATE)
    await rig.client.endpoint.send(stream.id, grpc_frame(b"original"))
    await until(lambda: far.parked)
    return stream, far


async def _nothing(stream: Stream) -> None:
    """The test writes the answer itself."""


async def _late(stream: Stream) -> None:
    stream.endpoint.send_headers(stream.id, [(b":status", b"200")])

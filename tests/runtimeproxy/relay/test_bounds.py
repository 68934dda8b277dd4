"""What a connection can make the relay keep is bounded, and costs the others nothing.

Sizes and counts of what is kept are compared, not the process's memory (that is in test_malformed).
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koord.http2.frames import ENHANCE_YOUR_CALM
from koord.http2.link import HIGH_WATER_BYTES
from koord.http2.reading import READ_BYTES
from runtimeproxy.intercept import Call, StreamPlan, Treatment
from runtimeproxy.relay import budget as budgets
from runtimeproxy.relay.budget import ASKING_BYTES, CONNECTION_BYTES, STREAM_BYTES, Budget
from runtimeproxy.relay.connection import RelayedConnection
from runtimeproxy.relay.policy import CREDIT_BATCH_BYTES, MAX_LABELS, MAX_PATH_BYTES, MAX_UNACKNOWLEDGED
from runtimeproxy.relay.requests import MAX_STREAMS
from runtimeproxy.relay.server import RelayServer
from runtimeproxy.relay.stream import MAX_ANSWER_BYTES, Route, Stream, StreamState
from tests.runtimeproxy.relay.endpoint import PeerGone, Tuning
from tests.runtimeproxy.relay.ledger import FrameCutter
from tests.runtimeproxy.relay.peers import Client, grpc_frame
from tests.runtimeproxy.relay.raw import (
    DATA,
    END_HEADERS,
    GOAWAY,
    HEADERS,
    OPENING,
    PING,
    SETTINGS,
    WINDOW_UPDATE,
    Sink,
    frame,
    headers,
    request_block,
    window_update,
)
from tests.runtimeproxy.relay.rig import CREATE, HOLD, VERSION, Rig, Scripted, holding, passing, relaying, rigged, text
from tests.support.waiting import HANG_S, until

STOP = "/runtime.v1.RuntimeService/StopContainer"
TAP = StreamPlan(Treatment.TAP)
MIB = 1 << 20


class Raw:
    """A client that writes what it likes, and reads when it likes, beside a runtime that swallows everything."""

    def __init__(self, relay: RelayServer, connection: socket.socket, sinks: list[Sink]) -> None:
        self.relay, self.socket, self.sinks = relay, connection, sinks

    @property
    def connection(self) -> RelayedConnection:
        (connection,) = self.relay.connections
        return connection

    async def send(self, data: bytes) -> None:
        await asyncio.get_running_loop().sock_sendall(self.socket, data)

    async def send_what_is_taken(self, data: bytes) -> None:
        """Until all is sent or nobody takes any of it any more."""
        with contextlib.suppress(TimeoutError, ConnectionError):
            async with asyncio.timeout(1.0):
                await self.send(data)

    async def frames(self) -> list[bytes]:
        """Those that have come by now, and those that come until there is a pause."""
        cutter, found = FrameCutter(preface=False), list[bytes]()
        with contextlib.suppress(TimeoutError, ConnectionError):
            while True:
                async with asyncio.timeout(0.2):
                    data = await asyncio.get_running_loop().sock_recv(self.socket, 1 << 18)
                if not data:
                    break
                found += cutter.feed(data)
        return found


@contextlib.asynccontextmanager
async def attacking(
    directory: Path, scripted: Scripted, budget_bytes: int = 8 * MIB, **sink: bool
) -> AsyncIterator[Raw]:
    sinks: list[Sink] = []

    def accept() -> Sink:
        sinks.append(Sink(**sink))
        return sinks[-1]

    server = await asyncio.get_running_loop().create_unix_server(accept, str(directory / "r"))
    async with asyncio.timeout(HANG_S), relaying(directory / "p", directory / "r", scripted, 8 * MIB) as relay:
        with socket.socket(socket.AF_UNIX) as client:
            client.setblocking(False)
            client.connect(str(directory / "p"))
            raw = Raw(relay, client, sinks)
            await raw.send(OPENING)
            await until(lambda: sinks and sinks[0].connected)
            yield raw
    server.close()


# --- a held request ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("treatment", [Treatment.HOLD, Treatment.TAP])
@pytest.mark.parametrize("size", [0, 1, 2, 100])
async def test_of_a_request_in_many_pieces_only_the_bytes_are_kept(
    tmp_path: Path, size: int, treatment: Treatment
) -> None:
    pieces = 500 if size == 100 else 20_000  # within the window of a runtime that gives nothing back
    scripted = Scripted({CREATE: StreamPlan(treatment)})
    async with attacking(tmp_path, scripted) as raw:
        await raw.send(headers(1, CREATE))
        for _ in range(pieces // 100):  # in time with what is given back, as the connection's window demands
            await raw.send(frame(DATA, 0, 1, b"z" * size) * 100)
        await until(lambda: size == 0 or raw.relay.metrics.held_bytes == pieces * size)
        stream = raw.connection.pair.streams[1]
        assert isinstance(stream, Stream)
        assert isinstance(stream.data, bytearray) == (size > 0)
        assert len(stream.data) == stream.held_bytes == pieces * size
        connection_bytes = CONNECTION_BYTES if treatment is Treatment.HOLD else 0
        assert raw.relay.policy.budget.used_bytes == connection_bytes + STREAM_BYTES + pieces * size


async def test_credit_for_a_held_request_comes_in_batches(tmp_path: Path) -> None:
    async with attacking(tmp_path, holding(bytes)) as raw:
        await raw.send(headers(1, CREATE) + frame(DATA, 0, 1, b"z") * 60_000)
        await until(lambda: raw.relay.metrics.held_bytes == 60_000)
        updates = [each for each in await raw.frames() if each[3] == WINDOW_UPDATE]
        assert len(updates) == 2 * (60_000 // CREDIT_BATCH_BYTES)
        stream = raw.connection.pair.streams[1]
        assert isinstance(stream, Stream)
        assert stream.owed_bytes == 60_000 % CREDIT_BATCH_BYTES == raw.connection.pair.credit_bytes


@pytest.mark.parametrize("window", [1, 3, 100, 65_535])
async def test_credit_in_batches_stops_nobody_whose_window_is_small(tmp_path: Path, window: int) -> None:
    scripted = holding(lambda message: message, opened=True)
    async with asyncio.timeout(HANG_S), rigged(tmp_path, scripted, runtime=Tuning(initial_window=window)) as rig:
        assert (await rig.client.call(CREATE, text(20 * window))).messages == [text(20 * window)]
        rig.server.connections[0].change(initial_window_size=100)
        assert (await rig.client.call(CREATE, text(2_000))).messages == [text(2_000)]


async def test_a_frame_in_many_reads_costs_its_bytes(tmp_path: Path) -> None:
    async with attacking(tmp_path, passing()) as raw:
        await raw.send(frame(HEADERS, END_HEADERS, 1, bytes(10_000))[:5])
        for _ in range(2_000):
            await raw.send(b"z")
            await asyncio.sleep(0)
        rest = raw.connection.requests._rest
        await until(lambda: len(rest) == 2_005)
        assert isinstance(rest, bytearray)


@pytest.mark.parametrize("read_bytes", [READ_BYTES, READ_BYTES - 1])
@pytest.mark.parametrize("is_paused", [True, False])
async def test_a_client_that_has_sent_much_waits_for_its_turn(tmp_path: Path, read_bytes: int, is_paused: bool) -> None:
    """The client is read on afterwards, unless there is another reason why it is not."""
    one = frame(DATA, 0, 1)
    count, rest_bytes = divmod(read_bytes, len(one))
    async with attacking(tmp_path, passing()) as raw:
        half, sink = raw.connection.requests, raw.sinks[0]
        await until(lambda: sink.frames == 2)  # the preface and SETTINGS
        transport = half.peer.transport
        assert transport is not None
        half.get_buffer(-1)[:read_bytes] = (one * (count + 1))[:read_bytes]
        half.buffer_updated(read_bytes)
        assert transport.is_reading() == (read_bytes < READ_BYTES)
        assert half.peer._descriptor < 0, "hang-ups are watched for only while the client is not read for longer"
        half.peer.pause("client", is_paused)
        await until(lambda: sink.frames == 2 + count)
        assert transport.is_reading() == (not is_paused)
        half.peer.pause("client", False)
        await raw.send(one[rest_bytes:])
        await until(lambda: sink.frames == 2 + count + 1)


async def test_an_answer_that_is_wanted_is_kept_up_to_a_limit() -> None:
    stream = Stream(1, _route(), Call(CREATE, None, 0.0), StreamState.HOLDING, 0)
    for _ in range(1_000):
        stream.note_answer(bytes(MAX_ANSWER_BYTES // 1_000))
    assert stream.answer is not None
    stream.note_answer(bytes(1_000))
    stream.note_answer(b"more")
    assert stream.answer is None


# --- whoever does not read -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["tiny held DATA", "padded held DATA", "PINGs", "SETTINGS"])
async def test_a_client_that_does_not_read_is_not_read(tmp_path: Path, kind: str) -> None:
    """Credit, and the runtime's acknowledgements, wait for it: so many, and no more."""
    floods = {
        "tiny held DATA": frame(DATA, 0, 1, b"z"),
        "padded held DATA": frame(DATA, 8, 1, b"\xff" + bytes(255)),
        "PINGs": frame(PING, 0, 0, bytes(8)),
        "SETTINGS": frame(SETTINGS),
    }
    async with attacking(tmp_path, holding(bytes), acknowledges=True) as raw:
        connection = raw.connection
        await raw.send(headers(1, CREATE))
        for _ in range(100):
            await raw.send_what_is_taken(floods[kind] * 2_000)
            unread = connection.pair.client.transport
            assert unread is not None
            assert unread.get_write_buffer_size() < 2 * HIGH_WATER_BYTES
            if unread.get_write_buffer_size() > HIGH_WATER_BYTES:
                assert not unread.is_reading()
                break


async def test_an_unread_client_is_read_again_when_it_reads(tmp_path: Path) -> None:
    async with attacking(tmp_path, passing(), acknowledges=True) as raw:
        pings = frame(PING, 0, 0, bytes(8)) * 60_000
        sending = asyncio.ensure_future(raw.send(pings))
        transport = raw.connection.pair.client.transport
        assert transport is not None
        await until(lambda: not transport.is_reading())
        got = 0
        while got < 60_000 * 17:
            got += len(await asyncio.get_running_loop().sock_recv(raw.socket, 1 << 18))
        await sending
        await until(transport.is_reading)


async def test_a_request_that_was_decided_on_stays_counted_while_the_runtime_does_not_read(tmp_path: Path) -> None:
    """The windows that the runtime granted allow it to go; then it would be in a buffer that nobody counts."""
    scripted = Scripted({CREATE: HOLD}, bytes)
    async with attacking(tmp_path, scripted, reads=False) as raw:
        connection = raw.connection
        await raw.send_what_is_taken(frame(PING, 0, 0, bytes(8)) * 60_000)
        await until(lambda: connection.uplink.is_congested)
        connection.held.open(7, _route(), {})
        connection.held.take(_stream(connection, 7), grpc_frame(text(1_000)), 1_005, True)
        scripted.gate.set()
        await until(lambda: _stream(connection, 7).state is StreamState.RELEASED)
        assert _stream(connection, 7).left_bytes == connection.pair.metrics.held_bytes == 1_005


@pytest.mark.parametrize("gone", ["runtime", "client"])
async def test_a_pair_of_which_one_has_gone_and_the_other_does_not_read_is_given_up(tmp_path: Path, gone: str) -> None:
    blasts = gone == "runtime"
    async with attacking(tmp_path, passing(), blasts=blasts, reads=blasts) as raw:
        connection = raw.connection
        big = 2**31 - 1
        await raw.send(frame(SETTINGS, 0, 0, b"\0\4" + big.to_bytes(4)) + window_update(0, big - 65_535))
        await raw.send(headers(1, VERSION))
        paused = connection.pair.runtime if blasts else connection.pair.client
        if not blasts:
            await raw.send_what_is_taken(frame(PING, 0, 0, bytes(8)) * 60_000)
        await until(lambda: paused.transport is not None and not paused.transport.is_reading())
        if blasts:
            raw.sinks[0].hang_up()
        else:
            raw.socket.close()
        await until(lambda: not raw.relay.connections)


# --- lists ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "flood"),
    [
        ("open streams", lambda: b"".join(headers(2 * n + 1, VERSION) for n in range(MAX_STREAMS + 1))),
        ("SETTINGS that the runtime does not acknowledge", lambda: frame(SETTINGS) * (MAX_UNACKNOWLEDGED + 1)),
    ],
)
async def test_too_many_entries_cost_the_connection(tmp_path: Path, name: str, flood: object) -> None:
    assert callable(flood)
    async with attacking(tmp_path, passing()) as raw:
        with contextlib.suppress(ConnectionError):
            await raw.send(flood())
        await until(lambda: not raw.relay.connections)
        goaways = [each for each in await raw.frames() if each[3] == GOAWAY]
        assert int.from_bytes(goaways[0][13:17]) == ENHANCE_YOUR_CALM


async def test_header_blocks_that_wait_for_the_runtimes_window_are_bounded_in_bytes(tmp_path: Path) -> None:
    async with attacking(tmp_path, passing()) as raw:
        await raw.send(headers(1, VERSION) + frame(DATA, 0, 1, bytes(16_383)) * 5)
        long = request_block(VERSION) + b"\x00\x01x\x7f\x81\x7d" + b"v" * 16_128
        for n in range(1, 1_000):
            await raw.send_what_is_taken(
                frame(HEADERS, END_HEADERS, 1, b"\x88") + frame(HEADERS, END_HEADERS, 2 * n + 1, long)
            )
            transport = raw.connection.pair.client.transport
            if transport is not None and not transport.is_reading():
                break
        assert raw.connection.uplink.outbox._bytes < 2 * MIB


@pytest.mark.parametrize("extra", [0, 1])
def test_a_path_up_to_a_length_is_a_label(extra: int) -> None:
    policy = RelayServer(asyncio.new_event_loop(), "", passing()).policy
    path = b"/" + b"p" * (MAX_PATH_BYTES - 1 + extra)
    for _ in range(2):
        assert policy.route(path).label == ("other" if extra else path.decode())
    assert len(policy._routes) == 1 - extra


def test_labels_are_bounded_also_when_routes_are_learnt_again() -> None:
    interceptor = Scripted({CREATE: HOLD})
    policy = RelayServer(asyncio.new_event_loop(), "", interceptor).policy
    labels = set()
    for version in range(4):
        interceptor.version = version
        labels |= {policy.route(b"/%d/%d" % (version, n)).label for n in range(MAX_LABELS)}
    assert len(labels) == MAX_LABELS + 1
    route = policy.route(CREATE.encode())
    assert (route.label, route.passes) == (CREATE, False)  # what is intercepted is always told apart


# --- the budget ----------------------------------------------------------------------------------------------------


class Holder:
    """Holds requests of some sizes, newest last."""

    def __init__(self, budget: Budget, drains: bool) -> None:
        self.budget, self.drains = budget, drains
        self.share = budget.join(self)
        self.held: list[int] = []
        self.lost = self.lost_copies = 0
        self.is_cut_off = False
        self.most_bytes = 0

    def hold(self, size: int) -> None:
        self.held.append(size)
        self.most_bytes = max(self.most_bytes, sum(self.held))
        self.budget.hold(self.share, size)
        self.budget.relieve()

    def copy(self, size: int) -> None:
        self.budget.copy(self.share, size)
        self.budget.relieve()

    def drop_copies(self) -> None:
        self.lost_copies += 1
        self.budget.copy(self.share, -self.share.copied_bytes)

    def give_way(self) -> None:
        self.lost += 1
        size = self.held.pop()
        self.budget.hold(self.share, -size)
        if not self.drains:
            self.budget.wait(self.share, size)

    def cut_off(self) -> None:
        self.is_cut_off = True
        self.held.clear()
        self.budget.leave(self.share)


@given(
    st.lists(st.tuples(st.integers(0, 4), st.integers(1, 400), st.booleans()), max_size=60),
    st.lists(st.booleans(), min_size=5, max_size=5),
)
def test_nobody_gives_way_who_holds_no_more_than_its_part(
    steps: list[tuple[int, int, bool]], drains: list[bool]
) -> None:
    requests = 1_000
    limit = requests + len(drains) * CONNECTION_BYTES
    budget = Budget(limit)
    holders = [Holder(budget, each) for each in drains]
    for which, size, copies in steps:
        holder = holders[which]
        if not holder.is_cut_off:
            (holder.copy if copies else holder.hold)(size)
        assert budget.held_bytes <= limit
        assert budget.used_bytes <= limit + budgets.OVERDRAFT_BYTES
    for holder in holders:
        if holder.most_bytes <= requests / len(holders):
            assert not holder.lost


def test_what_waits_may_overdraw_the_budget_by_so_much_and_then_costs_the_largest_its_connection() -> None:
    limit, held = CONNECTION_BYTES + 1_000, CONNECTION_BYTES + 400
    budget = Budget(limit)
    hoarder, other = Holder(budget, drains=False), Holder(budget, drains=False)
    other.hold(400)
    most = limit + budgets.OVERDRAFT_BYTES
    for size, is_cut_off, left in ((most - held, False, most), (1, True, held)):
        budget.wait(hoarder.share, size)
        budget.relieve()
        assert (hoarder.is_cut_off, other.is_cut_off, other.lost) == (is_cut_off, False, 0)
        assert budget.used_bytes == left


async def test_the_connection_that_holds_most_gives_way_for_another(tmp_path: Path) -> None:
    scripted = holding(lambda message: b"edited")
    async with asyncio.timeout(HANG_S), rigged(tmp_path, scripted, held_budget_bytes=390_000) as rig:
        greedy = await rig.another()
        hoard = [asyncio.create_task(greedy.call(CREATE, text(60_000))) for _ in range(4)]
        await until(lambda: len(scripted.asked) == 4)
        modest = [asyncio.create_task(rig.client.call(CREATE, text(40_000))) for _ in range(2)]
        await until(lambda: len(scripted.asked) == 6)
        scripted.gate.set()
        assert [reply.messages for reply in await asyncio.gather(*modest)] == [[b"edited"]] * 2
        assert [reply.messages for reply in await asyncio.gather(*hoard)] == [[b"edited"]] * 3 + [[text(60_000)]]
        assert dict(rig.relay.metrics.not_held) == {"held bytes over budget": 1}
        await greedy.endpoint.close()


@pytest.mark.parametrize("fail_closed", [False, True])
async def test_what_asking_costs_counts_beside_the_request(tmp_path: Path, fail_closed: bool) -> None:
    """So many small requests of several connections are asked about at a time; the next goes on as it came."""
    scripted = holding(lambda message: b"edited", plan=StreamPlan(Treatment.HOLD, fail_closed=fail_closed))
    small = len(grpc_frame(b"small"))
    most = 8 * (ASKING_BYTES + small) + 4 * CONNECTION_BYTES
    async with asyncio.timeout(HANG_S), rigged(tmp_path, scripted, held_budget_bytes=most) as rig:
        clients = [rig.client, *[await rig.another() for _ in range(3)]]
        budget = rig.relay.policy.budget
        asked = [asyncio.create_task(client.call(CREATE, b"small")) for client in clients for _ in range(2)]
        await until(lambda: len(scripted.asked) == 8)
        assert (budget.held_bytes, budget.is_exceeded) == (most, False)
        beyond = await clients[0].call(CREATE, b"small")
        assert (beyond.grpc_status, beyond.messages) == ((8, []) if fail_closed else (0, [b"small"]))
        scripted.gate.set()
        assert [reply.messages for reply in await asyncio.gather(*asked)] == [[b"edited"]] * 8
        assert dict(rig.relay.metrics.not_held) == {"held bytes over budget": 1}
        await until(lambda: budget.used_bytes == 0)
        for client in clients[1:]:
            await client.endpoint.close()


async def test_a_copy_never_makes_a_held_request_go_on_unedited(tmp_path: Path) -> None:
    scripted = Scripted({CREATE: HOLD, STOP: TAP}, lambda message: b"edited")
    scripted.gate.set()
    async with asyncio.timeout(HANG_S), rigged(tmp_path, scripted, held_budget_bytes=250_000) as rig:
        other = await rig.another()
        unfinished = other.open(STOP)
        await other.endpoint.send(unfinished.id, (1 << 20).to_bytes(5) + bytes(240_000), end=False)
        await until(lambda: rig.relay.metrics.held_bytes == 240_005)
        assert (await rig.client.call(CREATE, text(20_000))).messages == [b"edited"]
        assert dict(rig.relay.metrics.not_copied) == {"held bytes over budget": 1}
        assert not rig.relay.metrics.not_held
        assert (await rig.client.call(STOP, b"another")).messages == [b"another"]
        assert scripted.tapped_messages == [b"another"]
        await other.endpoint.close()


async def test_what_waits_of_a_request_goes_on_when_its_copy_is_dropped(tmp_path: Path) -> None:
    scripted = Scripted({STOP: TAP})
    stingy = Tuning(credit_batch=None, initial_window=MIB)
    async with asyncio.timeout(HANG_S), rigged(tmp_path, scripted, runtime=stingy, held_budget_bytes=100_000) as rig:
        call = asyncio.ensure_future(rig.client.call(STOP, text(120_000)))
        runtime = await rig.arrived(0)
        await runtime.until(lambda s: len(s.data) == 65_535)
        runtime.endpoint.credit(runtime, 40_000)
        await until(lambda: rig.relay.metrics.not_copied)
        runtime.endpoint.credit_all()
        assert (await call).messages == [text(120_000)]


async def test_a_tapped_request_over_16_mib_is_not_copied(tmp_path: Path) -> None:
    scripted = Scripted({STOP: TAP})
    async with asyncio.timeout(HANG_S), rigged(tmp_path, scripted) as rig:
        for size, copied in ((16 * MIB, 1), (16 * MIB + 1, 1)):
            assert len((await rig.client.call(STOP, text(size))).data) == size + 5
            assert len(scripted.tapped_messages) == copied
        assert dict(rig.relay.metrics.not_copied) == {"over 16 MiB": 1}
        assert rig.relay.policy.budget.used_bytes == 0


async def test_the_largest_request_and_its_edit_fit_the_default_budget(tmp_path: Path) -> None:
    scripted = holding(lambda message: message[:-1] + b"e", opened=True)
    async with asyncio.timeout(HANG_S), rigged(tmp_path, scripted) as rig:
        reply = await rig.client.call(CREATE, text(16 * MIB))
        assert reply.messages == [text(16 * MIB - 1) + b"e"]


async def test_a_client_whose_released_requests_fill_the_memory_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The runtime takes none of them: what a good client holds stays, the hoarder's connection goes."""
    monkeypatch.setattr(budgets, "OVERDRAFT_BYTES", 300_000)
    scripted = holding(lambda message: b"edited")
    stingy = Tuning(initial_window=100)
    async with (
        asyncio.timeout(HANG_S),
        rigged(tmp_path, scripted, runtime=stingy, held_budget_bytes=200_000, settle=False) as rig,
    ):
        good = asyncio.ensure_future(rig.client.call(CREATE, b""))
        await until(lambda: scripted.asked)
        hoarder = await _hoarder(rig)
        with pytest.raises(PeerGone):
            await hoarder.endpoint.until(lambda: False)
        assert [code for _, code in hoarder.endpoint.goaways] == [ENHANCE_YOUR_CALM]
        scripted.gate.set()
        rig.server.connections[0].change(initial_window_size=65_535)
        assert (await good).messages == [b"edited"]
        assert rig.relay.policy.budget.used_bytes == 0


async def _hoarder(rig: Rig) -> Client:
    """Opens more and more requests that it never ends."""
    client = await rig.another()
    for _ in range(600):
        client.open(CREATE, [(b"grpc-encoding", b"gzip")])
    return client


def _stream(connection: RelayedConnection, stream_id: int) -> Stream:
    stream = connection.pair.streams[stream_id]
    assert isinstance(stream, Stream)
    return stream


def _route() -> Route:
    return Route(CREATE, CREATE, StreamPlan(Treatment.HOLD, wants_answer=True), False)

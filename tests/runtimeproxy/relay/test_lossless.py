"""What two real HTTP/2 peers say to each other is not changed by the relay, whatever they say.

Generated calls go to the same server directly and through the relay; both sides' observations must be equal.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import grpc
import pytest
import uvloop
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from runtimeproxy.relay.server import RelayServer
from tests.runtimeproxy.relay.endpoint import Header, Stream, Tuning
from tests.runtimeproxy.relay.grpc_peers import Heard, Script, ScriptedServer, Shape, channel, grpc_serving, perform
from tests.runtimeproxy.relay.ledger import Ledger
from tests.runtimeproxy.relay.peers import ANY
from tests.runtimeproxy.relay.pipes import piping
from tests.runtimeproxy.relay.rig import CREATE, VERSION, Rig, balance, passing, relaying, rigged, settled
from tests.support.waiting import HANG_S

LOOPS = [pytest.param(asyncio.new_event_loop, id="asyncio"), pytest.param(uvloop.new_event_loop, id="uvloop")]
CALM = settings(deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))

paths = st.sampled_from(
    [VERSION, CREATE, "/runtime.v1.ImageService/PullImage", "/runtime.v1alpha2.RuntimeService/RunPodSandbox"]
) | st.from_regex(r"/[A-Za-z0-9_.]{1,40}/[A-Za-z0-9_]{1,20}", fullmatch=True)
sizes = st.sampled_from([0, 1, 16_379, 16_384, 65_530, 65_536]) | st.integers(0, 200 * 1024)
messages = st.builds(lambda size, seed: random.Random(seed).randbytes(size), sizes, st.integers(0, 2**16))
names = st.from_regex(r"x-[a-z0-9_.\-]{0,20}[a-z0-9]", fullmatch=True).filter(lambda name: not name.endswith("-bin"))
texts = st.from_regex(r"[!-~]([ -~]{0,60}[!-~])?", fullmatch=True)
metadata = st.lists(
    st.tuples(names, texts) | st.tuples(names.map(lambda name: name + "-bin"), st.binary(max_size=80)), max_size=5
).map(tuple)
details = st.just(()) | st.tuples(st.tuples(st.just("grpc-status-details-bin"), st.binary(min_size=1, max_size=400)))


@st.composite
def scripts(draw: st.DrawFn) -> Script:
    """A call of any shape; one message where the shape allows one."""
    shape = draw(st.sampled_from(Shape))
    client_streams, server_streams = shape.value
    code = draw(st.sampled_from(grpc.StatusCode))
    exactly_one = code is grpc.StatusCode.OK and not server_streams
    return Script(
        path=draw(paths),
        shape=shape,
        requests=tuple(draw(st.lists(messages, min_size=not client_streams, max_size=4 if client_streams else 1))),
        answers=tuple(draw(st.lists(messages, min_size=exactly_one, max_size=4 if server_streams else 1))),
        metadata=draw(metadata),
        initial=draw(metadata),
        trailing=draw(st.tuples(metadata, details).map(lambda pair: pair[0] + pair[1])),
        code=code,
        details=draw(st.text(max_size=40)),
    )


@pytest.mark.parametrize("new_loop", LOOPS)
def test_grpcio_peers_hear_the_same_directly_and_through_the_relay(
    tmp_path: Path, new_loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    with asyncio.Runner(loop_factory=new_loop) as runner:
        stack = contextlib.AsyncExitStack()
        ledger = Ledger()
        server, relay, direct, relayed = runner.run(_grpc_rig(stack, tmp_path, ledger))

        @settings(CALM, max_examples=40)
        @given(scripts())
        def check(script: Script) -> None:
            expected = runner.run(_both_sides(server, direct, script))
            assert runner.run(_both_sides(server, relayed, script)) == expected
            runner.run(settled(lambda: balance(ledger, *relay.connections)))

        check()
        runner.run(stack.aclose())


def test_an_unknown_method_stays_unimplemented(tmp_path: Path) -> None:
    async def run() -> Heard:
        async with contextlib.AsyncExitStack() as stack:
            *_, relayed = await _grpc_rig(stack, tmp_path, Ledger())
            return await perform(relayed, Script("/no.such.Service/Method", Shape.UNARY, (b"x",), ()))

    heard = asyncio.run(run())
    assert (heard.code, heard.messages) == (grpc.StatusCode.UNIMPLEMENTED, [])


async def _grpc_rig(
    stack: contextlib.AsyncExitStack, directory: Path, ledger: Ledger
) -> tuple[ScriptedServer, RelayServer, grpc.aio.Channel, grpc.aio.Channel]:
    runtime, far, middle, near = (directory / f"{name}.sock" for name in ("runtime", "far", "relay", "near"))
    server = await stack.enter_async_context(grpc_serving(runtime))
    await stack.enter_async_context(piping(far, runtime, ledger.far))
    relay = await stack.enter_async_context(relaying(middle, far, passing()))
    await stack.enter_async_context(piping(near, middle, ledger.near))
    direct, relayed = channel(runtime), channel(near)
    stack.push_async_callback(direct.close)
    stack.push_async_callback(relayed.close)
    return server, relay, direct, relayed


async def _both_sides(server: ScriptedServer, chan: grpc.aio.Channel, script: Script) -> tuple[Heard, Heard]:
    server.script = script
    async with asyncio.timeout(HANG_S):
        heard = await perform(chan, script)
    return heard, server.heard


@dataclass(frozen=True, slots=True)
class Exchange:
    """One HTTP/2 exchange, whose bodies need not be gRPC at all."""

    path: str
    headers: tuple[Header, ...]
    body: bytes
    trailers: tuple[Header, ...]
    answer_headers: tuple[Header, ...]
    answer: bytes
    answer_trailers: tuple[Header, ...]
    pad: int | None
    chunk: int


fields = st.lists(
    st.tuples(names.map(str.encode), texts.map(str.encode) | st.integers(200, 12_000).map(lambda size: b"v" * size)),
    max_size=4,
).map(tuple)
exchanges = st.builds(
    Exchange, paths, fields, messages, fields, fields, messages, fields,
    st.none() | st.integers(0, 255), st.sampled_from([300, 5_000, 1 << 20]),
)  # fmt: skip
tunings = [
    pytest.param(Tuning(), Tuning(), id="defaults"),
    pytest.param(Tuning(header_table=0, initial_window=1_000), Tuning(initial_window=1_000), id="small windows"),
    pytest.param(
        Tuning(initial_window=1 << 20, connection_window=1 << 21, largest_frame=1 << 17, header_table=65_536),
        Tuning(initial_window=1 << 20, connection_window=1 << 21, largest_frame=1 << 17, header_table=200),
        id="large",
    ),
]


@pytest.mark.parametrize(("client", "runtime"), tunings)
def test_strict_peers_hear_what_was_said(tmp_path: Path, client: Tuning, runtime: Tuning) -> None:
    exchange_of: dict[bytes, Exchange] = {}

    async def respond(stream: Stream) -> None:
        await stream.finished()
        exchange = exchange_of[stream.header(b"x-number") or b""]
        stream.endpoint.send_headers(stream.id, [(b":status", b"200"), *exchange.answer_headers])
        await stream.endpoint.send(stream.id, exchange.answer, end=False, pad=exchange.pad, chunk=exchange.chunk)
        stream.endpoint.send_headers(stream.id, [(b"grpc-status", b"0"), *exchange.answer_trailers], end=True)

    with asyncio.Runner() as runner:
        stack = contextlib.AsyncExitStack()
        rig = runner.run(
            stack.enter_async_context(rigged(tmp_path, passing(), {ANY: respond}, client=client, runtime=runtime))
        )

        @settings(CALM, max_examples=15)
        @given(st.lists(exchanges, min_size=1, max_size=4))
        def check(batch: list[Exchange]) -> None:
            exchange_of.update({str(number).encode(): exchange for number, exchange in enumerate(batch)})
            runner.run(_exchange_all(rig, batch))

        check()
        runner.run(stack.aclose())


async def _exchange_all(rig: Rig, batch: Sequence[Exchange]) -> None:
    before = len(rig.server.streams)
    async with asyncio.timeout(HANG_S):
        heard = await asyncio.gather(*(_exchange(rig, number, exchange) for number, exchange in enumerate(batch)))
    arrived = {stream.header(b"x-number"): stream for stream in rig.server.streams[before:]}
    for number, (exchange, answer) in enumerate(zip(batch, heard, strict=True)):
        request = arrived[str(number).encode()]
        assert [bytes(request.data), request.headers[8:], request.trailers] == [
            exchange.body, list(exchange.headers), list(exchange.trailers),
        ]  # fmt: skip
        assert [bytes(answer.data), answer.headers[1:], answer.trailers[1:]] == [
            exchange.answer, list(exchange.answer_headers), list(exchange.answer_trailers),
        ]  # fmt: skip
    await rig.settled()


async def _exchange(rig: Rig, number: int, exchange: Exchange) -> Stream:
    end = rig.client.endpoint
    stream = rig.client.open(exchange.path, [(b"x-number", str(number).encode()), *exchange.headers])
    await end.send(stream.id, exchange.body, end=not exchange.trailers, pad=exchange.pad, chunk=exchange.chunk)
    if exchange.trailers:
        end.send_headers(stream.id, exchange.trailers, end=True)
    return await stream.finished()

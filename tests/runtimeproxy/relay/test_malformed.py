"""A client or a runtime that breaks the rules hurts its own connection and nobody else's.

The relay runs as a process here: after each attack it must be alive, small, and answering on the connection that
was there before as well as on a new one.
"""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.runtimeproxy.relay import serve
from tests.runtimeproxy.relay.endpoint import Tuning
from tests.runtimeproxy.relay.peers import Client, Server
from tests.runtimeproxy.relay.raw import (
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADERS,
    OPENING,
    PADDED,
    PING,
    PRIORITY,
    PUSH_PROMISE,
    SETTINGS,
    WINDOW_UPDATE,
    Sink,
    frame,
    headers,
    request_block,
    rst_stream,
    window_update,
)
from tests.runtimeproxy.relay.rig import CREATE, VERSION
from tests.support.forked import Forked
from tests.support.waiting import until

GROWTH_LIMIT_KIB = 32 * 1024
ATTACK_S = 10.0
BLOCK = request_block(VERSION)


@dataclass(slots=True)
class Victim:
    """A relay process with one good connection through it; those that ``attack`` opens reach a ``Sink``."""

    process: Forked
    path: Path
    new_sink: Callable[[], Sink]
    runtime: Server
    good: Client = field(init=False)
    sinks: list[Sink] = field(default_factory=list)
    start_kib: int = 0
    _expected: int = 0

    def accept(self) -> asyncio.Protocol:
        """The runtime's end of the relay's next connection."""
        if len(self.sinks) == self._expected:
            return self.runtime.accept()
        self.sinks.append(self.new_sink())
        return self.sinks[-1]

    def rss_kib(self) -> int:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.partition("VmRSS:")[2].split()[0])

    async def attack(self, *pieces: bytes, opening: bytes = OPENING) -> asyncio.StreamWriter:
        """A new connection that says ``pieces``; returns once they are written, or the relay hung up or stopped."""
        self._expected += 1
        _, writer = await asyncio.open_unix_connection(str(self.path))
        await until(lambda: len(self.sinks) == self._expected and self.sinks[-1].connected)
        with contextlib.suppress(ConnectionError, TimeoutError):
            async with asyncio.timeout(1.0):
                for piece in (opening, *pieces):
                    writer.write(piece)
                    await writer.drain()
        return writer

    async def unhurt(self) -> None:
        """Raises ``AssertionError`` unless the relay is as well as before."""
        async with Client.connected(self.path) as fresh, asyncio.timeout(3):
            for client in (self.good, fresh):
                assert (await client.call(VERSION, b"x" * 1_000)).messages == [b"x" * 1_000]
        assert self.process.returncode is None
        growth_kib = self.rss_kib() - self.start_kib
        assert growth_kib < GROWTH_LIMIT_KIB, f"grew by {growth_kib} KiB"


@contextlib.asynccontextmanager
async def victim(directory: Path, new_sink: Callable[[], Sink] = Sink) -> AsyncIterator[Victim]:
    """Relay process, runtime and good client for the time of the block."""
    near, far = directory / "proxy.sock", directory / "runtime.sock"
    async with asyncio.timeout(ATTACK_S), contextlib.AsyncExitStack() as stack:
        hears, says = multiprocessing.Pipe(duplex=False)
        process = await asyncio.to_thread(Forked, serve.run, near, far, says)
        stack.push_async_callback(process.wait)
        stack.callback(process.kill)
        found = Victim(process, near, new_sink, Server({}, Tuning(), None))
        listener = await asyncio.get_running_loop().create_unix_server(found.accept, str(far))
        stack.callback(listener.close)
        says.close()
        with hears:
            await asyncio.to_thread(hears.recv)
        found.good = await stack.enter_async_context(Client.connected(near))
        assert (await found.good.call(VERSION, b"x")).messages == [b"x"]
        found.start_kib = found.rss_kib()
        yield found


garbage = {
    "random bytes": bytes(range(256)) * 40,
    "HTTP/1.1": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "half a preface": OPENING[:10],
    "nothing": b"",
}
broken = {
    "frame longer than allowed": frame(DATA, 0, 1, b"x" * 100_000),
    "frame that claims 16 MiB": frame(DATA, 0, 1, b"x", length=(1 << 24) - 1),
    "frame cut in its header": frame(HEADERS, END_HEADERS, 1, BLOCK)[:5],
    "frame cut in its payload": frame(HEADERS, END_HEADERS, 1, BLOCK)[:20],
    "CONTINUATION without HEADERS": frame(CONTINUATION, END_HEADERS, 1, BLOCK),
    "PING inside a header block": frame(HEADERS, 0, 1, BLOCK) + frame(PING, 0, 0, bytes(8)),
    "CONTINUATION of another stream": frame(HEADERS, 0, 1, BLOCK) + frame(CONTINUATION, END_HEADERS, 3),
    "HPACK: absent entry": frame(HEADERS, END_HEADERS, 1, b"\xfe"),
    "HPACK: index 0": frame(HEADERS, END_HEADERS, 1, b"\x80"),
    "HPACK: endless integer": frame(HEADERS, END_HEADERS, 1, b"\xff" * 200),
    "HPACK: string past its block": frame(HEADERS, END_HEADERS, 1, b"\x00\x7f\xff\x7fxx"),
    "HPACK: bad Huffman": frame(HEADERS, END_HEADERS, 1, b"\x00\x84\xff\xff\xff\xff\x01x"),
    "HPACK: table of 4 GiB": frame(HEADERS, END_HEADERS, 1, b"\x3f\xe1\xff\xff\xff\x0f"),
    "padding longer than DATA": headers(1, CREATE) + frame(DATA, PADDED, 1, b"\xffshort"),
    "padding longer than HEADERS": frame(HEADERS, PADDED | END_HEADERS, 1, b"\xff" + BLOCK),
    "padded and empty": headers(1, CREATE) + frame(DATA, PADDED, 1),
    "HEADERS with priority and no room for it": frame(HEADERS, 0x20 | END_HEADERS, 1, b"xx"),
    "WINDOW_UPDATE of 3 bytes": frame(WINDOW_UPDATE, 0, 0, b"\0\0\1"),
    "WINDOW_UPDATE overflow": window_update(0, 2**31 - 1) * 3,
    "WINDOW_UPDATE of 0": window_update(0, 0),
    "SETTINGS of 5 bytes": frame(SETTINGS, 0, 0, bytes(5)),
    "SETTINGS on a stream": frame(SETTINGS, 0, 1, bytes(6)),
    "SETTINGS acknowledged too often": frame(SETTINGS, 1) * 100,
    "window of 4 GiB": frame(SETTINGS, 0, 0, b"\0\4\xff\xff\xff\xff"),
    "frame size of 0": frame(SETTINGS, 0, 0, b"\0\5\0\0\0\0"),
    "PING of 7 bytes": frame(PING, 0, 0, bytes(7)),
    "GOAWAY of 3 bytes": frame(GOAWAY, 0, 0, bytes(3)),
    "RST_STREAM of 5 bytes": headers(1, CREATE) + frame(3, 0, 1, bytes(5)),
    "DATA on stream 0": frame(DATA, 0, 0, b"x"),
    "DATA on a stream never opened": frame(DATA, END_STREAM, 99, b"x" * 10_000),
    "HEADERS on stream 0": headers(0, CREATE),
    "HEADERS on an even stream": headers(2, CREATE) + frame(DATA, END_STREAM, 2, b"x"),
    "stream ids that fall": headers(9, CREATE) + headers(3, CREATE) + frame(DATA, END_STREAM, 3, b"x"),
    "the same stream twice": headers(1, CREATE) * 2 + frame(DATA, END_STREAM, 1, b"x") * 2,
    "PUSH_PROMISE from a client": frame(PUSH_PROMISE, END_HEADERS, 1, bytes(4) + BLOCK),
    "PRIORITY and unknown frames": frame(PRIORITY, 0, 1, bytes(5)) + frame(0xFE, 0xFF, 7, bytes(100)),
    "DATA beyond the window": headers(1, VERSION) + frame(DATA, 0, 1, bytes(16_384)) * 100,
    "held DATA beyond the window": headers(1, CREATE) + frame(DATA, 0, 1, bytes(16_384)) * 100,
}


@pytest.mark.parametrize("opening", garbage.values(), ids=garbage.keys())
async def test_what_is_not_http2(tmp_path: Path, opening: bytes) -> None:
    async with victim(tmp_path) as relay:
        writer = await relay.attack(opening=opening)
        await relay.unhurt()
        writer.close()
        await relay.unhurt()


async def test_broken_frames(tmp_path: Path) -> None:
    """One relay takes them all, so that damage adds up."""
    async with victim(tmp_path) as relay:
        for name, piece in broken.items():
            writer = await relay.attack(piece)
            writer.close()
            try:
                await relay.unhurt()
            except Exception as error:
                raise AssertionError(f"after {name}: {error!r}") from error


many = 10_000
floods: dict[str, Callable[[], tuple[bytes, ...]]] = {
    "empty CONTINUATIONs": lambda: (frame(HEADERS, 0, 1, BLOCK), frame(CONTINUATION, 0, 1) * 200_000),
    "long CONTINUATIONs": lambda: (frame(HEADERS, 0, 1, BLOCK), *[frame(CONTINUATION, 0, 1, bytes(16_384))] * 1_000),
    "rapid resets": lambda: tuple(headers(2 * n + 1, VERSION) + rst_stream(2 * n + 1) for n in range(many)),
    "rapid resets of held streams": lambda: tuple(
        headers(2 * n + 1, CREATE) + frame(DATA, 0, 2 * n + 1, b"\0" * 50) + rst_stream(2 * n + 1) for n in range(many)
    ),
    "open streams": lambda: tuple(headers(2 * n + 1, VERSION) for n in range(many)),
    "open held streams": lambda: tuple(
        headers(2 * n + 1, CREATE) + frame(DATA, 0, 2 * n + 1, b"\0") for n in range(many)
    ),
    "streams that wait for the runtime's window": lambda: tuple(
        headers(2 * n + 1, VERSION) + frame(DATA, 0, 2 * n + 1, bytes(50)) for n in range(many)
    ),
    "empty DATA behind a spent window": lambda: (
        headers(1, VERSION), frame(DATA, 0, 1, bytes(16_384)) * 5, *[frame(DATA, 0, 1) * 1_000] * 600,
    ),
    "trailers behind a spent window": lambda: (
        headers(1, VERSION), frame(DATA, 0, 1, bytes(16_384)) * 5, frame(HEADERS, END_HEADERS, 1, b"\x88" * 2),
        *[b"".join(headers(2 * n + 1, VERSION) for n in range(k, k + 100)) for k in range(1, 120_000, 100)],
    ),
    "a held message that never ends": lambda: (headers(1, CREATE), *[frame(DATA, 0, 1, bytes(16_384))] * 6_000),
    "held messages that never end": lambda: (
        *[headers(n, CREATE) for n in range(1, 2_000, 2)],
        *[frame(DATA, 0, n, bytes(16_384)) for n in range(1, 2_000, 2)],
    ),
    "PINGs": lambda: (frame(PING, 0, 0, bytes(8)) * 200_000,),
    "SETTINGS": lambda: (frame(SETTINGS, 0, 0, b"\0\4\0\0\1\0") * 200_000,),
    "paths that are all different": lambda: tuple(headers(2 * n + 1, f"/s/{n}") for n in range(many)),
    "header fields that fill the table": lambda: tuple(
        frame(HEADERS, END_HEADERS, 2 * n + 1, BLOCK + b"\x40\x04%04d\x7f\xa1\x1e" % n + b"v" * 4_000)
        for n in range(2_000)
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", floods)
async def test_floods(tmp_path: Path, name: str) -> None:
    pieces = floods[name]()
    async with victim(tmp_path) as relay:
        writer = await relay.attack(*(b"".join(pieces[n : n + 500]) for n in range(0, len(pieces), 500)))
        await relay.unhurt()
        writer.close()
        await relay.unhurt()


async def test_10_000_streams_all_arrive(tmp_path: Path) -> None:
    async with victim(tmp_path) as relay:
        writer = await relay.attack(b"".join(floods["open streams"]()))
        await until(lambda: relay.sinks[0].frames >= many)
        await relay.unhurt()
        writer.close()


async def test_a_client_that_stops_reading(tmp_path: Path) -> None:
    """It grants a window of 2 GiB, asks for an endless answer and never reads it."""
    async with victim(tmp_path, lambda: Sink(blasts=True)) as relay:
        big = 2**31 - 1
        settings = frame(SETTINGS, 0, 0, b"\0\4" + big.to_bytes(4, "big"))
        writer = await relay.attack(settings + window_update(0, big - 65_535) + headers(1, VERSION))
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        before = -1
        while relay.sinks[0].written > before:
            before = relay.sinks[0].written
            await asyncio.sleep(0.2)
            await relay.unhurt()
        writer.close()
        await relay.unhurt()


async def test_a_runtime_that_stops_reading(tmp_path: Path) -> None:
    async with victim(tmp_path, lambda: Sink(reads=False)) as relay:
        writer = await relay.attack(*[frame(PING, 0, 0, bytes(8)) * 10_000] * 400)
        await relay.unhurt()
        writer.close()
        await relay.unhurt()


answers = {
    "garbage": b"\xff" * 1_000,
    "frame longer than allowed": frame(DATA, 0, 1, bytes(100_000)),
    "bad HPACK": frame(HEADERS, END_HEADERS, 1, b"\xfe"),
    "CONTINUATION flood": frame(HEADERS, 0, 1, b"\x88") + frame(CONTINUATION, 0, 1) * 50_000,
    "window overflow": window_update(0, 2**31 - 1) * 10,
    "SETTINGS that nobody asked to acknowledge": frame(SETTINGS, 1) * 1_000,
    "reset of a stream never opened": rst_stream(77),
    "unsolicited answer": frame(HEADERS, END_HEADERS | END_STREAM, 77, b"\x88"),
    "push": frame(PUSH_PROMISE, END_HEADERS, 1, b"\0\0\0\2\x88"),
}


async def test_a_runtime_that_breaks_the_rules(tmp_path: Path) -> None:
    async with victim(tmp_path) as relay:
        for name, piece in answers.items():
            writer = await relay.attack(headers(1, CREATE) + frame(DATA, END_STREAM, 1, bytes(5)))
            relay.sinks[-1].say(piece)
            await asyncio.sleep(0.01)
            writer.close()
            try:
                await relay.unhurt()
            except Exception as error:
                raise AssertionError(f"after {name}: {error!r}") from error

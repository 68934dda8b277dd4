"""A relay that understands nothing: bytes go both ways, and an observer is told of them.

It stands between grpcio peers and the relay under test, where no test code owns the sockets, and it is the baseline
that every test of this folder must pass with: what fails through it is the test's own mistake.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

from tests.runtimeproxy.relay.ledger import End, Link

READ_BYTES = 65_536


class BytePipe:
    """Copies between each accepted connection and a connection of its own to ``backend``."""

    def __init__(self, backend: Path, link: Link | None = None) -> None:
        self._backend, self._link = backend, link
        self._watched = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        link, self._watched = None if self._watched else self._link, True
        to_reader, to_writer = await asyncio.open_unix_connection(str(self._backend))
        self._writers |= {writer, to_writer}
        for source, sink, end in ((reader, to_writer, End.CLIENT), (to_reader, writer, End.RUNTIME)):
            task = asyncio.get_running_loop().create_task(_copy(source, sink, end, link))
            self._tasks.add(task)

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        for result in await asyncio.gather(*self._tasks, return_exceptions=True):
            if isinstance(result, AssertionError):
                raise result
        for writer in self._writers:
            writer.close()


@contextlib.asynccontextmanager
async def piping(path: Path, backend: Path, link: Link | None = None) -> AsyncIterator[BytePipe]:
    """A byte pipe from ``path`` to ``backend``; ``link`` watches its first connection."""
    pipe = BytePipe(backend, link)
    listener = await asyncio.start_unix_server(pipe.accept, str(path))
    try:
        yield pipe
    finally:
        listener.close()
        await pipe.close()


async def _copy(source: asyncio.StreamReader, sink: asyncio.StreamWriter, end: End, link: Link | None) -> None:
    try:
        with contextlib.suppress(ConnectionError):
            while data := await source.read(READ_BYTES):
                if link is not None:
                    link.feed(end, data)
                sink.write(data)
                await sink.drain()
    finally:
        sink.close()

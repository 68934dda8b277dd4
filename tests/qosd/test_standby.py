"""The second koord-qosd of a node waits, says so, and has the undo record's lock the moment the first is gone."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import socket
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path

import pytest

from koord.host import undo
from koord.host.undo import UndoError, UndoRecord
from koord.service.notify import Notifier
from qosd import standby
from qosd.node import UNDO
from tests.qosd.machine import Machine
from tests.support.waiting import until


class Second:
    """The one that comes later, up to where it may act. ``heard``: what it told the service manager."""

    def __init__(self, machine: Machine, manager: socket.socket) -> None:
        self.machine, self._manager = machine, manager
        self.record = machine.root / "run" / UNDO
        self.stop = asyncio.Event()
        self.heard: list[str] = []

    def start(self, environ: Mapping[str, str]) -> asyncio.Task[int | None]:
        options = self.machine.options(kubeconfig="/kubelet.conf")
        notifier = Notifier(self._manager.getsockname())
        return asyncio.create_task(standby.hold_lock(self.record, options, environ, notifier, self.stop))

    def listen(self) -> list[str]:
        with contextlib.suppress(BlockingIOError):
            while True:
                self.heard.append(self._manager.recv(4096).decode())
        return self.heard

    async def page(self, path: str) -> str:
        reader, writer = await asyncio.open_unix_connection(self.machine.root / "m.sock")
        writer.write(f"GET {path} HTTP/1.1\r\n\r\n".encode())
        try:
            return (await reader.read()).decode()
        finally:
            writer.close()


@pytest.fixture
def second(tmp_path: Path) -> Iterator[Second]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as manager:
        manager.bind(str(tmp_path / "notify.sock"))
        yield Second(Machine(tmp_path), manager)


@contextlib.asynccontextmanager
async def standing_by(second: Second, **environ: str) -> AsyncIterator[asyncio.Task[int | None]]:
    """``second`` beside one that holds the record, and is still there at the end unless its lock was taken away."""
    second.record.parent.mkdir(exist_ok=True)
    waiting = second.start(environ)
    await until(second.listen)
    yield waiting
    second.stop.set()
    await waiting


async def test_alone_it_acts_at_once_and_says_nothing(second: Second) -> None:
    held = await second.start({})
    assert held is not None
    assert second.listen() == []
    with pytest.raises(UndoError, match="in use by a running koord-qosd"):
        UndoRecord(second.record, "boot")
    with UndoRecord(second.record, "boot", lock_fd=held):
        assert undo.is_in_use(second.record)
    assert not undo.is_in_use(second.record)


async def test_beside_another_one_it_says_so_and_takes_over(second: Second) -> None:
    second.record.parent.mkdir()
    first = UndoRecord(second.record, "boot")
    async with standing_by(second) as waiting:
        (said,) = second.heard
        assert said.startswith("READY=1\nSTATUS=standing by: another koord-qosd acts on this node")
        assert "200 OK" in await second.page("/healthz")
        ready = await second.page("/readyz")
        assert "503" in ready and "standing by: another koord-qosd" in ready
        assert not waiting.done()
        first.close()
        held = await asyncio.wait_for(waiting, 5)
        assert held is not None
        assert not (second.machine.root / "hookserver.d").exists()
        assert undo.is_in_use(second.record)
        os.close(held)


async def test_the_pages_are_free_for_who_acts(second: Second) -> None:
    second.record.parent.mkdir()
    first = UndoRecord(second.record, "boot")
    async with standing_by(second) as waiting:
        await second.page("/healthz")
        first.close()
        held = await asyncio.wait_for(waiting, 5)
        with pytest.raises(OSError):
            await second.page("/healthz")
        assert held is not None
        os.close(held)


async def test_it_can_be_stopped_while_it_waits(second: Second) -> None:
    second.record.parent.mkdir()
    with UndoRecord(second.record, "boot"):
        async with standing_by(second) as waiting:
            second.stop.set()
            assert await asyncio.wait_for(waiting, 5) is None
    await asyncio.to_thread(wait_until_free, second.record)  # the thread that was left behind gives it back


async def test_a_lock_whose_file_was_removed_is_not_the_nodes(second: Second) -> None:
    """Whoever acts then holds a new file: the old one's lock says nothing."""
    second.record.parent.mkdir()
    first = UndoRecord(second.record, "boot")
    async with standing_by(second) as waiting:
        await asyncio.to_thread(Path(f"{second.record}.lock").unlink)
        with UndoRecord(second.record, "boot"):
            first.close()
            await asyncio.sleep(0.1)
            assert not waiting.done()
        held = await asyncio.wait_for(waiting, 5)
        assert held is not None
        os.close(held)


async def test_systemds_watchdog_is_fed_meanwhile(second: Second) -> None:
    second.record.parent.mkdir()
    with UndoRecord(second.record, "boot"):
        async with standing_by(second, WATCHDOG_USEC="20000"):
            await until(lambda: second.listen().count("WATCHDOG=1") >= 3)


async def test_a_lock_that_cannot_be_opened_is_the_records_to_say(second: Second) -> None:
    second.machine.put("run", "no directory")
    assert await second.start({}) is None
    assert second.listen() == []


def wait_until_free(record: Path) -> None:
    descriptor = undo.open_lock(record)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    os.close(descriptor)

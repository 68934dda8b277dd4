"""Signals at any moment of a process's end: between any two turns of its loop, from the one that ended it on."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from koord.service.notify import Notifier
from runtimeproxy import life
from runtimeproxy.bypass import Bypass
from runtimeproxy.life import Attachments, Ending, Life, StartContext
from runtimeproxy.options import PROGRAM

SUCCESSOR = 4711


class Manager:
    """In the place of systemd: what it is told."""

    enabled = True

    def __init__(self) -> None:
        self.said: list[str] = []

    def ready(self, status: str = "", main_pid: int | None = None) -> bool:
        self.said.append("ready")
        return True

    def reloading(self) -> bool:
        self.said.append("reloading")
        return True

    def stopping(self, status: str = "") -> bool:
        self.said.append("stopping")
        return True


class Parts:
    """Relay and listeners of a process that has no connection."""

    def drain(self) -> None: ...
    def serve(self) -> None: ...
    def watch(self) -> None: ...
    def unwatch(self) -> None: ...
    def close(self) -> None: ...
    def store_own(self) -> None: ...
    def inherited(self) -> tuple[()]:
        return ()

    async def drained(self, timeout_s: float) -> bool:
        await asyncio.sleep(0.01)
        return True


class Signalled:
    """A life whose signals are calls. ``started``: how many successors were; ``at_end``: what was said by then."""

    def __init__(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.started, self.at_end, self.manager = 0, 0, Manager()
        self.handlers: dict[int, Callable[[], None]] = {}
        monkeypatch.setattr(asyncio.get_running_loop(), "add_signal_handler", self.handlers.__setitem__)
        monkeypatch.setattr(life, "start_successor", self._start_successor)
        monkeypatch.setattr(life, "preload", lambda: None)
        monkeypatch.setattr(signal, "setitimer", lambda which, seconds: None)
        command_line = PROGRAM.parse([])
        self.life = Life(
            StartContext((), {}, cast(Notifier, self.manager), None, None),
            command_line,
            PROGRAM.load(command_line),
            relay=cast(Any, Parts()),
            listeners=cast(Any, Parts()),
            bypass=Bypass(lambda on: None, False, str(tmp_path / "bypass")),
            attachments=Attachments(_nothing, _nothing, lambda options: None, _ended),
        )

    async def _start_successor(self, *_: object) -> int:
        self.started += 1
        for _turn in range(3):
            await asyncio.sleep(0)
        self.at_end = len(self.manager.said)
        return SUCCESSOR

    async def ends_by(self, first: int, then: int) -> Ending:
        """``first``, and ``then`` in each turn of the loop until the process has ended."""
        running = asyncio.create_task(self.life.run())
        await asyncio.sleep(0)
        self.handlers[first]()
        while not running.done():
            self.handlers[then]()
            await asyncio.sleep(0)
        return await running


@pytest.fixture
async def process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Signalled:
    return Signalled(tmp_path, monkeypatch)


def _nothing() -> None:
    """No attachment."""


async def _ended() -> None:
    """Nothing follows the last call."""


async def test_there_is_one_successor_however_often_it_is_asked_for(process: Signalled) -> None:
    assert await process.ends_by(signal.SIGUSR2, signal.SIGUSR2) is Ending.HANDED_OVER
    assert process.started == 1


async def test_a_process_that_was_told_to_stop_starts_no_successor(process: Signalled) -> None:
    assert await process.ends_by(signal.SIGTERM, signal.SIGUSR2) is Ending.STOPPED
    assert process.started == 0


async def test_a_process_with_a_successor_tells_the_service_manager_nothing(process: Signalled) -> None:
    assert await process.ends_by(signal.SIGUSR2, signal.SIGHUP) is Ending.HANDED_OVER
    assert "reloading" in process.manager.said[: process.at_end]
    assert process.manager.said[process.at_end :] == []

"""Who waits for room, and until when."""

from __future__ import annotations

import asyncio
import logging

import pytest

from qosd.startgate import StartGate


async def test_a_newcomer_waits_for_the_next_tick_and_nobody_else_does() -> None:
    arrivals = StartGate()
    running = arrivals.begun()
    arrivals.expect("uid-1")
    assert arrivals.room_for("uid-2") is None
    room = arrivals.room_for("uid-1")
    assert room is not None
    waiting = asyncio.ensure_future(room)
    arrivals.ended(running)
    await asyncio.sleep(0)
    assert not waiting.done()  # that tick began before the pod was known
    arrivals.ended(arrivals.begun())
    await asyncio.wait_for(waiting, 1)
    assert arrivals.room_for("uid-1") is None


async def test_who_is_expected_anew_during_a_tick_waits_for_another() -> None:
    arrivals = StartGate()
    arrivals.expect("uid")
    running = arrivals.begun()
    arrivals.expect("uid")
    arrivals.ended(running)
    room = arrivals.room_for("uid")
    assert room is not None
    arrivals.ended(arrivals.begun())
    await asyncio.wait_for(room, 1)


async def test_without_a_tick_it_starts_nevertheless_and_that_is_said(caplog: pytest.LogCaptureFixture) -> None:
    arrivals = StartGate(patience_s=0.01)
    arrivals.expect("uid")
    room = arrivals.room_for("uid")
    assert room is not None
    with caplog.at_level(logging.WARNING):
        await asyncio.wait_for(room, 1)
    assert caplog.messages == ["pod uid starts before its CPUs are free: no tick in 0.01 s"]

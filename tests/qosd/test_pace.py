from __future__ import annotations

import asyncio

import pytest

from qosd.pace import Pace


async def beats(pace: Pace, seconds: float, busy_s: float = 0.0) -> list[tuple[float, bool]]:
    """(when, is it a beat) of each tick, ``busy_s`` long."""
    loop = asyncio.get_running_loop()
    began, seen = loop.time(), []

    async def tick(is_beat: bool) -> None:
        seen.append((loop.time() - began, is_beat))
        await asyncio.sleep(busy_s)

    task = asyncio.create_task(pace.run(tick))
    await asyncio.sleep(seconds)
    task.cancel()
    return seen


async def test_the_first_tick_is_at_once() -> None:
    seen = await beats(Pace(60), 0.1)
    assert [is_beat for _, is_beat in seen] == [True]


async def test_a_wake_up_does_not_wait_for_the_beat_nor_move_it() -> None:
    pace = Pace(0.3)
    asyncio.get_running_loop().call_later(0.1, pace.wake)
    seen = await beats(pace, 0.45)
    assert [is_beat for _, is_beat in seen] == [True, False, True]
    assert seen[1][0] == pytest.approx(0.1, abs=0.08)
    assert seen[2][0] == pytest.approx(0.3, abs=0.08)


async def test_many_wake_ups_are_one_tick() -> None:
    pace = Pace(60)
    for _ in range(5):
        asyncio.get_running_loop().call_later(0.1, pace.wake)
    assert [is_beat for _, is_beat in await beats(pace, 0.25)] == [True, False]


async def test_missed_beats_are_left_out() -> None:
    seen = await beats(Pace(0.1), 0.6, busy_s=0.25)
    assert all(is_beat for _, is_beat in seen)
    assert len(seen) in (2, 3)

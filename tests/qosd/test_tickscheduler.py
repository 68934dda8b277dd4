from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import pairwise

import pytest

from qosd.tickscheduler import SAMPLES_GAP_S, TickReason, TickScheduler

BEAT, CHANGE, URGENT = TickReason


async def ticks(scheduler: TickScheduler, seconds: float, busy_s: float = 0.0) -> list[tuple[float, TickReason]]:
    """(when, why) of each tick, ``busy_s`` long."""
    loop = asyncio.get_running_loop()
    began_s, history = loop.time(), []

    async def tick(reason: TickReason) -> None:
        history.append((loop.time() - began_s, reason))
        await asyncio.sleep(busy_s)

    task = asyncio.create_task(scheduler.run(tick))
    await asyncio.sleep(seconds)
    task.cancel()
    return history


def later(delay_s: float, call: Callable[[], None]) -> None:
    asyncio.get_running_loop().call_later(delay_s, call)


async def test_the_first_tick_is_at_once() -> None:
    assert [reason for _, reason in await ticks(TickScheduler(60), 0.1)] == [BEAT]


async def test_a_change_does_not_wait_for_the_beat_nor_move_it() -> None:
    scheduler = TickScheduler(0.3)
    later(0.1, scheduler.wake)
    history = await ticks(scheduler, 0.45)
    assert [reason for _, reason in history] == [BEAT, CHANGE, BEAT]
    assert history[1][0] == pytest.approx(0.1, abs=0.08)
    assert history[2][0] == pytest.approx(0.3, abs=0.08)


async def test_what_is_urgent_does_not_wait_for_the_beat_nor_move_it() -> None:
    scheduler = TickScheduler(1.0)
    later(0.4, scheduler.urge)
    history = await ticks(scheduler, 1.15)
    assert [reason for _, reason in history] == [BEAT, URGENT, BEAT]
    assert history[1][0] == pytest.approx(0.4, abs=0.08)
    assert history[2][0] == pytest.approx(1.0, abs=0.08)


async def test_many_wake_ups_are_one_tick() -> None:
    scheduler = TickScheduler(60)
    for _ in range(5):
        later(0.1, scheduler.wake)
    assert [reason for _, reason in await ticks(scheduler, 0.25)] == [BEAT, CHANGE]


async def test_a_change_that_comes_with_what_is_urgent_is_the_same_tick() -> None:
    scheduler = TickScheduler(60)

    def both() -> None:
        scheduler.wake()
        scheduler.urge()

    later(0.3, both)
    assert [reason for _, reason in await ticks(scheduler, 0.5)] == [BEAT, URGENT]


async def test_a_change_does_not_wait_for_what_is_urgent_and_may_not_sample_yet() -> None:
    scheduler = TickScheduler(60)
    later(0.02, scheduler.urge)
    later(0.06, scheduler.wake)
    history = await ticks(scheduler, 0.4)
    assert [reason for _, reason in history] == [BEAT, CHANGE, URGENT]
    assert history[2][0] >= SAMPLES_GAP_S


async def test_what_never_ends_to_be_urgent_samples_at_its_gap() -> None:
    scheduler = TickScheduler(60)
    loop = asyncio.get_running_loop()

    def urge() -> None:
        scheduler.urge()
        loop.call_later(0.005, urge)

    urge()
    instants_s = [at_s for at_s, _ in await ticks(scheduler, 1.1)]
    assert 4 <= len(instants_s) <= 6
    assert all(after - before >= SAMPLES_GAP_S for before, after in pairwise(instants_s))


@pytest.mark.parametrize("interval_s", [0.1, 0.3])
async def test_a_beat_that_is_near_is_the_answer_to_what_is_urgent(interval_s: float) -> None:
    scheduler = TickScheduler(interval_s)
    later(interval_s - 0.06, scheduler.urge)
    assert {reason for _, reason in await ticks(scheduler, interval_s + 0.05)} == {BEAT}


async def test_missed_beats_are_left_out() -> None:
    history = await ticks(TickScheduler(0.1), 0.6, busy_s=0.25)
    assert {reason for _, reason in history} == {BEAT}
    assert len(history) in (2, 3)

"""How many requests go out: so many at once, so many each second, in the order of those who wait."""

from __future__ import annotations

import asyncio
import time

import pytest

from koord.kube.ratelimit import RateLimit


@pytest.mark.parametrize(("qps", "burst"), [(0, 1), (-1, 1), (1, 0)])
def test_rates_that_let_nothing_through(qps: float, burst: int) -> None:
    with pytest.raises(ValueError):
        RateLimit(qps, burst, time.monotonic)


async def test_the_rate() -> None:
    now, starts = 0.0, []

    async def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds

    rate = RateLimit(10, 3, lambda: now, sleep)
    for _ in range(6):
        await rate.take()
        starts.append(round(now, 3))
    assert starts == [0, 0, 0, 0.1, 0.2, 0.3]
    assert rate.waited_s == pytest.approx(0.3)
    now += 100
    for _ in range(4):
        await rate.take()
    assert round(now, 3) == 100.4


async def test_who_gives_up_gives_the_place_back() -> None:
    forever = asyncio.Event()

    async def sleep(_: float) -> None:
        await forever.wait()

    rate = RateLimit(1, 1, lambda: 0.0, sleep)
    await rate.take()
    tasks = [asyncio.create_task(rate.take()) for _ in range(5)]
    await asyncio.sleep(0)
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    assert rate._reserve() == 1.0

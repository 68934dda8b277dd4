"""A part that an error of our own ends runs again, more and more slowly while it keeps failing."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter

import pytest

from qosd.cluster.supervision import SETTLED_S, keep_running
from tests.support.waiting import until


class Part:
    """Each run takes the next of ``lives``: seconds, after which it fails (or returns, if it is below zero)."""

    def __init__(self, *lives: float) -> None:
        self.lives = list(lives)
        self.now_s = 0.0
        self.pauses: list[float] = []

    async def run(self) -> None:
        if not self.lives:
            await asyncio.Event().wait()
        life_s = self.lives.pop(0)
        self.now_s += abs(life_s)
        if life_s >= 0:
            raise ZeroDivisionError("an error of our own")

    async def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("lives", "pauses"),
    [
        ((0, 0, 0), [1, 2, 4]),
        ((0,) * 9, [1, 2, 4, 8, 16, 32, 60, 60, 60]),
        ((0, 0, SETTLED_S, 0), [1, 2, 1, 2]),
        ((0, 0, SETTLED_S - 1, 0), [1, 2, 4, 8]),
        ((-1.0, 0), [1, 2]),
    ],
    ids=["doubles", "at most a minute", "settled", "not settled", "one that returns"],
)
async def test_pauses(lives: tuple[float, ...], pauses: list[float]) -> None:
    part, crashes = Part(*lives), Counter[str]()
    running = asyncio.create_task(
        keep_running("part", part.run, crashes, lambda: part.now_s, part.sleep, random=lambda: 1.0)
    )
    for _ in range(4 * len(lives) + 4):
        await asyncio.sleep(0)
    assert part.pauses == pauses
    assert crashes == {"part": len(lives)}
    assert not running.done()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


async def test_the_log_has_the_trace(caplog: pytest.LogCaptureFixture) -> None:
    part = Part(0)
    running = asyncio.create_task(keep_running("NodeMetric", part.run, Counter(), sleep=part.sleep))
    await until(lambda: part.pauses)
    running.cancel()
    (record,) = [each for each in caplog.records if each.levelno == logging.ERROR]
    assert record.message == "cluster: NodeMetric was ended by an error of our own"
    assert record.exc_info is not None and record.exc_info[0] is ZeroDivisionError

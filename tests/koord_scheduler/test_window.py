"""How many requests are under way at once."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from math import ceil

import pytest

from koord.kube.errors import APIError, KubeError, Unreachable
from koord_scheduler.window import LEAST, MOST, RequestWindow


async def request(window: RequestWindow, answer: asyncio.Future[None]) -> None:
    with suppress(KubeError):
        async with window.place():
            await answer


class Requests:
    """So many that wait for their answers."""

    def __init__(self, window: RequestWindow, count: int) -> None:
        loop = asyncio.get_running_loop()
        self.answers = [loop.create_future() for _ in range(count)]
        self.tasks = [asyncio.create_task(request(window, each)) for each in self.answers]

    async def answer(self, *numbers: int, error: KubeError | None = None) -> None:
        for number in numbers:
            if error is None:
                self.answers[number].set_result(None)
            else:
                self.answers[number].set_exception(error)
        await settle()


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_a_backlog_fills_a_window_that_grows() -> None:
    window = RequestWindow(2.0)
    requests = Requests(window, 20)
    await settle()
    assert window.under_way == 2
    for number in range(8):
        await requests.answer(number)
        assert window.under_way == ceil(window.size)
    assert window.size > 4
    await requests.answer(*range(8, 20))
    assert window.under_way == 0


@pytest.mark.parametrize(
    "error", [APIError(429, "TooManyRequests", "later"), Unreachable("it broke", may_have_arrived=True)], ids=repr
)
async def test_a_window_of_refusals_halves_it_once(error: KubeError) -> None:
    window = RequestWindow(8.0)
    requests = Requests(window, 8)
    await settle()
    await requests.answer(0, 1, 2, error=error)
    assert window.size == 4.0
    await requests.answer(3, 4, 5, error=error)
    assert window.size == 2.0
    await requests.answer(6, 7, error=error)
    assert window.size == LEAST


async def test_another_error_is_an_answer() -> None:
    window = RequestWindow(2.0)
    requests = Requests(window, 1)
    await settle()
    await requests.answer(0, error=APIError(409, "Conflict", "no"))
    assert window.size > 2.0


async def test_it_grows_to_a_bound() -> None:
    window = RequestWindow()
    for _ in range(int(MOST**2)):
        async with window.place():
            pass
    assert window.size == MOST


@pytest.mark.parametrize("is_its_turn", [False, True])
async def test_one_that_is_cancelled_leaves_its_turn_to_the_next(is_its_turn: bool) -> None:
    window = RequestWindow(2.0)
    requests = Requests(window, 4)
    await settle()
    if is_its_turn:
        requests.answers[0].set_result(None)
        await asyncio.sleep(0)
    requests.tasks[2].cancel()
    await settle()
    await requests.answer(1)
    assert requests.tasks[2].cancelled()
    assert window.under_way == (1 if is_its_turn else 2)
    requests.tasks[3].cancel()
    await requests.answer(*([] if is_its_turn else [0]))
    assert window.under_way == 0

"""Coroutines that run at once: what they await may be settled at any time, and given up at any time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

import pytest

from koord.http2.prompt import PromptFuture, PromptTask


class Log:
    def __init__(self) -> None:
        self.lines: list[str] = []

    async def of(self, awaited: Awaitable[str]) -> None:
        self.lines.append("begun")
        try:
            self.lines.append(await awaited)
        except ValueError as error:
            self.lines.append(f"raised {error}")
        finally:
            self.lines.append("over")


def prompt() -> PromptFuture[str]:
    return PromptFuture(loop=asyncio.get_running_loop())


async def test_everything_happens_within_the_calls_that_cause_it() -> None:
    log, answer = Log(), prompt()
    PromptTask(log.of(answer)).start()
    assert log.lines == ["begun"]
    answer.set_result("answer")
    answer.settled()
    assert log.lines == ["begun", "answer", "over"]


async def test_what_is_there_already_is_not_waited_for() -> None:
    log, answer = Log(), prompt()
    answer.set_result("answer")
    answer.settled()
    PromptTask(log.of(answer)).start()
    assert log.lines == ["begun", "answer", "over"]


async def test_an_error_is_raised_where_it_is_awaited() -> None:
    log, answer = Log(), prompt()
    PromptTask(log.of(answer)).start()
    answer.set_exception(ValueError("no"))
    answer.settled()
    assert log.lines == ["begun", "raised no", "over"]


@pytest.mark.parametrize("is_prompt", [True, False])
async def test_one_that_is_given_up_hears_of_it_at_once_and_of_nothing_after(is_prompt: bool) -> None:
    log = Log()
    answer = prompt() if is_prompt else asyncio.get_running_loop().create_future()
    task = PromptTask(log.of(answer))
    task.start()
    task.cancel()
    assert log.lines == ["begun", "over"]
    assert answer.cancelled()
    task.cancel()
    await asyncio.sleep(0)
    assert log.lines == ["begun", "over"]


async def test_one_that_has_ended_cannot_be_given_up() -> None:
    log, answer = Log(), prompt()
    task = PromptTask(log.of(answer))
    task.start()
    answer.set_result("answer")
    answer.settled()
    task.cancel()
    assert log.lines == ["begun", "answer", "over"]


async def test_giving_oneself_up_is_nothing() -> None:
    tasks: list[PromptTask] = []

    async def work() -> None:
        tasks[0].cancel()
        tasks.clear()

    tasks.append(PromptTask(work()))
    tasks[0].start()
    assert tasks == []


async def test_any_other_future_may_be_awaited() -> None:
    log = Log()
    other = asyncio.ensure_future(asyncio.sleep(0, "slept"))
    PromptTask(log.of(other)).start()
    await other
    await asyncio.sleep(0)
    assert log.lines == ["begun", "slept", "over"]


async def test_anybody_else_may_await_a_prompt_future() -> None:
    answer = prompt()
    task = asyncio.ensure_future(asyncio.wait_for(answer, 1))
    await asyncio.sleep(0)
    answer.set_result("answer")
    answer.settled()
    assert await task == "answer"

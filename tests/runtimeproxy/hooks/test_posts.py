"""After hooks: in order, bounded, delivered or counted as dropped."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from runtimeproxy.hooks.posts import POST_QUEUE, Post, Posts
from runtimeproxy.hooks.stages import CallStage
from tests.runtimeproxy.hooks.doubles import Caller, Recorder, koordlet, server

DROPPED = ("dropped", "a.json")


async def nothing() -> bytes | None:
    return None


def post(outcome: int) -> Post:
    """Told apart by their outcomes."""
    return Post(CallStage.POST_STOP, nothing, outcome)


class Ear:
    """Hears posts; after ``open`` was cleared it takes for ever."""

    def __init__(self) -> None:
        self.heard: list[int] = []
        self.open = asyncio.Event()
        self.open.set()

    async def tell(self, told: Post) -> None:
        await self.open.wait()
        if told.outcome < 0:
            raise ValueError("a bug")
        self.heard.append(told.outcome)


def posts(tell: Callable[[Post], Awaitable[None]]) -> tuple[Posts, Recorder]:
    recorder = Recorder()
    return Posts("a.json", tell, recorder), recorder


async def test_they_are_delivered_in_order() -> None:
    ear = Ear()
    queue, recorder = posts(ear.tell)
    for number in range(5):
        queue.put(post(number))
    await queue.delivered()
    queue.put(post(5))
    await queue.delivered()
    assert ear.heard == [0, 1, 2, 3, 4, 5]
    queue.close()
    assert recorder.counted == []


@pytest.mark.parametrize("heard", [0, 1, POST_QUEUE])
async def test_every_post_is_heard_or_counted(heard: int) -> None:
    """However many were delivered before the server went away; the one on its way counts as not delivered."""
    ear = Ear()
    queue, recorder = posts(ear.tell)
    for number in range(heard):
        queue.put(post(number))
    await queue.delivered()
    ear.open.clear()
    for number in range(POST_QUEUE + 3):
        queue.put(post(number))
    await asyncio.sleep(0)
    assert recorder.counted == [DROPPED] * 3
    queue.close()
    assert recorder.counted == [DROPPED] * (3 + POST_QUEUE)
    queue.close()
    ear.open.set()
    await asyncio.sleep(0.01)
    assert (len(ear.heard), len(recorder.counted)) == (heard, 3 + POST_QUEUE)


async def test_a_bug_costs_one_post() -> None:
    ear = Ear()
    queue, recorder = posts(ear.tell)
    queue.put(post(-1))
    await queue.delivered()
    queue.put(post(7))
    await queue.delivered()
    assert ear.heard == [7]
    assert DROPPED in recorder.counted


async def test_nothing_to_wait_for() -> None:
    queue, recorder = posts(Ear().tell)
    await queue.delivered()
    queue.close()
    assert recorder.counted == []


@pytest.mark.parametrize(("failed_calls", "outcomes"), [(False, ["0"]), (True, ["0", "5", "14"])])
async def test_a_server_is_told_how_the_call_ended(failed_calls: bool, outcomes: list[str]) -> None:
    one = server(koordlet(), Recorder(), failed_calls=failed_calls)

    async def make() -> bytes:
        return b""

    for outcome in (0, 5, 14):
        one.post(CallStage.POST_STOP, make, outcome)
    await one.delivered()
    caller = one._caller
    assert isinstance(caller, Caller)
    assert [dict(metadata)["koord-outcome"] for metadata in caller.metadata] == outcomes
    assert all(dict(metadata)["koord-runtime-proxy"] == "test" for metadata in caller.metadata)


async def test_questions_before_the_call_have_no_outcome() -> None:
    one = server(koordlet(), Recorder())

    async def unread(answer: bytes) -> bytes:
        return answer

    await one.ask(CallStage.PRE_START, b"", 1.0, unread)
    assert "koord-outcome" not in dict(one._caller.metadata[0])  # type: ignore[attr-defined]

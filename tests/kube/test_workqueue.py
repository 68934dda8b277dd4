"""Keys that wait for a worker: once each, in turn, never in two hands, later after a failure. On virtual time."""

from __future__ import annotations

import asyncio
import itertools
import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koord.kube.backoff import Backoff
from koord.kube.errors import APIError
from koord.kube.workqueue import QueueClosed, WorkQueue
from tests.kube import virtualtime


def queue(base_s: float = 1.0, max_s: float = 8.0) -> WorkQueue[str]:
    return WorkQueue("work", Backoff(base_s, max_s), random=lambda: 1.0)


def now_s() -> float:
    return asyncio.get_running_loop().time()


def test_a_key_waits_once_and_in_its_turn() -> None:
    async def main() -> None:
        work = queue()
        for key in "abacb":
            work.add(key)
        assert len(work) == 3
        assert [await work.get() for _ in range(3)] == ["a", "b", "c"]
        assert len(work) == 0

    virtualtime.run(main())


def test_what_is_added_at_work_comes_again_afterwards() -> None:
    async def main() -> None:
        work = queue()
        work.add("a")
        assert await work.get() == "a"
        work.add("a")
        work.add("a")
        work.add("b")
        assert await work.get() == "b"
        assert len(work) == 0
        work.done("a")
        assert await work.get() == "a"
        work.done("a")
        assert len(work) == 0

    virtualtime.run(main())


@pytest.mark.parametrize(
    ("delays_s", "moments_s"),
    [([5], [5]), ([5, 2], [2]), ([2, 5], [2]), ([0], [0]), ([-1], [0]), ([3, 0], [0, 3])],
    ids=str,
)
def test_the_sooner_of_two_delays_counts(delays_s: list[float], moments_s: list[float]) -> None:
    async def main() -> None:
        work = queue()
        for delay_s in delays_s:
            work.add_after("a", delay_s)
        moments = []
        for _ in moments_s:
            work.done(await work.get())
            moments.append(round(now_s(), 3))
        assert moments == moments_s
        assert not work._later

    virtualtime.run(main())


def test_failures_come_later_and_later() -> None:
    async def main() -> None:
        work, moments = queue(), list[float]()

        async def fail(_: str) -> None:
            moments.append(round(now_s(), 3))
            if len(moments) == 7:
                work.close()
            elif len(moments) != 5:
                raise APIError(409, "Conflict", "")

        work.add("a")
        task = asyncio.create_task(work.work(fail))
        await asyncio.sleep(40)
        work.add("a")
        await task
        assert moments == [0, 1, 3, 7, 15, 40, 41]
        assert (work.handled, work.failed) == (7, 5)

    virtualtime.run(main())


@pytest.mark.parametrize("error", [APIError(500, "InternalError", "no"), ZeroDivisionError()], ids=["API", "bug"])
def test_one_key_that_fails_stops_no_other(error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        work, handled = queue(), list[str]()

        async def handle(key: str) -> None:
            if key == "bad":
                raise error
            handled.append(key)

        for key in ("a", "bad", "b"):
            work.add(key)
        task = asyncio.create_task(work.work(handle))
        await asyncio.sleep(0.5)
        work.close()
        await task
        assert handled == ["a", "b"]

    with caplog.at_level(logging.WARNING, "koord.kube"):
        virtualtime.run(main())
    assert "work bad, again in 1.0 s" in caplog.text


def test_a_handler_says_when_to_come_back() -> None:
    async def main() -> None:
        work, moments = queue(), list[float]()

        async def handle(_: str) -> float | None:
            moments.append(round(now_s(), 3))
            if len(moments) == 3:
                work.close()
            return 10.0

        work.add("a")
        await work.work(handle)
        assert moments == [0, 10, 20]

    virtualtime.run(main())


@pytest.mark.parametrize("workers", [1, 4])
def test_other_work_of_the_loop_comes_between_keys_that_wait_for_nothing(workers: int) -> None:
    """Such as the Nodes of a cluster after a change of the policy, of which most need no write."""
    looked_at, seen = list[int](), list[int]()

    async def look(key: int) -> None:
        looked_at.append(key)

    def watch() -> None:
        seen.append(len(looked_at))
        if len(looked_at) < 100:
            asyncio.get_running_loop().call_soon(watch)

    async def run() -> None:
        queue = WorkQueue[int]("test")
        for key in range(100):
            queue.add(key)
        queue.close()
        watch()
        await queue.work(look, workers)

    asyncio.run(run())
    assert looked_at == list(range(100))
    assert max(later - sooner for sooner, later in itertools.pairwise(seen)) <= workers


def test_closing_lets_finish_what_waits_and_takes_nothing_new() -> None:
    async def main() -> None:
        work, handled = queue(), list[str]()

        async def handle(key: str) -> None:
            if key == "a":
                work.add("a")
                await asyncio.sleep(1)
                work.close()
                work.add("new")
                work.add_after("new", 1)
            handled.append(key)

        work.add("a")
        work.add("b")
        work.add_after("later", 100)
        await work.work(handle)
        assert handled == ["a", "b", "a"]
        assert now_s() < 3
        with pytest.raises(QueueClosed):
            await work.get()

    virtualtime.run(main())


def test_closing_forgets_what_was_for_later() -> None:
    async def main() -> None:
        work, handled = queue(), list[str]()

        async def handle(key: str) -> None:
            handled.append(key)
            work.close()
            await asyncio.sleep(200)

        work.add("a")
        work.add_after("later", 100)
        await work.work(handle)
        assert handled == ["a"]

    virtualtime.run(main())


def test_closing_wakes_who_waits() -> None:
    async def main() -> None:
        work = queue()

        async def handle(_: str) -> None:
            await asyncio.sleep(5)

        work.add("a")
        task = asyncio.create_task(work.work(handle, workers=3))
        await asyncio.sleep(1)
        work.close()
        await task
        assert now_s() == 5

    virtualtime.run(main())


KEYS = st.sampled_from("abcd")
STEPS = st.lists(
    st.tuples(KEYS, st.sampled_from([0.0, 0.3, 1.0]), st.sampled_from([0.0, 0.1, 0.7])), min_size=1, max_size=30
)


@given(STEPS, st.integers(1, 4))
def test_every_addition_is_looked_at_afterwards_and_by_one_worker(
    steps: list[tuple[str, float, float]], workers: int
) -> None:
    async def main() -> None:
        work = queue()
        at_work, looked = set[str](), dict[str, float]()

        async def handle(key: str) -> None:
            assert key not in at_work
            at_work.add(key)
            looked[key] = now_s()
            await asyncio.sleep(0.25)
            at_work.discard(key)
            if int(now_s() * 4) % 5 == 0:
                raise APIError(500, "InternalError", "")

        task = asyncio.create_task(work.work(handle, workers))
        due = dict[str, float]()
        for key, delay_s, pause_s in steps:
            work.add_after(key, delay_s)
            due[key] = now_s()
            await asyncio.sleep(pause_s)
        await asyncio.sleep(60)
        work.close()
        await task
        assert all(looked[key] >= moment for key, moment in due.items())

    virtualtime.run(main())

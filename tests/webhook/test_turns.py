"""Turns: one at a time, each source's in their order, and none waits for more than one of every other."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from koord.webhook.turns import Turns


class Work:
    """What is done in turn, and in which order."""

    def __init__(self) -> None:
        self.turns, self.order = Turns(), list[str]()
        self.at_work = self.most_at_work = 0

    async def do(self, source: str, name: str, passes: int = 1, is_behind: bool = False) -> None:
        async with self.turns.turn(source, is_behind):
            self.at_work += 1
            self.most_at_work = max(self.most_at_work, self.at_work)
            for _ in range(passes):
                await asyncio.sleep(0)
            self.order.append(name)
            self.at_work -= 1

    async def all(self, names: str) -> None:
        """``names``: such as ``a1 a2 b1``, which come in this order; the letter is the source."""
        await asyncio.gather(*[self.do(name[0], name) for name in names.split()])


@pytest.mark.parametrize(
    ("come", "served"),
    [
        ("a1", "a1"),
        ("a1 a2 a3", "a1 a2 a3"),
        ("a1 a2 a3 a4 b1", "a1 a2 b1 a3 a4"),
        ("a1 a2 a3 b1 b2 c1", "a1 a2 b1 c1 a3 b2"),
        ("a1 b1 a2 b2 a3 b3", "a1 b1 a2 b2 a3 b3"),
    ],
)
async def test_sources_take_turns(come: str, served: str) -> None:
    work = Work()
    await work.all(come)
    assert (work.order, work.most_at_work) == (served.split(), 1)
    await work.all(come)
    assert work.order == served.split() * 2, "nothing is left behind"


async def test_networks_take_turns_and_addresses_within_them() -> None:
    work = Work()
    sources = ["10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.1", "2001:db8::1", "2001:db8::2", "10.9.9.9"]
    await asyncio.gather(*[work.do(source, f"{source}#{index}") for index, source in enumerate(sources)])
    assert work.order == [
        "10.0.0.1#0",  # nobody waits yet
        "10.0.0.2#1",
        "2001:db8::1#4",
        "10.9.9.9#6",
        "10.0.0.3#2",
        "2001:db8::2#5",
        "10.0.0.1#3",
    ]


async def test_who_is_put_behind_has_one_turn_of_eight() -> None:
    work = Work()
    behind = [work.do("z", f"z{number}", is_behind=True) for number in range(3)]
    ahead = [work.do("a", f"a{number}") for number in range(15)]
    await asyncio.gather(work.do("x", "x"), *behind, *ahead)
    assert [work.order.index(f"z{number}") for number in range(3)] == [8, 16, 18]


async def test_who_waits_ahead_of_others() -> None:
    turns = Turns()

    async def wait(source: str, is_behind: bool = False) -> None:
        async with turns.turn(source, is_behind):
            pass

    async with turns.turn("10.0.0.1"):
        waiting = [asyncio.create_task(wait("10.0.0.2")), asyncio.create_task(wait("10.1.1.1", is_behind=True))]
        await asyncio.sleep(0)
        assert not turns.are_others_ahead("10.0.0.1"), "only one of its own network, and one who is behind"
        assert turns.are_others_ahead("10.1.1.1")
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        assert not turns.are_others_ahead("10.1.1.1")


@pytest.mark.parametrize(
    ("turn_ms", "order"),
    [
        (6, "1 other 2 other 3 other"),
        (4, "1 2 other other 3 other"),
        (1, "1 2 3 other other other"),
    ],
)
async def test_other_work_of_the_loop_comes_between_turns_that_are_not_short(turn_ms: int, order: str) -> None:
    """Also where nobody waits for a turn."""
    now_ms, done = 100_000.0, list[str]()
    turns = Turns(cpu_clock=lambda: now_ms / 1e3)

    async def work(name: str) -> None:
        nonlocal now_ms
        async with turns.turn("a"):
            now_ms += turn_ms
            done.append(name)
            asyncio.get_running_loop().call_soon(done.append, "other")

    await asyncio.gather(*[work(name) for name in "123"])
    await asyncio.sleep(0)
    assert done == order.split()


@pytest.mark.parametrize(
    ("rest", "turns_ms", "rests_ms"),
    [
        (0, [20, 20, 20], []),
        (2, [100, 100, 100, 1], [150, 200, 200]),
        (2, [5] * 8, [10, 10]),  # the rest after five is owed
    ],
)
async def test_the_loop_rests_after_a_turn_by_what_the_turn_took(
    rest: float, turns_ms: list[int], rests_ms: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    now_ms = 100_000.0
    turns, rested_ms = Turns(rest, lambda: now_ms / 1e3, lambda: now_ms / 1e3), list[int]()

    async def sleep(delay_s: float) -> None:
        nonlocal now_ms
        if round(delay_s * 1e3):
            rested_ms.append(round(delay_s * 1e3))
        now_ms += delay_s * 1e3

    monkeypatch.setattr(asyncio, "sleep", sleep)
    for turn_ms in turns_ms:
        with contextlib.suppress(ZeroDivisionError):
            async with turns.turn("a"):
                now_ms += turn_ms
                raise ZeroDivisionError
    assert rested_ms == rests_ms


@pytest.mark.parametrize(
    ("turn_s", "cpu_s", "passed_s", "waited_s"),
    [
        (0.1, 0.1, 0.0, 0.15),
        (0.1, 0.1, 0.1, 0.05),
        (0.1, 0.1, 0.5, 0.0),
        (0.1, 0.06, 0.0, 0.03),  # others had the CPU meanwhile
    ],
)
async def test_a_rest_that_has_passed_is_not_waited_for(
    turn_s: float, cpu_s: float, passed_s: float, waited_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s, cpu_now_s, delays_s = 100.0, 7.0, list[float]()
    turns = Turns(2.0, lambda: now_s, lambda: cpu_now_s)

    async def sleep(delay_s: float) -> None:
        delays_s.append(delay_s)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    async with turns.turn("a"):
        now_s += turn_s
        cpu_now_s += cpu_s
    now_s += passed_s
    async with turns.turn("b"):
        pass
    assert delays_s == pytest.approx([waited_s])


@pytest.mark.parametrize("passes", range(6))
@pytest.mark.parametrize("gone", ["a1", "a2", "b1"])
async def test_who_is_cancelled_takes_nobodys_turn_with_him(gone: str, passes: int) -> None:
    work = Work()
    tasks = {name: asyncio.create_task(work.do(name[0], name, 2)) for name in ("a1", "a2", "b1", "b2")}
    for _ in range(passes):
        await asyncio.sleep(0)
    tasks[gone].cancel()
    async with asyncio.timeout(5):
        await asyncio.gather(*tasks.values(), return_exceptions=True)
        await work.do("c", "c1")
    assert {*work.order} >= {"a1", "a2", "b1", "b2", "c1"} - {gone}


async def test_what_fails_in_a_turn_ends_it() -> None:
    work = Work()
    with pytest.raises(ZeroDivisionError):
        async with work.turns.turn("a"):
            raise ZeroDivisionError
    await work.all("a1 b1")
    assert work.order == ["a1", "b1"]

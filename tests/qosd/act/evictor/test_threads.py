"""What others see of evictions, and orders of another thread."""

from __future__ import annotations

import asyncio
import threading

import pytest
from msgspec import structs

from qosd.act.evictor import AT_ONCE
from qosd.decide.decision import Eviction
from qosd.model.snapshot import PodView
from tests.qosd.act.evictor.rig import STOPPING, WEB, Rig, settled, start, web
from tests.qosd.podviews import view


async def test_what_does_not_change_is_the_same_object_and_costs_nothing() -> None:
    rig = Rig()
    assert not rig.evictor.under_way
    looks: list[int] = []

    class Counted(tuple[PodView, ...]):
        def __iter__(self):  # type: ignore[no-untyped-def]
            looks.append(1)
            return super().__iter__()

    pods = Counted((web("a"),))
    rig.evictor.follow(pods)
    await rig.order()
    before = rig.evictor.under_way
    looks.clear()
    for _ in range(5):
        rig.evictor.follow(pods)
    assert (len(looks), rig.evictor.under_way is before) == (0, True)
    rig.evictor.follow((web("a", "b"),))
    assert rig.evictor.under_way is before
    with pytest.raises(TypeError):
        rig.evictor.under_way["x"] = before["web"]  # type: ignore[index]
    await rig.script.end()
    assert rig.evictor.under_way is not before
    assert before["web"].phase is STOPPING


async def test_a_few_are_executed_at_once_and_the_others_in_turn() -> None:
    rig = Rig()
    orders = [("memory", structs.replace(WEB, uid=f"web{n}")) for n in range(2 * AT_ONCE)]
    assert {result for result, _ in start(rig.evictor, orders, 1)} == {"started"}
    await settled()
    assert len(rig.script.orders) == AT_ONCE
    await rig.script.end("web1")
    assert len(rig.script.orders) == AT_ONCE + 1
    assert len(rig.notes.evictions) == 2 * AT_ONCE


async def test_orders_of_a_thread_while_the_loop_ends_executions() -> None:
    class Quick:
        async def evict(self, eviction: Eviction) -> None:
            await asyncio.sleep(0)

    rig, rounds, failures = Rig(executor=Quick()), 200, []
    pods = tuple(view(f"p{n}") for n in range(8))

    def ticks() -> None:
        try:
            for tick in range(rounds):
                start(rig.evictor, [("memory", Eviction(pod.uid, pod.name, "why")) for pod in pods], tick)
                rig.evictor.follow(pods if tick % 2 else ())
                assert rig.evictor.under_way.keys() <= {pod.uid for pod in pods}
        except BaseException as error:
            failures.append(error)
            raise

    thread = threading.Thread(target=ticks)
    thread.start()
    while thread.is_alive():  # noqa: ASYNC110 - a thread tells nobody
        await asyncio.sleep(0)
    await settled()
    await rig.follow()
    await rig.follow()
    assert not failures
    assert (dict(rig.evictor.under_way), rig.notes.evictions) == ({}, ())
    counts = {each: rig.journal.results.count(each) for each in ("stopping", "done", "vanished")}
    assert len(set(counts.values())) == 1, counts

"""An evictor with a clock that stands still, a journal and notes that can be looked at, a scripted executor."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Iterable
from typing import cast

from koord.host.evictions import NotedEviction
from koord.host.undo import UndoError, UndoRecord
from qosd.act.evictor import Evictor, Executor
from qosd.act.journal import JournalEntry
from qosd.decide.decision import Decision, Eviction, Stage
from qosd.decide.reliefstate import Relief
from qosd.decide.runner import Decisions, StrategyResult, StrategyStatus
from qosd.decide.shortage import Shortage
from qosd.model.snapshot import EvictionPhase, PodView
from tests.fakes.clock import Clock, S
from tests.qosd.podviews import EXITED, RUNNING, view

STOPPING, STOPPED, RESTARTED, FAILED = EvictionPhase
GROUP = "/kubepods/burstable/podweb"
WEB = Eviction("web", "default/web", "memory is short", GROUP, grace_s=3)


class Journal:
    def __init__(self) -> None:
        self.entries: list[JournalEntry] = []

    def record(self, entry: JournalEntry) -> None:
        self.entries.append(entry)

    @property
    def results(self) -> list[str]:
        return [each.result for each in self.entries]


class Notes:
    """The undo record's evictions. ``steps``: what was noted and forgotten; ``full``: nothing can be noted."""

    def __init__(self, *evictions: NotedEviction) -> None:
        self._evictions = {each.uid: each for each in evictions}
        self.full = False

    def note(self, eviction: NotedEviction) -> None:
        self._fail_if_full()
        self._evictions[eviction.uid] = eviction

    def drop(self, kind: type[NotedEviction], uid: str) -> None:
        self._fail_if_full()
        self._evictions.pop(uid, None)

    def all(self, kind: type[NotedEviction]) -> tuple[NotedEviction, ...]:
        return self.evictions

    def _fail_if_full(self) -> None:
        if self.full:
            raise UndoError(errno.ENOSPC, "undo record: No space left on device", "/run/undo")

    @property
    def evictions(self) -> tuple[NotedEviction, ...]:
        return tuple(self._evictions.values())


class Script:
    """An executor that ends when the test says how. ``orders``: those begun, in order."""

    def __init__(self) -> None:
        self.orders: list[Eviction] = []
        self._ends: dict[str, asyncio.Future[None]] = {}

    async def evict(self, eviction: Eviction) -> None:
        self.orders.append(eviction)
        self._ends[eviction.uid] = asyncio.get_running_loop().create_future()
        await self._ends[eviction.uid]

    async def end(self, uid: str = "web", error: Exception | None = None) -> None:
        if error is None:
            self._ends[uid].set_result(None)
        else:
            self._ends[uid].set_exception(error)
        await settled()


async def settled() -> None:
    """All that can go on in the loop has gone on."""
    for _ in range(10):
        await asyncio.sleep(0)


def start(
    evictor: Evictor, orders: Iterable[tuple[str, Eviction]], tick: int, lacks: Shortage | None = None
) -> tuple[tuple[str, str], ...]:
    """Result and detail of each strategy's order; a plan before shows just these, and orders nothing."""
    results = [
        StrategyResult(who, Stage.RELIEF, StrategyStatus.ACTIVE, Relief("", evictions=(eviction,)))
        for who, eviction in orders
    ]
    if lacks is not None:
        results.append(
            StrategyResult("memoryEvict", Stage.RELIEF, StrategyStatus.ACTIVE, Decision("", shortages=(lacks,)))
        )
    decisions = Decisions(tick, 7 * S, 1000 * S, tuple(results))
    plan = evictor.plan(decisions)
    outcomes = evictor.apply(decisions, plan)
    assert tuple(outcome.write for outcome in outcomes) == plan.writes
    return tuple((outcome.result, outcome.detail) for outcome in outcomes)


class Rig:
    """An evictor with a clock that stands still, by default with a scripted executor."""

    def __init__(self, *notes: NotedEviction, executor: Executor | None = None, has_executor: bool = True) -> None:
        self.script, self.journal, self.notes = Script(), Journal(), Notes(*notes)
        self.clock = Clock(1000)
        self._executor = (executor or self.script) if has_executor else None
        self.evictor = self.begun()

    def begun(self) -> Evictor:
        loop = asyncio.get_running_loop()
        notes = cast("UndoRecord", self.notes)
        return Evictor(notes, self.journal, self._executor, loop, monotonic=self.clock, wall=lambda: 7 * S)

    async def order(self, eviction: Eviction = WEB, tick: int = 1) -> str:
        ((result, _),) = start(self.evictor, [("memory", eviction)], tick)
        await settled()
        return result

    async def follow(self, *pods: PodView) -> None:
        self.evictor.follow(pods)
        await settled()

    @property
    def phase(self) -> EvictionPhase | None:
        state = self.evictor.under_way.get("web")
        return None if state is None else state.phase

    async def stopped(self) -> None:
        """Order, and all containers exit."""
        await self.follow(web("a"))
        assert await self.order() == "started"
        await self.script.end()
        await self.follow(web())


def web(*running: str, exited: Iterable[str] = ()) -> PodView:
    return view("web", containers=[*((name, RUNNING) for name in running), *((name, EXITED) for name in exited)])

"""The evictor: phases, journal and notes of each course that an eviction can take, and a crash at every step of it."""

from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar, cast

import pytest
from msgspec import structs

from koord.host.evictions import NotedEviction
from koord.host.undo import UndoError, UndoRecord
from koord.pb.cri import api_pb2 as cri
from qosd.act.cristop import CRIStop
from qosd.act.evictioncase import REMEMBERED_S
from qosd.act.evictionreport import RECENT_S, EvictionCount
from qosd.act.evictor import AT_ONCE, Evictor
from qosd.act.executor import EvictionFailed, EvictionRefused, Executor
from qosd.act.journal import Entry
from qosd.decide.decision import Decision, Eviction, Stage
from qosd.decide.reliefstate import Relief
from qosd.decide.runner import Decisions, State, StrategyResult
from qosd.decide.shortage import Resource, Shortage, Victims
from qosd.decide.victims import LATE_S
from qosd.model.pod import Resources
from qosd.model.snapshot import ContainerView, EvictionPhase, PodFacts, PodView
from qosd.pods.cri import Container, Detail, Runtime, Sandbox
from tests.fakes.clock import Clock, S
from tests.fakes.runtime import FakeRuntime
from tests.qosd.podviews import EXITED, RUNNING, view

STOPPING, STOPPED, RESTARTED, FAILED = EvictionPhase
GROUP = "/kubepods/burstable/podweb"
WEB = Eviction("web", "default/web", "memory is short", GROUP, grace_s=3)
Row = tuple[str, str]
T = TypeVar("T")


class Journal:
    def __init__(self) -> None:
        self.entries: list[Entry] = []

    def record(self, entry: Entry) -> None:
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
        StrategyResult(who, Stage.RELIEF, State.ACTIVE, Relief("", evictions=(eviction,))) for who, eviction in orders
    ]
    if lacks is not None:
        results.append(StrategyResult("memoryEvict", Stage.RELIEF, State.ACTIVE, Decision("", shortages=(lacks,))))
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


# the courses


async def test_an_eviction_from_the_order_to_the_pods_end() -> None:
    rig = Rig()
    await rig.follow(web("a", "b"))
    assert start(rig.evictor, [("memory", WEB)], 12) == (("started", "attempt 1 is noted and handed over"),)
    assert rig.notes.evictions == (NotedEviction("web", "default/web", "memory", GROUP, 1, 3, at_ns=1000 * S),)
    assert not rig.script.orders, "the tick's thread stops nothing itself"
    await settled()
    assert rig.script.orders == [WEB]
    state = rig.evictor.under_way["web"]
    assert (state.phase, state.attempts, state.since_ns, state.retry_ns) == (STOPPING, 1, 1000 * S, 1010 * S)
    rig.clock.advance(2)
    await rig.script.end()
    state = rig.evictor.under_way["web"]
    assert (state.phase, state.problem, state.since_ns) == (STOPPED, "", 1000 * S)
    assert (rig.notes.evictions[0].is_stopped, rig.notes.evictions[0].at_ns) == (True, 1002 * S)
    await rig.follow(web("a", "b"))
    await rig.follow(web(exited="ab"))
    assert rig.phase is STOPPED, "those that ran before the stop are no new ones"
    await rig.follow()
    assert (rig.phase, rig.notes.evictions) == (None, ())
    first = rig.journal.entries[0]
    assert (first.wall_ns, first.monotonic_ns, first.tick, first.owner) == (7 * S, 1000 * S, 12, "memory")
    assert (first.pod, first.cgroup, first.name, first.path) == ("default/web", GROUP, "pod.eviction", GROUP)
    assert [(each.before, each.after, each.result, each.why) for each in rig.journal.entries] == [
        ("running", "stopped", "stopping", "the containers are being stopped: memory is short"),
        (
            "running",
            "stopped",
            "done",
            "memory is short: all containers have exited and their cgroups are gone, after 2 s",
        ),
        (None, None, "vanished", "the pod is gone"),
    ]


async def test_what_fails_is_told_and_can_be_ordered_again() -> None:
    rig = Rig()
    await rig.order()
    await rig.script.end(error=EvictionFailed("container a (12) is running: permission denied"))
    state = rig.evictor.under_way["web"]
    assert (state.phase, state.problem) == (FAILED, "container a (12) is running: permission denied")
    assert (rig.journal.entries[-1].result, rig.journal.entries[-1].why) == (
        "failed",
        "memory is short: container a (12) is running: permission denied",
    )
    assert not rig.notes.evictions[0].is_stopped
    rig.clock.advance(10)
    assert await rig.order() == "started"
    state = rig.evictor.under_way["web"]
    assert (state.phase, state.attempts, state.problem) == (STOPPING, 2, "")
    assert rig.journal.entries[-1].why == "the containers are being stopped (attempt 2): memory is short"
    await rig.script.end()
    assert rig.phase is STOPPED


async def test_the_next_run_counts_what_this_one_began_by_the_same_gate() -> None:
    rig = Rig(structs.replace(LEFT, gate="BECPUEvict"))
    await rig.follow(web("a"))
    assert rig.script.orders[0].gate == "BECPUEvict"
    await rig.script.end()
    assert rig.evictor.report.counts == {"BECPUEvict": 1}


async def test_an_executor_that_breaks_fails_its_eviction(caplog: pytest.LogCaptureFixture) -> None:
    rig = Rig()
    await rig.order()
    await rig.script.end(error=ZeroDivisionError("division by zero"))
    assert rig.evictor.under_way["web"].problem == "ZeroDivisionError: division by zero"
    assert "evicting default/web" in caplog.text


async def test_what_a_budget_refuses_has_not_been_begun_and_is_not_left_to_the_next_run() -> None:
    rig = Rig()
    await rig.follow(web("a"))
    await rig.order()
    await rig.script.end(error=EvictionRefused("api eviction refused by PodDisruptionBudget web"))
    state = rig.evictor.under_way["web"]
    assert (state.phase, state.is_refused, state.problem) == (
        FAILED, True, "api eviction refused by PodDisruptionBudget web",
    )  # fmt: skip
    assert rig.notes.evictions == ()
    rig.clock.advance(10)
    assert await rig.order() == "started"
    state = rig.evictor.under_way["web"]
    assert (state.is_refused, state.attempts, len(rig.notes.evictions)) == (False, 2, 1)
    await rig.script.end(error=EvictionFailed("no answer"))
    assert not rig.evictor.under_way["web"].is_refused
    assert len(rig.notes.evictions) == 1


@pytest.mark.parametrize(
    ("error", "left_s", "result"),
    [
        (EvictionRefused("by a budget"), 3.0, "started"),
        (EvictionRefused("by a budget"), None, "refused"),
        (EvictionFailed("permission denied"), 3.0, "refused"),
    ],
)
async def test_who_was_refused_need_not_wait_in_an_emergency(
    error: EvictionFailed, left_s: float | None, result: str
) -> None:
    rig = Rig()
    await rig.order()
    await rig.script.end(error=error)
    rig.clock.advance(1)
    orders = [("memory", WEB)]
    assert start(rig.evictor, orders, 2, lacks=lately(left_s))[0][0] == result
    late = "it is too late in 3 s (memoryEvict: 97 % are in use)"
    assert rig.evictor.emergency == ("" if left_s is None else late)
    start(rig.evictor, [], 3)
    assert rig.evictor.emergency == "", "it is the last tick's"


def lately(left_s: float | None) -> Shortage:
    return Shortage(Resource.MEMORY_BYTES, 1, Victims(None, "MemoryEvict"), (), "97 % are in use", left_s=left_s)


async def test_an_executor_is_replaced_for_what_begins_afterwards() -> None:
    rig, other = Rig(), Script()
    await rig.order()
    rig.evictor.executor = other
    await rig.order(structs.replace(WEB, uid="db"))
    await rig.script.end()
    await other.end("db")
    rig.evictor.executor = None
    await rig.follow(web("b"))
    rig.clock.advance(20)
    assert await rig.order() == "refused"
    assert ([each.uid for each in rig.script.orders], [each.uid for each in other.orders]) == (["web"], ["db"])


async def test_an_executors_steps_are_told_of_evictions_that_are_under_way() -> None:
    rig = Rig()
    rig.evictor.tell_step(WEB, "stopping", "too early")
    await rig.order(tick=12)
    rig.evictor.tell_step(WEB, STOPPING, "fell back to CRI because nobody answers")
    last = rig.journal.entries[-1]
    assert (last.pod, last.result, last.why, last.tick) == (
        "default/web", "stopping", "fell back to CRI because nobody answers", 12,
    )  # fmt: skip
    assert rig.journal.results == ["stopping", "stopping"]


async def test_each_restart_by_kubelet_doubles_the_pause() -> None:
    rig = Rig()
    pauses_s = []
    for attempt in range(1, 9):
        await rig.follow(web(f"a{attempt}"))
        if attempt > 1:
            assert (rig.phase, rig.journal.results[-1]) == (RESTARTED, "restarted")
            assert rig.evictor.under_way["web"].attempts == attempt - 1
            assert rig.journal.entries[-1].why == f"kubelet has started containers again: a{attempt}"
            rig.clock.ns = rig.evictor.under_way["web"].retry_ns - S
            assert start(rig.evictor, [("memory", WEB)], 1) == (("refused", "not again for 1 s"),)
            rig.clock.advance(1)
        assert await rig.order() == "started"
        await rig.script.end()
        state = rig.evictor.under_way["web"]
        assert (state.phase, state.attempts) == (STOPPED, attempt)
        pauses_s.append((state.retry_ns - state.since_ns) // S)
    assert pauses_s == [10, 20, 40, 80, 160, 300, 300, 300]
    assert rig.journal.results == ["stopping", "done", *["restarted", "stopping", "done"] * 7]


@pytest.mark.parametrize("error", [EvictionRefused("by a budget, for 30 s"), EvictionFailed("permission denied")])
async def test_the_pause_runs_from_the_end_of_an_attempt_that_failed(error: EvictionFailed) -> None:
    rig = Rig()
    for attempt, pause_s in enumerate([10, 20, 40], start=1):
        assert await rig.order() == "started"
        rig.clock.advance(30)
        await rig.script.end(error=error)
        state = rig.evictor.under_way["web"]
        assert (state.attempts, state.retry_ns) == (attempt, rig.clock.ns + pause_s * S)
        rig.clock.advance(pause_s - 1)
        assert start(rig.evictor, [("memory", WEB)], 1) == (("refused", "not again for 1 s"),)
        rig.clock.advance(1)


async def test_what_has_come_about_is_counted_and_nothing_else() -> None:
    rig, at_first = Rig(), 1000 * S
    by_memory = structs.replace(WEB, gate="BEMemoryEvict")
    await rig.order(by_memory)
    await rig.script.end(error=EvictionFailed("permission denied"))
    assert (rig.evictor.report.counts, rig.evictor.report.recent_counts) == ({}, {})
    rig.clock.advance(10)
    await rig.order(by_memory)
    await rig.script.end()
    first = rig.evictor.report
    assert first.counts == {"BEMemoryEvict": 1}
    assert first.recent_counts == {("BEMemoryEvict", "default/web"): EvictionCount(1, at_first + 10 * S)}
    rig.clock.advance(RECENT_S)
    await rig.follow(web("b"))
    await rig.order(by_memory)
    await rig.script.end()
    assert rig.evictor.report.recent_counts == {("BEMemoryEvict", "default/web"): EvictionCount(2, at_first + 310 * S)}
    rig.clock.advance(RECENT_S + 1)
    other = Eviction("db", "default/db", "CPU is short", GROUP, gate="CPUEvict")
    await rig.order(other)
    await rig.script.end("db")
    by_cpu = {("CPUEvict", "default/db"): EvictionCount(1, rig.clock.ns)}
    assert rig.evictor.report.recent_counts == by_cpu, "the other is old"
    assert rig.evictor.report.counts == {"BEMemoryEvict": 2, "CPUEvict": 1}
    assert first.counts == {"BEMemoryEvict": 1}, "a report never changes"


async def test_the_same_pod_with_a_new_sandbox() -> None:
    """Both are listed for a moment, and what runs in the new one has been started since."""
    rig = Rig()
    await rig.stopped()
    old, new = structs.replace(web(exited="a"), state="SANDBOX_NOTREADY"), web("a-1")
    await rig.follow(old)
    assert rig.phase is STOPPED
    await rig.follow(old, new)
    assert rig.phase is RESTARTED
    await rig.follow(new)
    assert (rig.phase, rig.evictor.under_way["web"].attempts) == (RESTARTED, 1)


async def test_a_container_seen_while_it_is_stopped_is_none_that_kubelet_started_again() -> None:
    rig = Rig()
    await rig.follow(web("a"))
    await rig.order()
    await rig.follow(web("a", "b"))
    await rig.script.end()
    await rig.follow(web("b"))  # a list made before the stop
    assert rig.phase is STOPPED
    await rig.follow(web("c"))
    assert rig.phase is RESTARTED


async def test_a_pod_that_goes_while_its_containers_are_stopped_ends_with_its_execution() -> None:
    rig = Rig()
    await rig.order()
    pods = (view("other"),)
    rig.evictor.follow(pods)
    assert rig.phase is STOPPING
    await rig.script.end()
    rig.evictor.follow(pods)
    assert (rig.phase, rig.notes.evictions) == (None, ())
    assert rig.journal.results == ["stopping", "done", "vanished"]


async def _stop(rig: Rig) -> None:
    await rig.stopped()


async def _fail(rig: Rig) -> None:
    await rig.order()
    await rig.script.end(error=EvictionFailed("no"))


async def _restart(rig: Rig) -> None:
    await rig.stopped()
    await rig.follow(web("b"))


@pytest.mark.parametrize("course", [_stop, _fail, _restart])
async def test_an_eviction_that_is_left_alone_ends(course: Callable[[Rig], Awaitable[None]]) -> None:
    rig = Rig()
    await course(rig)
    pods = (web("b") if rig.phase is RESTARTED else web(),)
    rig.evictor.follow(pods)
    rig.clock.advance(REMEMBERED_S - 1)
    rig.evictor.follow(pods)
    assert rig.phase is not None
    rig.clock.advance(1)
    rig.evictor.follow(pods)
    assert (rig.phase, rig.notes.evictions, rig.journal.results[-1]) == (None, (), "ended")


async def test_one_that_is_being_stopped_is_never_forgotten() -> None:
    rig = Rig()
    await rig.order()
    rig.clock.advance(2 * REMEMBERED_S)
    await rig.follow(web("a"))
    assert rig.phase is STOPPING


@pytest.mark.parametrize(
    ("deletion_unix_s", "left_s"), [(None, 0), (307.0, 300 + LATE_S), (7.0, LATE_S), (7.0 - LATE_S, 0)]
)
async def test_what_kubelet_has_left_to_end_a_pod(deletion_unix_s: float | None, left_s: float) -> None:
    rig = Rig()
    assert rig.evictor.left_s("web") == 0
    facts = PodFacts(deletion_unix_s=deletion_unix_s)
    await rig.follow(view("other"), structs.replace(web("a"), facts=facts))
    assert (rig.evictor.left_s("web"), rig.evictor.left_s("other")) == (left_s, 0)
    await rig.follow()
    assert rig.evictor.left_s("web") == 0


# orders that are refused


async def test_orders_for_a_pod_that_is_busy_are_refused_without_a_row() -> None:
    rig = Rig()
    await rig.follow(web("a"))
    await rig.order()
    assert start(rig.evictor, [("cpu", WEB)], 2) == (("refused", "is under way"),)
    await rig.script.end()
    assert start(rig.evictor, [("cpu", WEB)], 3) == (
        ("refused", "its containers have been stopped, and none has been started since"),
    )
    assert (len(rig.script.orders), rig.journal.results) == (1, ["stopping", "done"])


async def test_what_cannot_be_noted_is_not_stopped_and_told_once() -> None:
    rig = Rig()
    rig.notes.full = True
    pods = (web("a"), view("other"))
    for tick in range(3):
        rig.evictor.follow(pods)
        ((result, detail),) = start(rig.evictor, [("memory", WEB)], tick)
        assert result == "refused"
        assert "cannot be noted: [Errno 28] undo record: No space left on device: '/run/undo'" in detail
    await settled()
    assert (rig.script.orders, dict(rig.evictor.under_way), rig.journal.results) == ([], {}, ["refused"])
    await rig.follow()
    assert await rig.order() == "refused"
    assert rig.journal.results == ["refused"] * 2, "the reason is told anew of a pod that has been away"
    rig.notes.full = False
    assert await rig.order() == "started"


async def test_a_second_attempt_that_cannot_be_noted_leaves_the_first() -> None:
    rig = Rig()
    await rig.order()
    await rig.script.end(error=EvictionFailed("no"))
    rig.clock.advance(10)
    before = rig.evictor.under_way
    rig.notes.full = True
    assert await rig.order() == "refused"
    assert rig.evictor.under_way is before
    assert rig.notes.evictions[0].attempts == 1


async def test_an_end_that_cannot_be_noted_is_an_end(caplog: pytest.LogCaptureFixture) -> None:
    rig = Rig()
    await rig.order()
    rig.notes.full = True
    await rig.script.end()
    await rig.follow()
    assert rig.phase is None
    assert caplog.text.count("the undo record says of the eviction of web what it said before") == 2


async def test_without_a_runtime_every_order_is_refused() -> None:
    rig = Rig(has_executor=False)
    expected = ("refused", "no runtime endpoint is configured, so nobody can stop containers")
    other = structs.replace(WEB, uid="other")
    assert start(rig.evictor, [("memory", WEB), ("cpu", other)], 1) == (expected, expected)
    assert (rig.notes.evictions, dict(rig.evictor.under_way), rig.journal.results) == ((), {}, ["refused"] * 2)


async def test_orders_after_the_end_are_refused() -> None:
    rig = Rig()
    await rig.evictor.close()
    assert await rig.order() == "refused"
    assert rig.notes.evictions == ()


def test_orders_to_a_loop_that_is_closed_are_refused() -> None:
    async def made() -> Rig:
        return Rig()

    rig = asyncio.run(made())
    assert start(rig.evictor, [("memory", WEB)], 1) == (("refused", "koord-qosd is about to end"),)
    assert (rig.notes.evictions, dict(rig.evictor.under_way)) == ((), {})


# what others see, and from where


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
    for _ in range(5):
        rig.evictor.follow(pods)
    assert (len(looks), rig.evictor.under_way is before) == (1, True)
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


# what an earlier run left

LEFT = NotedEviction("web", "default/web", "memory", GROUP, attempts=3, grace_s=3, at_ns=990 * S)


async def test_what_an_earlier_run_left_is_executed_again_with_its_attempts() -> None:
    rig = Rig(LEFT)
    state = rig.evictor.under_way["web"]
    assert (state.phase, state.attempts) == (STOPPING, 3)
    assert start(rig.evictor, [("memory", WEB)], 1) == (("refused", "is under way"),)
    rig.clock.advance(5)
    await rig.follow(web("a"))
    ((order),) = rig.script.orders
    assert (order.uid, order.cgroup, order.grace_s) == ("web", GROUP, 3)
    state = rig.evictor.under_way["web"]
    assert (state.attempts, state.since_ns, state.retry_ns) == (3, 1005 * S, 1045 * S)
    await rig.follow(web("a"))
    assert len(rig.script.orders) == 1
    await rig.script.end()
    await rig.follow(web("a"))
    assert rig.phase is STOPPED
    await rig.follow()
    assert rig.notes.evictions == ()
    assert [(each.owner, each.tick, each.result) for each in rig.journal.entries] == [
        ("memory", 0, "stopping"),
        ("memory", 0, "done"),
        ("memory", 0, "vanished"),
    ]
    assert rig.journal.entries[0].why == "the containers are being stopped (attempt 3): an earlier run had begun it"


OLD_NS, LATELY_NS, UNKNOWN_NS = (1000 - REMEMBERED_S) * S, (1001 - REMEMBERED_S) * S, 0


@pytest.mark.parametrize(
    ("at_ns", "is_stopped", "phase", "result"),
    [
        (OLD_NS, False, None, "ended"),
        (OLD_NS, True, None, "ended"),
        (UNKNOWN_NS, False, None, "ended"),
        (LATELY_NS, False, STOPPING, "stopping"),
        (LATELY_NS, True, RESTARTED, "restarted"),
    ],
)
async def test_what_an_earlier_run_left_long_ago_is_forgotten(
    at_ns: int, is_stopped: bool, phase: EvictionPhase | None, result: str
) -> None:
    """Whatever was short then, nobody has said since that it is."""
    left = structs.replace(LEFT, at_ns=at_ns, is_stopped=is_stopped)
    rig = Rig(left)
    await rig.follow(web("a"))
    assert (rig.phase, rig.journal.results) == (phase, [result])
    assert (len(rig.script.orders), rig.notes.evictions) == (phase is STOPPING, () if phase is None else (left,))


async def test_what_nobody_could_see_for_long_after_a_start_is_forgotten() -> None:
    rig = Rig(LEFT)
    rig.clock.advance(REMEMBERED_S)
    await rig.follow(web("a"))
    assert (rig.phase, rig.script.orders, rig.notes.evictions) == (None, [], ())


async def test_attempts_of_an_earlier_run_count_since_their_end() -> None:
    rig = Rig(structs.replace(LEFT, at_ns=LATELY_NS, is_stopped=True))
    await rig.follow(web())
    rig.clock.advance(1)
    await rig.follow(web())
    assert (rig.phase, rig.journal.results, rig.notes.evictions) == (None, ["ended"], ())


async def test_a_pod_that_went_in_between_is_forgotten() -> None:
    rig = Rig(LEFT)
    await rig.follow(view("other"))
    assert (rig.script.orders, rig.phase, rig.notes.evictions) == ([], None, ())
    assert rig.journal.results == ["vanished"]


async def test_what_an_earlier_run_had_stopped_is_not_stopped_again() -> None:
    """kubelet started it again while nobody looked: that is no reason to stop it."""
    rig = Rig(structs.replace(LEFT, is_stopped=True))
    assert rig.phase is STOPPED
    await rig.follow(web("a"))
    assert (rig.phase, rig.script.orders) == (RESTARTED, [])
    assert await rig.order() == "refused"
    rig.clock.advance(40)
    assert await rig.order() == "started"
    assert rig.notes.evictions == (structs.replace(LEFT, attempts=4, at_ns=1040 * S),)


async def test_what_an_earlier_run_left_fails_without_a_runtime() -> None:
    rig = Rig(LEFT, has_executor=False)
    await rig.follow(web("a"))
    assert (rig.phase, rig.journal.results) == (FAILED, ["failed"])
    assert rig.notes.evictions == (LEFT,)


async def test_the_end_of_the_daemon_leaves_the_notes() -> None:
    rig = Rig()
    orders = [("memory", structs.replace(WEB, uid=f"web{n}")) for n in range(AT_ONCE + 1)]
    start(rig.evictor, orders, 1)
    await settled()
    start(rig.evictor, [("memory", WEB)], 1)  # handed over, and not begun
    await rig.evictor.close()
    await settled()
    assert len(rig.notes.evictions) == AT_ONCE + 2
    assert not any(each.is_stopped for each in rig.notes.evictions)
    assert rig.journal.results == ["stopping"] * (AT_ONCE + 2)
    await rig.follow()
    assert len(rig.notes.evictions) == AT_ONCE + 2, "what has not ended is not ended by a late tick"


# a crash at every step


class Mortal(Runtime):
    """A runtime's client whose process dies at step ``last``: before or after a call, what follows never happens."""

    def __init__(self, endpoint: str, last: int) -> None:
        super().__init__(endpoint, 2.0, asyncio.get_running_loop())
        self._left = last
        self.died = asyncio.Event()

    async def sandboxes(self, uid: str = "") -> list[Sandbox]:
        return await self._mortal(lambda: super(Mortal, self).sandboxes(uid))

    async def containers(self, sandbox_id: str = "") -> list[Container]:
        return await self._mortal(lambda: super(Mortal, self).containers(sandbox_id))

    async def container_detail(self, container_id: str) -> Detail | None:
        return await self._mortal(lambda: super(Mortal, self).container_detail(container_id))

    async def stop_container(self, container_id: str, grace_s: int, exit_s: float) -> None:
        await self._mortal(lambda: super(Mortal, self).stop_container(container_id, grace_s, exit_s))

    async def _mortal(self, call: Callable[[], Awaitable[T]]) -> T:
        await self._step()
        answer = await call()
        await self._step()
        return answer

    async def _step(self) -> None:
        self._left -= 1
        if self._left < 0:
            self.died.set()
            await asyncio.get_running_loop().create_future()


class Node:
    """A pod of three containers on a fake runtime, and what the tick sees of it."""

    def __init__(self, directory: Path) -> None:
        self.fake = FakeRuntime(directory / "cgroups")
        self.sandbox = self.fake.pod("web")
        for name in "abc":
            self.fake.start(self.fake.container(self.sandbox, name))
        self.order = Eviction("uid-web", "default/web", "memory is short", self.fake.parents[self.sandbox])

    def exists(self, cgroup: str) -> bool:
        return (self.fake.tree / cgroup.lstrip("/")).is_dir()

    def pods(self) -> tuple[PodView, ...]:
        containers = tuple(
            ContainerView(one.id, one.metadata.name, "", cri.ContainerState.Name(one.state), Resources(), {})
            for one in self.fake.containers.values()
        )
        return tuple(
            structs.replace(view("web"), uid=one.metadata.uid, sandbox_id=one.id, containers=containers)
            for one in self.fake.sandboxes.values()
        )


@asynccontextmanager
async def evicting(runtime: Runtime, node: Node, notes: Notes, journal: Journal) -> AsyncIterator[Evictor]:
    executor = CRIStop(runtime, node.exists, exit_s=0.5, settle_s=0.5)
    clock = asyncio.get_running_loop().time
    evictor = Evictor(
        cast("UndoRecord", notes),
        journal,
        executor,
        asyncio.get_running_loop(),
        monotonic=lambda: int(clock() * S),
        wall=lambda: 0,
    )
    try:
        yield evictor
    finally:
        await evictor.close()
        runtime.close()


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(5):
        while not condition():  # noqa: ASYNC110 - what is waited for tells nobody
            await asyncio.sleep(0.001)


async def _dies(node: Node, endpoint: str, notes: Notes, journal: Journal, last: int) -> bool:
    """Whether an eviction ended at step ``last`` of its calls, and not by itself before."""
    runtime = Mortal(endpoint, last)
    async with evicting(runtime, node, notes, journal) as evictor:
        evictor.follow(node.pods())
        assert start(evictor, [("memory", node.order)], 1)[0][0] == "started"
        await until(lambda: runtime.died.is_set() or evictor.under_way["uid-web"].phase is not STOPPING)
        return runtime.died.is_set()


async def test_the_next_run_finishes_what_a_crash_at_any_step_leaves(tmp_path: Path) -> None:
    last = 0
    is_cut = True
    while is_cut:
        node, notes, journal = Node(tmp_path / str(last)), Notes(), Journal()
        async with node.fake.serving(tmp_path / "s") as endpoint:
            is_cut = await _dies(node, endpoint, notes, journal, last)
            ran = [one.id for one in node.fake.containers.values() if one.state == cri.CONTAINER_RUNNING]
            stops = len(node.fake.stops)
            assert [each.is_stopped for each in notes.evictions] == [not is_cut]
            assert journal.results == ["stopping"] if is_cut else ["stopping", "done"]
            async with evicting(Runtime(endpoint, 2.0, asyncio.get_running_loop()), node, notes, journal) as evictor:
                evictor.follow(node.pods())
                await until(lambda: evictor.under_way["uid-web"].phase is STOPPED)
                assert evictor.under_way["uid-web"].attempts == 1
                evictor.follow(node.pods())
                assert evictor.under_way["uid-web"].phase is STOPPED
                assert {one.container_id for one in node.fake.stops[stops:]} == set(ran)
                assert {one.state for one in node.fake.containers.values()} == {cri.CONTAINER_EXITED}
                evictor.follow(())
            assert notes.evictions == ()
            again = ["stopping"] if is_cut else []
            assert journal.results == [*again, "stopping", "done", "vanished"]
        last += 1
    assert last > 20


async def test_a_runtime_that_is_away_fails_the_attempt_and_the_next_succeeds(tmp_path: Path) -> None:
    node, notes, journal = Node(tmp_path), Notes(), Journal()
    async with node.fake.serving(tmp_path / "s") as endpoint:
        async with evicting(Runtime(endpoint, 2.0, asyncio.get_running_loop()), node, notes, journal) as evictor:
            node.fake.failing = True
            start(evictor, [("memory", node.order)], 1)
            await until(lambda: evictor.under_way["uid-web"].phase is FAILED)
            assert "server is not initialized yet" in evictor.under_way["uid-web"].problem
            node.fake.failing = False
        async with evicting(Runtime(endpoint, 2.0, asyncio.get_running_loop()), node, notes, journal) as evictor:
            evictor.follow(node.pods())
            await until(lambda: evictor.under_way["uid-web"].phase is STOPPED)
    assert journal.results == ["stopping", "failed", "stopping", "done"]

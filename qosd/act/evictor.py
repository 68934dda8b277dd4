"""Carries out evictions beside the ticks, and tells at any time how far each is.

Stopping containers takes seconds, so the tick's thread only notes an order and hands it to the event loop, where at
most ``AT_ONCE`` are executed at the same time. Later ticks follow it: kubelet starts containers again, or the pod goes.
An eviction ends when the pod is gone, or ``REMEMBERED_S`` after the last attempt if it is not ordered again; until then
its attempts count.

Invariants: the undo record has a note of an eviction from before its first container is stopped until it ends, so the
next run goes on with it: it executes an attempt again that had not ended, and none that had. A note older than
``REMEMBERED_S`` has ended by then. A pod has one execution at most. The journal has one entry per step, ``done`` only
for an eviction that has come about. An eviction that a PodDisruptionBudget forbids leaves no note, since nothing was
done, and need not wait for its next attempt once the node has no time left.
Nothing that a runtime, an executor or a full undo record does raises here; an eviction that cannot be noted is refused.
In an emergency it is executed all the same, and logged: the next run then knows nothing of it.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Set
from types import MappingProxyType
from typing import Protocol

import msgspec
from msgspec.structs import replace

from koord.host.evictions import EVICTION, NotedEviction
from koord.host.files import Target
from koord.host.reconcile.plan import DONE, FAILED, REFUSED, STARTED, VANISHED, Outcome, PlannedWrite
from koord.host.undo import UndoError, UndoRecord
from qosd.act.actor import Actor
from qosd.act.evictioncase import (
    NEVER_NS,
    REMEMBERED_S,
    EvictionCase,
    adopted,
    ordered,
    succeeded,
)
from qosd.act.evictionreport import RUNNING, STOPPED, EvictionReport
from qosd.act.journal import JournalEntry, JournalWriter
from qosd.decide.decision import Eviction
from qosd.decide.runner import Decisions
from qosd.decide.victims import LATE_S
from qosd.model.snapshot import Controller, EvictionPhase, EvictionState, PodView, runs

AT_ONCE = 20
"""The most executions at a time: as many as are ordered in two minutes, the longest wait for a budget and for kubelet.
So a frozen pod, which is thawed soon after the order, does not wait in a queue. Behind longer grace periods it may,
until an emergency ends all waits."""
ENDED = "ended"
"""The journal's result for an eviction that ended without another order; other steps have their phases."""
_S = 1_000_000_000
_NO_EXECUTOR = "no runtime endpoint is configured, so nobody can stop containers"
_NO_CONTAINERS: Mapping[str, str] = MappingProxyType({})
_log = logging.getLogger(__name__)


class EvictionFailed(Exception):
    """Something of the pod is left; the message says which containers, and why."""


class EvictionRefused(EvictionFailed):
    """Somebody who may do so forbids it, a PodDisruptionBudget above all: nothing has been done to the pod."""


class Executor(Protocol):
    """Brings an eviction about, through the container runtime or the API server.

    ``evict`` raises EvictionFailed, and may be called again for the same pod.
    """

    async def evict(self, eviction: Eviction) -> None: ...


class EvictionPlan(msgspec.Struct, frozen=True):
    """The evictions of one tick, each with the strategy behind it."""

    evictions: tuple[tuple[str, Eviction], ...] = ()

    @property
    def writes(self) -> tuple[PlannedWrite, ...]:
        return tuple(_as_write(owner, eviction) for owner, eviction in self.evictions)


_NOTHING = EvictionPlan()


class Evictor(Actor[EvictionPlan]):
    """``executor`` None: every order is refused; ``loop``: where the executor is called.

    ``plan``, ``apply`` and ``follow`` are for one thread, the tick's.
    """

    def __init__(
        self,
        undo: UndoRecord,
        journal: JournalWriter,
        executor: Executor | None = None,
        loop: asyncio.AbstractEventLoop | None = None,
        *,
        monotonic: Callable[[], int] = time.monotonic_ns,
        wall: Callable[[], int] = time.time_ns,
    ) -> None:
        self.executor = executor
        """Brings evictions about; may be replaced at any time, for the next execution."""
        self._undo, self._journal = undo, journal
        self._monotonic, self._wall, self._loop = monotonic, wall, loop
        self._emergency = ""
        self._gate = asyncio.Semaphore(AT_ONCE)
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_closed = False
        self._lock = threading.Lock()
        """Guards the members below: the loop's thread changes them where an execution ends."""
        self._cases = {each.uid: adopted(each, monotonic()) for each in undo.all(NotedEviction)}
        self._report = EvictionReport(_states(self._cases))
        self._unreplaced: dict[Controller, EvictionCase] = {}
        """The newest eviction of a controller's pod, until the controller has made another."""
        self._refusals: dict[str, str] = {}
        self._pods: tuple[PodView, ...] | None = None
        self._containers: Mapping[str, Mapping[str, str]] = {}
        self._seen: tuple[PodView, ...] = ()
        self._due_ns = NEVER_NS

    @property
    def emergency(self) -> str:
        """Why no eviction may be waited for, at the last tick; "" = there is time. From any thread."""
        return self._emergency

    def left_s(self, uid: str) -> float:
        """Returns the time that kubelet has left to end a deleted pod by its grace period; from any thread.

        0 or less: it should have ended, or is not known to be deleted.
        """
        by_unix_s = next((pod.facts.deletion_unix_s for pod in self._seen if pod.uid == uid), None)
        return 0.0 if by_unix_s is None else by_unix_s + LATE_S - self._wall() / _S

    def tell_step(self, eviction: Eviction, result: str, why: str) -> None:
        """Journals a step that the executor has taken. In the loop's thread."""
        with self._lock:
            case = self._cases.get(eviction.uid)
            if case is not None:
                self._tell(case, result, why)

    @property
    def under_way(self) -> Mapping[str, EvictionState]:
        """The states by UID; the same object while nothing changes. From any thread."""
        return self._report.under_way

    @property
    def report(self) -> EvictionReport:
        return self._report

    def plan(self, decisions: Decisions) -> EvictionPlan:
        """Returns the evictions that ``apply`` would order."""
        evictions = decisions.evictions
        return EvictionPlan(evictions) if evictions else _NOTHING

    def apply(self, decisions: Decisions, plan: EvictionPlan) -> tuple[Outcome, ...]:
        """Takes the orders. STARTED: it is noted, and will be executed; REFUSED: nothing is stopped."""
        self._emergency = decisions.emergency
        if not plan.evictions:
            return ()
        with self._lock:
            results = [self._order(owner, eviction, decisions.tick) for owner, eviction in plan.evictions]
        return tuple(Outcome(act, *result) for act, result in zip(plan.writes, results, strict=True))

    def follow(self, pods: tuple[PodView, ...]) -> None:
        """Follows the containers that run now. ``pods`` must be known: a pod that is not among them has gone."""
        with self._lock:
            now_ns = self._monotonic()
            if pods is self._pods and now_ns < self._due_ns:
                return
            self._pods, self._seen, self._containers = pods, pods, _running(pods)
            for uid, case in tuple(self._cases.items()):
                self._follow(case, self._containers.get(uid), now_ns)
            self._follow_controllers(pods, now_ns)
            self._refusals = {uid: why for uid, why in self._refusals.items() if uid in self._containers}
            self._due_ns = min((case.due_ns() for case in self._cases.values()), default=NEVER_NS)

    async def close(self) -> None:
        """Ends all waits; evictions under way stay in the notes, for the next run."""
        with self._lock:
            self._is_closed = True
            tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # orders, in the tick's thread

    def _order(self, strategy: str, eviction: Eviction, tick: int) -> tuple[str, str]:
        now_ns = self._monotonic()
        before = self._cases.get(eviction.uid)
        if before is not None and (refusal := before.postponement(now_ns, bool(self._emergency))):
            return REFUSED, refusal
        ids = self._containers.get(eviction.uid, _NO_CONTAINERS).keys()
        case = ordered(strategy, tick, eviction, before, ids, now_ns, self._seen)
        refusal = self._begin(case, before)
        if refusal:
            return REFUSED, self._refused(case, refusal)
        self._refusals.pop(eviction.uid, None)
        if case.controller is not None:
            self._unreplaced[case.controller] = case
        return STARTED, f"attempt {case.state.attempts} is noted and handed over"

    def _begin(self, case: EvictionCase, before: EvictionCase | None) -> str:
        """Notes the order, journals it and hands it over; returns why that cannot be done, else ""."""
        uid, remark = case.uid, ""
        if self.executor is None:
            return _NO_EXECUTOR
        try:
            self._undo.note(case.noted)
        except UndoError as error:
            if not self._emergency:
                return f"not evicted, because that cannot be noted: {error}"
            remark = f"; that cannot be noted: {error}"
        if not self._hand_over(uid):
            self._update_note(uid, before)
            return "koord-qosd is about to end"
        self._put(case)
        self._tell_beginning(case, remark)
        return ""

    def _refused(self, case: EvictionCase, refusal: str) -> str:
        """Journals a refusal once for each reason, and returns it."""
        uid = case.uid
        if self._refusals.get(uid) != refusal:
            self._refusals[uid] = refusal
            self._tell(case, REFUSED, f"{case.eviction.why}: {refusal}")
        return refusal

    def _hand_over(self, uid: str) -> bool:
        """Hands the execution to the loop. Does the loop still take it?"""
        if self._is_closed or self._loop is None:
            return False
        try:
            self._loop.call_soon_threadsafe(self._execute_soon, uid)
        except RuntimeError:  # the loop is closed
            return False
        return True

    # what runs now, in the tick's thread

    def _follow(self, case: EvictionCase, containers: Mapping[str, str] | None, now_ns: int) -> None:
        """Follows one eviction. ``containers``: names by id of those that run; None: the pod is gone."""
        phase = case.state.phase
        if phase is EvictionPhase.STOPPING and case.is_executed:
            self._put(replace(case, earlier_ids=case.earlier_ids | (containers or _NO_CONTAINERS).keys()))
        elif containers is None:
            self._end(case, VANISHED, "the pod is gone")
        elif now_ns >= case.due_ns():
            self._end(case, ENDED, f"the eviction ends: nobody has ordered it again for {REMEMBERED_S} s")
        elif phase is EvictionPhase.STOPPING:
            self._resume(case, containers.keys(), now_ns)
        elif phase is EvictionPhase.STOPPED and containers.keys() - case.earlier_ids:
            names = ", ".join(sorted({name for id_, name in containers.items() if id_ not in case.earlier_ids}))
            self._put(replace(case, state=replace(case.state, phase=EvictionPhase.RESTARTED)))
            why = f"kubelet has started containers again: {names}"
            self._tell(case, EvictionPhase.RESTARTED, why, (STOPPED, RUNNING))

    def _follow_controllers(self, pods: tuple[PodView, ...], now_ns: int) -> None:
        """Makes the replacement of an evicted pod wait for its next eviction as long as that pod would have."""
        oldest_ns = now_ns - REMEMBERED_S * _S
        self._unreplaced = {who: case for who, case in self._unreplaced.items() if case.state.since_ns > oldest_ns}
        for pod in pods if self._unreplaced else ():
            controller = pod.controller
            before = None if controller is None else self._unreplaced.get(controller)
            if controller is None or before is None or pod.uid in before.siblings or pod.uid in self._cases:
                continue
            del self._unreplaced[controller]
            case = succeeded(before, pod, now_ns)
            self._update_note(case.uid, case)
            self._put(case)
            why = f"{controller[1]} {controller[2]} has made it in place of {before.eviction.pod}, which was evicted"
            self._tell(case, EvictionPhase.RESTARTED, why, (STOPPED, RUNNING))

    def _resume(self, case: EvictionCase, ids: Set[str], now_ns: int) -> None:
        """Executes what an earlier run had under way."""
        case = case.begun_again(ids, now_ns)
        if self.executor is None:
            self._put(case)
            self._settle(case, _NO_EXECUTOR)
        elif self._hand_over(case.uid):
            self._put(case)
            self._tell_beginning(case)

    def _end(self, case: EvictionCase, result: str, why: str) -> None:
        uid = case.uid
        del self._cases[uid]
        self._report = replace(self._report, under_way=_states(self._cases))
        self._update_note(uid, None)
        self._tell(case, result, why, (None, None))

    # the loop's thread

    def _execute_soon(self, uid: str) -> None:
        with self._lock:
            if self._is_closed:
                return
            task = asyncio.get_running_loop().create_task(
                self._execute(self._cases[uid].eviction), name=f"eviction of {uid}"
            )
            self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _execute(self, eviction: Eviction) -> None:
        problem, is_refused = "", False
        async with self._gate:
            try:
                await self._evict(eviction)
            except EvictionFailed as error:
                problem, is_refused = str(error) or "the executor does not say why", isinstance(error, EvictionRefused)
            except Exception as error:  # noqa: BLE001 - the root of a task: whatever is wrong, the eviction failed
                _log.exception("evicting %s", eviction.pod)
                problem = f"{type(error).__name__}: {error}"
        with self._lock:
            self._settle(self._cases[eviction.uid], problem, is_refused)

    async def _evict(self, eviction: Eviction) -> None:
        executor = self.executor
        if executor is None:
            raise EvictionFailed(_NO_EXECUTOR)
        await executor.evict(eviction)

    def _settle(self, case: EvictionCase, problem: str, is_refused: bool = False) -> None:
        """Settles an attempt that has ended. From either thread, with the lock."""
        now_ns = self._monotonic()
        case = case.ended(problem, is_refused, now_ns)
        self._put(case)
        self._pods = None  # the same pods mean something else now
        why = case.eviction.why
        if is_refused:
            self._update_note(case.uid, None)
        if problem and case.controller is not None:
            self._unreplaced.pop(case.controller, None)
        if problem:
            _log.warning("pod %s is not evicted: %s", case.eviction.pod, problem)
            self._tell(case, FAILED, f"{why}: {problem}")
            return
        self._update_note(case.uid, case)
        self._report = self._report.counting(case.eviction, now_ns)
        seconds = f"{(now_ns - case.state.since_ns) / _S:.3g} s"
        self._tell(case, DONE, f"{why}: all containers have exited and their cgroups are gone, after {seconds}")

    # both

    def _update_note(self, uid: str, case: EvictionCase | None) -> None:
        """Notes the eviction as it is now; None: forgets it. After a failure the next run does too much, not less."""
        try:
            if case is None:
                self._undo.drop(NotedEviction, uid)
            else:
                self._undo.note(case.noted)
        except UndoError as error:
            _log.warning("the undo record says of the eviction of %s what it said before: %s", uid, error)

    def _tell_beginning(self, case: EvictionCase, remark: str = "") -> None:
        again = f" (attempt {case.state.attempts})" if case.state.attempts > 1 else ""
        why = f"the containers are being stopped{again}: {case.eviction.why}{remark}"
        self._tell(case, EvictionPhase.STOPPING, why)

    def _tell(
        self, case: EvictionCase, result: str, why: str, values: tuple[str | None, str | None] = (RUNNING, STOPPED)
    ) -> None:
        """Records a row in the journal. ``values``: before and after."""
        eviction = case.eviction
        self._journal.record(
            JournalEntry(
                wall_ns=self._wall(),
                monotonic_ns=self._monotonic(),
                tick=case.tick,
                owner=case.owner,
                pod=eviction.pod,
                cgroup=eviction.cgroup,
                name=EVICTION,
                path=eviction.cgroup,
                before=values[0],
                after=values[1],
                result=str(result),
                why=why,
                inputs=eviction.inputs,
            )
        )

    def _put(self, case: EvictionCase) -> None:
        uid = case.uid
        before = self._cases.get(uid)
        self._cases[uid] = case
        if before is None or before.state is not case.state:
            self._report = replace(self._report, under_way=_states(self._cases))


def _as_write(strategy: str, eviction: Eviction) -> PlannedWrite:
    target = Target(eviction.cgroup, EVICTION)
    return PlannedWrite(
        target, eviction.cgroup, RUNNING, STOPPED, True, strategy, eviction.why, eviction.inputs, eviction.pod
    )


def _states(cases: Mapping[str, EvictionCase]) -> Mapping[str, EvictionState]:
    return MappingProxyType({uid: case.state for uid, case in cases.items()})


def _running(pods: Iterable[PodView]) -> Mapping[str, Mapping[str, str]]:
    """Returns by UID the names by id of the containers that run. A pod may be there twice, with an old sandbox."""
    containers: dict[str, dict[str, str]] = {}
    for pod in pods:
        running = {each.id: each.name for each in pod.containers if not each.is_sandbox and runs(each.state)}
        containers.setdefault(pod.uid, {}).update(running)
    return containers

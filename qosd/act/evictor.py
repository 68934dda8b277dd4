"""Carries out evictions beside the ticks, and says at any time how far each is.

Stopping containers takes seconds, so the tick's thread only notes an order and hands it to the event loop, where at
most ``AT_ONCE`` are executed at the same time. What a later tick sees running decides how an eviction goes on: kubelet
starts containers again, or the pod goes. An eviction ends when the pod is gone, or when nobody has ordered it again
for ``REMEMBERED_S``; until then its attempts count, and each makes the pause before the next twice as long.

Invariants: the undo record names an eviction before its first container is stopped, and until it ends, so that the
next run goes on with what this one leaves behind: it executes again what had not come to its end, and never what had.
A pod has one execution at most. The journal has one entry per step, ``done`` only for an eviction that has come about.
What a PodDisruptionBudget forbids leaves no note, since nothing was done, and need not wait for its next attempt once
the node has no time left.
Nothing that a runtime, an executor or a full undo record does raises here; what cannot be noted is refused.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Set
from types import MappingProxyType

import msgspec
from msgspec.structs import replace

from koord.host.evictions import EVICTION, NotedEviction
from koord.host.files import Target
from koord.host.reconcile.plan import DONE, FAILED, REFUSED, STARTED, VANISHED, Outcome, PlannedWrite
from koord.host.undo import UndoError, UndoRecord
from qosd.act.actor import Actor, ActReport, ExplainedAct
from qosd.act.executor import EvictionFailed, EvictionRefused, Executor
from qosd.act.journal import Entry, Recorder
from qosd.decide.decision import Eviction
from qosd.decide.runner import Decisions
from qosd.model.snapshot import EvictionPhase, EvictionState, PodView, runs

AT_ONCE = 20
"""As many as two minutes allow: one may wait that long for a budget and for kubelet, and a frozen pod, which is thawed
soon after the order, must not stand in a queue then."""
REMEMBERED_S = 600
RECENT_S = 300
ENDED = "ended"
"""The journal's result for an eviction that nobody has ordered again for long; the other steps' are their phases."""
_FIRST_S, _MOST_S = 10, 300
_S = 1_000_000_000
_NEVER_NS = 1 << 63
_RUNNING, _STOPPED = "running", "stopped"
_NO_EXECUTOR = "no runtime endpoint is configured, so nobody can stop containers"
_EARLIER_RUN = "an earlier run had begun it"
_NO_CONTAINERS: Mapping[str, str] = MappingProxyType({})
_log = logging.getLogger(__name__)


class EvictionPlan(msgspec.Struct, frozen=True):
    """The evictions of one tick, each with the strategy behind it."""

    orders: tuple[tuple[str, Eviction], ...] = ()

    @property
    def writes(self) -> tuple[PlannedWrite, ...]:
        return tuple(_as_write(owner, order) for owner, order in self.orders)


_NOTHING = EvictionPlan()


class _Case(msgspec.Struct, frozen=True):
    """One eviction. ``tick``: of the last order, 0 = an earlier run's.

    ``earlier_ids``: of containers that ran before the last attempt's end. ``is_executed``: the executor has it, or had.
    ``ended_ns``: when the last attempt ended.
    """

    owner: str
    tick: int
    eviction: Eviction
    state: EvictionState
    earlier_ids: Set[str] = frozenset()
    is_executed: bool = True
    ended_ns: int = 0

    @property
    def noted(self) -> NotedEviction:
        """For the undo record."""
        order, state = self.eviction, self.state
        is_stopped = state.phase in (EvictionPhase.STOPPED, EvictionPhase.RESTARTED)
        return NotedEviction(
            order.uid, order.pod, self.owner, order.cgroup, state.attempts, order.grace_s, is_stopped, order.gate
        )

    def due_ns(self) -> int:
        """When it ends if nobody orders it again."""
        return _NEVER_NS if self.state.phase is EvictionPhase.STOPPING else self.ended_ns + REMEMBERED_S * _S


class EvictionCount(msgspec.Struct, frozen=True):
    """How many evictions came about, the last of them at ``last_ns`` by the monotonic clock."""

    count: int
    last_ns: int


_NO_COUNT = EvictionCount(0, 0)
Counts = Mapping[tuple[str, str], EvictionCount]
"""By feature gate and pod (``namespace/name``)."""


class EvictionReport(ActReport, frozen=True, eq=False):
    """``under_way``: by the pod's UID. Of those that have come about since the start: ``counts`` by feature
    gate, and ``recent_counts`` by gate and pod, as long as the last one of a pod is not older than ``RECENT_S``."""

    under_way: Mapping[str, EvictionState]
    counts: Mapping[str, int] = MappingProxyType({})
    recent_counts: Counts = MappingProxyType({})

    def of_pod(self, decisions: Decisions, pod: PodView) -> Iterable[ExplainedAct]:
        state = self.under_way.get(pod.uid)
        if state is not None:
            why = f"{state.why} (attempt {state.attempts}){f': {state.problem}' if state.problem else ''}"
            age_s = max(0.0, (decisions.monotonic_ns - state.since_ns) / 1e9)
            target = Target(pod.cgroup, EVICTION)
            yield ExplainedAct(target, pod.cgroup, state.owner, _STOPPED, why, state.phase, pod.key, age_s)


class Evictor(Actor[EvictionPlan]):
    """``executor`` None: every order is refused; ``loop``: where it is called.

    ``plan``, ``apply`` and ``follow`` are for one thread, the tick's.
    """

    def __init__(
        self,
        undo: UndoRecord,
        journal: Recorder,
        executor: Executor | None = None,
        loop: asyncio.AbstractEventLoop | None = None,
        *,
        monotonic: Callable[[], int] = time.monotonic_ns,
        wall: Callable[[], int] = time.time_ns,
    ) -> None:
        self.executor = executor
        """Whoever brings evictions about; another one may be put in at any time, for the next execution."""
        self._undo, self._journal, self._loop = undo, journal, loop
        self._emergency = ""
        self._monotonic, self._wall = monotonic, wall
        self._gate = asyncio.Semaphore(AT_ONCE)
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_closed = False
        self._lock = threading.Lock()
        """Of what follows: the loop's thread changes it where an execution ends."""
        self._cases = {each.uid: _adopted(each, monotonic()) for each in undo.all(NotedEviction)}
        self._under_way = _states(self._cases)
        self._refusals: dict[str, str] = {}
        self._counts: Mapping[str, int] = MappingProxyType({})
        self._recent_counts: Counts = MappingProxyType({})
        self._pods: tuple[PodView, ...] | None = None
        self._containers: Mapping[str, Mapping[str, str]] = {}
        self._due_ns = _NEVER_NS

    @property
    def emergency(self) -> str:
        """Why no eviction may be waited for, at the last tick; "" = there is time. From any thread."""
        return self._emergency

    def tell_step(self, eviction: Eviction, result: str, why: str) -> None:
        """A step that the executor has taken, for the journal. In the loop's thread."""
        with self._lock:
            case = self._cases.get(eviction.uid)
            if case is not None:
                self._tell(case, result, why)

    @property
    def under_way(self) -> Mapping[str, EvictionState]:
        """By UID; the very same object while nothing changes. From any thread."""
        return self._under_way

    @property
    def report(self) -> EvictionReport:
        return EvictionReport(self._under_way, self._counts, self._recent_counts)

    def plan(self, decisions: Decisions) -> EvictionPlan:
        """What ``apply`` would order."""
        orders = decisions.evictions
        return EvictionPlan(orders) if orders else _NOTHING

    def apply(self, decisions: Decisions, plan: EvictionPlan) -> tuple[Outcome, ...]:
        """Take the orders. STARTED: it is noted, and will be executed; REFUSED: nothing is stopped."""
        self._emergency = decisions.emergency
        if not plan.orders:
            return ()
        with self._lock:
            results = [self._order(owner, eviction, decisions.tick) for owner, eviction in plan.orders]
        return tuple(Outcome(act, *result) for act, result in zip(plan.writes, results, strict=True))

    def follow(self, pods: tuple[PodView, ...]) -> None:
        """See what runs now. Only for pods that somebody tells: an eviction ends with a pod that is not among them."""
        with self._lock:
            now_ns = self._monotonic()
            if pods is self._pods and now_ns < self._due_ns:
                return
            self._pods, self._containers = pods, _running(pods)
            for uid, case in tuple(self._cases.items()):
                self._follow(case, self._containers.get(uid), now_ns)
            self._refusals = {uid: why for uid, why in self._refusals.items() if uid in self._containers}
            self._due_ns = min((case.due_ns() for case in self._cases.values()), default=_NEVER_NS)

    async def close(self) -> None:
        """Wait for nothing any more; what is under way stays in the notes, for the next run."""
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
        refusal = self._busy(before, now_ns)
        if refusal:
            return REFUSED, refusal
        attempts = 1 if before is None else before.state.attempts + 1
        ids = frozenset(self._containers.get(eviction.uid, _NO_CONTAINERS))
        case = _Case(strategy, tick, eviction, _stopping(strategy, eviction, attempts, now_ns), ids)
        refusal = self._begin(case, before)
        if refusal:
            return REFUSED, self._refused(case, refusal)
        self._refusals.pop(eviction.uid, None)
        return STARTED, f"attempt {attempts} is noted and handed over"

    def _busy(self, case: _Case | None, now_ns: int) -> str:
        """Why the pod need not be stopped now, or must not yet."""
        if case is None:
            return ""
        if case.state.phase is EvictionPhase.STOPPING:
            return "is under way"
        if case.state.phase is EvictionPhase.STOPPED:
            return "its containers have been stopped, and none has been started since"
        if now_ns < case.state.retry_ns and not (case.state.is_refused and self._emergency):
            return f"not again for {(case.state.retry_ns - now_ns) / _S:.3g} s"
        return ""

    def _begin(self, case: _Case, before: _Case | None) -> str:
        """Note the order, tell the journal, and hand it over; why that cannot be done, else ""."""
        uid = case.eviction.uid
        if self.executor is None:
            return _NO_EXECUTOR
        try:
            self._undo.note(case.noted)
        except UndoError as error:
            return f"not evicted, because that cannot be noted: {error}"
        if not self._hand_over(uid):
            self._renote(uid, before)
            return "koord-qosd is about to end"
        self._put(case)
        self._tell_beginning(case)
        return ""

    def _refused(self, case: _Case, refusal: str) -> str:
        """Told once for each reason."""
        uid = case.eviction.uid
        if self._refusals.get(uid) != refusal:
            self._refusals[uid] = refusal
            self._tell(case, REFUSED, f"{case.eviction.why}: {refusal}")
        return refusal

    def _hand_over(self, uid: str) -> bool:
        """Whether the loop still takes it."""
        if self._is_closed or self._loop is None:
            return False
        try:
            self._loop.call_soon_threadsafe(self._execute_soon, uid)
        except RuntimeError:  # the loop is closed
            return False
        return True

    # what runs now, in the tick's thread

    def _follow(self, case: _Case, containers: Mapping[str, str] | None, now_ns: int) -> None:
        """``containers``: names by id of those that run; None: the pod is gone."""
        phase = case.state.phase
        if phase is EvictionPhase.STOPPING and case.is_executed:
            self._put(replace(case, earlier_ids=case.earlier_ids | (containers or _NO_CONTAINERS).keys()))
        elif containers is None:
            self._end(case, VANISHED, "the pod is gone")
        elif phase is EvictionPhase.STOPPING:
            self._resume(case, containers.keys(), now_ns)
        elif phase is EvictionPhase.STOPPED and containers.keys() - case.earlier_ids:
            names = ", ".join(sorted({name for id_, name in containers.items() if id_ not in case.earlier_ids}))
            self._put(replace(case, state=replace(case.state, phase=EvictionPhase.RESTARTED)))
            why = f"kubelet has started containers again: {names}"
            self._tell(case, EvictionPhase.RESTARTED, why, (_STOPPED, _RUNNING))
        elif now_ns >= case.due_ns():
            self._end(case, ENDED, f"the eviction ends: nobody has ordered it again for {REMEMBERED_S} s")

    def _resume(self, case: _Case, ids: Set[str], now_ns: int) -> None:
        """Execute what an earlier run had under way."""
        state = _stopping(case.owner, case.eviction, case.state.attempts, now_ns)
        case = replace(case, state=state, earlier_ids=frozenset(ids), is_executed=True)
        if self.executor is None:
            self._put(case)
            self._settle(case, _NO_EXECUTOR)
        elif self._hand_over(case.eviction.uid):
            self._put(case)
            self._tell_beginning(case)

    def _end(self, case: _Case, result: str, why: str) -> None:
        uid = case.eviction.uid
        del self._cases[uid]
        self._under_way = _states(self._cases)
        self._renote(uid, None)
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

    def _settle(self, case: _Case, problem: str, is_refused: bool = False) -> None:
        """The attempt has ended. From either thread, with the lock."""
        now_ns = self._monotonic()
        phase = EvictionPhase.FAILED if problem else EvictionPhase.STOPPED
        state = replace(case.state, phase=phase, problem=problem, is_refused=is_refused)
        case = replace(case, state=state, ended_ns=now_ns)
        self._put(case)
        self._pods = None  # the same pods mean something else now
        why = case.eviction.why
        if is_refused:
            self._renote(case.eviction.uid, None)
        if problem:
            _log.warning("pod %s is not evicted: %s", case.eviction.pod, problem)
            self._tell(case, FAILED, f"{why}: {problem}")
            return
        self._renote(case.eviction.uid, case)
        self._count(case.eviction, now_ns)
        seconds = f"{(now_ns - case.state.since_ns) / _S:.3g} s"
        self._tell(case, DONE, f"{why}: all containers have exited and their cgroups are gone, after {seconds}")

    # both

    def _count(self, order: Eviction, now_ns: int) -> None:
        """One eviction has come about."""
        key, since_ns = (order.gate, order.pod), now_ns - RECENT_S * _S
        recent_counts = {each: count for each, count in self._recent_counts.items() if count.last_ns >= since_ns}
        before = recent_counts.get(key, _NO_COUNT)
        self._recent_counts = MappingProxyType({**recent_counts, key: EvictionCount(before.count + 1, now_ns)})
        self._counts = MappingProxyType({**self._counts, order.gate: self._counts.get(order.gate, 0) + 1})

    def _put(self, case: _Case) -> None:
        uid = case.eviction.uid
        before = self._cases.get(uid)
        self._cases[uid] = case
        if before is None or before.state is not case.state:
            self._under_way = _states(self._cases)

    def _renote(self, uid: str, case: _Case | None) -> None:
        """Bring the notes up to date; None: forget it. Where that fails, the next run does too much of it, not less."""
        try:
            if case is None:
                self._undo.drop(NotedEviction, uid)
            else:
                self._undo.note(case.noted)
        except UndoError as error:
            _log.warning("the undo record says of the eviction of %s what it said before: %s", uid, error)

    def _tell_beginning(self, case: _Case) -> None:
        again = f" (attempt {case.state.attempts})" if case.state.attempts > 1 else ""
        self._tell(case, EvictionPhase.STOPPING, f"the containers are being stopped{again}: {case.eviction.why}")

    def _tell(
        self, case: _Case, result: str, why: str, values: tuple[str | None, str | None] = (_RUNNING, _STOPPED)
    ) -> None:
        order = case.eviction
        self._journal.record(
            Entry(
                wall_ns=self._wall(),
                monotonic_ns=self._monotonic(),
                tick=case.tick,
                owner=case.owner,
                pod=order.pod,
                cgroup=order.cgroup,
                name=EVICTION,
                path=order.cgroup,
                before=values[0],
                after=values[1],
                result=str(result),
                why=why,
                inputs=order.inputs,
            )
        )


def _as_write(strategy: str, order: Eviction) -> PlannedWrite:
    target = Target(order.cgroup, EVICTION)
    return PlannedWrite(target, order.cgroup, _RUNNING, _STOPPED, True, strategy, order.why, order.inputs, order.pod)


def _states(cases: Mapping[str, _Case]) -> Mapping[str, EvictionState]:
    return MappingProxyType({uid: case.state for uid, case in cases.items()})


def _stopping(strategy: str, order: Eviction, attempts: int, now_ns: int) -> EvictionState:
    """At the begin of an attempt."""
    retry_ns = now_ns + _backoff_ns(attempts)
    return EvictionState(
        order.uid, order.pod, EvictionPhase.STOPPING, attempts, now_ns, retry_ns, owner=strategy, why=order.why
    )


def _backoff_ns(attempts: int) -> int:
    """10, 20, 40, … 300 seconds after that many attempts."""
    return int(min(_MOST_S, _FIRST_S * 2 ** min(attempts - 1, 10))) * _S


def _adopted(note: NotedEviction, now_ns: int) -> _Case:
    """What an earlier run left: to be executed again, unless its containers had been stopped."""
    order = Eviction(note.uid, note.pod, _EARLIER_RUN, note.cgroup, note.grace_s, gate=note.gate)
    state = _stopping(note.owner, order, note.attempts, now_ns)
    if note.is_stopped:
        state = replace(state, phase=EvictionPhase.STOPPED)
    return _Case(note.owner, 0, order, state, is_executed=note.is_stopped, ended_ns=now_ns)


def _running(pods: Iterable[PodView]) -> Mapping[str, Mapping[str, str]]:
    """By UID, the names by id of the containers that run. A pod may be there twice, with an old sandbox."""
    containers: dict[str, dict[str, str]] = {}
    for pod in pods:
        running = {each.id: each.name for each in pod.containers if not each.is_sandbox and runs(each.state)}
        containers.setdefault(pod.uid, {}).update(running)
    return containers

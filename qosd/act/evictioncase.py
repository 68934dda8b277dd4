"""One eviction and its progress: after an order, the end of an attempt, a restart, or a replacement of the pod.

Pure: instants come in as nanoseconds of the monotonic clock. Each attempt makes the pause before the next twice as
long, up to ``_MOST_S``; it runs from the attempt's begin, and from its end if it failed. Attempts count for
``REMEMBERED_S`` after the last one's end. A controller that makes another pod on the node in place of an evicted one,
as a DaemonSet does, is like kubelet when it starts containers again: the eviction goes on as that pod's.
"""

from __future__ import annotations

from collections.abc import Iterable, Set

import msgspec
from msgspec.structs import replace

from koord.host.evictions import NotedEviction
from qosd.decide.decision import Eviction
from qosd.model.snapshot import Controller, EvictionPhase, EvictionState, PodView

REMEMBERED_S = 600
NEVER_NS = 1 << 63
_FIRST_S, _MOST_S = 10, 300
_S = 1_000_000_000
_EARLIER_RUN = "an earlier run had begun it"


class EvictionCase(msgspec.Struct, frozen=True):
    """``tick``: of the last order, 0 = an earlier run's.

    ``earlier_ids``: of containers that ran before the last attempt's end. ``is_executed``: the executor has it, or had.
    ``ended_ns``: when the last attempt ended; of an earlier run, by its note. ``controller``: of the pod; None: it has
    none, or an earlier run began the eviction. ``siblings``: the UIDs of the controller's pods when the order came.
    """

    owner: str
    tick: int
    eviction: Eviction
    state: EvictionState
    earlier_ids: Set[str] = frozenset()
    is_executed: bool = True
    ended_ns: int = 0
    controller: Controller | None = None
    siblings: Set[str] = frozenset()

    @property
    def uid(self) -> str:
        return self.eviction.uid

    @property
    def noted(self) -> NotedEviction:
        """The note for the undo record."""
        eviction, state = self.eviction, self.state
        return NotedEviction(
            eviction.uid,
            eviction.pod,
            self.owner,
            eviction.cgroup,
            state.attempts,
            eviction.grace_s,
            is_stopped=state.phase in (EvictionPhase.STOPPED, EvictionPhase.RESTARTED),
            gate=eviction.gate,
            at_ns=max(state.since_ns, self.ended_ns),
        )

    def due_ns(self) -> int:
        """Returns when it ends without another order. An attempt of an earlier run is not resumed from then on."""
        is_running = self.state.phase is EvictionPhase.STOPPING and self.is_executed
        return NEVER_NS if is_running else self.ended_ns + REMEMBERED_S * _S

    def postponement(self, now_ns: int, is_emergency: bool) -> str:
        """Returns why the pod need not, or must not yet, be stopped again; "" = it may be."""
        state = self.state
        if state.phase is EvictionPhase.STOPPING:
            return "is under way"
        if state.phase is EvictionPhase.STOPPED:
            return "its containers have been stopped, and none has been started since"
        if now_ns < state.retry_ns and (state.waits_in_emergency or not is_emergency):
            return f"not again for {(state.retry_ns - now_ns) / _S:.3g} s"
        return ""

    def begun_again(self, ids: Set[str], now_ns: int) -> EvictionCase:
        """Returns the case with the attempt of an earlier run resumed; ``ids``: of the containers that run now."""
        state = _stopping(self.owner, self.eviction, self.state.attempts, now_ns)
        return replace(self, state=state, earlier_ids=frozenset(ids), is_executed=True)

    def ended(self, problem: str, is_refused: bool, now_ns: int) -> EvictionCase:
        """Returns the case at the attempt's end; ``problem`` "" = all containers are stopped."""
        phase = EvictionPhase.FAILED if problem else EvictionPhase.STOPPED
        retry_ns = now_ns + _backoff_ns(self.state.attempts) if problem else self.state.retry_ns
        state = replace(self.state, phase=phase, problem=problem, is_refused=is_refused, retry_ns=retry_ns)
        return replace(self, state=state, ended_ns=now_ns)


def ordered(
    owner: str,
    tick: int,
    eviction: Eviction,
    before: EvictionCase | None,
    ids: Set[str],
    now_ns: int,
    pods: Iterable[PodView] = (),
) -> EvictionCase:
    """Returns a case with a new attempt after those of ``before``; ``ids``: of the pod's containers that run."""
    attempts = 1 if before is None else before.state.attempts + 1
    state = _stopping(owner, eviction, attempts, now_ns)
    controller = next((pod.controller for pod in pods if pod.uid == eviction.uid), None)
    siblings = [pod.uid for pod in pods if controller is not None and pod.controller == controller]
    return EvictionCase(
        owner, tick, eviction, state, frozenset(ids), controller=controller, siblings=frozenset(siblings)
    )


def succeeded(case: EvictionCase, pod: PodView, now_ns: int) -> EvictionCase:
    """Returns the eviction as that of ``pod``, which the controller has made since: its pause begins now."""
    eviction = replace(case.eviction, uid=pod.uid, pod=pod.key, cgroup=pod.cgroup)
    state = _stopping(case.owner, eviction, case.state.attempts, now_ns)
    state = replace(state, phase=EvictionPhase.RESTARTED, is_replacement=True)
    return replace(case, eviction=eviction, state=state, earlier_ids=frozenset(), is_executed=True, ended_ns=now_ns)


def adopted(note: NotedEviction, now_ns: int) -> EvictionCase:
    """Returns the case of an earlier run's note: to be executed again, unless its containers had been stopped."""
    eviction = Eviction(note.uid, note.pod, _EARLIER_RUN, note.cgroup, note.grace_s, gate=note.gate)
    state = _stopping(note.owner, eviction, note.attempts, now_ns)
    if note.is_stopped:
        state = replace(state, phase=EvictionPhase.STOPPED)
    return EvictionCase(note.owner, 0, eviction, state, is_executed=note.is_stopped, ended_ns=note.at_ns)


def _stopping(owner: str, eviction: Eviction, attempts: int, now_ns: int) -> EvictionState:
    """Returns the state at the beginning of an attempt."""
    retry_ns = now_ns + _backoff_ns(attempts)
    return EvictionState(
        eviction.uid, eviction.pod, EvictionPhase.STOPPING, attempts, now_ns, retry_ns, owner=owner, why=eviction.why
    )


def _backoff_ns(attempts: int) -> int:
    """Returns the pause after that many attempts: 10, 20, 40, … 300 seconds."""
    return int(min(_MOST_S, _FIRST_S * 2 ** min(attempts - 1, 10))) * _S

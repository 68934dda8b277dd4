"""The strategy ``cpuSuppress``: limits the CPU of best-effort pods by one of three policies.

    cpuset     upstream's default: as many CPUs as the formula leaves
    cfsQuota   upstream's other: as much CPU time as the formula leaves
    pressure   Koord's own: the lowest weight, and further steps only if latency-sensitive containers suffer and the
               step helps; the formula at ``ceilingPercent`` bounds what a limit may grow to

``cpuset`` and ``cfsQuota`` are NodeSLO's ``cpuSuppressPolicy``; ``pressure`` is chosen in the rules file's section
``node``, or in ``extensions.koord`` of NodeSLO. Without pressure of the kernel, NodeSLO's policy stands in for it.

Hooks and the strategies ``hooks``, ``bestEffort`` and ``bestEffortSlices`` follow its decision in the same tick; it
writes no file itself. Invariants: one step for each set of samples; without samples, the limits in force stay; the
first decision after a start goes on from what best-effort pods have; unchanged limits are the same object.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import ClassVar

import msgspec
from msgspec.structs import replace

from koord.model import cpuset
from koord.model.slo import CPUSuppressPolicy
from qosd.decide.decision import Decision, Stage, Strategy
from qosd.model.besteffort import BestEffortScheduling
from qosd.model.policy import PressurePolicy, join
from qosd.model.snapshot import PODS_MAX_AGE_S, NodeSnapshot, Window, live
from qosd.policy.scheduling import is_covered
from qosd.predict.workload import workload_name
from qosd.strategies.suppression import allowance, cpuwait, formula, steps
from qosd.strategies.suppression.allowance import Uses
from qosd.strategies.suppression.cpuwait import CPUWait
from qosd.strategies.suppression.formula import Steady
from qosd.strategies.suppression.regulator import Limit, LimitBounds
from qosd.strategies.suppression.steps import LIMITING, SuppressionInput, SuppressionState, SuppressionStep

GATE = "BECPUSuppress"
SLICE_US = 100_000
"""The longest slice that the kernel takes."""
_NODE = Window(allowance.NODE, over_s=3.0)
_ROUND_NS = 900_000_000
"""Growth is once a second; the beat is not exact."""
_NO_WAIT = CPUWait(0.0)
_WORDS = {
    SuppressionStep.SLICES: "long slices",
    SuppressionStep.IDLE: "cpu.idle",
    SuppressionStep.TIME: "less CPU time",
    SuppressionStep.CPUS: "fewer CPUs",
}


_FIELDS = {
    SuppressionStep.SLICES: "slice_us",
    SuppressionStep.IDLE: "is_idle",
    SuppressionStep.TIME: "cpu_milli",
    SuppressionStep.CPUS: "cpus",
}
"""The limit of best-effort pods that each step sets."""


class _Memo(msgspec.Struct, frozen=True, eq=False):
    """``left``: the limits in force; ``grown_ns``: when they grew last; ``steady``: the allowance that counts."""

    left: BestEffortScheduling
    grown_ns: int = 0
    steps: SuppressionState = SuppressionState()
    steady: Steady | None = None

    def steadied(self, snapshot: NodeSnapshot, allowed_milli: int) -> Steady:
        """Returns ``steady`` after the newest allowance."""
        if self.steady is None:
            return Steady(allowed_milli)
        return self.steady.fed(allowed_milli, snapshot.capacity_cpu_milli, snapshot.monotonic_ns)


class SuppressionStrategy(Strategy[_Memo]):
    """The strategy ``cpuSuppress``."""

    name: ClassVar[str] = "cpuSuppress"
    stage: ClassVar[Stage] = Stage.SUPPRESSION
    gate: ClassVar[str] = GATE
    limits_best_effort: ClassVar[bool] = True
    rows: ClassVar[frozenset[str]] = frozenset()
    needs: ClassVar[Mapping[str, float]] = MappingProxyType({"pods": PODS_MAX_AGE_S, "node": 3.0, "usage": 3.0})
    windows: ClassVar[tuple[Window, ...]] = (_NODE,)

    def enabled(self, snapshot: NodeSnapshot) -> bool:
        return snapshot.policy.suppresses_cpu and not snapshot.policy.binds_best_effort

    def decide(self, snapshot: NodeSnapshot, last: _Memo | None) -> tuple[Decision, _Memo]:
        last = last or _resumed(snapshot)
        uses = allowance.uses_of(snapshot)
        if uses is None:
            return Decision("nothing has been measured yet: what is in force stays", best_effort=last.left), last
        policy = snapshot.policy.pressure_policy
        if policy is None:
            return _by_formula(snapshot, uses, last)
        waits = tuple(cpuwait.of_containers(snapshot, uses))
        if not waits and _lacks_pressure(snapshot):
            decision, after = _by_formula(snapshot, uses, last)
            return replace(decision, sentence=f"{_lacks_pressure(snapshot)}; {decision.sentence}"), after
        return _by_pressure(snapshot, uses, waits, policy, last)


def _resumed(snapshot: NodeSnapshot) -> _Memo:
    """Returns the state after a start, from the limits that an earlier run has left.

    Steps that limit nothing are tried anew: whether they helped or were on trial is unknown.
    """
    left, now_ns = snapshot.limits.scheduling, snapshot.monotonic_ns
    limits = ((SuppressionStep.TIME, bool(left.cpu_milli)), (SuppressionStep.CPUS, bool(left.cpus)))
    taken = frozenset([step for step, is_in_force in limits if is_in_force])
    milli = left.cpu_milli or 1000 * len(cpuset.parse(left.cpus))
    limit = Limit(milli, now_ns) if milli else None
    return _Memo(left, now_ns - _ROUND_NS, SuppressionState(taken=taken, limit=limit))


def _lacks_pressure(snapshot: NodeSnapshot) -> str:
    """Returns why the kernel tells no pressure of containers; "" if it does."""
    if "stalls" in snapshot.absent:
        return f"policy pressure falls back to the formula: {snapshot.absent['stalls']}"
    return ""


# the formula


def _by_formula(snapshot: NodeSnapshot, uses: Uses, last: _Memo) -> tuple[Decision, _Memo]:
    thresholds = snapshot.policy.slo.thresholds
    assert thresholds is not None
    percent, least_percent = allowance.percents(thresholds)
    allowed_milli = allowance.allowance_milli(uses, percent, least_percent)
    why = allowance.sentence(uses, percent, allowed_milli)
    steady = last.steadied(snapshot, allowed_milli)
    may_grow = snapshot.monotonic_ns - last.grown_ns >= _ROUND_NS
    if thresholds.cpu_suppress_policy is CPUSuppressPolicy.CFS_QUOTA:
        before_milli = last.left.cpu_milli
        milli = formula.time_milli(uses.capacity_milli, steady.milli, before_milli, may_grow)
        left, grew = BestEffortScheduling(why, cpu_milli=milli), milli > before_milli > 0
        sentence = f"best-effort pods have {milli}m of CPU time: {why}"
    else:
        cpus = formula.cpus(snapshot, steady.milli, last.left.cpus, may_grow)
        pool = cpuset.parse(join(snapshot.policy.node.be_pools))
        before = cpuset.parse(last.left.cpus) or pool
        left, grew = BestEffortScheduling(why, str(cpus)), len(cpus) > len(before)
        sentence = f"best-effort pods have CPUs {cpus} of {pool}: {why}" if cpus else "no CPU pool is known"
    grown_ns = snapshot.monotonic_ns if grew else last.grown_ns
    left = _kept(left, last.left)
    return Decision(sentence, best_effort=left), _Memo(left, grown_ns, steady=steady)


def _kept(left: BestEffortScheduling, before: BestEffortScheduling) -> BestEffortScheduling:
    """Returns ``before`` itself if only the reason differs: that alone must not cause work downstream."""
    return before if replace(left, why=before.why) == before else left


# pressure


def _by_pressure(
    snapshot: NodeSnapshot, uses: Uses, waits: tuple[CPUWait, ...], policy: PressurePolicy, last: _Memo
) -> tuple[Decision, _Memo]:
    now_ns, worst = snapshot.monotonic_ns, max(waits, default=_NO_WAIT)
    thresholds = snapshot.policy.slo.thresholds
    least_percent = None if thresholds is None else allowance.percents(thresholds)[1]
    steady = last.steadied(snapshot, allowance.allowance_milli(uses, policy.ceiling_percent, least_percent))
    floor_milli = max(formula.LEAST_MILLI, uses.capacity_milli * (least_percent or 0) // 100)
    bounds = LimitBounds(floor_milli, max(floor_milli, steady.milli), uses.capacity_milli, policy.set_point_us)
    inputs = SuppressionInput(
        now_ns=now_ns,
        waits={each.name: each for each in waits},
        used_milli=uses.best_effort_milli,
        load_milli=uses.others_milli + uses.other_apps_milli + uses.system_milli,
        bounds=bounds,
        steps=_steps(snapshot),
        workloads=_workloads(snapshot, worst),
    )
    state = steps.advanced(last.steps, inputs)
    left = _kept(_scheduling(snapshot, state, bounds, worst, last.left), last.left)
    return Decision(_sentence(state, worst, bounds, left), best_effort=left), _Memo(left, now_ns, state, steady)


def _steps(snapshot: NodeSnapshot) -> tuple[SuppressionStep, ...]:
    """Returns the steps that this node can take."""
    host = snapshot.policy.host
    has_slices = host.has_task_slices and GATE not in host.lacking
    has = {
        SuppressionStep.SLICES: has_slices,
        SuppressionStep.IDLE: "cpu.idle" in (host.files or ()),
        SuppressionStep.TIME: True,
    }
    has[SuppressionStep.CPUS] = len(cpuset.parse(join(snapshot.policy.node.be_pools))) > formula.LEAST_CPUS
    return tuple([step for step in SuppressionStep if has[step]])


def _workloads(snapshot: NodeSnapshot, suffering: CPUWait) -> frozenset[str]:
    """Returns the workloads of the pod that waits most and of best-effort pods: a step may help others."""
    jobs = [pod.key for pod in snapshot.pods if is_covered(pod, snapshot.policy.node) and live(pod)]
    return frozenset([workload_name(key) for key in (*jobs, *filter(None, (suffering.pod,)))])


def _scheduling(
    snapshot: NodeSnapshot,
    state: SuppressionState,
    bounds: LimitBounds,
    suffering: CPUWait,
    before: BestEffortScheduling,
) -> BestEffortScheduling:
    """Returns the limits of best-effort pods by the steps in force."""
    step, why = state.limiting, "latency-sensitive pods come first"
    milli, cpus = 0, ""
    if step is not None and state.limit is not None:
        limit_milli = bounds.of(state.limit)
        milli = limit_milli if step is SuppressionStep.TIME else 0
        cpus = str(formula.cpus(snapshot, limit_milli, before.cpus)) if step is SuppressionStep.CPUS else ""
        why = f"{suffering.pod or 'nobody'} waits {state.wait.slow / 1000:.0f} ms/s for best-effort work"
    return BestEffortScheduling(
        why,
        cpus,
        milli,
        has_lowest_weight=True,
        is_idle=SuppressionStep.IDLE in state.in_force,
        slice_us=SLICE_US if SuppressionStep.SLICES in state.in_force else 0,
        on_trial="" if state.tried is None else _FIELDS[state.tried],
    )


def _sentence(state: SuppressionState, suffering: CPUWait, bounds: LimitBounds, left: BestEffortScheduling) -> str:
    whose = suffering.name or "no container"
    waits = f"{state.wait.slow / 1000:.1f} ms/s (set point {bounds.set_point / 1000:g})"
    parts = [f"pressure: {whose} waits {waits} for best-effort work", "lowest weight"]
    for step in SuppressionStep:
        if step is state.tried:
            parts.append(f"trying {_WORDS[step]}")
        elif step in state.taken:
            outcome = state.helped.get(step)
            shown = f" ({outcome.before / 1000:.0f} → {outcome.after / 1000:.0f} ms/s)" if outcome else ""
            parts.append(f"{_WORDS[step]}{shown}")
        elif step in state.refused:
            refusal = state.refused[step]
            figures = f"{refusal.before / 1000:.0f} → {refusal.after / 1000:.0f} ms/s"
            parts.append(f"{_WORDS[step]} did not help ({figures}) and was undone")
    if state.limiting in LIMITING:
        parts.append(f"best-effort pods have {left.cpu_milli}m" if left.cpu_milli else f"CPUs {left.cpus}")
    return "; ".join(parts)

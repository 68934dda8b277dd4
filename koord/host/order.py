"""The order in which the kernel accepts a set of changes.

The kernel checks each write against the rest of the tree: on v1 a child's quota ratio may not exceed that of its
nearest limited ancestor and a child's CPU set lies within its parent's; on both versions a burst may not exceed its
quota, and ``cpu.shares`` cannot be written while ``cpu.idle`` is 1. v2 does not refuse, but the same order keeps it
from limiting a child for the moment between two writes. On vendor kernels group identity and core scheduling exclude
each other, and switching the former on or off makes ``cpu.bvt_warp_ns`` of all cgroups 0.

Method: first everything grows, parents before children, to the larger of old and new (for sets: their union); then
changes without an order are written as they were given; then everything shrinks, children before parents. If old and
new state are both legal, so is the larger of the two at every cgroup, and so is every state on the way. CPU sets that
only shrink, and below which none grows, come before all others: a pod leaves a CPU before another comes to it.

Invariant: pure, deterministic, and needs to know no cgroup but the changed ones. A change whose ``current`` equals its
``desired`` gives no step, but other files of the cgroup depend on it: always tell ``cpu.idle`` and the shares of a
cgroup together.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from koord.host.files import Target, Value
from koord.model import cpuset
from koord.model.cfs import PERIOD_US, UNLIMITED

QUOTA, PERIOD, BURST = "cpu_quota", "cpu_period", "cpu.max.burst"
IDLE, SHARES = "cpu.idle", "cpu_shares"
CPUS, MEMS = "cpuset_cpus", "cpuset_mems"
MEMORY, SWAP = "memory_limit_in_bytes", "memory_swap_limit_in_bytes"
CORE_SCHED, GROUP_IDENTITY, IDENTITY = "kernel.sched_core", "kernel.sched_group_identity_enabled", "cpu.bvt_warp_ns"
_RATIO_SHIFT = 20


@dataclass(frozen=True, slots=True)
class Change:
    """A file that holds ``current`` and shall hold ``desired``, in CRI's units (-1 = unlimited).

    ``current`` None (unreadable) counts as the value of a new cgroup.
    """

    target: Target
    current: Value | None
    desired: Value


@dataclass(frozen=True, slots=True)
class Step:
    """One write; ``final`` unless it only makes room for a later one of the same file."""

    target: Target
    value: Value
    final: bool = True


@dataclass(slots=True)
class _Plan:
    """The steps of one unit: files of one cgroup that the kernel checks against each other.

    ``leave``: steps that shrink a file and may come before all growth, if nothing below it has to grow first.
    """

    leave: list[Step] = field(default_factory=list)
    grow: list[Step] = field(default_factory=list)
    free: list[Step] = field(default_factory=list)
    shrink: list[Step] = field(default_factory=list)


_Unit = Mapping[str, Change]
_Planner = Callable[[_Unit, int], _Plan]


def order(changes: Iterable[Change], version: int) -> list[Step]:
    """The writes that bring ``changes`` about on cgroup ``version``, in an order that the kernel never refuses.

    Holds if the present and the desired state of the whole tree are legal. Shares of a cgroup whose desired
    ``cpu.idle`` is 1 give no step: the kernel would refuse them. Raises ValueError if two changes name one file, or
    for a value of the wrong form: those are the row's to check before.
    """
    plans = [(cgroup, planner(unit, version)) for (cgroup, planner, _), unit in _units(changes).items()]
    awaited = {above for cgroup, plan in plans if _takes_cpus(plan) for above in _above(cgroup)}
    for cgroup, plan in plans:
        if cgroup in awaited:
            plan.shrink, plan.leave = plan.shrink + plan.leave, []
    top_down = sorted(plans, key=lambda plan: _depth(plan[0]))
    bottom_up = sorted(plans, key=lambda plan: -_depth(plan[0]))
    return [
        *(step for _, plan in bottom_up for step in plan.leave),
        *(step for _, plan in top_down for step in plan.grow),
        *(step for _, plan in plans for step in plan.free),
        *(step for _, plan in bottom_up for step in plan.shrink),
    ]


def disturbed_by(target: Target) -> tuple[Target, ...]:
    """Returns the files whose values the kernel changes when ``target`` is written: their bases are to be noted too.

    Setting ``cpu.idle`` makes the cgroup's shares read 3, clearing it makes them 1024.
    """
    return (Target(target.cgroup, SHARES),) if target.name == IDLE else ()


def reset_by(target: Target) -> str:
    """Returns the row that the kernel resets in every cgroup when ``target`` is written; "" = none."""
    return IDENTITY if target.name == GROUP_IDENTITY else ""


def above_of(target: Target) -> Iterator[Target]:
    """The same file of each cgroup above, the nearest first."""
    return (Target(cgroup, target.name) for cgroup in reversed(_above(target.cgroup)))


def _units(changes: Iterable[Change]) -> dict[tuple[str, _Planner, str], dict[str, Change]]:
    """The changes that are planned together, in the order of the first of each; an independent one stands alone."""
    units: dict[tuple[str, _Planner, str], dict[str, Change]] = {}
    for change in changes:
        cgroup, name = change.target.cgroup, change.target.name
        planner = _PLANNERS.get(name, _independent)
        unit = units.setdefault((cgroup, planner, name if planner is _independent else ""), {})
        if name in unit:
            raise ValueError(f"two changes for {name} of {cgroup!r}")
        unit[name] = change
    return units


def _depth(cgroup: str) -> int:
    return sum(1 for part in cgroup.split("/") if part)


def _above(cgroup: str) -> list[str]:
    """The cgroups above, without the root."""
    parts = cgroup.split("/")
    return ["/".join(parts[:count]) for count in range(2, len(parts))]


def _takes_cpus(plan: _Plan) -> bool:
    return any(step.target.name in (CPUS, MEMS) for step in plan.grow)


def _independent(unit: _Unit, _version: int) -> _Plan:
    return _Plan(free=_steps(unit, unit))


def _steps(unit: _Unit, names: Iterable[str]) -> list[Step]:
    """Final steps for those of ``names`` that are in the unit and change."""
    present = [unit[name] for name in names if name in unit]
    return [Step(change.target, change.desired) for change in present if change.current != change.desired]


def _cpuset(unit: _Unit, version: int) -> _Plan:
    """Grows to the union of old and new, then shrinks to the new one; leaves if nothing of it grows."""
    plan = _Plan()
    for change in unit.values():
        if change.current == change.desired:
            continue
        old, new = str(change.current or ""), str(change.desired)
        both = _union(old, new, version)
        if both != old:
            plan.grow.append(Step(change.target, both, final=both == new))
        if new != both:
            plan.shrink.append(Step(change.target, new))
    return plan if plan.grow else _Plan(leave=plan.shrink)


def _union(old: str, new: str, version: int) -> str:
    """On v2 an empty list means whatever the parent has, so it is the larger; on v1 it means no CPU at all."""
    if version == 2 and not (old and new):
        return ""
    return str(cpuset.parse(old) | cpuset.parse(new))


def _protection(unit: _Unit, _version: int) -> _Plan:
    """``memory.min`` and ``memory.low``: a child is protected only as far as its parent is."""
    return _sized(_steps(unit, unit), unit, default=0)


def _throttle(unit: _Unit, _version: int) -> _Plan:
    return _sized(_steps(unit, unit), unit, default=UNLIMITED)


def _sized(steps: Sequence[Step], unit: _Unit, default: Value) -> _Plan:
    """Each step where its own file's direction puts it."""
    plan = _Plan()
    for step in steps:
        grows = _size(step.value) > _size(_old(unit, step.target.name, default))
        (plan.grow if grows else plan.shrink).append(step)
    return plan


def _memory(unit: _Unit, _version: int) -> _Plan:
    """v1 wants limit <= limit with swap at every moment: the latter first if it grows, last if it shrinks."""
    first = SWAP if SWAP in unit and _grows(unit[SWAP]) else MEMORY
    last = MEMORY if first == SWAP else SWAP
    steps = _steps(unit, (first, last))
    grows = any(_grows(unit[step.target.name]) for step in steps)
    return _Plan(grow=steps) if grows else _Plan(shrink=steps)


def _grows(change: Change) -> bool:
    return change.current is not None and _size(change.desired) > _size(change.current)


def _weight(unit: _Unit, _version: int) -> _Plan:
    """``cpu.idle`` and the shares: one composite, because the kernel overwrites and locks the shares."""
    idle = unit.get(IDLE)
    if idle is not None and idle.desired == 1:
        return _Plan(free=_steps(unit, [IDLE]))
    cleared = idle is not None and idle.current == 1
    shares = [Step(unit[SHARES].target, unit[SHARES].desired)] if SHARES in unit else []
    return _Plan(free=[*_steps(unit, [IDLE]), *(shares if cleared else _steps(unit, [SHARES]))])


def _identity(unit: _Unit, _version: int) -> _Plan:
    """The switches of group identity and core scheduling. Group identity is switched on before the cgroups' identities
    are written and off after them, because a switch loses the identities. The switch that goes off goes first."""
    if GROUP_IDENTITY in unit and unit[GROUP_IDENTITY].desired == 1:
        return _Plan(grow=_steps(unit, (CORE_SCHED, GROUP_IDENTITY)))
    return _Plan(shrink=_steps(unit, (GROUP_IDENTITY, CORE_SCHED)))


def _bandwidth(unit: _Unit, version: int) -> _Plan:
    """Returns the steps of quota, period and burst together: as growth if quota / period grows, else as shrinking.

    A burst that falls comes before the limit, and one that rises after it: it may never exceed the quota.
    """
    steps = _limit_steps(unit, version)
    burst = _steps(unit, [BURST])
    falls = bool(burst) and _size(burst[0].value) < _size(_old(unit, BURST, 0))
    steps = burst + steps if falls else steps + burst
    old, new = _limits(unit)
    return _Plan(grow=steps) if _ratio(*new) > _ratio(*old) else _Plan(shrink=steps)


def _limit_steps(unit: _Unit, version: int) -> list[Step]:
    """Returns the steps of quota and period. On v1 the ratio between the two writes must stay between old and new
    ratio.

    Where neither order gives that, the quota is lifted meanwhile: the cgroup's ancestors still limit it.
    """
    steps = _steps(unit, (QUOTA, PERIOD))
    if len(steps) < 2 or version == 2:
        return steps
    old, new = _limits(unit)
    span = sorted((_ratio(*old), _ratio(*new)))
    if _within(span, _ratio(new[0], old[1])):
        return steps
    if _within(span, _ratio(old[0], new[1])):
        return steps[::-1]
    return [Step(unit[QUOTA].target, UNLIMITED, final=False), *steps[::-1]]


def _within(span: Sequence[float], ratio: float) -> bool:
    """Returns whether ``ratio`` is safe. An unlimited quota is not bounded by ancestors, so a ratio that is merely
    below "none" may be too high: only the two ends are safe then."""
    low, high = span
    return ratio in span or (high != math.inf and low <= ratio <= high)


def _limits(unit: _Unit) -> tuple[tuple[Value, Value], tuple[Value, Value]]:
    """Returns (quota, period) before and after; a file without a change counts as unchanged, so the other one's
    direction decides."""
    untold = (PERIOD_US, PERIOD_US)
    quota = (_old(unit, QUOTA, UNLIMITED), unit[QUOTA].desired) if QUOTA in unit else untold
    period = (_old(unit, PERIOD, PERIOD_US), unit[PERIOD].desired) if PERIOD in unit else untold
    return (quota[0], period[0]), (quota[1], period[1])


def _ratio(quota: Value, period: Value) -> float:
    """The kernel's ``to_ratio``: quota / period, rounded down to 2^-20; two that round alike are equal to it."""
    return math.inf if _size(quota) == math.inf else (int(quota) << _RATIO_SHIFT) // int(period)


def _old(unit: _Unit, name: str, default: Value) -> Value:
    current = unit[name].current if name in unit else None
    return default if current is None else current


def _size(value: Value) -> float:
    """A number to compare by; unlimited is larger than all."""
    return math.inf if value in (UNLIMITED, "max") else int(value)


_PLANNERS: Mapping[str, _Planner] = {
    QUOTA: _bandwidth,
    PERIOD: _bandwidth,
    BURST: _bandwidth,
    IDLE: _weight,
    SHARES: _weight,
    CPUS: _cpuset,
    MEMS: _cpuset,
    MEMORY: _memory,
    SWAP: _memory,
    "memory.min": _protection,
    "memory.low": _protection,
    "memory.high": _throttle,
    CORE_SCHED: _identity,
    GROUP_IDENTITY: _identity,
}

"""Evicts best-effort pods when they get too little of the CPU that they requested.

    satisfaction = limit / requests of best-effort pods

Below the lower percent, and while the pods really use what they can get, it evicts so many that the satisfaction of the
others rises to the upper percent. The limit is what the BestEffort tier can have (its CPU sets, its CFS quota), or the
node's allocatable batch-cpu. Means over a window decide, and the newest samples must agree that it is not over.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import ClassVar

import msgspec

from koord.model import readable
from koord.model.formulas import FORMULA, Formula, Inputs, number
from koord.model.priority import BATCH_CPU
from koord.model.slo import CPUEvictPolicy, ResourceThresholds
from qosd.decide.decision import Decision
from qosd.decide.shortage import Measure, ReliefStep, Resource, Shortage
from qosd.model.metric import Metric
from qosd.model.policy import EffectivePolicy
from qosd.model.snapshot import NodeSnapshot, Window
from qosd.sense.besteffort import BestEffortRow
from qosd.strategies.eviction.evicting import (
    BEST_EFFORT_BY_USE_OF_REQUEST,
    BEST_EFFORT_LISTS,
    SAMPLES_S,
    Evicting,
    SettingError,
    best_effort,
    required,
)
from qosd.strategies.eviction.windows import check_window, covers, cpu_window, cpu_windows

_DEFAULT_USAGE_PERCENT = 90
_LOWER, _UPPER = "cpu_evict_be_satisfaction_lower_percent", "cpu_evict_be_satisfaction_upper_percent"
_LEAST_MILLI = 1000
"""A limit below one CPU is too little however little of it is used."""
_USAGE, _REQUEST, _REAL_LIMIT = (
    BestEffortRow.be_cpu_usage_cores,
    BestEffortRow.be_cpu_request_cores,
    BestEffortRow.be_cpu_real_limit_cores,
)
_UNMEASURED = "the CPU of best-effort pods has not been measured yet"


class _Percents(msgspec.Struct, frozen=True):
    """``lower``: satisfaction below which pods go; ``upper``: the aim; ``usage``: the least use of the limit."""

    lower: int
    upper: int
    usage: int

    @classmethod
    def of(cls, thresholds: ResourceThresholds) -> _Percents:
        """Raises SettingError."""
        lower = required(thresholds, _LOWER)
        upper = required(thresholds, _UPPER)
        if not 0 < lower <= 60:
            raise SettingError(_LOWER, lower, "is not in 1..60")
        if not 0 < upper < 100:
            raise SettingError(_UPPER, upper, "is not in 1..99")
        if upper < lower:
            raise SettingError(_UPPER, upper, f"is less than the lower percent, {lower}")
        usage = thresholds.cpu_evict_be_usage_threshold_percent
        return cls(lower, upper, _DEFAULT_USAGE_PERCENT if usage is None else usage)


class _CPU(msgspec.Struct, frozen=True):
    """The CPU of all best-effort pods together."""

    usage_milli: int
    request_milli: int
    limit_milli: int

    def is_used(self, percents: _Percents) -> bool:
        """Do the pods use what they can get?"""
        if self.limit_milli <= 0:
            return False
        return self.limit_milli < _LEAST_MILLI or self.usage_milli * 100 >= self.limit_milli * percents.usage

    def to_release(self, percents: _Percents) -> int:
        """Returns the requests to release; 0 where the pods are satisfied."""
        if self.request_milli <= 0 or self.limit_milli * 100 > self.request_milli * percents.lower:
            return 0
        return max(0, _release_milli(self.request_milli, self.limit_milli, percents.upper))


def _release_milli(request_milli: int, limit_milli: int, upper_percent: int) -> int:
    """request × (upper / 100 - limit / request)."""
    return (request_milli * upper_percent - limit_milli * 100) // 100


def _compute(inputs: Inputs) -> int:
    """Returns the smaller release, by the means or by the newest samples."""
    upper = number(inputs, "upper_percent")
    mean, last = (
        _release_milli(number(inputs, f"{prefix}request_milli"), number(inputs, f"{prefix}limit_milli"), upper)
        for prefix in ("", "last_")
    )
    return min(mean, last)


RELEASE = Formula(
    "be_cpu_to_release",
    "floor(request_milli * upper_percent / 100 - limit_milli), and no more than the same of last_request_milli and "
    "last_limit_milli",
    _compute,
)


class BestEffortSatisfaction(Evicting[None]):
    """The strategy ``beCPUEvict``."""

    name: ClassVar[str] = "beCPUEvict"
    gate: ClassVar[str] = "BECPUEvict"
    needs: ClassVar[Mapping[str, float]] = MappingProxyType(
        {"besteffort": SAMPLES_S, "usage": SAMPLES_S, **BEST_EFFORT_LISTS}
    )
    formulas: ClassVar[tuple[Formula, ...]] = (RELEASE,)

    def windows_under(self, policy: EffectivePolicy) -> tuple[Window, ...]:
        if not self.is_on(policy):
            return ()
        limit = () if _is_by_allocatable(policy) else (_REAL_LIMIT,)
        return cpu_windows((_USAGE, _REQUEST, *limit), policy)

    def states(self, snapshot: NodeSnapshot, thresholds: ResourceThresholds, last: None) -> tuple[Decision, None]:
        percents = _Percents.of(thresholds)
        check_window(thresholds)
        if _is_by_allocatable(snapshot.policy) and _allocatable_milli(snapshot.policy) is None:
            return Decision(f"node.allocatable says nothing of {BATCH_CPU}, so nobody is evicted by it"), None
        policy = snapshot.policy
        mean = _cpu(policy, lambda metric: covers(snapshot, cpu_window(metric, policy)))
        newest = _cpu(policy, snapshot.value)
        if mean is None or newest is None:
            return Decision(_UNMEASURED), None
        return _decision(snapshot, percents, mean, newest), None


def _decision(snapshot: NodeSnapshot, percents: _Percents, mean: _CPU, last: _CPU) -> Decision:
    has = f"best-effort pods use {mean.usage_milli} of {mean.limit_milli} milli-CPU and requested {mean.request_milli}"
    amount = mean.to_release(percents) if mean.is_used(percents) and last.is_used(percents) else 0
    if amount and (last.request_milli, last.limit_milli) != (mean.request_milli, mean.limit_milli):
        amount = min(amount, last.to_release(percents))
    if amount <= 0:
        return Decision(f"{has}: nobody is evicted")
    why = f"{has}, of which they get less than {percents.lower} %"
    inputs: Inputs = {
        FORMULA: RELEASE.name,
        "request_milli": mean.request_milli,
        "limit_milli": mean.limit_milli,
        "last_request_milli": last.request_milli,
        "last_limit_milli": last.limit_milli,
        "upper_percent": percents.upper,
    }
    shortage = Shortage(
        Resource.CPU_MILLI,
        amount,
        best_effort(BestEffortSatisfaction.gate),
        BEST_EFFORT_BY_USE_OF_REQUEST,
        why,
        Measure.REQUEST,
        frozenset({ReliefStep.EVICT}),  # a pod that is throttled has requested no less
        inputs,
        BATCH_CPU,
        snapshot.sampled_by("besteffort", "usage"),
    )
    return Decision(f"{why}: requests of {readable.cpus(amount)} must be freed", shortages=(shortage,))


def _is_by_allocatable(policy: EffectivePolicy) -> bool:
    thresholds = policy.slo.thresholds
    return thresholds is not None and thresholds.cpu_evict_policy is CPUEvictPolicy.BY_ALLOCATABLE


def _allocatable_milli(policy: EffectivePolicy) -> int | None:
    """Returns the node's allocatable batch-cpu, 0 as 1; None: unknown."""
    amount = policy.node.allocatable.get(BATCH_CPU)
    return None if amount is None else max(1, amount.value())


def _cpu(policy: EffectivePolicy, cores_of: Callable[[Metric], float | None]) -> _CPU | None:
    usage, request = _milli(cores_of(_USAGE)), _milli(cores_of(_REQUEST))
    limit = _allocatable_milli(policy) if _is_by_allocatable(policy) else _milli(cores_of(_REAL_LIMIT))
    return None if usage is None or request is None or limit is None else _CPU(usage, request, limit)


def _milli(cores: float | None) -> int | None:
    return None if cores is None or not math.isfinite(cores) else round(cores * 1000)

"""Evicts pods of low priority while the node's CPUs are too busy.

The mean of a window decides. It still includes pods that have gone since, so the newest sample bounds the amount.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import ClassVar

from koord.model import readable
from koord.model.formulas import Formula
from koord.model.slo import ResourceThresholds
from qosd.decide.decision import Decision
from qosd.decide.shortage import Resource, Shortage
from qosd.model.policy import EffectivePolicy
from qosd.model.snapshot import NodeSnapshot, Window
from qosd.sense.node import NodeRow
from qosd.strategies.eviction.evicting import (
    BY_PRIORITY,
    CPU_TO_RELEASE,
    LISTS,
    SAMPLES_S,
    Evicting,
    by_priority,
    percent_of,
    release_inputs,
    required,
    to_release,
    usage_percents,
)
from qosd.strategies.eviction.windows import check_window, covers, cpu_window, cpu_windows

_CPU = NodeRow.cpu_usage_cores


class CPUUsage(Evicting[None]):
    """The strategy ``cpuEvict``."""

    name: ClassVar[str] = "cpuEvict"
    gate: ClassVar[str] = "CPUEvict"
    needs: ClassVar[Mapping[str, float]] = MappingProxyType({"node": SAMPLES_S, "usage": SAMPLES_S, **LISTS})
    formulas: ClassVar[tuple[Formula, ...]] = (CPU_TO_RELEASE,)

    def windows_under(self, policy: EffectivePolicy) -> tuple[Window, ...]:
        return cpu_windows((_CPU,), policy) if self.is_on(policy) else ()

    def states(self, snapshot: NodeSnapshot, thresholds: ResourceThresholds, last: None) -> tuple[Decision, None]:
        upper, lower = usage_percents(thresholds, "cpu_evict_threshold_percent", "cpu_evict_lower_percent")
        priority_at_most = required(thresholds, "evict_enabled_priority_threshold")
        check_window(thresholds)
        capacity_milli = snapshot.capacity_cpu_milli
        mean, newest = covers(snapshot, cpu_window(_CPU, snapshot.policy)), snapshot.value(_CPU)
        if not capacity_milli or mean is None or newest is None:
            return Decision("the node's CPU usage has not been measured yet"), None
        mean_milli, newest_milli = round(mean * 1000), round(newest * 1000)
        percent = percent_of(mean_milli, capacity_milli)
        has = f"{percent} % of {readable.cpus(capacity_milli)} is in use"
        used_milli = min(mean_milli, newest_milli)
        amount = to_release(used_milli, capacity_milli, lower)
        if percent < upper or amount <= 0:
            return Decision(f"{has}: no pod is evicted below {upper} %"), None
        why = f"{has}; eviction starts at {upper} % and stops at {lower} %"
        shortage = Shortage(
            Resource.CPU_MILLI,
            amount,
            by_priority(self.gate, priority_at_most),
            BY_PRIORITY,
            why,
            inputs=release_inputs(Resource.CPU_MILLI, used_milli, capacity_milli, lower),
            sampled_ns=snapshot.sampled_by("node", "usage"),
        )
        return Decision(f"{why}: {readable.cpus(amount)} must be freed", shortages=(shortage,)), None

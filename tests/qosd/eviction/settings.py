"""Rules of the model: thresholds that make sense and such that do not, gates, what is allocatable, rehearsals."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from random import Random
from typing import Any

from koord.model import quantity, slo_defaults
from koord.model.priority import BATCH_CPU, BATCH_MEMORY, MID_CPU, MID_MEMORY
from koord.model.slo import CPUEvictPolicy, NodeSLOSpec, ResourceThresholds
from qosd.model.policy import EffectivePolicy, HostFacts, NodeSettings

GATES = (
    "BECPUEvict", "CPUAllocatableEvict", "CPUEvict", "BEMemoryEvict", "MemoryAllocatableEvict", "MemoryEvict",
)  # fmt: skip
JUST_ABOVE = (5501, 6000, 8000)
"""Priorities of which each is one more than a threshold that rules have."""


def make_rules(chance: Random, counts: Counter[str], host: HostFacts) -> EffectivePolicy:
    """What an administrator may say, sensible or not."""
    window = chance.choice((None, None, 2, 5, 12, 30))
    names = ("memory_evict", "cpu_evict", "cpu_allocatable_evict", "memory_allocatable_evict")
    percents = {name: _percents(chance, name) for name in names}
    said: dict[str, Any] = {
        f"{name}_{which}_percent": value for name, pair in percents.items() for which, value in pair.items()
    }
    thresholds = ResourceThresholds(
        enable=not one_in(chance, 20),
        cpu_evict_time_window_seconds=window,
        cpu_evict_policy=chance.choice((None, CPUEvictPolicy.BY_REAL_LIMIT, CPUEvictPolicy.BY_ALLOCATABLE)),
        cpu_evict_be_usage_threshold_percent=chance.choice((None, None, 0, 50, 100)),
        cpu_evict_be_satisfaction_lower_percent=chance.choice((None, 0, 20, 50, 60, 60, 61)),
        cpu_evict_be_satisfaction_upper_percent=chance.choice((None, 30, 60, 80, 99, 99, 100)),
        evict_enabled_priority_threshold=chance.choice((None, 5500, 5999, 7999, 9999)),
        allocatable_evict_priority_threshold=chance.choice((None, 5500, 7999, 7999, 7999)),
        **said,
    )
    if any(value is None for value in said.values()):
        counts["settings that are missing"] += 1
    slo = slo_defaults.in_force(NodeSLOSpec(thresholds=thresholds))
    node = NodeSettings(
        features={gate: not one_in(chance, 5) for gate in GATES},
        allocatable=_allocatable(chance),
        eviction_dry_run=one_in(chance, 8),
        sandbox_sizing_handlers=frozenset({"sized"}),
    )
    return EffectivePolicy(slo, node, host)


def _percents(chance: Random, name: str) -> dict[str, int | None]:
    upper = chance.randrange(80, 140) if "allocatable" in name else chance.randrange(40, 96)
    lower: int | None = upper - chance.choice((1, 2, 5, 20))
    if one_in(chance, 8):
        upper, lower = chance.choice(((upper, upper), (0, None), (upper, None)))
    return {"threshold": None if one_in(chance, 15) else upper, "lower": lower}


def _allocatable(chance: Random) -> Mapping[str, quantity.Quantity]:
    said = {}
    for name, unit in ((BATCH_CPU, ""), (MID_CPU, ""), (BATCH_MEMORY, "Mi"), (MID_MEMORY, "Mi")):
        if not one_in(chance, 5):
            said[name] = quantity.parse(f"{chance.choice((0, 500, 2000, 6000, 6000, 20000))}{unit}")
    return said


def one_in(chance: Random, chances: int) -> bool:
    return chance.randrange(chances) == 0

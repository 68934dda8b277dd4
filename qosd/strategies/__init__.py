"""Strategies: pure functions from a snapshot to one opinion per kernel file (``qosd.decide.decision``).

``STRATEGIES`` has all of them in their order: at one stage of one file the first that has an opinion is followed.
"""

from __future__ import annotations

from collections.abc import Mapping

from koord.model.formulas import FORMULAS, Formula
from qosd.decide.decision import AnyStrategy
from qosd.decide.runner import EvictionStrategy
from qosd.strategies.besteffort.slices import BestEffortSlices
from qosd.strategies.besteffort.strategy import BestEffortStrategy
from qosd.strategies.burst.strategy import BurstStrategy
from qosd.strategies.enforcement import Enforcement
from qosd.strategies.eviction.allocatable import CPUAllocatable, MemoryAllocatable
from qosd.strategies.eviction.cpuusage import CPUUsage
from qosd.strategies.eviction.memoryusage import BestEffortMemory, MemoryByPriority
from qosd.strategies.eviction.satisfaction import BestEffortSatisfaction
from qosd.strategies.groupidentity import GroupIdentity
from qosd.strategies.hostapps import HostApplicationStrategy
from qosd.strategies.memory.reclaim import MemoryReclaim
from qosd.strategies.memory.tiers import MemoryTiers
from qosd.strategies.normalization import PodNormalization
from qosd.strategies.oomscore import OOMScores
from qosd.strategies.reconciler import HookReconciler
from qosd.strategies.resctrl import ResctrlGroups
from qosd.strategies.suppression.strategy import SuppressionStrategy
from qosd.strategies.systemconfig import SystemConfig

STRATEGIES: tuple[AnyStrategy, ...] = (
    HookReconciler(),
    PodNormalization(),
    BurstStrategy(),
    HostApplicationStrategy(),
    GroupIdentity(),
    SystemConfig(),
    ResctrlGroups(),
    MemoryTiers(),
    MemoryReclaim(),
    OOMScores(),
    SuppressionStrategy(),
    BestEffortStrategy(),
    BestEffortSlices(),
    BestEffortSatisfaction(),
    CPUAllocatable(),
    CPUUsage(),
    BestEffortMemory(),
    MemoryAllocatable(),
    MemoryByPriority(),
    Enforcement(),
)


def speakers() -> tuple[AnyStrategy, ...]:
    """Returns all that have opinions: the strategies, then the one that relieves the shortages that they state."""
    return (*STRATEGIES, EvictionStrategy())


def formulas() -> Mapping[str, Formula]:
    """Returns the formulas of all values by name: the shared ones and each strategy's own."""
    own = {formula.name: formula for strategy in speakers() for formula in strategy.formulas}
    return {**FORMULAS, **own}

"""Short ways to say a node with samples and thresholds, and what a strategy states of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from msgspec import structs

from koord.model import quantity, slo_defaults
from koord.model.qos import KubeQoS
from koord.model.slo import NodeSLOSpec, ResourceThresholds
from qosd.decide.decision import Decision, Strategy
from qosd.decide.runner import StrategyResult, StrategyStates, StrategyStatus, decide_all
from qosd.decide.shortage import Shortage
from qosd.model.metric import Metric, Scope
from qosd.model.policy import EffectivePolicy, NodeSettings
from qosd.model.snapshot import Aggregate, NodeSnapshot, PodView, Window
from qosd.sense.besteffort import BestEffortRow
from qosd.sense.limits import LIMITS
from qosd.sense.node import NodeRow
from qosd.sense.usage import USAGE
from tests.fakes.clock import S
from tests.qosd.contexts import V2
from tests.qosd.podviews import machine, snapshot

GIB, MIB = 1 << 30, 1 << 20
ROOT = "/kubepods"
TIER = USAGE[Scope.TIER]
YOUNG: Mapping[str, float] = MappingProxyType(
    dict.fromkeys(("node", "usage", "limits", "besteffort", "pods", "kubelet"), 0.0)
)
GATES = (
    "BECPUEvict", "CPUEvict", "CPUAllocatableEvict", "BEMemoryEvict", "MemoryEvict", "MemoryAllocatableEvict",
)  # fmt: skip


def ruled(allocatable: Mapping[str, str] = MappingProxyType({}), **thresholds: Any) -> EffectivePolicy:
    """Every gate is on, and ``enable`` is true unless it is said."""
    stated = ResourceThresholds(**{"enable": True, **thresholds})
    slo = slo_defaults.in_force(NodeSLOSpec(thresholds=stated))
    amounts = {name: quantity.parse(text) for name, text in allocatable.items()}
    return EffectivePolicy(slo, NodeSettings(features=dict.fromkeys(GATES, True), allocatable=amounts), V2)


def node(
    policy: EffectivePolicy,
    *pods: PodView,
    cpus: int = 32,
    values: Mapping[Metric, Mapping[str, float]] = MappingProxyType({}),
    windows: Mapping[Window, Mapping[str, Aggregate]] = MappingProxyType({}),
    ages_s: Mapping[str, float] = YOUNG,
    at_s: float = 1000,
) -> NodeSnapshot:
    return structs.replace(
        snapshot(policy, *pods, topology=machine(cpus)),
        monotonic_ns=int(at_s * S),
        sampled_ns=int(at_s * S),
        values=values,
        windows=windows,
        ages_s=ages_s,
        tiers={KubeQoS.GUARANTEED: ROOT},
    )


def mean(value: float, count: int = 60, span_s: float | None = None, slope_per_s: float = 0.0) -> Aggregate:
    return Aggregate(count, value, value, slope_per_s, count - 1 if span_s is None else span_s)


def best_effort_cpu(usage: float, request: float, limit: float | None) -> dict[Metric, Mapping[str, float]]:
    """In thousandths of a CPU."""
    figures = {
        BestEffortRow.be_cpu_usage_cores: usage,
        BestEffortRow.be_cpu_request_cores: request,
        BestEffortRow.be_cpu_real_limit_cores: limit,
    }
    return {metric: {"": figure / 1000} for metric, figure in figures.items() if figure is not None}


def memory(
    used: int,
    total: int = 100 * GIB,
    limit: int | None = None,
    anonymous: int = 0,
    active_cache: int = 0,
    idle_cache: int = 0,
    kernel: int = 0,
    slab: int = 0,
) -> dict[Metric, Mapping[str, float]]:
    """``used`` of the node; the rest is of the pods' root cgroup with ``limit``. ``slab``: dentries and inodes."""
    values: dict[Metric, Mapping[str, float]] = {
        NodeRow.memory_usage_bytes: {"": float(used)},
        NodeRow.memory_total_bytes: {"": float(total)},
    }
    charged = anonymous + active_cache + idle_cache + kernel + slab
    values[TIER.memory_usage_bytes] = {ROOT: float(anonymous)}
    values[TIER.memory_working_set_bytes] = {ROOT: float(charged - idle_cache)}
    values[TIER.memory_unreclaimable_bytes] = {ROOT: float(anonymous + kernel)}
    if limit is not None:
        values[LIMITS[Scope.TIER].memory_limit_bytes] = {ROOT: float(limit)}
    return values


def turn(strategy: Strategy[Any], at: NodeSnapshot, states: StrategyStates | None = None) -> StrategyResult:
    """What the frame makes of the strategy at that moment."""
    decisions, _ = decide_all(at, (strategy,), states or {})
    return decisions.results[0]


def decided(strategy: Strategy[Any], at: NodeSnapshot) -> Decision:
    result = turn(strategy, at)
    assert result.state is StrategyStatus.ACTIVE, result.sentence
    return result.decision


def stated(strategy: Strategy[Any], at: NodeSnapshot) -> Shortage | None:
    shortages = decided(strategy, at).shortages
    assert len(shortages) <= 1
    return shortages[0] if shortages else None


def amount(strategy: Strategy[Any], at: NodeSnapshot) -> int:
    """0: nothing lacks."""
    shortage = stated(strategy, at)
    return 0 if shortage is None else shortage.amount


def renamed(policy: EffectivePolicy, **node_rules: Any) -> EffectivePolicy:
    return replace(policy, node=replace(policy.node, **node_rules))

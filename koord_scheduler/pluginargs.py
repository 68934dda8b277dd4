"""The arguments of plugins in a KubeSchedulerConfiguration, and the plugins that are made of them.

Bounds and defaults are upstream's. Sources: pkg/scheduler/apis/config/v1/defaults.go,
pkg/scheduler/apis/config/validation/validation_pluginargs.go; Koordinator, pkg/scheduler/apis/config.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import pairwise
from typing import Annotated, Any, NamedTuple

import msgspec

from koord.model import durations
from koord.model.core import Amount, Slim
from koord.model.gang import GangDefaults, MatchPolicy
from koord.model.priority import CPU, MEMORY
from koord.model.quantity import QuantityError
from koord.model.scheduling.numa import CPUBindPolicy
from koord.model.scheduling.pods import NodeAffinity as Affinity
from koord.model.scheduling.pods import NodeSelectorRequirement, NodeSelectorTerm, TopologySpreadConstraint
from koord.model.selector import label_error
from koord.quota import names, spec
from koord.quota.forest import QuotaRules
from koord.scheduling.labels import NO_NUMBER, integer
from koord.scheduling.plugin import Plugin
from koord.scheduling.plugins.elasticquota import ElasticQuota
from koord.scheduling.plugins.koordinator import NodeResourcesFitPlus, ResourceScore, ScarceResourceAvoidance
from koord.scheduling.plugins.loadaware import LoadAwareScheduling
from koord.scheduling.plugins.nodenumaresource import NodeNUMAResource, Scoring
from koord.scheduling.plugins.nodes import NodeAffinity
from koord.scheduling.plugins.podaffinity import InterPodAffinity
from koord.scheduling.plugins.resources import (
    NodeResourcesBalancedAllocation,
    NodeResourcesFit,
    RequestedToCapacityRatio,
    Score,
    least_allocated,
    most_allocated,
)
from koord.scheduling.plugins.schedulinghint import SchedulingHint
from koord.scheduling.plugins.spread import PodTopologySpread
from koord.scheduling.preemption import CandidateCount
from koord_scheduler import loadargs
from koord_scheduler.documentreader import DocumentReader

_SHAPE_SCALE = 10
"""Scores of a shape go to 10, those of nodes to 100."""
API_VERSION = "kubescheduler.config.k8s.io/v1"
Percent = Annotated[int, msgspec.Meta(ge=0, le=100)]
_Weight = Annotated[int, msgspec.Meta(ge=0, le=100)]
_Count = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]


class _Args(Slim, frozen=True):
    api_version: str | None = None
    kind: str | None = None


class ResourceWeight(Slim, frozen=True):
    name: str
    weight: _Weight = 0
    """0: not said, which is 1."""


class ShapePoint(Slim, frozen=True):
    utilization: Percent = 0
    score: Annotated[int, msgspec.Meta(ge=0, le=10)] = 0


class RatioArgs(Slim, frozen=True):
    shape: tuple[ShapePoint, ...] | None = None


class StrategyType(StrEnum):
    LEAST_ALLOCATED = "LeastAllocated"
    MOST_ALLOCATED = "MostAllocated"
    REQUESTED_TO_CAPACITY_RATIO = "RequestedToCapacityRatio"


class ScoringStrategy(Slim, frozen=True):
    type: StrategyType | None = None
    resources: tuple[ResourceWeight, ...] = ()
    requested_to_capacity_ratio: RatioArgs | None = None


class NodeResourcesFitArgs(_Args, frozen=True):
    ignored_resources: tuple[str, ...] | None = None
    ignored_resource_groups: tuple[str, ...] | None = None
    scoring_strategy: ScoringStrategy | None = None


class NodeResourcesBalancedAllocationArgs(_Args, frozen=True):
    resources: tuple[ResourceWeight, ...] = ()


class NodeAffinityArgs(_Args, frozen=True):
    added_affinity: Affinity | None = None


class DefaultingType(StrEnum):
    SYSTEM = "System"
    LIST = "List"


class PodTopologySpreadArgs(_Args, frozen=True):
    default_constraints: tuple[TopologySpreadConstraint, ...] = ()
    defaulting_type: DefaultingType | None = None


class InterPodAffinityArgs(_Args, frozen=True):
    hard_pod_affinity_weight: _Weight | None = None
    ignore_preferred_terms_of_existing_pods: bool | None = None


class DefaultPreemptionArgs(_Args, frozen=True):
    min_candidate_nodes_percentage: Percent | None = None
    min_candidate_nodes_absolute: _Count | None = None


class VolumeBindingArgs(_Args, frozen=True):
    bind_timeout_seconds: _Count | None = None
    shape: tuple[ShapePoint, ...] | None = None


class PlusStrategyType(StrEnum):
    LEAST_ALLOCATED = "LeastAllocated"
    MOST_ALLOCATED = "MostAllocated"


class PlusStrategy(Slim, frozen=True):
    type: PlusStrategyType
    weight: _Weight


_SCORES = {PlusStrategyType.LEAST_ALLOCATED: least_allocated, PlusStrategyType.MOST_ALLOCATED: most_allocated}


class NodeResourcesFitPlusArgs(_Args, frozen=True):
    resources: Mapping[str, PlusStrategy] = {}


class NUMAScoringStrategy(Slim, frozen=True):
    type: PlusStrategyType = PlusStrategyType.LEAST_ALLOCATED
    resources: tuple[ResourceWeight, ...] = ()


class NodeNUMAResourceArgs(_Args, frozen=True):
    default_cpu_bind_policy: CPUBindPolicy | None = msgspec.field(default=None, name="defaultCPUBindPolicy")
    scoring_strategy: NUMAScoringStrategy = NUMAScoringStrategy()
    numa_scoring_strategy: NUMAScoringStrategy = NUMAScoringStrategy()


class ScarceResourceAvoidanceArgs(_Args, frozen=True):
    resources: tuple[str, ...] | None = None


class SchedulingHintArgs(_Args, frozen=True):
    max_hint_nodes: Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)] | None = None


class ElasticQuotaArgs(_Args, frozen=True):
    delay_evict_time: str | None = None
    revoke_pod_interval: str | None = None
    default_quota_group_max: Mapping[str, Amount] | None = None
    system_quota_group_max: Mapping[str, Amount] | None = None
    quota_group_namespace: str | None = None
    monitor_all_quotas: bool | None = None
    enable_check_parent_quota: bool | None = None
    enable_runtime_quota: bool | None = None
    enable_min_quota_scale: bool | None = None
    enable_guarantee_usage: bool | None = None
    """Koordinator has a feature gate for it, ElasticQuotaGuaranteeUsage."""
    disable_default_quota_preemption: bool | None = None
    enable_queue_hint: bool | None = None
    quota_snapshot_update_interval: str | None = None
    hook_plugins: tuple[Any, ...] | None = None


class CoschedulingArgs(_Args, frozen=True):
    default_timeout: str | None = None
    controller_workers: Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)] | None = None
    skip_check_schedule_cycle: bool | None = None
    enable_preemption: bool | None = None
    aware_network_topology: bool | None = None
    default_match_policy: MatchPolicy | None = None


class CoschedulingSettings(NamedTuple):
    """``defaults``: of what a gang does not say. ``is_preempting``: whether lesser pods may have to leave for one."""

    defaults: GangDefaults = GangDefaults()
    is_preempting: bool = False


class VolumeBindingSettings(NamedTuple):
    """``bind_timeout_s``: how long a pod's volumes may take until they are bound."""

    bind_timeout_s: int = 600


def read_preemption(document: object, path: str, reader: DocumentReader) -> CandidateCount:
    args, default = reader.read(DefaultPreemptionArgs, document, path), CandidateCount()
    percent, least = args.min_candidate_nodes_percentage, args.min_candidate_nodes_absolute
    if percent == least == 0:
        reader.wrong(f"{path}.minCandidateNodesPercentage", 0, "is 0 while minCandidateNodesAbsolute is 0, too")
    return CandidateCount(default.percent if percent is None else percent, default.least if least is None else least)


def read_volume_binding(document: object, path: str, reader: DocumentReader) -> VolumeBindingSettings:
    args = reader.read(VolumeBindingArgs, document, path)
    if args.shape is not None:
        reader.wrong(f"{path}.shape", args.shape, "cannot be followed: capacities of storage are not scored")
    return (
        VolumeBindingSettings()
        if args.bind_timeout_seconds is None
        else VolumeBindingSettings(args.bind_timeout_seconds)
    )


def _node_resources_fit(document: object, path: str, reader: DocumentReader) -> Plugin:
    args = reader.read(NodeResourcesFitArgs, document, path)
    names, groups = args.ignored_resources or (), args.ignored_resource_groups or ()
    for field, values in (("ignoredResources", names), ("ignoredResourceGroups", groups)):
        for index, value in enumerate(values):
            place = f"{path}.{field}[{index}]"
            if values is groups and "/" in value:
                reader.wrong(place, value, "has a slash: a group is what is before that")
            elif label_error(value):
                reader.wrong(place, value, "is not the name of a resource")
    ignored = frozenset((*names, *[f"{group}/" for group in groups]))
    if args.scoring_strategy is None:
        return NodeResourcesFit(ignored=ignored)
    scored, place = args.scoring_strategy, f"{path}.scoringStrategy"
    return NodeResourcesFit(_weights(scored.resources), _strategy(scored, place, reader), ignored)


def _weights(resources: Sequence[ResourceWeight]) -> dict[str, int]:
    """A resource that is named twice counts twice, as upstream has it."""
    found: dict[str, int] = {}
    for each in resources or (ResourceWeight(CPU), ResourceWeight(MEMORY)):
        found[each.name] = found.get(each.name, 0) + (each.weight or 1)
    return found


def _strategy(scored: ScoringStrategy, path: str, reader: DocumentReader) -> Score:
    ratio, place = scored.requested_to_capacity_ratio, f"{path}.requestedToCapacityRatio"
    if scored.type is not StrategyType.REQUESTED_TO_CAPACITY_RATIO:
        if scored.type is None:
            reader.wrong(f"{path}.type", "", f"is not one of {', '.join(StrategyType)}")
        elif ratio is not None:
            reader.wrong(place, {}, f"is of no use with the type {scored.type}")
        return most_allocated if scored.type is StrategyType.MOST_ALLOCATED else least_allocated
    shape = (ratio.shape if ratio else None) or ()
    if not shape:
        reader.wrong(f"{place}.shape", list(shape), "has no point")
        return least_allocated
    for index, (before, point) in enumerate(pairwise(shape), 1):
        if before.utilization >= point.utilization:
            why = f"is not more than the {before.utilization} of the point before"
            reader.wrong(f"{place}.shape[{index}].utilization", point.utilization, why)
    return RequestedToCapacityRatio(tuple([(each.utilization, each.score * _SHAPE_SCALE) for each in shape]))


def _balanced_allocation(document: object, path: str, reader: DocumentReader) -> Plugin:
    args = reader.read(NodeResourcesBalancedAllocationArgs, document, path)
    seen: dict[str, None] = {}
    for index, each in enumerate(args.resources):
        place = f"{path}.resources[{index}]"
        if each.name in seen:
            reader.wrong(f"{place}.name", each.name, "is named before")
        seen[each.name] = None
        if each.weight not in (0, 1):
            reader.wrong(f"{place}.weight", each.weight, "is not 1")
    return NodeResourcesBalancedAllocation(tuple(seen) or (CPU, MEMORY))


def _node_affinity(document: object, path: str, reader: DocumentReader) -> Plugin:
    added = reader.read(NodeAffinityArgs, document, path).added_affinity
    if added is None:
        return NodeAffinity()
    place = f"{path}.addedAffinity"
    for index, term in enumerate(added.required.node_selector_terms if added.required else ()):
        _check_term(term, f"{place}.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[{index}]", reader)
    for index, each in enumerate(added.preferred):
        where = f"{place}.preferredDuringSchedulingIgnoredDuringExecution[{index}]"
        if not 1 <= each.weight <= 100:
            reader.wrong(f"{where}.weight", each.weight, "is not in 1..100")
        _check_term(each.preference, f"{where}.preference", reader)
    return NodeAffinity(added)


def _check_term(term: NodeSelectorTerm, path: str, reader: DocumentReader) -> None:
    for index, each in enumerate(term.match_expressions):
        for why in _expression_problems(each):
            reader.wrong(f"{path}.matchExpressions[{index}]", each.key, why)
    for index, each in enumerate(term.match_fields):
        if each.key != "metadata.name" or each.operator not in ("In", "NotIn") or len(each.values) != 1:
            reader.wrong(f"{path}.matchFields[{index}]", each.key, "is not metadata.name, In or NotIn, and one name")


def _expression_problems(each: NodeSelectorRequirement) -> Iterator[str]:
    match each.operator:
        case "In" | "NotIn":
            is_right = bool(each.values)
        case "Exists" | "DoesNotExist":
            is_right = not each.values
        case "Gt" | "Lt":
            is_right = len(each.values) == 1 and integer(each.values[0]) != NO_NUMBER
        case _:
            yield f"has an operator that there is not: {each.operator!r}"
            return
    if not is_right:
        yield f"has values that {each.operator} does not take: {', '.join(each.values) or 'none'}"
    elif error := label_error(each.key, *each.values):
        yield f"cannot be used: {error}"


def _pod_topology_spread(document: object, path: str, reader: DocumentReader) -> Plugin:
    args = reader.read(PodTopologySpreadArgs, document, path)
    if args.defaulting_type is not DefaultingType.LIST:
        if args.default_constraints:
            reader.wrong(f"{path}.defaultingType", "System", "does not go with defaultConstraints: say List")
        return PodTopologySpread()
    seen = set()
    for index, each in enumerate(args.default_constraints):
        for field, value, why in _constraint_problems(each):
            reader.wrong(f"{path}.defaultConstraints[{index}].{field}", value, why)
        if (kind := (each.topology_key, each.when_unsatisfiable)) in seen:
            reader.wrong(f"{path}.defaultConstraints[{index}]", each.topology_key, "is there before, for the same case")
        seen.add(kind)
    return PodTopologySpread(args.default_constraints, False)


def _constraint_problems(each: TopologySpreadConstraint) -> Iterator[tuple[str, object, str]]:
    if each.max_skew <= 0:
        yield "maxSkew", each.max_skew, "is not more than 0"
    if label_error(each.topology_key):
        yield "topologyKey", each.topology_key, "is not the key of a label"
    if each.when_unsatisfiable not in ("DoNotSchedule", "ScheduleAnyway"):
        yield "whenUnsatisfiable", each.when_unsatisfiable, "is not one of DoNotSchedule, ScheduleAnyway"
    if each.label_selector is not None:
        yield "labelSelector", {}, "is not for a default: it follows from each pod"


def _inter_pod_affinity(document: object, path: str, reader: DocumentReader) -> Plugin:
    args = reader.read(InterPodAffinityArgs, document, path)
    weight = args.hard_pod_affinity_weight
    return InterPodAffinity(1 if weight is None else weight, not args.ignore_preferred_terms_of_existing_pods)


def read_coscheduling(document: object, path: str, reader: DocumentReader) -> CoschedulingSettings:
    args, default = reader.read(CoschedulingArgs, document, path), GangDefaults()
    timeout_s = default.timeout_s
    if args.default_timeout:
        timeout_ns = durations.parse_ns(args.default_timeout)
        if timeout_ns is None:
            reader.wrong(f"{path}.defaultTimeout", args.default_timeout, "is no duration of more than nothing")
        else:
            timeout_s = timeout_ns / 10**9
    for name, value, why in (
        ("controllerWorkers", args.controller_workers, "no controller of gangs has workers"),
        ("skipCheckScheduleCycle", args.skip_check_schedule_cycle or None, "there are no cycles of a gang"),
        ("awareNetworkTopology", args.aware_network_topology or None, "gangs do not go by the network yet"),
    ):
        reader.no_effect(f"{path}.{name}", value, why)
    policy = args.default_match_policy or default.match_policy
    return CoschedulingSettings(GangDefaults(timeout_s, policy), bool(args.enable_preemption))


def _node_numa_resource(document: object, path: str, reader: DocumentReader) -> Plugin:
    args = reader.read(NodeNUMAResourceArgs, document, path)
    policy = args.default_cpu_bind_policy or CPUBindPolicy.FULL_PCPUS
    if policy is CPUBindPolicy.DEFAULT:
        reader.wrong(f"{path}.defaultCPUBindPolicy", policy, "is what it is to say")
    return NodeNUMAResource(
        policy,
        _scoring(args.scoring_strategy),
        _scoring(args.numa_scoring_strategy),
    )


def _scoring(strategy: NUMAScoringStrategy) -> Scoring:
    return Scoring(_SCORES[strategy.type], tuple(_weights(strategy.resources).items()))


def _fit_plus(document: object, path: str, reader: DocumentReader) -> Plugin:
    args = reader.read(NodeResourcesFitPlusArgs, document, path)
    return NodeResourcesFitPlus(
        {name: ResourceScore(_SCORES[each.type], each.weight) for name, each in args.resources.items()}
    )


def _scarce_resource_avoidance(document: object, path: str, reader: DocumentReader) -> Plugin:
    args = reader.read(ScarceResourceAvoidanceArgs, document, path)
    return ScarceResourceAvoidance(frozenset(args.resources or ()))


def _scheduling_hint(document: object, path: str, reader: DocumentReader) -> Plugin:
    most = reader.read(SchedulingHintArgs, document, path).max_hint_nodes
    return SchedulingHint() if most is None else SchedulingHint(most)


def _elastic_quota(document: object, path: str, reader: DocumentReader) -> Plugin:
    args, default = reader.read(ElasticQuotaArgs, document, path), ElasticQuota()
    maximum = {}
    for name, field, amounts in (
        (names.DEFAULT, "defaultQuotaGroupMax", args.default_quota_group_max),
        (names.SYSTEM, "systemQuotaGroupMax", args.system_quota_group_max),
    ):
        if amounts is not None:
            maximum[name] = _amounts(amounts, f"{path}.{field}", reader)
    for field, value, why in (
        ("quotaGroupNamespace", args.quota_group_namespace, "no quotas are made there"),
        ("enableQueueHint", args.enable_queue_hint, "a pod that waits for a quota is tried when that has room"),
        ("quotaSnapshotUpdateInterval", args.quota_snapshot_update_interval, "what quotas may use is never old"),
    ):
        reader.no_effect(f"{path}.{field}", value, why)
    if args.hook_plugins:
        reader.wrong(f"{path}.hookPlugins", args.hook_plugins, "cannot be followed: there are no hooks")
    scales = args.enable_min_quota_scale is not False
    return ElasticQuota(
        limits_by_runtime=args.enable_runtime_quota is not False,
        checks_parents=bool(args.enable_check_parent_quota),
        rules=QuotaRules(scales, bool(args.enable_guarantee_usage), maximum),
        monitors=bool(args.monitor_all_quotas),
        overuse_s=_seconds(args.delay_evict_time, default.overuse_s, f"{path}.delayEvictTime", reader),
        revoke_interval_s=_seconds(
            args.revoke_pod_interval, default.revoke_interval_s, f"{path}.revokePodInterval", reader
        ),
        spares_default=args.disable_default_quota_preemption is not False,
    )


def _amounts(amounts: Mapping[str, Amount], path: str, reader: DocumentReader) -> dict[str, int]:
    found = {}
    for resource, amount in amounts.items():
        try:
            found[resource] = spec.units(resource, amount)
        except QuantityError as error:
            reader.wrong(f"{path}.{resource}", amount, error.why)
    return found


def _seconds(text: str | None, default_s: float, path: str, reader: DocumentReader) -> float:
    if text is None:
        return default_s
    found_ns = durations.parse_ns(text)
    if found_ns is None:
        reader.wrong(path, text, "is no duration of more than nothing, such as 1m30s")
        return default_s
    return found_ns / 10**9


PLUGINS: Mapping[str, Callable[[object, str, DocumentReader], Plugin]] = {
    NodeAffinity.name: _node_affinity,
    NodeResourcesFit.name: _node_resources_fit,
    NodeResourcesBalancedAllocation.name: _balanced_allocation,
    PodTopologySpread.name: _pod_topology_spread,
    InterPodAffinity.name: _inter_pod_affinity,
    NodeResourcesFitPlus.name: _fit_plus,
    ScarceResourceAvoidance.name: _scarce_resource_avoidance,
    SchedulingHint.name: _scheduling_hint,
    ElasticQuota.name: _elastic_quota,
    LoadAwareScheduling.name: loadargs.load_aware,
    NodeNUMAResource.name: _node_numa_resource,
}
"""By name, what makes the plugin of its arguments; None: it has none."""

"""What a node offers again of what its pods requested and do not use: batch and mid resources, and every term of it.

Batch resources are what is left of the node by the policy in force:

    usage             total - margin - system used - pods' use
    request           total - margin - node reserved - pods' requests      (memory only; CPU goes by usage)
    maxUsageRequest   total - margin - system used - of each pod's use and request, the larger one

each at least 0, and at most ``batch…ThresholdPercent`` of the total. The margin is what ``…ReclaimThresholdPercent``
leaves of the total, and negative above 100 %. What dangling reports use counts with the use and with the larger one.
Mid resources are what prod pods request and, by the node's prediction, will not use:

    dynamic   min(reclaimable, unused) + unallocated * midUnallocatedPercent
    static    capacity * midStatic…ReservedPercent

each at most ``mid…ThresholdPercent`` of the capacity. Unused is 0 where the report does not have the node's use.

This is upstream's formula. It differs where upstream sells something twice: free pods and mid requests count, so does a
pod without a measurement under ``maxUsageRequest``, and amplified units are divided before they are set off against
real ones. ``report`` has a second clock.

kubelet admits running pods again when it restarts, and ends those that the Node no longer offers room for. So the Node
shows at least what they hold (``held``), also while nothing is offered: then that is all, and nothing new fits.

Invariant: an offer is removed (None, not 0) exactly when ``degraded`` says why. It is never negative, and more use
never makes more of it; all arithmetic is on whole numbers. What cannot be read is one of ``problems``, and stops
nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from koord.model.core import Node, Pod
from koord.model.nodemetric import NodeMetric
from koord.model.problem import Bad, Problem
from koord.overcommit import demand, nodeamounts, report
from koord.overcommit.amounts import ZERO, CPUMemory
from koord.overcommit.demand import Demand, Held, PodDemand
from koord.overcommit.nodeamounts import NodeAmounts
from koord.overcommit.report import ReportedUsage
from koord.overcommit.strategy import CalculatePolicy, ColocationStrategy, MidReclaimMode, required


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """The terms of the batch resources. ``high_priority``: all pods that are not koord-batch."""

    total: CPUMemory
    margin: CPUMemory
    kubelet_reserved: CPUMemory
    annotation_reserved: CPUMemory
    node_reserved: CPUMemory
    """The larger one of both."""
    system_usage: CPUMemory
    """As measured."""
    host_applications: CPUMemory
    """Of prod and mid."""
    system_used: CPUMemory
    """Both, but at least ``node_reserved``."""
    high_priority_request: CPUMemory
    high_priority_used: CPUMemory
    high_priority_max: CPUMemory
    dangling: CPUMemory
    """Used by pods that are not on the node by the API; in none of the three before."""
    cpu_policy: CalculatePolicy
    memory_policy: CalculatePolicy
    cpu_limit_milli: int | None = None
    """What the batch resources may come to; None: no limit."""
    memory_limit_bytes: int | None = None

    def spent(self, policy: CalculatePolicy) -> CPUMemory:
        """Returns what is taken off the total beside the margin."""
        if policy is CalculatePolicy.REQUEST:
            return self.node_reserved + self.high_priority_request
        pods = self.high_priority_max if policy is CalculatePolicy.MAX_USAGE_REQUEST else self.high_priority_used
        return self.system_used + pods + self.dangling

    def left(self) -> CPUMemory:
        """Returns what is left before the limits, at least 0."""
        cpu, memory = self.spent(self.cpu_policy), self.spent(self.memory_policy)
        return (self.total - self.margin - CPUMemory(cpu.cpu_milli, memory.memory_bytes)).max(ZERO)

    def result(self) -> CPUMemory:
        left = self.left()
        return CPUMemory(
            _at_most(left.cpu_milli, self.cpu_limit_milli), _at_most(left.memory_bytes, self.memory_limit_bytes)
        )


class MidTerms(msgspec.Struct, frozen=True, kw_only=True):
    limit: CPUMemory
    static: CPUMemory | None = None
    """None: the terms that follow apply instead."""
    reclaimable: CPUMemory = ZERO
    unused: CPUMemory = ZERO
    unallocated: CPUMemory = ZERO
    """Of the capacity, beside the system and the requests of prod pods."""
    unallocated_share: CPUMemory = ZERO

    def result(self) -> CPUMemory:
        if self.static is not None:
            return self.static.min(self.limit)
        return (self.reclaimable.min(self.unused).max(ZERO) + self.unallocated_share).min(self.limit)


class Offered(msgspec.Struct, frozen=True, kw_only=True):
    """The batch and mid resources of a node."""

    batch: CPUMemory | None = None
    """With the normalization of the node's CPUs; None: nothing may be offered."""
    mid: CPUMemory | None = None
    """None: nothing may be offered."""
    held: Held = Held()
    """The Node shows at least this, since its pods request it; nothing where the strategy does not cover them."""
    third_party: CPUMemory = ZERO
    """The part of ``batch`` that other schedulers have given away."""

    @property
    def published_batch(self) -> CPUMemory | None:
        """Returns the batch resources that the Node shows; None: they are to be removed."""
        return _published(self.batch, self.held.batch, self.third_party)

    @property
    def published_mid(self) -> CPUMemory | None:
        """Returns the mid resources that the Node shows, likewise."""
        return _published(self.mid, self.held.mid)


class Overcommit(Offered, frozen=True, kw_only=True):
    """An offer with all that it was computed from."""

    degraded: str = ""
    """The reason why nothing may be offered; "" where something may."""
    terms: Terms | None = None
    mid_terms: MidTerms | None = None
    normalization_percent: int = 100
    age_s: float | None = None
    """Of the report."""
    problems: tuple[Problem, ...] = ()

    @property
    def original_batch(self) -> CPUMemory:
        """Returns what other schedulers go by (annotation ``originExtendedAllocatable``)."""
        return self.batch or ZERO


def offer(
    node: Node,
    pods: Sequence[Pod],
    metric: NodeMetric | None,
    strategy: ColocationStrategy,
    now_s: float,
    metric_seen_s: float | None = None,
    normalization_ratio: float = 1.0,
) -> Overcommit:
    """Returns the offer of ``node``. Raises ValueError unless ``strategy`` is complete.

    ``pods``: all that are bound to the node. ``now_s``: by the manager's clock; ``metric_seen_s``: when the manager
    first saw this ``updateTime``, None if that is not known. ``normalization_ratio``: of the node's CPUs to nominal
    ones; two decimals count, and only above 1.
    """
    demands = (demand.of_pod(pod) for pod in pods)
    return offer_by_demands(node, demands, metric, strategy, now_s, metric_seen_s, normalization_ratio)


def offer_by_demands(
    node: Node,
    pods: Iterable[PodDemand],
    metric: NodeMetric | None,
    strategy: ColocationStrategy,
    now_s: float,
    metric_seen_s: float | None = None,
    normalization_ratio: float = 1.0,
) -> Overcommit:
    """Returns the same as ``offer``, for a caller who keeps what ``demand.of_pod`` makes of a pod."""
    problems: list[Problem] = []
    pods, by_pods = [*pods], list[Problem]()
    held = held_by(pods, strategy, by_pods.append)
    fresh = report.freshness(metric, 60 * required(strategy.degrade_time_minutes), now_s, metric_seen_s)
    if fresh.problem:
        problems.append(Problem("", fresh.problem))
    amounts = nodeamounts.read(node, problems.append)
    usage = None if metric is None or fresh.degraded else report.usage(metric, problems.append)
    if metric is None or usage is None or amounts.total is None:
        lacking = "the NodeMetric lacks the node's figures"
        if amounts.total is None:
            lacking = "the node's capacity is not known"
        return Overcommit(
            held=held,
            degraded=fresh.degraded or lacking,
            age_s=fresh.age_s,
            problems=(*problems, *sorted(by_pods, key=str)),
        )
    demands = demand.total(pods, metric.status.pods_metric, by_pods.append, amounts.amplification)
    if strategy.cpu_calculate_policy is CalculatePolicy.REQUEST:
        problems.append(Problem("cpuCalculatePolicy", "there is no 'request' for CPU, 'usage' applies"))
    terms = _batch_terms(amounts, amounts.total, usage, demands, strategy)
    mid_terms = _mid_terms(amounts.total, terms.node_reserved, usage, demands, strategy)
    percent = _percent(normalization_ratio)
    return Overcommit(
        batch=terms.result().percent(percent, 100),
        mid=mid_terms.result(),
        held=held,
        third_party=amounts.third_party,
        terms=terms,
        mid_terms=mid_terms,
        normalization_percent=percent,
        age_s=fresh.age_s,
        problems=(*problems, *sorted(set(by_pods), key=str)),
    )


def held_by(pods: Iterable[PodDemand], strategy: ColocationStrategy, bad: Bad) -> Held:
    """Returns what a node with ``pods`` shows at least, whether anything is offered on it or not."""
    return demand.held(pods, bad) if strategy.covers_running_pods else Held()


def _published(offered: CPUMemory | None, held: CPUMemory, taken: CPUMemory = ZERO) -> CPUMemory | None:
    if offered is None:
        return None if held == ZERO else held
    return (offered - taken).max(held)


def _percent(normalization_ratio: float) -> int:
    """Returns the ratio in percent, of two decimals as the annotation says it."""
    return int(f"{normalization_ratio:.2f}".replace(".", "")) if normalization_ratio > 1 else 100


def _batch_terms(
    node: NodeAmounts, total: CPUMemory, usage: ReportedUsage, demand: Demand, strategy: ColocationStrategy
) -> Terms:
    """Returns the terms of the batch resources. Raises ValueError unless ``strategy`` is complete."""
    policy = required(strategy.cpu_calculate_policy)
    reserved = node.kubelet_reserved.max(node.annotation_reserved)
    applications = usage.prod_host_applications + usage.mid_host_applications
    cpu_limit, memory_limit = strategy.batch_cpu_threshold_percent, strategy.batch_memory_threshold_percent
    limit = total.percent(cpu_limit or 0, memory_limit or 0)
    return Terms(
        total=total,
        margin=_margin(total, strategy),
        kubelet_reserved=node.kubelet_reserved,
        annotation_reserved=node.annotation_reserved,
        node_reserved=reserved,
        system_usage=usage.system_usage,
        host_applications=applications,
        system_used=(usage.system_usage + applications).max(reserved),
        high_priority_request=demand.request,
        high_priority_used=demand.used,
        high_priority_max=demand.maximum,
        dangling=demand.dangling,
        cpu_policy=CalculatePolicy.USAGE if policy is CalculatePolicy.REQUEST else policy,
        memory_policy=required(strategy.memory_calculate_policy),
        cpu_limit_milli=None if cpu_limit is None else limit.cpu_milli,
        memory_limit_bytes=None if memory_limit is None else limit.memory_bytes,
    )


def _margin(total: CPUMemory, strategy: ColocationStrategy) -> CPUMemory:
    return total.percent(
        100 - required(strategy.cpu_reclaim_threshold_percent),
        100 - required(strategy.memory_reclaim_threshold_percent),
    )


def _at_most(amount: int, limit: int | None) -> int:
    return amount if limit is None else min(amount, limit)


def _mid_terms(
    total: CPUMemory, node_reserved: CPUMemory, usage: ReportedUsage, demand: Demand, strategy: ColocationStrategy
) -> MidTerms:
    """Returns the terms of the mid resources. Raises ValueError unless ``strategy`` is complete."""
    limit = total.percent(required(strategy.mid_cpu_threshold_percent), required(strategy.mid_memory_threshold_percent))
    if strategy.mid_reclaim_mode is MidReclaimMode.STATIC:
        cpu, memory = strategy.mid_static_cpu_reserved_percent, strategy.mid_static_memory_reserved_percent
        return MidTerms(limit=limit, static=total.percent(required(cpu), required(memory)))
    percent = required(strategy.mid_unallocated_percent)
    system = (usage.system_usage + usage.prod_host_applications).max(node_reserved)
    unallocated = (total - system - demand.prod_request).max(ZERO)
    return MidTerms(
        limit=limit,
        reclaimable=usage.prod_reclaimable,
        unused=ZERO if usage.node_usage is None else (total - usage.node_usage).max(ZERO),
        unallocated=unallocated,
        unallocated_share=unallocated.percent(percent, percent),
    )

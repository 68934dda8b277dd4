"""The batch resources of a node: what is left of it by the policy in force, and the terms of that.

    usage             total - margin - system used - pods' use
    request           total - margin - node reserved - pods' requests      (memory only; CPU goes by usage)
    maxUsageRequest   total - margin - system used - of each pod's use and request, the larger one

each at least 0, and at most ``batch…ThresholdPercent`` of the total. The margin is what ``…ReclaimThresholdPercent``
leaves of the total, and negative above 100 %. What dangling reports use counts with the use and with the larger one.

Invariant: all arithmetic is on whole numbers, and more use never leaves more.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec

from koord.overcommit.amounts import NOTHING, CPUMemory
from koord.overcommit.demand import Demand
from koord.overcommit.nodeamounts import NodeAmounts
from koord.overcommit.report import NodeFigures
from koord.overcommit.strategy import CalculatePolicy, ColocationStrategy

T = TypeVar("T")


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """Of the formula. What ``high_priority`` counts is every pod that is not koord-batch."""

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
        """What goes off the total beside the margin."""
        if policy is CalculatePolicy.REQUEST:
            return self.node_reserved + self.high_priority_request
        pods = self.high_priority_max if policy is CalculatePolicy.MAX_USAGE_REQUEST else self.high_priority_used
        return self.system_used + pods + self.dangling

    def left(self) -> CPUMemory:
        """Before the limits; at least 0."""
        cpu, memory = self.spent(self.cpu_policy), self.spent(self.memory_policy)
        return (self.total - self.margin - CPUMemory(cpu.cpu_milli, memory.memory_bytes)).join(NOTHING)

    def result(self) -> CPUMemory:
        left = self.left()
        return CPUMemory(
            _at_most(left.cpu_milli, self.cpu_limit_milli), _at_most(left.memory_bytes, self.memory_limit_bytes)
        )


def terms(
    node: NodeAmounts, total: CPUMemory, figures: NodeFigures, demand: Demand, strategy: ColocationStrategy
) -> Terms:
    """``strategy``: complete, that is ``DEFAULTS`` with what somebody set. Raises ValueError if it is not."""
    policy = required(strategy.cpu_calculate_policy)
    reserved = node.kubelet_reserved.join(node.annotation_reserved)
    applications = figures.prod_host_applications + figures.mid_host_applications
    cpu_limit, memory_limit = strategy.batch_cpu_threshold_percent, strategy.batch_memory_threshold_percent
    limit = total.percent(cpu_limit or 0, memory_limit or 0)
    return Terms(
        total=total,
        margin=margin(total, strategy),
        kubelet_reserved=node.kubelet_reserved,
        annotation_reserved=node.annotation_reserved,
        node_reserved=reserved,
        system_usage=figures.system_usage,
        host_applications=applications,
        system_used=(figures.system_usage + applications).join(reserved),
        high_priority_request=demand.request,
        high_priority_used=demand.used,
        high_priority_max=demand.maximum,
        dangling=demand.dangling,
        cpu_policy=CalculatePolicy.USAGE if policy is CalculatePolicy.REQUEST else policy,
        memory_policy=required(strategy.memory_calculate_policy),
        cpu_limit_milli=None if cpu_limit is None else limit.cpu_milli,
        memory_limit_bytes=None if memory_limit is None else limit.memory_bytes,
    )


def margin(total: CPUMemory, strategy: ColocationStrategy) -> CPUMemory:
    return total.percent(
        100 - required(strategy.cpu_reclaim_threshold_percent),
        100 - required(strategy.memory_reclaim_threshold_percent),
    )


def required(value: T | None) -> T:
    """A field that a complete strategy sets. Raises ValueError."""
    if value is None:
        raise ValueError("the strategy is not complete; it is to be laid over DEFAULTS")
    return value


def _at_most(amount: int, limit: int | None) -> int:
    return amount if limit is None else min(amount, limit)

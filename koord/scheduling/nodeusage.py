"""What a node uses, as its agent measured it, in whole units: read once of each NodeMetric.

Units are those of `koord.scheduling.amounts`. Of pods CPU and memory count, which is what agents measure of them.
Invariant: an amount that cannot be read is never taken for none. If it is one of the node's, the node counts as not
measured; if it is a pod's, that pod does; each is returned as a problem.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import NamedTuple

from koord.model import durations
from koord.model.core import Amounts, unix_s
from koord.model.nodemetric import NodeMetric, PodUsage, ResourceMap
from koord.model.priority import CPU, MEMORY, PriorityClass
from koord.model.problem import Bad, Problem
from koord.model.quantity import QuantityError
from koord.scheduling import amounts

REPORT_INTERVAL_S = 60.0
"""Where a NodeMetric does not say how often its agent reports."""
_NEVER_S = float("-inf")


class UsageSource(StrEnum):
    NODE_METRIC = "NodeMetric"
    STREAM = "ClusterState"
    """The manager's stream of what nodes report every few seconds."""


class PodMeasure(NamedTuple):
    """``is_prod``: whether the agent counts the pod as one of koord-prod; None: it does not say."""

    cpu_milli: int
    memory_bytes: int
    is_prod: bool | None

    def of(self, resource: str) -> int:
        return self.cpu_milli if resource == CPU else self.memory_bytes if resource == MEMORY else 0


class Window(NamedTuple):
    """``usage``: over the last ``duration_ns``, by the resource; never empty."""

    duration_ns: int
    usage: Mapping[str, int]


class NodeUsage(NamedTuple):
    """``measured_s``: since 1970, by the node's clock; -inf: it does not say. ``node``: by the resource; None: nothing
    was measured. ``windows``: by the kind of aggregation, as "p95". ``pods``: by namespace/name.
    """

    source: UsageSource
    measured_s: float
    node: Mapping[str, int] | None
    system: Mapping[str, int]
    pods: Mapping[str, PodMeasure]
    windows: Mapping[str, tuple[Window, ...]] = {}
    report_interval_s: float = REPORT_INTERVAL_S

    def over(self, aggregation: str, duration_ns: int) -> Mapping[str, int] | None:
        """Returns the usage over a window; None: there is none of that length.

        ``duration_ns`` 0: over the longest one, or what is used now where there is none.
        """
        windows = self.windows.get(aggregation, ())
        if duration_ns:
            return next((each.usage for each in windows if each.duration_ns == duration_ns), None)
        longest = max(windows, key=lambda each: each.duration_ns, default=None)
        return self.node if longest is None else longest.usage


def of_metric(metric: NodeMetric, bad: Bad) -> NodeUsage:
    """``bad`` is told what cannot be read."""
    status, policy = metric.status, metric.spec.metric_collect_policy
    measured_s = unix_s(status.update_time)
    if measured_s is None and status.update_time is not None:
        bad(Problem("status.updateTime", f"{status.update_time!r} is no time"))
    interval_s = None if policy is None else policy.report_interval_seconds
    node = system = None
    windows: dict[str, tuple[Window, ...]] = {}
    if status.node_metric is not None:
        node = _usage(status.node_metric.node_usage, "status.nodeMetric.nodeUsage", bad)
        system = _usage(status.node_metric.system_usage, "status.nodeMetric.systemUsage", bad)
        for index, each in enumerate(status.node_metric.aggregated_node_usages):
            place = f"status.nodeMetric.aggregatedNodeUsages[{index}]"
            duration_ns = durations.parse_ns(each.duration)
            if duration_ns is None:
                bad(Problem(f"{place}.duration", f"{each.duration!r} is no duration"))
                continue
            for aggregation, usage in each.usage.items():
                if found := _usage(usage, f"{place}.usage.{aggregation}", bad):
                    windows[aggregation] = (*windows.get(aggregation, ()), Window(duration_ns, found))
    return NodeUsage(
        UsageSource.NODE_METRIC,
        _NEVER_S if measured_s is None else measured_s,
        node,
        system or {},
        dict(_pods(status.pods_metric, bad)),
        windows,
        REPORT_INTERVAL_S if interval_s is None else float(interval_s),
    )


def _pods(pods: Iterable[PodUsage], bad: Bad) -> Iterable[tuple[str, PodMeasure]]:
    for each in pods:
        key = f"{each.namespace}/{each.name}"
        found = _usage(each.pod_usage, f"status.podsMetric[{key}].podUsage", bad)
        if found:
            is_prod = each.priority == PriorityClass.PROD if each.priority else None
            yield key, PodMeasure(found.get(CPU, 0), found.get(MEMORY, 0), is_prod)


def _usage(usage: ResourceMap, place: str, bad: Bad) -> dict[str, int] | None:
    """None: an amount cannot be read."""
    found: dict[str, int] = {}
    for name, amount in usage.resources.items():
        try:
            found.update(amounts.allocatable(_one(name, amount)))
        except QuantityError as error:
            bad(Problem(f"{place}.resources.{name}", str(error)))
            return None
    return found


def _one(name: str, amount: str | int | float) -> Amounts:
    return {name: amount}

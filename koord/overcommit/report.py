"""Whether a NodeMetric is good enough to offer anything by, and the node's own figures in it.

Its age is counted from the earlier of two instants: the node's own ``updateTime``, and the first sight of that time by
the manager's clock. So a node whose clock is ahead does not stay fresh for ever, and a manager that has just started
does not take an old report for a new one. Upstream knows the first one only.

Without a time, or without figures of the node, there is nothing to go by: the offer is removed, and the reason says so.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from koord.model import core, priority
from koord.model.annotations.decode import Bad
from koord.model.nodemetric import HostApplicationUsage, NodeMetric, NodeUsage
from koord.model.priority import PriorityClass
from koord.overcommit import amounts
from koord.overcommit.amounts import NOTHING, CPUMemory

CLOCK_TOLERANCE_S = 60


@dataclass(frozen=True, slots=True)
class Freshness:
    age_s: float | None = None
    degraded: str = ""
    """Why nothing may be offered by this report; "" if it is fresh."""
    problem: str = ""


class NodeFigures(msgspec.Struct, frozen=True):
    """What the node as a whole uses."""

    system_usage: CPUMemory
    prod_host_applications: CPUMemory = NOTHING
    mid_host_applications: CPUMemory = NOTHING
    node_usage: CPUMemory | None = None
    """None: not known."""
    prod_reclaimable: CPUMemory = NOTHING


def freshness(metric: NodeMetric | None, limit_s: float, now_s: float, metric_seen_s: float | None) -> Freshness:
    """Times are seconds since 1970. ``metric_seen_s``: when the manager first saw this ``updateTime``, if it knows."""
    if metric is None:
        return Freshness(degraded="the node has no NodeMetric")
    text = metric.status.update_time
    if not text:
        return Freshness(degraded="the NodeMetric has no status.updateTime: the node has not reported yet")
    update_s = core.unix_s(text)
    if update_s is None:
        return Freshness(degraded=f"the NodeMetric's status.updateTime {text[:40]!r} is no time")
    seen_s = now_s if metric_seen_s is None else min(metric_seen_s, now_s)
    age_s, ahead_s = now_s - min(update_s, seen_s), update_s - seen_s
    problem = f"the node's clock is {ahead_s:.0f} s ahead" if ahead_s > CLOCK_TOLERANCE_S else ""
    return Freshness(age_s, _too_old(age_s, limit_s, now_s - seen_s, metric_seen_s is not None), problem)


def figures(metric: NodeMetric, bad: Bad) -> NodeFigures | None:
    """None where the report has no block of the node, or what the system uses cannot be read."""
    usage = metric.status.node_metric
    if usage is None:
        return None
    system = amounts.read(usage.system_usage.resources)
    if system.problems:
        system.report("the NodeMetric's systemUsage", bad)
        return None
    if system.cpu_milli is None or system.memory_bytes is None:
        bad("the NodeMetric's systemUsage lacks cpu or memory, which counts as 0")
    prediction = metric.status.prod_reclaimable_metric
    reclaimable = amounts.read({} if prediction is None else prediction.resource.resources)
    applications = metric.status.host_application_metric
    return NodeFigures(
        system_usage=system.filled(),
        prod_host_applications=_host_applications(applications, PriorityClass.PROD, bad),
        mid_host_applications=_host_applications(applications, PriorityClass.MID, bad),
        node_usage=_node_usage(usage, bad),
        prod_reclaimable=reclaimable.report("the NodeMetric's prodReclaimableMetric", bad).filled(),
    )


def _too_old(age_s: float, limit_s: float, seen_for_s: float, is_seen_known: bool) -> str:
    if age_s <= limit_s:
        return ""
    reason = f"the NodeMetric is {age_s:.0f} s old and counts for {limit_s:.0f} s"
    if is_seen_known and seen_for_s <= limit_s:
        reason += f"; it came {seen_for_s:.0f} s ago, so the node's clock may be behind"
    return reason


def _node_usage(usage: NodeUsage, bad: Bad) -> CPUMemory | None:
    """None unless both are known, as upstream has it for mid resources."""
    node = amounts.read(usage.node_usage.resources).report("the NodeMetric's nodeUsage", bad)
    return None if node.cpu_milli is None or node.memory_bytes is None else node.filled()


def _host_applications(applications: tuple[HostApplicationUsage, ...], cls: PriorityClass, bad: Bad) -> CPUMemory:
    """Those of ``cls``. What one without a class uses counts nowhere, as upstream."""
    total = NOTHING
    for application in applications:
        if priority.parse(application.priority) is cls:
            reading = amounts.read(application.usage.resources)
            total += reading.report(f"the NodeMetric's host application {application.name!r}", bad).filled()
    return total

"""What a node reports: whether its NodeMetric is good enough to offer anything by, what it says that the node uses, and
the same NodeMetric with what the node uses in this second.

Its age is counted from the earlier of two instants: the node's own ``updateTime``, and the first sight of that time by
the manager's clock. So a node whose clock is ahead does not stay fresh for ever, and a manager that has just started
does not take an old report for a new one. Upstream knows the first one only.

Without a time, or without figures of the node, there is nothing to go by: the offer is removed, and the reason says so.

A node's link tells what the node uses now: the system and each pod that is not koord-batch. Everything else (host
applications, the prediction, the age) stays the report's, so both offers come of one formula and differ in use alone.
Invariant: without a report of the node there is none of this second either: fresh figures keep no offer alive.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from koord.model import core, priority
from koord.model.core import Amounts
from koord.model.nodemetric import HostApplicationUsage, NodeMetric, NodeUsage, PodUsage, ResourceMap
from koord.model.priority import CPU, MEMORY, PriorityClass
from koord.model.problem import Bad, Problem
from koord.overcommit import amounts
from koord.overcommit.amounts import ZERO, CPUMemory

CLOCK_TOLERANCE_S = 60
UNBOUNDED = CPUMemory(1 << 62, 1 << 62)


@dataclass(frozen=True, slots=True)
class Freshness:
    age_s: float | None = None
    degraded: str = ""
    """The reason why nothing may be offered by this report; "" if it is fresh."""
    problem: str = ""


class ReportedUsage(msgspec.Struct, frozen=True):
    """The use of the node as a whole."""

    system_usage: CPUMemory
    prod_host_applications: CPUMemory = ZERO
    mid_host_applications: CPUMemory = ZERO
    node_usage: CPUMemory | None = None
    """None: not known."""
    prod_reclaimable: CPUMemory = ZERO


class FreshPod(msgspec.Struct, frozen=True, gc=False):
    """``priority``: the name of its class, "" if it has none."""

    namespace: str
    name: str
    priority: str
    usage: CPUMemory


class FreshUsage(msgspec.Struct, frozen=True):
    """``pods``: all that run and are not koord-batch."""

    node: CPUMemory
    system: CPUMemory
    pods: tuple[FreshPod, ...] = ()

    @property
    def high_priority(self) -> CPUMemory:
        """Returns the use that batch pods must make room for."""
        return sum((pod.usage for pod in self.pods), self.system)


def freshness(metric: NodeMetric | None, limit_s: float, now_s: float, metric_seen_s: float | None) -> Freshness:
    """Judges the age of a report. Times are seconds since 1970; ``metric_seen_s``: when the manager first saw this
    ``updateTime``, None if that is not known.
    """
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


def usage(metric: NodeMetric, bad: Bad) -> ReportedUsage | None:
    """Returns the use of the node; None where the report has no block of the node, or no readable use of the system."""
    usage = metric.status.node_metric
    if usage is None:
        return None
    system = amounts.read(usage.system_usage.resources)
    if system.problems:
        system.noted("the NodeMetric's systemUsage", bad)
        return None
    if system.cpu_milli is None or system.memory_bytes is None:
        bad(Problem("", "the NodeMetric's systemUsage lacks cpu or memory, which counts as 0"))
    prediction = metric.status.prod_reclaimable_metric
    reclaimable = amounts.read({} if prediction is None else prediction.resource.resources)
    applications = metric.status.host_application_metric
    return ReportedUsage(
        system_usage=system.filled(),
        prod_host_applications=_host_applications(applications, PriorityClass.PROD, bad),
        mid_host_applications=_host_applications(applications, PriorityClass.MID, bad),
        node_usage=_node_usage(usage, bad),
        prod_reclaimable=reclaimable.noted("the NodeMetric's prodReclaimableMetric", bad).filled(),
    )


def with_usage(report: NodeMetric, usage: FreshUsage) -> NodeMetric:
    """Returns ``report`` as if it had been made of ``usage``."""
    status = msgspec.structs.replace(
        report.status,
        node_metric=NodeUsage(node_usage=_resources(usage.node), system_usage=_resources(usage.system)),
        pods_metric=tuple(
            PodUsage(pod.name, pod.namespace, _resources(pod.usage), priority=pod.priority) for pod in usage.pods
        ),
    )
    return msgspec.structs.replace(report, status=status)


def ceiling(used: CPUMemory, shown: CPUMemory | None, offered: CPUMemory, share: float, percent: int) -> CPUMemory:
    """Returns the use above which a node that shows ``shown`` is worth another look; it uses ``used`` and offers
    ``offered``.

    ``share``: ``resourceDiffThreshold``; ``percent``: of the normalization of its CPUs. What shows nothing has nothing
    to lose, whatever it uses.
    """
    if shown is None:
        return UNBOUNDED
    margin = CPUMemory(int(shown.cpu_milli * share), int(shown.memory_bytes * share))
    room = (offered - shown + margin).max(ZERO)
    return CPUMemory(
        used.cpu_milli + room.cpu_milli * 100 // percent if shown.cpu_milli else UNBOUNDED.cpu_milli,
        used.memory_bytes + room.memory_bytes * 100 // percent if shown.memory_bytes else UNBOUNDED.memory_bytes,
    )


def _too_old(age_s: float, limit_s: float, seen_for_s: float, is_seen_known: bool) -> str:
    if age_s <= limit_s:
        return ""
    reason = f"the NodeMetric is {age_s:.0f} s old and counts for {limit_s:.0f} s"
    if is_seen_known and seen_for_s <= limit_s:
        reason += f"; it came {seen_for_s:.0f} s ago, so the node's clock may be behind"
    return reason


def _node_usage(usage: NodeUsage, bad: Bad) -> CPUMemory | None:
    """Returns the use; None unless both resources are known, as upstream has it for mid resources."""
    node = amounts.read(usage.node_usage.resources).noted("the NodeMetric's nodeUsage", bad)
    return None if node.cpu_milli is None or node.memory_bytes is None else node.filled()


def _host_applications(applications: tuple[HostApplicationUsage, ...], cls: PriorityClass, bad: Bad) -> CPUMemory:
    """Returns the use of the applications of ``cls``. That of one without a class counts nowhere, as upstream."""
    total = ZERO
    for application in applications:
        if priority.parse(application.priority) is cls:
            reading = amounts.read(application.usage.resources)
            total += reading.noted(f"the NodeMetric's host application {application.name!r}", bad).filled()
    return total


def _resources(usage: CPUMemory) -> ResourceMap:
    amounts: Amounts = {CPU: f"{usage.cpu_milli}m", MEMORY: str(usage.memory_bytes)}
    return ResourceMap(amounts)

"""A NodeMetric with the figures of this second in place of the averaged ones, for the lower of two offers.

A node's link tells what the node uses now: the system and each pod that is not koord-batch. Everything else (host
applications, the prediction, the age) stays the report's, so both offers come of one formula and differ in use alone.

Invariant: without a report of the node there is none of this kind either: fresh figures keep no offer alive.
"""

from __future__ import annotations

import msgspec

from koord.model.core import Amounts
from koord.model.nodemetric import NodeMetric, NodeUsage, PodUsage, ResourceMap
from koord.model.priority import CPU, MEMORY
from koord.overcommit.amounts import NOTHING, CPUMemory

UNBOUNDED = CPUMemory(1 << 62, 1 << 62)


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
        """What batch pods must make room for."""
        return sum((pod.usage for pod in self.pods), self.system)


def metric(report: NodeMetric, usage: FreshUsage) -> NodeMetric:
    """``report`` as if it had been made of ``usage``."""
    status = msgspec.structs.replace(
        report.status,
        node_metric=NodeUsage(node_usage=_resources(usage.node), system_usage=_resources(usage.system)),
        pods_metric=tuple(
            PodUsage(pod.name, pod.namespace, _resources(pod.usage), priority=pod.priority) for pod in usage.pods
        ),
    )
    return msgspec.structs.replace(report, status=status)


def ceiling(used: CPUMemory, shown: CPUMemory | None, offered: CPUMemory, share: float, percent: int) -> CPUMemory:
    """The use above which a node that shows ``shown`` is worth another look; it uses ``used`` and offers ``offered``.

    ``share``: ``resourceDiffThreshold``; ``percent``: of the normalization of its CPUs. What shows nothing has nothing
    to lose, whatever it uses.
    """
    if shown is None:
        return UNBOUNDED
    margin = CPUMemory(int(shown.cpu_milli * share), int(shown.memory_bytes * share))
    room = (offered - shown + margin).join(NOTHING)
    return CPUMemory(
        used.cpu_milli + room.cpu_milli * 100 // percent if shown.cpu_milli else UNBOUNDED.cpu_milli,
        used.memory_bytes + room.memory_bytes * 100 // percent if shown.memory_bytes else UNBOUNDED.memory_bytes,
    )


def _resources(usage: CPUMemory) -> ResourceMap:
    amounts: Amounts = {CPU: f"{usage.cpu_milli}m", MEMORY: str(usage.memory_bytes)}
    return ResourceMap(amounts)

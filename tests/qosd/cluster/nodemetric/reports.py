"""The report of a node's history, its amounts as numbers, and two host applications."""

from __future__ import annotations

from typing import Any

from koord.model.nodemetric import AggregatePolicy, CollectPolicy, NodeUsage, ResourceMap
from koord.model.slo import CgroupBase, CgroupPath, HostApplication
from koord.overcommit import amounts
from koord.overcommit.amounts import CPUMemory
from qosd.cluster import nodemetric
from qosd.cluster.collectpolicy import effective
from qosd.cluster.nodemetric import NodeReport
from tests.qosd.cluster.history import GIB, History

APP = HostApplication(name="nginx", priority="koord-prod", qos="LS")
INSIDE = HostApplication(
    name="agent", qos="LS", cgroup_path=CgroupPath(base=CgroupBase.KUBEPODS, relative_path="agent")
)


def reported(history: History, **policy: Any) -> NodeReport:
    durations = policy.pop("durations", ("5m", "10m", "30m"))
    stated = CollectPolicy(node_aggregate_policy=AggregatePolicy(tuple(durations)), **policy)
    return nodemetric.report(history.snapshot(), history.store, effective(stated))


def node_of(history: History, **policy: Any) -> NodeUsage:
    usage = reported(history, **policy).status.node_metric
    assert usage is not None
    return usage


def amount(usage: ResourceMap) -> CPUMemory:
    reading = amounts.read(usage.resources)
    assert reading.cpu_milli is not None and reading.memory_bytes is not None and not reading.problems
    return reading.filled()


def gib(cpu_milli: int, memory_gib: float) -> CPUMemory:
    return CPUMemory(cpu_milli, int(memory_gib * GIB))

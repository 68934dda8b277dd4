"""Nodes, pods and reports as the tables write them: CPUs as text, memory in G (10**9 bytes) or as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from msgspec.structs import replace

from koord.model.core import (
    Amounts,
    Container,
    Node,
    NodeStatus,
    ObjectMeta,
    Pod,
    PodSpec,
    PodStatus,
    ResourceRequirements,
)
from koord.model.nodemetric import (
    HostApplicationUsage,
    NodeMetric,
    NodeMetricStatus,
    NodeUsage,
    PodUsage,
    ReclaimableMetric,
    ResourceMap,
)
from koord.overcommit.amounts import CPUMemory
from koord.overcommit.offer import Overcommit, offer
from koord.overcommit.strategy import DEFAULTS, ColocationStrategy

NOW_S = 1_800_000_000.0
G, GIB = 10**9, 1 << 30
Size = tuple[Any, Any]
"""CPU and memory; a number is whole CPUs or G."""


def time(unix_s: float) -> str:
    return datetime.fromtimestamp(unix_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def amounts(size: Size, cpu: str = "cpu", memory: str = "memory") -> dict[str, Any]:
    """None leaves a resource out."""
    stated = {cpu: size[0], memory: f"{size[1]}G" if isinstance(size[1], int) else size[1]}
    return {name: amount for name, amount in stated.items() if amount is not None}


def usage(size: Size) -> ResourceMap:
    return ResourceMap(amounts(size))


def node(capacity: Size, allocatable: Size | None = None, **annotations: str) -> Node:
    """``annotations``: without their domain, and with ``_`` for ``-``."""
    keys = {f"node.koordinator.sh/{name.replace('_', '-')}": text for name, text in annotations.items()}
    status = NodeStatus(capacity=amounts(capacity), allocatable=amounts(allocatable or capacity))
    return Node(ObjectMeta(name="n", annotations=keys), status=status)


def pod(
    name: str,
    *requests: Size | Amounts,
    qos: str = "",
    priority: str = "",
    phase: str = "Running",
    kube_qos: str = "Burstable",
    start_time: str | None = None,
    **spec: Any,
) -> Pod:
    """With a container for each of ``requests``."""
    labels = {"koordinator.sh/qosClass": qos, "koordinator.sh/priority-class": priority}
    containers = tuple(
        Container(str(index), ResourceRequirements(amounts(each) if isinstance(each, tuple) else each))
        for index, each in enumerate(requests)
    )
    metadata = ObjectMeta(name=name, namespace="d", labels={key: text for key, text in labels.items() if text})
    return Pod(metadata, PodSpec(containers, **spec), PodStatus(phase=phase, qos_class=kube_qos, start_time=start_time))


def mid(cpu_milli: Any, memory: Any) -> Amounts:
    return amounts((cpu_milli, memory), "kubernetes.io/mid-cpu", "kubernetes.io/mid-memory")


def metric(
    system: Size,
    pods: Mapping[str, Size] | None = None,
    *,
    update_s: float = NOW_S - 30,
    priorities: Mapping[str, str] | None = None,
    applications: Sequence[tuple[str, Size]] = (),
    node_usage: Size = (None, None),
    reclaimable: Size | None = None,
) -> NodeMetric:
    """``applications``: of the host, by priority class."""
    status = NodeMetricStatus(
        update_time=time(update_s),
        node_metric=NodeUsage(node_usage=usage(node_usage), system_usage=usage(system)),
        pods_metric=tuple(
            PodUsage(name, "d", usage(size), priority=(priorities or {}).get(name, ""))
            for name, size in (pods or {}).items()
        ),
        host_application_metric=tuple(
            HostApplicationUsage(f"a{index}", usage(size), priority=cls)
            for index, (cls, size) in enumerate(applications)
        ),
        prod_reclaimable_metric=None if reclaimable is None else ReclaimableMetric(usage(reclaimable)),
    )
    return NodeMetric(status=status)


def strategy(**settings: Any) -> ColocationStrategy:
    return replace(DEFAULTS, **settings)


def offered(
    of: Node, pods: Sequence[Pod], by: NodeMetric | None, with_strategy: ColocationStrategy = DEFAULTS, **more: Any
) -> Overcommit:
    return offer(of, pods, by, with_strategy, NOW_S, **more)


def batch(of: Node, pods: Sequence[Pod], by: NodeMetric | None, **settings: Any) -> CPUMemory | None:
    return offered(of, pods, by, strategy(**settings)).batch

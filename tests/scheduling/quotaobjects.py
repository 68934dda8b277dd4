"""ElasticQuotas as an API server has them, and clusters that divide by them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from koord.model import core
from koord.model.elasticquota import ElasticQuota as QuotaObject
from koord.quota import names
from koord.quota.forest import QuotaRules
from koord.scheduling.podinfo import PodInfo
from koord.scheduling.state import ClusterState
from tests.scheduling.clusters import node, pod

PREFIX = "quota.scheduling.koordinator.sh/"


def document(
    name: str,
    low: str | Mapping[str, str] = "0",
    high: str | Mapping[str, str] = "100",
    namespace: str = "default",
    created: str = "2026-01-01T00:00:00Z",
    annotations: Mapping[str, str] | None = None,
    **labels: str,
) -> dict[str, Any]:
    """``low``, ``high``: of CPU where they are text; ``labels``, ``annotations``: without their prefix."""
    return {
        "metadata": {
            "name": name,
            "namespace": namespace,
            "creationTimestamp": created,
            "labels": {f"{PREFIX}{key.replace('_', '-')}": value for key, value in labels.items()},
            "annotations": {f"{PREFIX}{key}": value for key, value in (annotations or {}).items()},
        },
        "spec": {
            "min": {"cpu": low} if isinstance(low, str) else dict(low),
            "max": {"cpu": high} if isinstance(high, str) else dict(high),
        },
    }


def quota(name: str, *amounts: Any, **more: Any) -> QuotaObject:
    return core.read(QuotaObject, msgspec.json.encode(document(name, *amounts, **more)))


def member(name: str, of: str = "", cpu: str = "1", node_name: str = "", **more: Any) -> PodInfo:
    """A pod of the quota ``of``, on a node if that is named. ``fixed``: it is not preemptible."""
    labels = {**more.pop("labels", {}), **({names.LABEL_NAME: of} if of else {})}
    if more.pop("fixed", False):
        labels[names.LABEL_PREEMPTIBLE] = "false"
    if node_name:
        more["nodeName"] = node_name
    return pod(name, {"cpu": cpu, **more.pop("requests", {})}, labels=labels, **more)


def cluster(*quotas: QuotaObject, cpu: str = "100", nodes: int = 1, rules: QuotaRules | None = None) -> ClusterState:
    """``nodes`` n1, n2, … of ``cpu`` each."""
    state = ClusterState()
    state.quotas.follow(rules or QuotaRules())
    for index in range(1, nodes + 1):
        state.put_node(node(f"n{index}", cpu, "512Gi", "1000"))
    for each in quotas:
        state.quotas.put(each)
    return state


def put(state: ClusterState, *pods: PodInfo) -> ClusterState:
    """The pods are there, as their objects say."""
    for each in pods:
        state.quotas.put_pod(each)
        state.put_pod(each)
    return state


def used(state: ClusterState, name: str) -> int:
    """Thousandths of a CPU."""
    found = state.quotas.get(name)
    return -1 if found is None else found.counted.used.get("cpu", 0)


def runtime(state: ClusterState, name: str) -> int:
    forest = state.quotas.up_to_date()
    found = None if forest is None else forest.get(name)
    assert forest is not None and found is not None
    return forest.runtime(found, "cpu") or 0

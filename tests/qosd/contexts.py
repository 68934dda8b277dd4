"""Short ways to say a pod in a hook, rules and a host in the tables of these tests."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from qosd.hooks import engine
from qosd.hooks.edits import Edits
from qosd.model.pod import HookStage, PodContext, Resources, RuntimeRequest
from qosd.model.policy import EffectivePolicy, HostFacts
from qosd.policy.pools import Pools
from qosd.policy.rulesfile import read

QOS, PRIORITY = "koordinator.sh/qosClass", "koordinator.sh/priority-class"
STATUS, EXTENDED = "scheduling.koordinator.sh/resource-status", "node.koordinator.sh/extended-resource-spec"
CPU_QOS = "koordinator.sh/cpuQOS"
SHORT = {
    "STATUS": STATUS,
    "EXTENDED": EXTENDED,
    "CPU_QOS": CPU_QOS,
    "MEMORY_QOS": "koordinator.sh/memoryQOS",
    "RESCTRL": "node.koordinator.sh/resctrl",
    "RESCTRL_CLASS": "rdt.resources.beta.kubernetes.io/pod",
    "RESCTRL_CLASS_OF_MAIN": "rdt.resources.beta.kubernetes.io/container.main",
}
"""Of annotations."""
TIERS = {
    "Guaranteed": "/kubepods/pod1",
    "Burstable": "/kubepods/burstable/pod1",
    "BestEffort": "/kubepods/besteffort/pod1",
}
V2 = HostFacts(cgroup_version=2, resctrl_groups=frozenset({"LSR", "LS", "BE"}))
V2_VENDOR = replace(V2, files=frozenset({"cpu.bvt_warp_ns"}))
MEMORY_QOS: Mapping[str, Any] = {"features": {"CgroupReconcile": True}}
"""The section ``node`` with the feature gate of memory QoS on."""


def policy(host: HostFacts = V2_VENDOR, spec: Mapping[str, Any] | None = None, **node: Any) -> EffectivePolicy:
    return read(Path("rules.yaml"), {"spec": spec or {}, "node": node}, host)


def with_pools(by: EffectivePolicy, pools: Pools) -> EffectivePolicy:
    return replace(by, node=replace(by.node, ls_pools=pools.ls, be_pools=pools.be, kubelet_cpus=pools.kubelet))


def pod(
    qos: str = "",
    tier: str = "Burstable",
    stage: HookStage = HookStage.CREATE,
    container: str = "main",
    *,
    requested: Resources | None = None,
    band: str = "",
    labels: Mapping[str, str] | None = None,
    container_annotations: Mapping[str, str] | None = None,
    **annotations: Any,
) -> PodContext:
    """A pod's container; ``annotations`` by short name (``STATUS={"cpuset": "0-1"}``) or by full key."""
    said = {QOS: qos, PRIORITY: band, **(labels or {})}
    written = {
        SHORT.get(key, key): value if isinstance(value, str) else json.dumps(value)
        for key, value in annotations.items()
    }
    return PodContext.read(
        RuntimeRequest(
            stage=stage,
            namespace="default",
            name="p",
            uid="1",
            labels={k: v for k, v in said.items() if v},
            annotations=written,
            cgroup_parent=TIERS.get(tier, tier),
            requested=requested or Resources(),
            container=container,
            container_annotations=container_annotations,
        )
    )


def extended(container: str = "main", kind: str = "batch", **amounts: str) -> dict[str, Any]:
    """``extended("main", request="1500", limit="2000", memory="4Gi")`` as the annotation's document."""
    limits = {
        f"kubernetes.io/{kind}-{name}": amounts[key]
        for name, key in (("cpu", "limit"), ("memory", "memory"))
        if key in amounts
    }
    requests = {
        f"kubernetes.io/{kind}-{name}": amounts[key]
        for name, key in (("cpu", "request"), ("memory", "memory_request"))
        if key in amounts
    }
    return {"containers": {container: {"requests": requests, "limits": limits}}}


def decided(context: PodContext, by: EffectivePolicy) -> dict[str, int | str]:
    return values(engine.decide(context, by))


def values(edits: Edits) -> dict[str, int | str]:
    return {edit.name: edit.value for edit in edits.items}

"""Short ways to say what a runtime shows of pods and containers."""

from __future__ import annotations

import json
from collections.abc import Mapping

from koord.pb.nri import api_pb2 as nri
from tests.qosd.contexts import EXTENDED, QOS, STATUS, extended

PARENTS = {
    "Guaranteed": "/kubepods/poduid",
    "Burstable": "/kubepods/burstable/poduid",
    "BestEffort": "/kubepods/besteffort/poduid",
}


def pod(
    qos: str, tier: str, annotations: Mapping[str, str] | None = None, uid: str = "uid", shares: int = 2
) -> nri.PodSandbox:
    """``shares``: of CPU, that kubelet asks for the whole pod."""
    return nri.PodSandbox(
        id=f"sandbox-{uid}",
        name="p",
        uid=uid,
        namespace="default",
        labels={QOS: qos} if qos else {},
        annotations=annotations,
        linux={"cgroup_parent": PARENTS[tier], "pod_resources": resources(shares=shares)},
    )


def lsr() -> nri.PodSandbox:
    return pod("LSR", "Guaranteed", {STATUS: '{"cpuset":"2-3"}'}, shares=2048)


def be() -> nri.PodSandbox:
    return pod("BE", "BestEffort", {EXTENDED: json.dumps(extended(request="500", limit="1000", memory="64Mi"))})


def ls() -> nri.PodSandbox:
    return pod("LS", "Burstable")


def resources(
    cpus: str = "", shares: int | None = None, quota: int | None = None, memory: int | None = None, **unified: str
) -> nri.LinuxResources:
    found = nri.LinuxResources(unified={key.replace("_", "."): value for key, value in unified.items()})
    found.cpu.period.value = 100_000
    found.cpu.cpus = cpus
    if shares is not None:
        found.cpu.shares.value = shares
    if quota is not None:
        found.cpu.quota.value = quota
    if memory is not None:
        found.memory.limit.value = memory
    return found


def container(
    of: nri.PodSandbox,
    spec: nri.LinuxResources | None = None,
    annotations: Mapping[str, str] | None = None,
    number: int = 1,
) -> nri.Container:
    return nri.Container(
        id=f"c{number}",
        pod_sandbox_id=of.id,
        name="main",
        annotations=annotations,
        linux={
            "resources": spec or resources(shares=2),
            "cgroups_path": f"{of.linux.cgroup_parent}/c{number}",
        },
    )


def said(found: nri.LinuxResources | None) -> dict[str, object]:
    """What of a LinuxResources is set."""
    if found is None:
        return {}
    values: dict[str, object] = dict(found.unified)
    for name, holder in (("shares", found.cpu), ("quota", found.cpu), ("period", found.cpu), ("limit", found.memory)):
        if holder.HasField(name):
            values[name] = getattr(holder, name).value
    if found.cpu.cpus:
        values["cpus"] = found.cpu.cpus
    if found.HasField("rdt_class"):
        values["rdt_class"] = found.rdt_class.value
    return values

"""Static pods in a guest: their manifests, and waiting until kubelet runs them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from integration.guest.guest import Guest
from integration.kubelet.staticpods import StaticPod

MANIFESTS = "/etc/kubernetes/manifests"
_SLICES = "find /sys/fs/cgroup/kubepods.slice -ignore_readdir_race -maxdepth 2 -name '*-pod*.slice' -printf '%f\n'"


def put(guest: Guest, pods: Iterable[StaticPod], suffix: str = "") -> None:
    """Hand the pods to kubelet; ``suffix`` makes them others of the same kind."""
    for pod in pods:
        manifest: dict[str, Any] = dict(pod.manifest())
        name = f"{pod.name}{suffix}"
        manifest["metadata"] = {**manifest["metadata"], "name": name}
        guest.put(f"{MANIFESTS}/{name}.json", json.dumps(manifest))


def remove(guest: Guest, names: Iterable[str]) -> None:
    guest.do("rm", "-f", *(f"{MANIFESTS}/{name}.json" for name in names))


def listed(guest: Guest) -> list[Mapping[str, Any]]:
    """kubelet's own list; empty while it does not answer."""
    said = guest.get(10255, "/pods")
    return list(json.loads(said)["items"] or []) if said else []


def ready(pod: Mapping[str, Any]) -> bool:
    conditions = pod["status"].get("conditions") or []
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def wait_ready(guest: Guest, names: Iterable[str], timeout_s: float = 400.0) -> None:
    """Until exactly the static pods ``names`` are there and Ready (kubelet appends the node's name)."""
    wanted = {f"{name}-node" for name in names}
    guest.wait(
        lambda: {pod["metadata"]["name"] for pod in listed(guest) if ready(pod)} == wanted, f"{wanted} Ready", timeout_s
    )


def wait_ended(guest: Guest, timeout_s: float = 400.0) -> None:
    """Until pods that kubelet no longer lists have no cgroups any more (v2)."""

    def over() -> bool:
        uids = {name.removesuffix(".slice").rpartition("-pod")[2] for name in guest.sh(_SLICES).split()}
        return uids == {pod["metadata"]["uid"].replace("-", "_") for pod in listed(guest)}

    guest.wait(over, "the cgroups of ended pods to go", timeout_s)

"""Pods whose containers Koord edits, on a node of two CPUs, and what their cluster says of them.

Batch pods have limits of two CPUs, of which the cluster must not notice anything; LS and LSR pods are there to be
resized in place, and a service to be scheduled beside them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

from integration import build
from integration.cluster import objects
from integration.cluster.api import Api, Object
from integration.cluster.controlplane import WHOLE, ControlPlane, Options
from integration.harness.processes import wait_for
from integration.kubelet.staticpods import MIB, StaticPod

PODS = objects.pods_of("default")
OFFERED = {"kubernetes.io/batch-cpu": "4000", "kubernetes.io/batch-memory": "4Gi"}
_TWO_CPUS = {"kubernetes.io/batch-cpu": "2000", "kubernetes.io/batch-memory": "96Mi"}
BATCH_QUOTA_US, BATCH_SHARES, BATCH_MEMORY_BYTES = 200_000, 2048, 96 * MIB
BATCH = StaticPod(
    name="batch",
    qos="BE",
    native={"requests": _TWO_CPUS, "limits": _TWO_CPUS},
    annotations={
        "node.koordinator.sh/extended-resource-spec": {
            "containers": {"main": {"requests": _TWO_CPUS, "limits": _TWO_CPUS}}
        }
    },
)
NATIVE = {"cpu": "300m", "memory": "64Mi"}
LS = StaticPod("ls", "LS", {"requests": NATIVE, "limits": NATIVE}, {})
LSR = StaticPod(
    "lsr", "LSR", {"requests": NATIVE, "limits": NATIVE},
    {"scheduling.koordinator.sh/resource-status": {"cpuset": "0"}},
)  # fmt: skip
SERVICE = StaticPod("service", "LS", {"requests": {"cpu": "1800m", "memory": "64Mi"}}, {})
_RESIZE = "InPlacePodVerticalScaling=true"


def options(*server_hosts: str) -> Options:
    """Of a whole control plane whose release can resize pods in place."""
    gates = (_RESIZE,) if build.release() == "1.32" else ()
    return replace(WHOLE, feature_gates=gates, server_hosts=server_hosts)


@dataclass
class Pods:
    """The pods of the node ``node_name``. ``timeout_s``: for whatever kubelet has to do."""

    plane: ControlPlane
    api: Api
    node_name: str
    timeout_s: float = 90.0

    def offer(self) -> None:
        """The node offers batch resources, as koord-manager has it do."""
        self.api.merge(
            f"{objects.NODES}/{self.node_name}/status", {"status": {"capacity": OFFERED, "allocatable": OFFERED}}
        )

    def run(self, pod: StaticPod, **spec: Any) -> Object:
        """A pod that is Ready, as the API server has it then."""
        manifest: dict[str, Any] = pod.manifest()
        manifest["spec"] |= spec
        self.api.create(PODS, manifest)
        return wait_for(lambda: self.ready(pod.name), self.timeout_s, f"pod {pod.name} to be Ready")

    def ready(self, name: str) -> Object | None:
        found = self.api.get(f"{PODS}/{name}")
        return found if objects.ready(found) else None

    def status(self, name: str) -> Object:
        """Of the pod's one container."""
        (container,) = self.api.get(f"{PODS}/{name}")["status"]["containerStatuses"]
        return container  # type: ignore[no-any-return]

    def resize(self, name: str, cpu_milli: int, memory_mib: int) -> None:
        """In place, until kubelet reports that the container has it."""
        amounts = {"cpu": f"{cpu_milli}m", "memory": f"{memory_mib}Mi"}
        resources = {"requests": amounts, "limits": amounts}
        patch = {"spec": {"containers": [{"name": "main", "resources": resources}]}}
        self.api.call("PATCH", f"{PODS}/{name}/resize", patch, "application/strategic-merge-patch+json")
        wait_for(
            lambda: self.status(name)["resources"] == resources, self.timeout_s, f"kubelet to report {name}'s resize"
        )

    def resizes_under_way(self, name: str) -> list[Object]:
        """The conditions that say so."""
        conditions = self.api.get(f"{PODS}/{name}")["status"]["conditions"]
        return [each for each in conditions if each["type"].startswith("PodResize")]

    def requested_on_node(self) -> dict[str, str]:
        """By resource, what ``kubectl describe node`` calls requested."""
        text = self.plane.kubectl("describe", "node", self.node_name)
        table = text.partition("Allocated resources:")[2].partition("Events:")[0]
        return dict(re.findall(r"^  (\S+) +(\S+)", table, re.MULTILINE))

    def remove(self, *names: str) -> None:
        for name in names:
            self.api.delete(f"{PODS}/{name}")
        wait_for(lambda: not any(self.api.exists(f"{PODS}/{each}") for each in names), self.timeout_s, f"{names} to go")

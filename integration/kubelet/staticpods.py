"""The static pods of the kubelet test, and what the kernel must show for them with and without the proxy.

Kubelet refuses unknown resources in static pods, so the batch amounts come by the annotation that Koordinator's
webhook would write. Values are for a machine with at least two CPUs.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from integration.harness.images import BUSYBOX
from integration.harness.pods import SLEEP

MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Limits:
    """What is compared; ``cfs_quota_us`` -1 = none, ``memory_limit_bytes`` None = none, ``cpuset_cpus`` None = all."""

    cpu_shares: int
    cfs_quota_us: int
    memory_limit_bytes: int | None
    cpuset_cpus: str | None = None


@dataclass(frozen=True, slots=True)
class StaticPod:
    """``qos`` "" = no label. ``direct`` is what kubelet's own request leads to, ``edited`` the same with Koord between;
    None where no test compares them."""

    name: str
    qos: str
    native: dict[str, dict[str, str]]
    annotations: dict[str, Any]
    direct: Limits | None = None
    edited: Limits | None = None
    command: tuple[str, ...] = SLEEP

    def manifest(self) -> dict[str, object]:
        container = {
            "name": "main",
            "image": BUSYBOX,
            "imagePullPolicy": "Never",
            "command": list(self.command),
            "resources": self.native,
        }
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": self.name,
                "namespace": "default",
                "labels": {"koordinator.sh/qosClass": self.qos} if self.qos else {},
                "annotations": {key: json.dumps(value) for key, value in self.annotations.items()},
            },
            "spec": {
                "automountServiceAccountToken": False,
                "terminationGracePeriodSeconds": 1,
                "containers": [container],
            },
        }


BATCH = {"kubernetes.io/batch-cpu": "500", "kubernetes.io/batch-memory": "96Mi"}

PODS = (
    StaticPod(
        name="lsr",
        qos="LSR",
        native={"limits": {"cpu": "1", "memory": "64Mi"}},
        annotations={"scheduling.koordinator.sh/resource-status": {"cpuset": "0"}},
        direct=Limits(1024, 100_000, 64 * MIB),
        edited=Limits(1024, -1, 64 * MIB, "0"),
    ),
    StaticPod(
        name="ls",
        qos="LS",
        native={"requests": {"cpu": "200m", "memory": "32Mi"}, "limits": {"cpu": "500m", "memory": "64Mi"}},
        annotations={},
        direct=Limits(204, 50_000, 64 * MIB),
        edited=Limits(204, 50_000, 64 * MIB, "1"),
    ),
    StaticPod(
        name="be",
        qos="BE",
        native={},
        annotations={
            "node.koordinator.sh/extended-resource-spec": {"containers": {"main": {"requests": BATCH, "limits": BATCH}}}
        },
        direct=Limits(2, -1, None),
        edited=Limits(512, 50_000, 96 * MIB),
    ),
)

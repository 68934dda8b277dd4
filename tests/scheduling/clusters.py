"""Clusters of scheduling, generated from a seed: nodes and pods that use every field that the default plugins read."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from koord.model import core
from koord.model.scheduling.pods import Node, Pod
from koord.scheduling.podinfo import PodInfo

HOSTNAME, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
GPU = "example.com/gpu"
APPS = ("web", "db", "cache")
IMAGES = ("registry.example/web:1", "registry.example/db:2", "registry.example/cache:latest")


def node(name: str, /, cpu: str = "4", memory: str = "8Gi", pods: str = "10", **document: Any) -> Node:
    """``labels``, ``taints``, ``unschedulable``, ``images`` and further ``allocatable`` as an API server has them."""
    labels = {HOSTNAME: name, **document.pop("labels", {})}
    allocatable = {"cpu": cpu, "memory": memory, "pods": pods, **document.pop("allocatable", {})}
    images = document.pop("images", [])
    made = {
        "metadata": {"name": name, "labels": labels},
        "spec": document,
        "status": {"allocatable": allocatable, "images": images},
    }
    return core.read(Node, msgspec.json.encode(made))


def pod(
    name: str,
    /,
    requests: Mapping[str, str] | None = None,
    *,
    namespace: str = "default",
    labels: Mapping[str, str] | None = None,
    metadata: Mapping[str, Any] | None = None,
    status: Mapping[str, Any] | None = None,
    containers: Sequence[Mapping[str, Any]] = (),
    **spec: Any,
) -> PodInfo:
    """A pod whose uid is its name; ``spec`` as an API server has it. ``requests``: of its one container, unless
    ``containers`` are named.
    """
    own = [{"name": "main", "image": IMAGES[0], "resources": {"requests": dict(requests or {})}}]
    made = {
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": name,
            "labels": dict(labels or {}),
            **(metadata or {}),
        },
        "spec": {"containers": list(containers) or own, **spec},
        "status": dict(status or {}),
    }
    return PodInfo.of(core.read(Pod, msgspec.json.encode(made)))


class Generator:
    """Draws nodes and pods; equal seeds draw equal ones."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self._pods = 0

    def node(self, name: str) -> Node:
        draw = self.random
        labels = {"disk": draw.choice(["ssd", "hdd"]), "slots": str(draw.randrange(8))}
        if draw.random() < 0.9:
            labels[ZONE] = f"z{draw.randrange(3)}"
        taints = [
            {"key": key, "value": draw.choice(["", "a"]), "effect": effect}
            for key, effect in (
                ("t1", "NoSchedule"),
                ("t2", "PreferNoSchedule"),
                ("t3", "NoExecute"),
                ("t4", "PreferNoSchedule"),
            )
            if draw.random() < 0.15
        ]
        images = [
            {"names": [image], "sizeBytes": size << 20}
            for image, size in zip(IMAGES, (40, 300, 900), strict=True)
            if draw.random() < 0.4
        ]
        return node(
            name,
            draw.choice(["2", "4", "8"]),
            draw.choice(["4Gi", "8Gi", "16Gi"]),
            str(draw.randrange(3, 12)),
            labels=labels,
            taints=taints,
            unschedulable=draw.random() < 0.05,
            images=images,
            allocatable={GPU: str(draw.randrange(1, 5))} if draw.random() < 0.3 else {},
        )

    def pod(self, node_name: str = "") -> PodInfo:
        """A pod that is on ``node_name``; of "", one that waits."""
        draw = self.random
        self._pods += 1
        app = draw.choice(APPS)
        spec: dict[str, Any] = {"nodeName": node_name, "priority": draw.choice([0, 100, 1000])}
        affinity = {
            kind: made
            for kind, made in (
                ("nodeAffinity", self._node_affinity()),
                ("podAffinity", self._pod_affinity()),
                ("podAntiAffinity", self._pod_affinity()),
            )
            if made
        }
        if affinity:
            spec["affinity"] = affinity
        if draw.random() < 0.15:
            spec["nodeSelector"] = {"disk": draw.choice(["ssd", "hdd"])}
        if draw.random() < 0.4:
            spec["tolerations"] = [self._toleration() for _ in range(draw.randrange(1, 3))]
        if draw.random() < 0.3:
            spec["topologySpreadConstraints"] = [self._constraint() for _ in range(draw.randrange(1, 3))]
        return pod(
            f"p{self._pods}",
            namespace=draw.choice(["default", "other"]),
            labels={"app": app, "tier": draw.choice(["a", "b"])},
            status={
                "startTime": f"2026-01-01T{self._pods // 3600:02}:{self._pods // 60 % 60:02}:{self._pods % 60:02}Z"
            },
            metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"} if node_name and draw.random() < 0.1 else {},
            containers=[self._container(f"c{index}") for index in range(draw.randrange(1, 3))],
            initContainers=[{**self._container("i"), **({"restartPolicy": "Always"} if draw.random() < 0.5 else {})}]
            if draw.random() < 0.2
            else [],
            **spec,
        )

    def _container(self, name: str) -> dict[str, Any]:
        draw = self.random
        requests = {}
        if draw.random() < 0.8:
            requests["cpu"] = draw.choice(["50m", "250m", "500m", "1"])
        if draw.random() < 0.8:
            requests["memory"] = draw.choice(["64Mi", "500Mi", "1Gi", "1500M"])
        if draw.random() < 0.1:
            requests[GPU] = "1"
        ports = (
            [
                {
                    "containerPort": 80,
                    "hostPort": draw.choice([8080, 8081]),
                    "hostIP": draw.choice(["", "10.0.0.1", "10.0.0.2"]),
                    "protocol": draw.choice(["TCP", "UDP"]),
                }
            ]
            if draw.random() < 0.15
            else []
        )
        return {
            "name": name,
            "image": draw.choice(["registry.example/cache", *IMAGES]),
            "resources": {"requests": requests},
            "ports": ports,
        }

    def _toleration(self) -> dict[str, Any]:
        draw = self.random
        key = draw.choice(["", "t1", "t2", "t3", "node.kubernetes.io/unschedulable"])
        operator = draw.choice(["Equal", "Exists"]) if key else "Exists"
        value = {"value": draw.choice(["", "a"])} if operator == "Equal" else {}
        return {"key": key, "operator": operator, "effect": draw.choice(["", "NoSchedule", "NoExecute"]), **value}

    def _requirement(self) -> dict[str, Any]:
        draw = self.random
        key, values = draw.choice([("disk", ["ssd", "hdd"]), (ZONE, ["z0", "z1", "z2"]), ("slots", ["0", "3", "5"])])
        operator = draw.choice(["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"])
        if operator in ("Gt", "Lt"):
            return {
                "key": "slots",
                "operator": operator,
                "values": [draw.choice(values[:1]) if key == "slots" else "4"],
            }
        if operator in ("In", "NotIn"):
            return {"key": key, "operator": operator, "values": draw.sample(values, draw.randrange(1, len(values)))}
        return {"key": key, "operator": operator}

    def _term(self) -> dict[str, Any]:
        return {"matchExpressions": [self._requirement() for _ in range(self.random.randrange(1, 3))]}

    def _node_affinity(self) -> dict[str, Any]:
        draw = self.random
        made: dict[str, Any] = {}
        if draw.random() < 0.2:
            terms = [self._term() for _ in range(draw.randrange(1, 3))]
            made["requiredDuringSchedulingIgnoredDuringExecution"] = {"nodeSelectorTerms": terms}
        if draw.random() < 0.2:
            made["preferredDuringSchedulingIgnoredDuringExecution"] = [
                {"weight": draw.randrange(1, 101), "preference": self._term()} for _ in range(draw.randrange(1, 3))
            ]
        return made

    def _selector(self) -> dict[str, Any]:
        draw = self.random
        kind = draw.randrange(4)
        if kind == 0:
            return {"matchLabels": {"app": draw.choice(APPS), "tier": draw.choice(["a", "b"])}}
        if kind == 1:
            return {"matchExpressions": [{"key": "app", "operator": "In", "values": draw.sample(APPS, 2)}]}
        if kind == 2:
            return {"matchExpressions": [{"key": "app", "operator": "NotIn", "values": [draw.choice(APPS)]}]}
        return {"matchLabels": {"app": draw.choice(APPS)}}

    def _affinity_term(self) -> dict[str, Any]:
        draw = self.random
        made = {"labelSelector": self._selector(), "topologyKey": draw.choice([HOSTNAME, ZONE, "disk"])}
        kind = draw.randrange(5)
        if kind == 0:
            made["namespaces"] = ["default", "other"]
        elif kind == 1:
            made["namespaceSelector"] = draw.choice([{}, {"matchLabels": {"team": "a"}}])
        return made

    def _pod_affinity(self) -> dict[str, Any]:
        draw = self.random
        made: dict[str, Any] = {}
        if draw.random() < 0.12:
            made["requiredDuringSchedulingIgnoredDuringExecution"] = [
                self._affinity_term() for _ in range(draw.randrange(1, 3))
            ]
        if draw.random() < 0.12:
            made["preferredDuringSchedulingIgnoredDuringExecution"] = [
                {"weight": draw.randrange(1, 101), "podAffinityTerm": self._affinity_term()}
            ]
        return made

    def _constraint(self) -> dict[str, Any]:
        draw = self.random
        made = {
            "maxSkew": draw.randrange(1, 3),
            "topologyKey": draw.choice([HOSTNAME, ZONE, "disk"]),
            "whenUnsatisfiable": draw.choice(["DoNotSchedule", "ScheduleAnyway"]),
            "labelSelector": draw.choice([{}, self._selector(), self._selector()]),
        }
        if made["whenUnsatisfiable"] == "DoNotSchedule" and draw.random() < 0.3:
            made["minDomains"] = draw.randrange(1, 4)
        if draw.random() < 0.3:
            made["nodeTaintsPolicy"] = "Honor"
        if draw.random() < 0.3:
            made["nodeAffinityPolicy"] = "Ignore"
        if draw.random() < 0.2:
            made["matchLabelKeys"] = ["tier"]
        return made

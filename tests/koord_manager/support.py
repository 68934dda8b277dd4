"""A manager's view and controllers on an API server in memory, by a clock that tests set."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from koord.kube.kind import Key
from koord_manager.controllers.leading import Controllers
from koord_manager.freshusage import FreshFigures
from koord_manager.view import ClusterView
from tests.kube.server import JSONObject, Server
from tests.kube.support import until

NODES, PODS, CONFIG_MAPS = "/api/v1/nodes", "/api/v1/pods", "/api/v1/configmaps"
METRICS = "/apis/slo.koordinator.sh/v1alpha1/nodemetrics"
SLOS = "/apis/slo.koordinator.sh/v1alpha1/nodeslos"
PROFILES = "/apis/config.koordinator.sh/v1alpha1/clustercolocationprofiles"
CONFIG = Key("koordinator-system", "slo-controller-config")
ENABLED = {"colocation-config": '{"enable": true}'}
START_S = 1_790_000_000.0
QUIET_S = 0.3
QUIET_TRIES = 20


@dataclass
class Cluster:
    """``now_s``: the clock of the manager, and of the nodes."""

    server: Server
    view: ClusterView
    figures: FreshFigures
    controllers: Controllers
    now_s: float = START_S
    tasks: list[asyncio.Task[None]] = field(default_factory=list)

    async def lead(self) -> None:
        self.tasks.append(asyncio.create_task(self.controllers.run()))

    def put_config(self, data: Mapping[str, str] = ENABLED) -> None:
        self.server.put(CONFIG_MAPS, CONFIG.namespace, CONFIG.name, data=dict(data))

    def put_node(self, name: str = "n1", cpu: str = "8", memory: str = "16Gi", **metadata: Any) -> None:
        capacity = {"cpu": cpu, "memory": memory}
        self.server.put(NODES, "", name, metadata=metadata, status={"capacity": capacity, "allocatable": capacity})

    def report(self, name: str = "n1", cpu: str = "400m", memory: str = "800Mi", **status: Any) -> None:
        """A NodeMetric of this moment, in which the system alone uses something."""
        resources = {"resources": {"cpu": cpu, "memory": memory}}
        stored = self.object(METRICS, name) or {}
        self.server.put(
            METRICS,
            "",
            name,
            spec=stored.get("spec", {}),
            status={
                "updateTime": datetime.fromtimestamp(self.now_s, UTC).isoformat(),
                "nodeMetric": {"nodeUsage": resources, "systemUsage": resources},
                **status,
            },
        )

    def object(self, path: str, name: str, namespace: str = "") -> JSONObject | None:
        root, _, plural = path.rpartition("/")
        return self.server.objects.get((root, plural), {}).get((namespace, name))

    def offered(self, name: str = "n1") -> dict[str, str]:
        node = self.object(NODES, name)
        assert node is not None
        return {key: text for key, text in node["status"]["allocatable"].items() if key.startswith("kubernetes.io/")}

    def events(self, reason: str) -> list[str]:
        found = self.server.objects.get(("/api/v1", "events"), {}).values()
        return [event["message"] for event in found if event["reason"] == reason]

    async def writes(self) -> int:
        """How many requests write something within a while of quiet."""
        before = self._written()
        await asyncio.sleep(QUIET_S)
        return self._written() - before

    async def quiet(self) -> None:
        """Returns once nothing is written any more; who writes the same again and again never is."""
        for _ in range(QUIET_TRIES):
            if not await self.writes():
                return
        raise AssertionError(f"still written after {QUIET_TRIES} times {QUIET_S} s")

    async def settled(self, condition: Callable[[], object]) -> None:
        await until(lambda: bool(condition()))

    def _written(self) -> int:
        return sum(self.server.count(verb) for verb in ("create", "patch", "replace", "delete"))

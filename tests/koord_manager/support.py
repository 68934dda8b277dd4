"""A manager's view and controllers on an API server in memory, by a clock that tests set."""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from koord.kube.kind import Key
from koord.overcommit.amounts import CPUMemory
from koord.overcommit.report import FreshUsage
from koord.pb.koord import nodelink_pb2 as pb
from koord_manager.controllers.leading import Controllers
from koord_manager.freshusage import FreshFigures
from koord_manager.view import ClusterView
from qosd.cluster.nodelink import encoded
from tests.kube.server import Server
from tests.kube.support import client
from tests.support import cluster
from tests.support.cluster import CONFIG_MAPS, METRICS, NODES, ListingRecorder, following

CONFIG = Key("koordinator-system", "slo-controller-config")
ENABLED = {"colocation-config": '{"enable": true}'}
POLICY = {
    "aggregateDurationSeconds": 300,
    "reportIntervalSeconds": 60,
    "nodeAggregatePolicy": {"durations": ["5m0s", "10m0s", "30m0s"]},
    "nodeMemoryCollectPolicy": "usageWithoutPageCache",
}
"""What ``CHART`` is in a NodeMetric."""
CHART = {
    "colocation-config": '{"enable": true}',
    "resource-threshold-config": '{"clusterStrategy": {"enable": true}}',
}


@dataclass(kw_only=True)
class Cluster(cluster.Cluster):
    view: ClusterView
    figures: FreshFigures
    controllers: Controllers

    def put_config(self, data: Mapping[str, str] = ENABLED) -> None:
        self.server.put(CONFIG_MAPS, CONFIG.namespace, CONFIG.name, data=dict(data))

    async def lead(self) -> None:
        """This manager knows the ConfigMap as it was put, and leads."""
        await self.settled(self._knows_config)
        await super().lead()

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

    def speak(self, cpu_milli: int, sequence: int, memory_bytes: int = 800 << 20) -> None:
        """What n1 says on NodeLink: the system alone uses something."""
        used = CPUMemory(cpu_milli, memory_bytes)
        message = encoded("n1", "i", sequence, 0, FreshUsage(used, used))
        self.figures.take(message, pb.NodeReport.FromString(message))

    def spec(self, path: str) -> dict[str, Any]:
        """Of n1's object; empty if there is none."""
        stored = self.object(path, "n1")
        return {} if stored is None else dict(stored["spec"])

    async def begin_to_offer(self) -> None:
        """Makes n1, which has reported, in a cluster whose policy is on; this manager leads, and n1 has its offer."""
        self.put_config()
        self.put_node()
        self.report()
        await self.lead()
        await self.settled(self.offered)

    def _knows_config(self) -> bool:
        stored = self.object(CONFIG_MAPS, CONFIG.name, CONFIG.namespace)
        known = self.view.config_map
        return (stored and stored["metadata"]["resourceVersion"]) == (known and known.metadata.resource_version)

    def offered(self, name: str = "n1") -> dict[str, str]:
        node = self.object(NODES, name)
        assert node is not None
        return {key: text for key, text in node["status"]["allocatable"].items() if key.startswith("kubernetes.io/")}


@contextlib.asynccontextmanager
async def running(server: Server) -> AsyncIterator[Cluster]:
    """A manager that has just started and knows all that ``server`` has; it does not lead yet."""
    async with server.serving() as url, client(url) as api:
        view = ClusterView(api, CONFIG, CONFIG.namespace, {}, time.monotonic, lambda: made.now_s)
        figures = FreshFigures(lambda: made.now_s)
        recorder = ListingRecorder(api, "koord-manager")
        controllers = Controllers(api, view, figures, recorder, lambda: made.now_s)
        made = Cluster(
            server=server,
            recorder=recorder,
            leading=controllers.run,
            view=view,
            figures=figures,
            controllers=controllers,
        )
        async with following(made, view.run()):
            await view.synced()
            yield made

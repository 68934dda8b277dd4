"""A manager's view and controllers on an API server in memory, by a clock that tests set."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from koord.kube.client import Client
from koord.kube.kind import Key
from koord.kube.recorder import EventType, Recorder, Subject
from koord.overcommit.amounts import CPUMemory
from koord.overcommit.fresh import FreshUsage
from koord.pb.koord import nodelink_pb2 as pb
from koord_manager.controllers.leading import Controllers
from koord_manager.freshusage import FreshFigures
from koord_manager.view import ClusterView
from qosd.cluster.nodelink import encoded
from tests.kube.server import JSONObject, Server
from tests.kube.support import client
from tests.support.waiting import until

NODES, PODS, CONFIG_MAPS = "/api/v1/nodes", "/api/v1/pods", "/api/v1/configmaps"
METRICS = "/apis/slo.koordinator.sh/v1alpha1/nodemetrics"
SLOS = "/apis/slo.koordinator.sh/v1alpha1/nodeslos"
PROFILES = "/apis/config.koordinator.sh/v1alpha1/clustercolocationprofiles"
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
START_S = 1_790_000_000.0
QUIET_S = 0.3
QUIET_TRIES = 20


class ToldRecorder(Recorder):
    """``told``: the reason of each Event, those that only raise a count as well."""

    def __init__(self, client: Client) -> None:
        super().__init__(client, "koord-manager", "test", time.time)
        self.told: list[str] = []

    def record(self, subject: Subject, type: EventType, reason: str, message: str) -> None:
        self.told.append(reason)
        super().record(subject, type, reason, message)


@dataclass
class Cluster:
    """``now_s``: the clock of the manager, and of the nodes."""

    server: Server
    view: ClusterView
    figures: FreshFigures
    controllers: Controllers
    recorder: ToldRecorder
    now_s: float = START_S
    tasks: list[asyncio.Task[None]] = field(default_factory=list)

    async def lead(self) -> None:
        self.tasks.append(asyncio.create_task(self.controllers.run()))

    async def resign(self) -> None:
        """Ends what `lead` began."""
        leading = self.tasks.pop()
        leading.cancel()
        await asyncio.wait([leading])

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

    def speak(self, cpu_milli: int, sequence: int, memory_bytes: int = 800 << 20) -> None:
        """What n1 says on NodeLink: the system alone uses something."""
        used = CPUMemory(cpu_milli, memory_bytes)
        message = encoded("n1", "i", sequence, 0, FreshUsage(used, used))
        self.figures.take(message, pb.NodeReport.FromString(message))

    def spec(self, path: str) -> dict[str, Any]:
        """Of n1's object; empty if there is none."""
        stored = self.object(path, "n1")
        return {} if stored is None else dict(stored["spec"])

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

    async def settled(self, condition: Callable[[], Any]) -> None:
        await until(lambda: bool(condition()))

    def _written(self) -> int:
        return sum(self.server.count(verb) for verb in ("create", "patch", "replace", "delete"))


@contextlib.asynccontextmanager
async def running(server: Server) -> AsyncIterator[Cluster]:
    """A manager that has just started and knows all that ``server`` has; it does not lead yet."""
    async with server.serving() as url, client(url) as api:
        view = ClusterView(api, CONFIG, CONFIG.namespace, {}, time.monotonic, lambda: made.now_s)
        figures = FreshFigures(lambda: made.now_s)
        recorder = ToldRecorder(api)
        controllers = Controllers(api, view, figures, recorder, lambda: made.now_s)
        made = Cluster(server, view, figures, controllers, recorder)
        made.tasks += [asyncio.create_task(view.run()), asyncio.create_task(recorder.run())]
        await view.synced()
        yield made
        for task in made.tasks:
            task.cancel()
        for task in made.tasks:
            with contextlib.suppress(asyncio.CancelledError):
                await task

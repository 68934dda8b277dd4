"""A cluster in memory for a component that follows it and writes to it, with what every component's tests ask of it.

A component's own tests add to `Cluster` its parts and what its objects say, as ``tests.koord_manager.support`` does.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

from koord.kube.client import Client
from koord.kube.recorder import EventRecorder, EventType, Subject
from tests.kube.server import JSONObject, Server
from tests.support import kubernetes
from tests.support.waiting import until

NODES, PODS, CONFIG_MAPS = "/api/v1/nodes", "/api/v1/pods", "/api/v1/configmaps"
EVENTS = "/api/v1/events"
METRICS = "/apis/slo.koordinator.sh/v1alpha1/nodemetrics"
SLOS = "/apis/slo.koordinator.sh/v1alpha1/nodeslos"
PROFILES = "/apis/config.koordinator.sh/v1alpha1/clustercolocationprofiles"
START_S = 1_790_000_000.0
QUIET_S = 0.3
QUIET_TRIES = 20
WRITES = ("create", "patch", "replace", "delete")


class ListingRecorder(EventRecorder):
    """``reasons``: of each Event, also of those that only raise a count."""

    def __init__(self, client: Client, component: str) -> None:
        super().__init__(client, component, "test", time.time)
        self.reasons: list[str] = []

    def record(self, subject: Subject, type: EventType, reason: str, message: str) -> None:
        self.reasons.append(reason)
        super().record(subject, type, reason, message)


@dataclass(kw_only=True)
class Cluster:
    """The API server's objects, and a replica whose leader's work is ``leading``. ``now_s``: the clock of both."""

    server: Server
    recorder: ListingRecorder
    leading: Callable[[], Coroutine[Any, Any, None]]
    now_s: float = START_S
    tasks: list[asyncio.Task[None]] = field(default_factory=list)

    async def lead(self) -> None:
        self.tasks.append(asyncio.create_task(self.leading()))

    async def resign(self) -> None:
        """Ends what `lead` began."""
        leading = self.tasks.pop()
        leading.cancel()
        await asyncio.wait([leading])

    def put_node(self, name: str = "n1", cpu: str = "8", memory: str = "16Gi", **metadata: Any) -> None:
        document = kubernetes.node(name, {"cpu": cpu, "memory": memory}, metadata=metadata)
        self.server.put(NODES, "", name, metadata=document["metadata"], status=document["status"])

    def object(self, path: str, name: str, namespace: str = "") -> JSONObject | None:
        root, _, plural = path.rpartition("/")
        return self.server.objects.get((root, plural), {}).get((namespace, name))

    def events(self, reason: str) -> list[str]:
        root, _, plural = EVENTS.rpartition("/")
        found = self.server.objects.get((root, plural), {}).values()
        return [event["message"] for event in found if event["reason"] == reason]

    async def writes(self) -> int:
        """How many requests write something within a while of quiet."""
        before = self._written()
        await asyncio.sleep(QUIET_S)
        return self._written() - before

    async def quiet(self) -> None:
        """Returns once nothing is written any more. A writer that writes the same again and again never is quiet."""
        for _ in range(QUIET_TRIES):
            if not await self.writes():
                return
        raise AssertionError(f"still written after {QUIET_TRIES} times {QUIET_S} s")

    async def settled(self, condition: Callable[[], Any]) -> None:
        await until(condition)

    def _written(self) -> int:
        return sum(self.server.count(verb) for verb in WRITES)


@contextlib.asynccontextmanager
async def following(cluster: Cluster, *parts: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """``parts`` of the component and its recorder run for the block; so does what `Cluster.lead` began."""
    cluster.tasks += [asyncio.create_task(part) for part in (*parts, cluster.recorder.run())]
    yield
    for task in cluster.tasks:
        task.cancel()
    for task in cluster.tasks:
        with contextlib.suppress(asyncio.CancelledError):
            await task

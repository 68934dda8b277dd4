"""A scheduler on an API server in memory."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from koord_scheduler.decisions import Decisions
from koord_scheduler.extenders import Extenders, Told, unheard
from koord_scheduler.extendersettings import ExtenderSettings
from koord_scheduler.profiles import Profile
from koord_scheduler.scheduler import Scheduler
from koord_scheduler.view import ClusterView
from tests.kube.server import JSONObject, Server
from tests.kube.support import NODES, PODS, client
from tests.support.cluster import ListingRecorder
from tests.support.waiting import until

NAMESPACES = "/api/v1/namespaces"
BUDGETS = "/apis/policy/v1/poddisruptionbudgets"
NAME = "koord-scheduler"
HOSTNAME = "kubernetes.io/hostname"


@dataclass
class Rig:
    """``leading``: the leader's work, while there is one."""

    server: Server
    view: ClusterView
    scheduler: Scheduler
    recorder: ListingRecorder
    leading: asyncio.Task[None] | None = None
    offset_s: float = 0.0
    tasks: list[asyncio.Task[None]] = field(default_factory=list)

    def node(self, name: str = "n1", cpu: str = "4", pods: str = "10", **spec: Any) -> Rig:
        allocatable = {"cpu": cpu, "memory": "8Gi", "pods": pods}
        metadata = {"labels": {HOSTNAME: name}}
        self.server.put(NODES, "", name, metadata=metadata, spec=spec, status={"allocatable": allocatable})
        return self

    def nodes(self, *names: str) -> Rig:
        for name in names:
            self.node(name)
        return self

    def pod(
        self,
        name: str = "p",
        cpu: str = "1",
        scheduler: str = NAME,
        metadata: Any = None,
        status: Any = None,
        **spec: Any,
    ) -> Rig:
        container = {"name": "main", "resources": {"requests": {"cpu": cpu}}}
        self.server.put(
            PODS,
            "default",
            name,
            metadata=metadata or {},
            spec={"schedulerName": scheduler, "containers": [container], **spec},
            status=status or {},
        )
        return self

    def stored(self, name: str = "p") -> JSONObject | None:
        return self.server.objects.get(("/api/v1", "pods"), {}).get(("default", name))

    def uid(self, name: str = "p") -> str:
        return str((self.stored(name) or {})["metadata"]["uid"])

    def node_of(self, name: str = "p") -> str:
        stored = self.stored(name)
        return "" if stored is None else stored["spec"].get("nodeName", "")

    def condition(self, name: str = "p", type: str = "PodScheduled") -> tuple[str, str, str]:
        """Status, reason and message."""
        conditions = ((self.stored(name) or {}).get("status") or {}).get("conditions", [])
        found = next((each for each in conditions if each["type"] == type), None)
        return ("", "", "") if found is None else (found["status"], found["reason"], found["message"])

    def events(self, reason: str) -> list[str]:
        found = self.server.objects.get(("/api/v1", "events"), {}).values()
        return [event["message"] for event in found if event["reason"] == reason]

    def attempts(self, result: str) -> int:
        return self.scheduler.metrics.schedule_attempts[result, NAME]

    def requested(self, name: str = "n1") -> int:
        row = self.view.state.table.row(name)
        return -1 if row is None else self.view.state.requested.at(row, "cpu")

    async def lead(self) -> None:
        self.leading = asyncio.create_task(self.scheduler.run())

    async def resign(self) -> None:
        assert self.leading is not None
        self.leading.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self.leading
        self.leading = None

    def later(self) -> None:
        """Backoffs have ended."""
        self.offset_s += 20
        self.view.changed()

    async def placed(self, *names: str) -> list[str]:
        """The nodes of the pods, once each has one."""
        await until(lambda: all(self.node_of(name) for name in names))
        return [self.node_of(name) for name in names]


def _nothing(_: Rig) -> None:
    pass


@contextlib.asynccontextmanager
async def running(
    prepare: Callable[[Rig], object] = _nothing,
    check: Callable[[], None] = lambda: None,
    tries: int = 4,
    profiles: Sequence[Profile] = (Profile(),),
    extenders: Sequence[ExtenderSettings] = (),
    told: Told = unheard,
    best_count: int = 0,
    decisions: Decisions | None = None,
) -> AsyncIterator[Rig]:
    """A scheduler that knows what ``prepare`` has put and does not lead yet. ``check``: is called before each write."""
    server = Server()
    async with server.serving() as url, client(url, tries) as api:
        recorder = ListingRecorder(api, NAME)

        def monotonic_s() -> float:
            return time.monotonic() + rig.offset_s

        asked = Extenders(extenders, told)
        view = ClusterView(api, profiles, monotonic_s, has_documents=asked.need_nodes, best_count=best_count)
        scheduler = Scheduler(api.guarded(check), view, recorder, monotonic_s, extenders=asked, decisions=decisions)
        rig = Rig(server, view, scheduler, recorder)
        prepare(rig)
        rig.tasks = [asyncio.create_task(view.run()), asyncio.create_task(recorder.run())]
        await view.synced()
        try:
            yield rig
        finally:
            if rig.leading is not None:
                await rig.resign()
            for task in rig.tasks:
                task.cancel()
            await asyncio.wait(rig.tasks)

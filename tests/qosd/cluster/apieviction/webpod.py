"""Pod ``web`` on a node and in an API server, with a container runtime, on real sockets, and its eviction."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from koord.kube.recorder import EventType, Subject
from koord.pb.cri import api_pb2 as cri
from qosd.act.cristop import CRIStop
from qosd.cluster.apieviction import APIEviction
from qosd.cluster.evictionrequest import EvictionBounds
from qosd.decide.decision import Eviction
from qosd.pods.cri import CRIClient
from tests.fakes.runtime import FakeRuntime
from tests.kube.server import JSONObject, Server
from tests.kube.support import PODS, client

ORDER = Eviction("uid-web", "default/web", "beMemoryEvict: memory is short", "/kubepods/burstable/poduid-web")
BOUNDS = EvictionBounds(refused_s=0.2, unanswered_s=0.2, gone_s=0.2, pause_s=0.01)
LONG = EvictionBounds(refused_s=9, unanswered_s=9, gone_s=9, pause_s=0.01)
ENDS = "the API server has agreed, and kubelet ends the pod"
FALLEN_BACK = "fell back to CRI because"
LATE = "it is too late in 3 s (beMemoryEvict: 97 % of the node's memory are in use)"


class Events:
    def __init__(self) -> None:
        self.said: list[tuple[str, str, str, str]] = []

    def record(self, subject: Subject, type: EventType, reason: str, message: str) -> None:
        self.said.append((f"{subject.key} {subject.uid}", str(type), reason, message))


class Cluster(Server):
    """Pod ``web`` of two containers on the node and in the API. ``kubelet``: what it does when the API's pod goes."""

    def __init__(self, directory: Path) -> None:
        super().__init__()
        self.fake = FakeRuntime(directory / "cgroups")
        self.sandbox = self.fake.pod("web")
        for name in "ab":
            self.fake.start(self.fake.container(self.sandbox, name))
        self.put(PODS, "default", "web", metadata={"uid": "uid-web"})
        self.kubelet: Callable[[], object] = self.end_pod
        self.steps: list[tuple[str, str]] = []
        self.step_told: Callable[[], object] = lambda: None
        self.emergency = ""
        self.grace_end_s = 0.0
        """By the loop's clock."""

    def _evict(self, collection: tuple[str, str], key: tuple[str, str], body: JSONObject) -> JSONObject:
        answer = super()._evict(collection, key, body)
        self.kubelet()
        return answer

    def end_pod(self) -> None:
        """Some time later: its containers end, then everything of it is gone."""
        loop = asyncio.get_running_loop()
        for name in list(self.fake.containers):
            loop.call_later(0.02, self.fake.stop, name)
        loop.call_later(0.04, self.fake.remove, self.sandbox)

    def lose_pod(self) -> None:
        """The API server no longer has it, and kubelet ends it."""
        self.delete(PODS, "default", "web")
        self.end_pod()

    def replace_pod(self) -> None:
        self.lose_pod()
        self.put(PODS, "default", "web", metadata={"uid": "uid-new"})

    def exists(self, cgroup: str) -> bool:
        return (self.fake.tree / cgroup.lstrip("/")).is_dir()

    def tell(self, eviction: Eviction, result: str, why: str) -> None:
        assert eviction == ORDER
        self.steps.append((str(result), why))
        self.step_told()

    def left_s(self, uid: str) -> float:
        assert uid == "uid-web"
        return self.grace_end_s - asyncio.get_running_loop().time()

    @property
    def running(self) -> int:
        return sum(each.state == cri.CONTAINER_RUNNING for each in self.fake.containers.values())


@asynccontextmanager
async def executor(
    cluster: Cluster, directory: Path, bounds: EvictionBounds = BOUNDS, events: Any = None, url: str = ""
) -> AsyncIterator[tuple[APIEviction, Events]]:
    events = events or Events()
    async with cluster.fake.serving(directory / "s") as endpoint, client(url or cluster.url, tries=1) as api:
        runtime = CRIClient(endpoint, 2.0, asyncio.get_running_loop())
        stop = CRIStop(runtime, cluster.exists, exit_s=0.3, settle_s=0.3)
        try:
            yield (
                APIEviction(api, stop, events, lambda: cluster.emergency, cluster.left_s, cluster.tell, bounds),
                events,
            )
        finally:
            runtime.close()

"""Container runtimes of tests: CRI by our own server on a real socket, or in process, by a method for each call."""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from koord.http2.grpc import NOT_FOUND, UNAVAILABLE, UNIMPLEMENTED, UNKNOWN
from koord.http2.server import Method, Refusal, ServerReply, UnaryServer
from koord.pb.cri import api_pb2 as cri

UID_LABEL = "io.kubernetes.pod.uid"
TIERS = ("/kubepods", "/kubepods/burstable", "/kubepods/besteffort")


@dataclass(kw_only=True)
class CriRuntime:
    """Each call of CRI is answered by the method of its name, if there is one; ``calls`` are the names, in order."""

    version: tuple[str, str] = ("containerd", "1.6.20~ds1")
    ready: bool = True
    failing: bool = False
    refuses: dict[str, str] = field(default_factory=dict)
    """The errors, by call."""
    calls: list[str] = field(default_factory=list)

    def answer(self, call: str, message: bytes) -> Any:
        """The answer's message, or an awaitable of it; raises Refusal."""
        self.calls.append(call)
        if self.failing:
            raise Refusal(UNAVAILABLE, "server is not initialized yet")
        if call in self.refuses:
            raise Refusal(UNKNOWN, self.refuses[call])
        return getattr(self, call)(getattr(cri, f"{call}Request").FromString(message))

    @asynccontextmanager
    async def serving(self, socket: Path) -> AsyncIterator[str]:
        """Serve on ``socket``; yields the endpoint."""
        calls = [name for name in dir(self) if hasattr(cri, f"{name}Request")]
        server = UnaryServer({f"/runtime.v1.RuntimeService/{call}": self._served(call) for call in calls})
        listener = await asyncio.get_running_loop().create_unix_server(server.protocol, str(socket))
        try:
            yield f"unix://{socket}"
        finally:
            listener.close()
            server.close()
            socket.unlink(missing_ok=True)  # noqa: ASYNC240

    def _served(self, call: str) -> Method:
        async def later(message: bytes) -> ServerReply:
            return ServerReply((await self.answer(call, message)).SerializeToString())

        def method(message: bytes, fields: Mapping[bytes, bytes]) -> ServerReply | Awaitable[ServerReply]:
            if inspect.iscoroutinefunction(getattr(self, call)):
                return later(message)
            return ServerReply(self.answer(call, message).SerializeToString())

        return method

    def Version(self, request: cri.VersionRequest) -> cri.VersionResponse:
        return cri.VersionResponse(runtime_name=self.version[0], runtime_version=self.version[1])

    def Status(self, request: cri.StatusRequest) -> cri.StatusResponse:
        ready = cri.RuntimeCondition(type="RuntimeReady", status=self.ready)
        return cri.StatusResponse(status=cri.RuntimeStatus(conditions=[ready]), info={"config": "{}"})


@dataclass
class FakeRuntime(CriRuntime):
    """With containerd's verbose JSON. ``tree``: where it makes directories of pods and containers."""

    tree: Path
    silent: bool = False
    sandboxes: dict[str, cri.PodSandbox] = field(default_factory=dict)
    containers: dict[str, cri.Container] = field(default_factory=dict)
    parents: dict[str, str] = field(default_factory=dict)
    quotas_us: dict[str, int] = field(default_factory=dict)
    adjusted: dict[str, dict[str, str]] = field(default_factory=dict)
    """By container id, annotations that an NRI plugin added: the spec has them, the list has not."""
    vanishing: set[str] = field(default_factory=set)
    driver: cri.CgroupDriver | None = None
    kubepods: str = "/kubepods"
    state: cri.PodSandboxState = cri.SANDBOX_READY
    """Of new sandboxes."""
    cpu_shares: int | None = None
    updates: list[cri.UpdateContainerResourcesRequest] = field(default_factory=list)
    updated: Callable[[cri.UpdateContainerResourcesRequest], object] = lambda request: None
    """What the runtime then does in the kernel."""
    listed: set[str] = field(default_factory=set)
    """The ids that lists have given."""
    stops: list[cri.StopContainerRequest] = field(default_factory=list)
    stop_refusals: dict[str, Refusal] = field(default_factory=dict)
    """By container id, how StopContainer fails."""
    status_refusals: dict[str, Refusal] = field(default_factory=dict)
    """By container id, how ContainerStatus fails."""
    endless: set[str] = field(default_factory=set)
    """The ids of containers that StopContainer waits for in vain."""
    lingering: set[str] = field(default_factory=set)
    """The ids of containers whose cgroup stays after their exit."""
    stopped: Callable[[str], object] = lambda id_: None
    """What happens when a container has been stopped, before StopContainer answers."""

    def pod(
        self,
        name: str,
        tier: str = "/burstable",
        attempt: int = 0,
        labels: Mapping[str, str] | None = None,
        annotations: Mapping[str, str] | None = None,
        handler: str = "",
    ) -> str:
        """Directories first, as kubelet and a runtime make them, then the sandbox; its id."""
        id_ = f"{name}-{attempt}".encode().hex().ljust(64, "0")
        self.parents[id_] = f"{self.kubepods}{tier}/poduid-{name}"
        self.make(self.cgroup(id_))
        self.sandboxes[id_] = cri.PodSandbox(
            id=id_,
            metadata=cri.PodSandboxMetadata(name=name, uid=f"uid-{name}", namespace="default", attempt=attempt),
            state=self.state,
            created_at=len(self.sandboxes) + 1,
            labels=labels,
            annotations=annotations,
            runtime_handler=handler,
        )
        return id_

    def container(self, sandbox: str, name: str, quota_us: int = 50_000, attempt: int = 0) -> str:
        """Created, without a directory; see `start`."""
        id_ = (sandbox.rstrip("0") + f"{name}-{attempt}".encode().hex()).ljust(64, "0")
        self.parents[id_], self.quotas_us[id_] = self.parents[sandbox], quota_us
        self.containers[id_] = cri.Container(
            id=id_,
            pod_sandbox_id=sandbox,
            metadata=cri.ContainerMetadata(name=name, attempt=attempt),
            state=cri.CONTAINER_CREATED,
            created_at=len(self.containers) + 1,
        )
        return id_

    def start(self, container: str) -> None:
        self.make(self.cgroup(container))
        self.containers[container].state = cri.CONTAINER_RUNNING

    def stop(self, container: str) -> None:
        self.unmake(self.cgroup(container))
        self.containers[container].state = cri.CONTAINER_EXITED

    def remove(self, sandbox: str) -> None:
        """The pod and its directories."""
        for id_ in [id_ for id_, one in self.containers.items() if one.pod_sandbox_id == sandbox] + [sandbox]:
            if self.directory(id_).is_dir():
                self.unmake(self.cgroup(id_))
            self.containers.pop(id_, None)
        self.unmake(self.parents[sandbox])
        del self.sandboxes[sandbox]

    def cgroup(self, id_: str) -> str:
        return f"{self.parents[id_]}/{id_}"

    def directory(self, id_: str) -> Path:
        return self.tree / self.cgroup(id_).lstrip("/")

    def make(self, cgroup: str) -> None:
        """The directories down to ``group``."""
        (self.tree / cgroup.lstrip("/")).mkdir(parents=True)

    def unmake(self, cgroup: str) -> None:
        (self.tree / cgroup.lstrip("/")).rmdir()

    def run(self, config: cri.PodSandboxConfig) -> str:
        """A sandbox as ``config`` says, in a new cgroup below its parent; its id."""
        id_ = f"sandbox{len(self.sandboxes)}"
        self.parents[id_] = config.linux.cgroup_parent
        self.make(self.cgroup(id_))
        self.sandboxes[id_] = cri.PodSandbox(id=id_, state=self.state, labels=config.labels)
        return id_

    def _gone(self, id_: str, known: Mapping[str, Any]) -> None:
        if id_ not in known or id_ in self.vanishing:
            raise Refusal(NOT_FOUND, f"an error occurred when try to find {id_!r}: not found")

    def ListPodSandbox(self, request: cri.ListPodSandboxRequest) -> cri.ListPodSandboxResponse:
        """Each has the label with its UID, as kubelet makes them."""
        labels = request.filter.label_selector.items()
        each_labels = {id_: {UID_LABEL: one.metadata.uid, **one.labels} for id_, one in self.sandboxes.items()}
        items = [one for id_, one in self.sandboxes.items() if labels <= each_labels[id_].items()]
        self.listed.update(one.id for one in items)
        return cri.ListPodSandboxResponse(items=items)

    def ListContainers(self, request: cri.ListContainersRequest) -> cri.ListContainersResponse:
        sandbox_id = request.filter.pod_sandbox_id
        containers = [one for one in self.containers.values() if sandbox_id in ("", one.pod_sandbox_id)]
        self.listed.update(one.id for one in containers)
        return cri.ListContainersResponse(containers=containers)

    def RunPodSandbox(self, request: cri.RunPodSandboxRequest) -> cri.RunPodSandboxResponse:
        return cri.RunPodSandboxResponse(pod_sandbox_id=self.run(request.config))

    def StopPodSandbox(self, request: cri.StopPodSandboxRequest) -> cri.StopPodSandboxResponse:
        if self.directory(request.pod_sandbox_id).is_dir():
            self.unmake(self.cgroup(request.pod_sandbox_id))
        return cri.StopPodSandboxResponse()

    def RemovePodSandbox(self, request: cri.RemovePodSandboxRequest) -> cri.RemovePodSandboxResponse:
        self.sandboxes.pop(request.pod_sandbox_id, None)
        return cri.RemovePodSandboxResponse()

    def PodSandboxStatus(self, request: cri.PodSandboxStatusRequest) -> cri.PodSandboxStatusResponse:
        id_ = request.pod_sandbox_id
        self._gone(id_, self.sandboxes)
        info = {
            "config": {"linux": {"cgroup_parent": self.parents[id_], "resources": {"cpu_quota": 60_000}}},
            "runtimeSpec": {"linux": {"cgroupsPath": f"{self.parents[id_]}/{id_}"}},
        }
        status = cri.PodSandboxStatus(id=id_, state=self.sandboxes[id_].state)
        return cri.PodSandboxStatusResponse(status=status, info={} if self.silent else {"info": json.dumps(info)})

    def ContainerStatus(self, request: cri.ContainerStatusRequest) -> cri.ContainerStatusResponse:
        id_ = request.container_id
        self._gone(id_, self.containers)
        if id_ in self.status_refusals:
            raise self.status_refusals[id_]
        cpu = {"quota": self.quotas_us[id_], "period": 100_000, "shares": self.cpu_shares}
        resources = {"cpu": cpu, "memory": {"limit": 1 << 30}}
        linux = {"cgroupsPath": f"{self.parents[id_]}/{id_}", "resources": resources}
        spec = {"annotations": {**self.containers[id_].annotations, **self.adjusted.get(id_, {})}, "linux": linux}
        return cri.ContainerStatusResponse(info={} if self.silent else {"info": json.dumps({"runtimeSpec": spec})})

    def UpdateContainerResources(
        self, request: cri.UpdateContainerResourcesRequest
    ) -> cri.UpdateContainerResourcesResponse:
        """Kept in the specification as far as that is shown."""
        self._gone(request.container_id, self.containers)
        self.updates.append(request)
        self.quotas_us[request.container_id] = request.linux.cpu_quota or self.quotas_us[request.container_id]
        self.updated(request)
        return cri.UpdateContainerResourcesResponse()

    async def StopContainer(self, request: cri.StopContainerRequest) -> cri.StopContainerResponse:
        """As containerd: a container that does not run is left as it is."""
        id_ = request.container_id
        self.stops.append(request)
        self._gone(id_, self.containers)
        if id_ in self.stop_refusals:
            raise self.stop_refusals[id_]
        if id_ in self.endless:
            await asyncio.get_running_loop().create_future()
        if self.containers[id_].state == cri.CONTAINER_RUNNING:
            self.containers[id_].state = cri.CONTAINER_EXITED
            if id_ not in self.lingering:
                self.unmake(self.cgroup(id_))
        self.stopped(id_)
        return cri.StopContainerResponse()

    def RuntimeConfig(self, request: cri.RuntimeConfigRequest) -> cri.RuntimeConfigResponse:
        if self.driver is None:
            raise Refusal(UNIMPLEMENTED, "unknown method RuntimeConfig")
        return cri.RuntimeConfigResponse(linux=cri.LinuxRuntimeConfiguration(cgroup_driver=self.driver))

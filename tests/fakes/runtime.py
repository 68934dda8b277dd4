"""A container runtime on a real socket: CRI by our own server, with containerd's verbose JSON and a cgroup tree."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from koord.http2.grpc import NOT_FOUND, UNAVAILABLE
from koord.http2.server import Refusal, Reply, UnaryServer
from koord.pb.cri import api_pb2 as cri

TIERS = ("/kubepods", "/kubepods/burstable", "/kubepods/besteffort")


@dataclass
class FakeRuntime:
    """``tree``: where pods' and containers' directories are made, below ``kubepods``. ``calls`` counts methods."""

    tree: Path
    version: tuple[str, str] = ("containerd", "1.6.20~ds1")
    failing: bool = False
    silent: bool = False
    sandboxes: dict[str, cri.PodSandbox] = field(default_factory=dict)
    containers: dict[str, cri.Container] = field(default_factory=dict)
    parents: dict[str, str] = field(default_factory=dict)
    quotas_us: dict[str, int] = field(default_factory=dict)
    adjusted: dict[str, dict[str, str]] = field(default_factory=dict)
    """By container id, annotations that an NRI plugin added: the spec has them, the list has not."""
    calls: Counter[str] = field(default_factory=Counter)
    vanishing: set[str] = field(default_factory=set)
    driver: int | None = None
    kubepods: str = "/kubepods"
    cpu_shares: int | None = None
    updates: list[cri.UpdateContainerResourcesRequest] = field(default_factory=list)
    updated: Callable[[cri.UpdateContainerResourcesRequest], object] = lambda request: None
    """What a runtime does to the kernel then."""
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
    ) -> str:
        """Directories first, as kubelet and a runtime make them, then the sandbox; its id."""
        id_ = f"{name}-{attempt}".encode().hex().ljust(64, "0")
        self.parents[id_] = f"{self.kubepods}{tier}/poduid-{name}"
        self.make(self.group(id_))
        self.sandboxes[id_] = cri.PodSandbox(
            id=id_,
            metadata=cri.PodSandboxMetadata(name=name, uid=f"uid-{name}", namespace="default", attempt=attempt),
            state=cri.SANDBOX_READY,
            created_at=len(self.sandboxes) + 1,
            labels=labels,
            annotations=annotations,
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
        self.make(self.group(container))
        self.containers[container].state = cri.CONTAINER_RUNNING

    def stop(self, container: str) -> None:
        self.unmake(self.group(container))
        self.containers[container].state = cri.CONTAINER_EXITED

    def remove(self, sandbox: str) -> None:
        """The pod and its directories."""
        for id_ in [id_ for id_, one in self.containers.items() if one.pod_sandbox_id == sandbox] + [sandbox]:
            if self.directory(id_).is_dir():
                self.unmake(self.group(id_))
            self.containers.pop(id_, None)
        self.unmake(self.parents[sandbox])
        del self.sandboxes[sandbox]

    def group(self, id_: str) -> str:
        return f"{self.parents[id_]}/{id_}"

    def directory(self, id_: str) -> Path:
        return self.tree / self.group(id_).lstrip("/")

    def make(self, group: str) -> None:
        """The directories down to ``group``."""
        (self.tree / group.lstrip("/")).mkdir(parents=True)

    def unmake(self, group: str) -> None:
        (self.tree / group.lstrip("/")).rmdir()

    @asynccontextmanager
    async def serving(self, socket: Path) -> AsyncIterator[str]:
        """Serve on ``socket``; yields the endpoint."""
        paths = {f"/runtime.v1.RuntimeService/{name}": self._method(name, *how) for name, how in _METHODS.items()}
        paths["/runtime.v1.RuntimeService/StopContainer"] = self._stop
        server = UnaryServer(paths)
        listener = await asyncio.get_running_loop().create_unix_server(server.protocol, str(socket))
        try:
            yield f"unix://{socket}"
        finally:
            listener.close()
            server.close()
            socket.unlink(missing_ok=True)  # noqa: ASYNC240

    def _method(self, name: str, request: Any, answer: Callable[[FakeRuntime, Any], Any]) -> Any:
        def method(message: bytes, fields: Mapping[bytes, bytes]) -> Reply:
            self.calls[name] += 1
            if self.failing:
                raise Refusal(UNAVAILABLE, "server is not initialized yet")
            return Reply(answer(self, request.FromString(message)).SerializeToString())

        return method

    def _gone(self, id_: str, known: Mapping[str, Any]) -> None:
        if id_ not in known or id_ in self.vanishing:
            raise Refusal(NOT_FOUND, f"an error occurred when try to find {id_!r}: not found")

    def _sandbox(self, request: cri.PodSandboxStatusRequest) -> cri.PodSandboxStatusResponse:
        id_ = request.pod_sandbox_id
        self._gone(id_, self.sandboxes)
        info = {
            "config": {"linux": {"cgroup_parent": self.parents[id_], "resources": {"cpu_quota": 60_000}}},
            "runtimeSpec": {"linux": {"cgroupsPath": f"{self.parents[id_]}/{id_}"}},
        }
        return cri.PodSandboxStatusResponse(info={} if self.silent else {"info": json.dumps(info)})

    def _container(self, request: cri.ContainerStatusRequest) -> cri.ContainerStatusResponse:
        id_ = request.container_id
        self._gone(id_, self.containers)
        if id_ in self.status_refusals:
            raise self.status_refusals[id_]
        cpu = {"quota": self.quotas_us[id_], "period": 100_000, "shares": self.cpu_shares}
        resources = {"cpu": cpu, "memory": {"limit": 1 << 30}}
        linux = {"cgroupsPath": f"{self.parents[id_]}/{id_}", "resources": resources}
        spec = {"annotations": {**self.containers[id_].annotations, **self.adjusted.get(id_, {})}, "linux": linux}
        return cri.ContainerStatusResponse(info={} if self.silent else {"info": json.dumps({"runtimeSpec": spec})})

    def _update(self, request: cri.UpdateContainerResourcesRequest) -> cri.UpdateContainerResourcesResponse:
        """Kept in the specification as far as that is shown."""
        self._gone(request.container_id, self.containers)
        self.updates.append(request)
        self.quotas_us[request.container_id] = request.linux.cpu_quota or self.quotas_us[request.container_id]
        self.updated(request)
        return cri.UpdateContainerResourcesResponse()

    async def _stop(self, message: bytes, fields: Mapping[bytes, bytes]) -> Reply:
        """As containerd: a container that does not run is left as it is."""
        self.calls["StopContainer"] += 1
        request = cri.StopContainerRequest.FromString(message)
        id_ = request.container_id
        self.stops.append(request)
        if self.failing:
            raise Refusal(UNAVAILABLE, "server is not initialized yet")
        self._gone(id_, self.containers)
        if id_ in self.stop_refusals:
            raise self.stop_refusals[id_]
        if id_ in self.endless:
            await asyncio.get_running_loop().create_future()
        if self.containers[id_].state == cri.CONTAINER_RUNNING:
            self.containers[id_].state = cri.CONTAINER_EXITED
            if id_ not in self.lingering:
                self.unmake(self.group(id_))
        self.stopped(id_)
        return Reply(cri.StopContainerResponse().SerializeToString())

    def _version(self, request: cri.VersionRequest) -> cri.VersionResponse:
        return cri.VersionResponse(runtime_name=self.version[0], runtime_version=self.version[1])

    def _config(self, request: cri.RuntimeConfigRequest) -> cri.RuntimeConfigResponse:
        if self.driver is None:
            raise Refusal(12, "unknown method RuntimeConfig")
        return cri.RuntimeConfigResponse(linux=cri.LinuxRuntimeConfiguration(cgroup_driver=self.driver))


_METHODS: Mapping[str, tuple[Any, Callable[[FakeRuntime, Any], Any]]] = {
    "Version": (cri.VersionRequest, FakeRuntime._version),
    "Status": (cri.StatusRequest, lambda self, _: cri.StatusResponse(info={"config": "{}"})),
    "RuntimeConfig": (cri.RuntimeConfigRequest, FakeRuntime._config),
    "ListPodSandbox": (
        cri.ListPodSandboxRequest,
        lambda self, _: cri.ListPodSandboxResponse(items=self.sandboxes.values()),
    ),
    "ListContainers": (
        cri.ListContainersRequest,
        lambda self, _: cri.ListContainersResponse(containers=self.containers.values()),
    ),
    "PodSandboxStatus": (cri.PodSandboxStatusRequest, FakeRuntime._sandbox),
    "UpdateContainerResources": (cri.UpdateContainerResourcesRequest, FakeRuntime._update),
    "ContainerStatus": (cri.ContainerStatusRequest, FakeRuntime._container),
}

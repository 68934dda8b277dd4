"""A CRI server on a unix socket that knows some pods and containers, with containerd's verbose JSON."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc

from koord.pb.cri import api_pb2 as cri
from koord.service import rpc


@dataclass
class FakeRuntime:
    """What the server answers; tests fill the lists."""

    sandboxes: list[cri.PodSandbox] = field(default_factory=list)
    containers: list[cri.Container] = field(default_factory=list)
    parents: dict[str, str] = field(default_factory=dict)
    cgroups_paths: dict[str, str] = field(default_factory=dict)
    quotas_us: dict[str, int] = field(default_factory=dict)

    def add_pod(
        self,
        name: str,
        parent: str,
        labels: dict[str, str] | None = None,
        annotations: dict[str, str] | None = None,
        attempt: int = 0,
    ) -> str:
        sandbox_id = f"sandbox-{name}-{attempt}"
        metadata = cri.PodSandboxMetadata(name=name, uid=f"uid-{name}", namespace="default", attempt=attempt)
        self.sandboxes.append(
            cri.PodSandbox(
                id=sandbox_id,
                metadata=metadata,
                state=cri.SANDBOX_READY,
                created_at=len(self.sandboxes) + 1,
                labels=labels,
                annotations=annotations,
            )
        )
        self.parents[sandbox_id] = parent
        return sandbox_id

    def add_container(
        self,
        sandbox_id: str,
        name: str,
        cgroups_path: str,
        quota_us: int = 0,
        annotations: dict[str, str] | None = None,
    ) -> str:
        container_id = f"{sandbox_id}-{name}"
        self.containers.append(
            cri.Container(
                id=container_id,
                pod_sandbox_id=sandbox_id,
                metadata=cri.ContainerMetadata(name=name),
                state=cri.CONTAINER_RUNNING,
                created_at=len(self.containers) + 1,
                annotations=annotations,
            )
        )
        self.cgroups_paths[container_id] = cgroups_path
        self.quotas_us[container_id] = quota_us
        return container_id

    async def list_sandboxes(self, request: Any, context: rpc.Context) -> cri.ListPodSandboxResponse:
        return cri.ListPodSandboxResponse(items=self.sandboxes)

    async def list_containers(self, request: Any, context: rpc.Context) -> cri.ListContainersResponse:
        return cri.ListContainersResponse(containers=self.containers)

    async def sandbox_status(self, request: Any, context: rpc.Context) -> cri.PodSandboxStatusResponse:
        if request.pod_sandbox_id not in self.parents:
            await context.abort(grpc.StatusCode.NOT_FOUND, request.pod_sandbox_id)
        config = {"linux": {"cgroup_parent": self.parents[request.pod_sandbox_id]}}
        return cri.PodSandboxStatusResponse(info={"info": json.dumps({"config": config})})

    async def container_status(self, request: Any, context: rpc.Context) -> cri.ContainerStatusResponse:
        if request.container_id not in self.cgroups_paths:
            await context.abort(grpc.StatusCode.NOT_FOUND, request.container_id)
        resources = {"cpu": {"quota": self.quotas_us[request.container_id], "period": 100000}}
        spec = {"linux": {"cgroupsPath": self.cgroups_paths[request.container_id], "resources": resources}}
        status = cri.ContainerStatus(id=request.container_id)
        return cri.ContainerStatusResponse(status=status, info={"info": json.dumps({"runtimeSpec": spec})})

    @asynccontextmanager
    async def serving(self, socket: Path) -> AsyncIterator[str]:
        """Serve on ``socket``; yields the endpoint."""
        methods = {
            "ListPodSandbox": rpc.Unary(self.list_sandboxes, cri.ListPodSandboxRequest, cri.ListPodSandboxResponse),
            "ListContainers": rpc.Unary(self.list_containers, cri.ListContainersRequest, cri.ListContainersResponse),
            "PodSandboxStatus": rpc.Unary(
                self.sandbox_status, cri.PodSandboxStatusRequest, cri.PodSandboxStatusResponse
            ),
            "ContainerStatus": rpc.Unary(
                self.container_status, cri.ContainerStatusRequest, cri.ContainerStatusResponse
            ),
        }
        server = await rpc.listen(socket, 0o600, [rpc.service("runtime.v1.RuntimeService", methods)])
        try:
            yield f"unix://{socket}"
        finally:
            await server.stop(None)

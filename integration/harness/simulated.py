"""A container runtime without containers: CRI on a unix socket, and a tree of plain files for the kernel's.

For machines where no real runtime can be had; whatever is shown with it must say "simulated". It keeps what it was
asked for, merges updates into that as containerd does, and writes the cgroup v1 files that runc would write. Unknown
ids answer NOT_FOUND, as containerd does.
"""

from __future__ import annotations

import contextlib
import itertools
import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import grpc
from google.protobuf.message import Message

from koord.pb.cri import api_pb2 as pb

Context = grpc.ServicerContext
Kept = TypeVar("Kept")
UNLIMITED_BYTES = 9223372036854771712  # what cgroup v1 reads for no memory limit
CONTROLLERS = ("cpu", "cpuset", "memory")


def make_sysfs(root: Path, cpus: str) -> Path:
    """A sysfs that says no more than which CPUs there are, for a daemon that is to take them for the node's."""
    directory = root / "devices/system/cpu"
    directory.mkdir(parents=True)
    for name in ("online", "present"):
        (directory / name).write_text(f"{cpus}\n")
    return root


class SimulatedRuntime:
    """``tree`` stands for /sys/fs/cgroup; ``cpus`` is the node's CPU list."""

    def __init__(self, tree: Path, cpus: str) -> None:
        self.tree = tree
        self._cpus = cpus
        self._ids = itertools.count(1)
        self._pods: dict[str, pb.RunPodSandboxRequest] = {}
        self._containers: dict[str, pb.CreateContainerRequest] = {}
        self._specs: dict[str, pb.LinuxContainerResources] = {}
        self._states: dict[str, pb.ContainerState] = {}
        for controller in CONTROLLERS:
            (tree / controller).mkdir(parents=True, exist_ok=True)

    def created(self, container_id: str) -> pb.CreateContainerRequest:
        """The request that made the container."""
        return self._containers[container_id]

    def cgroup(self, container_id: str) -> str:
        """The container's cgroup, relative to a controller's directory in ``tree``."""
        return f"{self._containers[container_id].sandbox_config.linux.cgroup_parent}/{container_id}"

    @contextlib.contextmanager
    def serving(self, path: Path) -> Iterator[None]:
        """Serve CRI v1 on the unix socket ``path``."""
        server = grpc.server(ThreadPoolExecutor(8))
        server.add_generic_rpc_handlers(
            (
                grpc.method_handlers_generic_handler(
                    "runtime.v1.RuntimeService",
                    {
                        name: _unary(function, request, answer)
                        for name, (function, request, answer) in self._methods().items()
                    },
                ),
            )
        )
        server.add_insecure_port(f"unix:{path}")
        server.start()
        try:
            yield
        finally:
            server.stop(None).wait()

    def _methods(self) -> dict[str, tuple[Callable[[Any, Context], Message], type[Message], type[Message]]]:
        return {
            "Version": (self._version, pb.VersionRequest, pb.VersionResponse),
            "RunPodSandbox": (self._run_pod, pb.RunPodSandboxRequest, pb.RunPodSandboxResponse),
            "StopPodSandbox": (self._stop_pod, pb.StopPodSandboxRequest, pb.StopPodSandboxResponse),
            "RemovePodSandbox": (self._remove_pod, pb.RemovePodSandboxRequest, pb.RemovePodSandboxResponse),
            "PodSandboxStatus": (self._pod_status, pb.PodSandboxStatusRequest, pb.PodSandboxStatusResponse),
            "ListPodSandbox": (self._list_pods, pb.ListPodSandboxRequest, pb.ListPodSandboxResponse),
            "CreateContainer": (self._create, pb.CreateContainerRequest, pb.CreateContainerResponse),
            "StartContainer": (self._start, pb.StartContainerRequest, pb.StartContainerResponse),
            "UpdateContainerResources": (
                self._update,
                pb.UpdateContainerResourcesRequest,
                pb.UpdateContainerResourcesResponse,
            ),
            "ContainerStatus": (self._status, pb.ContainerStatusRequest, pb.ContainerStatusResponse),
            "ListContainers": (self._list, pb.ListContainersRequest, pb.ListContainersResponse),
        }

    # pods

    def _version(self, request: pb.VersionRequest, context: Context) -> pb.VersionResponse:
        return pb.VersionResponse(
            version="0.1.0", runtime_name="simulated", runtime_version="0", runtime_api_version="v1"
        )

    def _run_pod(self, request: pb.RunPodSandboxRequest, context: Context) -> pb.RunPodSandboxResponse:
        pod_id = f"{next(self._ids):064x}"
        self._pods[pod_id] = request
        return pb.RunPodSandboxResponse(pod_sandbox_id=pod_id)

    def _stop_pod(self, request: pb.StopPodSandboxRequest, context: Context) -> pb.StopPodSandboxResponse:
        return pb.StopPodSandboxResponse()

    def _remove_pod(self, request: pb.RemovePodSandboxRequest, context: Context) -> pb.RemovePodSandboxResponse:
        self._pods.pop(request.pod_sandbox_id, None)
        for container_id, container in list(self._containers.items()):
            if container.pod_sandbox_id == request.pod_sandbox_id:
                del self._containers[container_id]
        return pb.RemovePodSandboxResponse()

    def _pod_status(self, request: pb.PodSandboxStatusRequest, context: Context) -> pb.PodSandboxStatusResponse:
        config = _known(self._pods, request.pod_sandbox_id, context).config
        status = pb.PodSandboxStatus(
            id=request.pod_sandbox_id, metadata=config.metadata, labels=config.labels, annotations=config.annotations
        )
        info = {"config": {"linux": {"cgroup_parent": config.linux.cgroup_parent}}}
        return pb.PodSandboxStatusResponse(status=status, info={"info": json.dumps(info)})

    def _list_pods(self, request: pb.ListPodSandboxRequest, context: Context) -> pb.ListPodSandboxResponse:
        return pb.ListPodSandboxResponse(
            items=[
                pb.PodSandbox(
                    id=pod_id,
                    metadata=pod.config.metadata,
                    labels=pod.config.labels,
                    annotations=pod.config.annotations,
                )
                for pod_id, pod in self._pods.items()
            ]
        )

    # containers

    def _create(self, request: pb.CreateContainerRequest, context: Context) -> pb.CreateContainerResponse:
        _known(self._pods, request.pod_sandbox_id, context)
        container_id = f"{next(self._ids):064x}"
        self._containers[container_id] = request
        self._specs[container_id] = spec = pb.LinuxContainerResources()
        _merge(spec, request.config.linux.resources)
        spec.oom_score_adj = request.config.linux.resources.oom_score_adj
        return pb.CreateContainerResponse(container_id=container_id)

    def _start(self, request: pb.StartContainerRequest, context: Context) -> pb.StartContainerResponse:
        _known(self._containers, request.container_id, context)
        self._states[request.container_id] = pb.CONTAINER_RUNNING
        self._apply(request.container_id)
        return pb.StartContainerResponse()

    def _update(
        self, request: pb.UpdateContainerResourcesRequest, context: Context
    ) -> pb.UpdateContainerResourcesResponse:
        _merge(_known(self._specs, request.container_id, context), request.linux)
        if self._state(request.container_id) == pb.CONTAINER_RUNNING:
            self._apply(request.container_id)
        return pb.UpdateContainerResourcesResponse()

    def _apply(self, container_id: str) -> None:
        """Write the whole spec, whatever changed of it."""
        resources = self._specs[container_id]
        values = {
            "cpu/cpu.shares": resources.cpu_shares or 1024,
            "cpu/cpu.cfs_quota_us": resources.cpu_quota or -1,
            "cpu/cpu.cfs_period_us": resources.cpu_period or 100_000,
            "cpuset/cpuset.cpus": resources.cpuset_cpus or self._cpus,
            "cpuset/cpuset.mems": resources.cpuset_mems or "0",
            "memory/memory.limit_in_bytes": _unlimited(resources.memory_limit_in_bytes),
        }
        for name, value in values.items():
            controller, file = name.split("/")
            directory = self.tree / controller / self.cgroup(container_id).strip("/")
            directory.mkdir(parents=True, exist_ok=True)
            (directory / file).write_text(f"{value}\n")

    def _status(self, request: pb.ContainerStatusRequest, context: Context) -> pb.ContainerStatusResponse:
        container = _known(self._containers, request.container_id, context)
        status = pb.ContainerStatus(
            id=request.container_id,
            metadata=container.config.metadata,
            state=self._state(request.container_id),
            resources=pb.ContainerResources(linux=self._specs[request.container_id]),
        )
        spec = {"linux": {"cgroupsPath": self.cgroup(request.container_id)}}
        info = {"sandboxID": container.pod_sandbox_id, "runtimeSpec": spec}
        return pb.ContainerStatusResponse(status=status, info={"info": json.dumps(info)})

    def _list(self, request: pb.ListContainersRequest, context: Context) -> pb.ListContainersResponse:
        return pb.ListContainersResponse(
            containers=[
                pb.Container(
                    id=container_id,
                    pod_sandbox_id=container.pod_sandbox_id,
                    metadata=container.config.metadata,
                    state=self._state(container_id),
                    labels=container.config.labels,
                    annotations=container.config.annotations,
                )
                for container_id, container in self._containers.items()
            ]
        )

    def _state(self, container_id: str) -> pb.ContainerState:
        return self._states.get(container_id, pb.CONTAINER_CREATED)


def _merge(spec: pb.LinuxContainerResources, newer: pb.LinuxContainerResources) -> None:
    """What containerd makes of resources: zero and empty leave alone, so that only -1 lifts a limit and nothing clears
    a CPU set; hugepage limits pile up; without a swap limit it follows the memory limit. Not the OOM score: it counts
    at creation only."""
    for name in ("cpu_period", "cpu_quota", "cpu_shares", "memory_limit_in_bytes", "cpuset_cpus", "cpuset_mems"):
        if getattr(newer, name):
            setattr(spec, name, getattr(newer, name))
    if newer.memory_limit_in_bytes or newer.memory_swap_limit_in_bytes:
        spec.memory_swap_limit_in_bytes = newer.memory_swap_limit_in_bytes or newer.memory_limit_in_bytes
    spec.hugepage_limits.extend(newer.hugepage_limits)
    spec.unified.update(newer.unified)


def _unlimited(limit_bytes: int) -> int:
    return limit_bytes if limit_bytes > 0 else UNLIMITED_BYTES


def _known(kept: dict[str, Kept], key: str, context: Context) -> Kept:
    if key not in kept:
        context.abort(grpc.StatusCode.NOT_FOUND, f"{key}: not found")
    return kept[key]


def _unary(
    function: Callable[[Any, Context], Message], request: type[Message], answer: type[Message]
) -> grpc.RpcMethodHandler[Any, Any]:
    return grpc.unary_unary_rpc_method_handler(
        function, request_deserializer=request.FromString, response_serializer=answer.SerializeToString
    )

"""A synchronous CRI client on a unix socket, for tests that play kubelet.

Each method is one call of kubelet's with its answer's useful part; a refused call raises grpc.RpcError. Messages are
Koord's subset of runtime.v1. Invariant: the client holds one connection, as kubelet does, until ``close()``.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

import grpc
from google.protobuf.message import Message

from integration.harness.pods import Container, Pod, container_config, sandbox_config
from koord.pb.cri import api_pb2 as pb

RUNTIME = "/runtime.v1.RuntimeService/"
IMAGE = "/runtime.v1.ImageService/"
MAX_MESSAGE_BYTES = 16 << 20
# The other end restarts under tests: try again soon. min_reconnect_backoff is, in gRPC's core, how long one attempt may
# take; a busy machine needs more than the pause between attempts for it.
OPTIONS = (
    ("grpc.default_authority", "localhost"),
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.initial_reconnect_backoff_ms", 20),
    ("grpc.min_reconnect_backoff_ms", 5000),
    ("grpc.max_reconnect_backoff_ms", 100),
    ("grpc.use_local_subchannel_pool", 1),
)

Answer = TypeVar("Answer", bound=Message)


class Cri:
    """A CRI client; ``timeout_s`` is the deadline of each call."""

    def __init__(self, socket: Path, timeout_s: float = 30.0) -> None:
        self._channel = grpc.insecure_channel(f"unix:{socket}", options=OPTIONS)
        self._timeout_s = timeout_s

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._channel.close()

    def call(self, path: str, request: Message, answer: type[Answer]) -> Answer:
        """Any unary call: ``path`` is ``/package.Service/Method``."""
        method: grpc.UnaryUnaryMultiCallable[Message, Answer] = self._channel.unary_unary(
            path, request_serializer=type(request).SerializeToString, response_deserializer=answer.FromString
        )
        return method(request, timeout=self._timeout_s)

    # Runtime

    def version(self) -> pb.VersionResponse:
        return self.call(RUNTIME + "Version", pb.VersionRequest(version="0.1.0"), pb.VersionResponse)

    def ready(self) -> bool:
        """Whether the runtime reports itself and the network as ready: the two conditions that kubelet looks at."""
        conditions = self.call(RUNTIME + "Status", pb.StatusRequest(), pb.StatusResponse).status.conditions
        return {"RuntimeReady", "NetworkReady"} <= {condition.type for condition in conditions if condition.status}

    def image_names(self) -> list[str]:
        answer = self.call(IMAGE + "ListImages", pb.ListImagesRequest(), pb.ListImagesResponse)
        return [tag for image in answer.images for tag in image.repo_tags]

    # Pods

    def run_pod(self, pod: Pod) -> str:
        """RunPodSandbox; returns the sandbox id."""
        request = pb.RunPodSandboxRequest(config=sandbox_config(pod))
        return self.call(RUNTIME + "RunPodSandbox", request, pb.RunPodSandboxResponse).pod_sandbox_id

    def stop_pod(self, sandbox_id: str) -> None:
        request = pb.StopPodSandboxRequest(pod_sandbox_id=sandbox_id)
        self.call(RUNTIME + "StopPodSandbox", request, pb.StopPodSandboxResponse)

    def remove_pod(self, sandbox_id: str) -> None:
        request = pb.RemovePodSandboxRequest(pod_sandbox_id=sandbox_id)
        self.call(RUNTIME + "RemovePodSandbox", request, pb.RemovePodSandboxResponse)

    def pods(self, labels: dict[str, str] | None = None) -> list[pb.PodSandbox]:
        request = pb.ListPodSandboxRequest(filter=pb.PodSandboxFilter(label_selector=labels or {}))
        return list(self.call(RUNTIME + "ListPodSandbox", request, pb.ListPodSandboxResponse).items)

    def pod_status(self, sandbox_id: str, verbose: bool = False) -> pb.PodSandboxStatusResponse:
        request = pb.PodSandboxStatusRequest(pod_sandbox_id=sandbox_id, verbose=verbose)
        return self.call(RUNTIME + "PodSandboxStatus", request, pb.PodSandboxStatusResponse)

    def update_pod(
        self, sandbox_id: str, overhead: pb.LinuxContainerResources, resources: pb.LinuxContainerResources
    ) -> None:
        """UpdatePodSandboxResources; containerd 1.6 answers Unimplemented."""
        request = pb.UpdatePodSandboxResourcesRequest(pod_sandbox_id=sandbox_id, overhead=overhead, resources=resources)
        self.call(RUNTIME + "UpdatePodSandboxResources", request, pb.UpdatePodSandboxResourcesResponse)

    # Containers

    def create_container(self, sandbox_id: str, pod: Pod, container: Container) -> str:
        """CreateContainer with the sandbox's configuration repeated, as kubelet does; returns the container id."""
        request = pb.CreateContainerRequest(
            pod_sandbox_id=sandbox_id, config=container_config(pod, container), sandbox_config=sandbox_config(pod)
        )
        return self.call(RUNTIME + "CreateContainer", request, pb.CreateContainerResponse).container_id

    def start_container(self, container_id: str) -> None:
        request = pb.StartContainerRequest(container_id=container_id)
        self.call(RUNTIME + "StartContainer", request, pb.StartContainerResponse)

    def stop_container(self, container_id: str, grace_s: int = 0) -> None:
        request = pb.StopContainerRequest(container_id=container_id, timeout=grace_s)
        self.call(RUNTIME + "StopContainer", request, pb.StopContainerResponse)

    def remove_container(self, container_id: str) -> None:
        request = pb.RemoveContainerRequest(container_id=container_id)
        self.call(RUNTIME + "RemoveContainer", request, pb.RemoveContainerResponse)

    def update_container(
        self, container_id: str, resources: pb.LinuxContainerResources, annotations: dict[str, str] | None = None
    ) -> None:
        """UpdateContainerResources; 0 and "" mean "leave alone"."""
        request = pb.UpdateContainerResourcesRequest(
            container_id=container_id, linux=resources, annotations=annotations or {}
        )
        self.call(RUNTIME + "UpdateContainerResources", request, pb.UpdateContainerResourcesResponse)

    def containers(self, labels: dict[str, str] | None = None) -> list[pb.Container]:
        request = pb.ListContainersRequest(filter=pb.ContainerFilter(label_selector=labels or {}))
        return list(self.call(RUNTIME + "ListContainers", request, pb.ListContainersResponse).containers)

    def container_status(self, container_id: str, verbose: bool = False) -> pb.ContainerStatusResponse:
        request = pb.ContainerStatusRequest(container_id=container_id, verbose=verbose)
        return self.call(RUNTIME + "ContainerStatus", request, pb.ContainerStatusResponse)

    def exec_sync(self, container_id: str, *command: str, timeout_s: int = 10) -> pb.ExecSyncResponse:
        request = pb.ExecSyncRequest(container_id=container_id, cmd=list(command), timeout=timeout_s)
        return self.call(RUNTIME + "ExecSync", request, pb.ExecSyncResponse)

    # Together

    def run(self, pod: Pod) -> tuple[str, dict[str, str]]:
        """Start a pod with its containers: its sandbox id, and container ids by name."""
        sandbox_id = self.run_pod(pod)
        ids: dict[str, str] = {}
        for container in pod.containers:
            ids[container.name] = self.create_container(sandbox_id, pod, container)
            self.start_container(ids[container.name])
        return sandbox_id, ids

    def remove(self, sandbox_id: str) -> None:
        """Stop and remove a pod with its containers."""
        self.stop_pod(sandbox_id)
        self.remove_pod(sandbox_id)

    def remove_all(self) -> None:
        for item in self.pods():
            self.remove(item.id)

    @contextlib.contextmanager
    def running(self, pod: Pod) -> Iterator[dict[str, str]]:
        """A running pod, removed at the end; yields container ids by name."""
        sandbox_id, ids = self.run(pod)
        try:
            yield ids
        finally:
            self.remove(sandbox_id)

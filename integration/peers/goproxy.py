"""A CRI proxy that works as Koordinator's does: it replaces whole messages, and remembers what it sent.

Played are the methods in which its hooks can change something; the rest passes as bytes. It reads one hook-server file
and asks that server without metadata about itself, as Koordinator's proxy does. A hook that fails is a
failed call here. Its memory is what it saw and was never stopped: it is not restarted, and nothing makes it forget.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
from google.protobuf.message import Message

from integration.harness.cri import RUNTIME
from integration.harness.hookserver import SERVICE
from integration.peers import gomerge
from integration.peers.upstream import Protocol, is_pod_stage
from koord.pb.cri import api_pb2 as cri

TIMEOUT_S = 10.0
Context = grpc.ServicerContext
Remember = Callable[[bytes], None]
"""Called with the runtime's answer, after its success."""


class GoProxy(grpc.GenericRpcHandler):
    """``backend`` is the runtime's socket, ``hook_files`` the directory of hook-server files."""

    def __init__(self, backend: Path, hook_files: Path, protocol: Protocol) -> None:
        self._backend = grpc.insecure_channel(f"unix:{backend}")
        self._protocol = protocol
        file = json.loads(min(hook_files.glob("*.json")).read_text())
        self._stages = frozenset(file["runtime-hooks"])
        self._hooks = grpc.insecure_channel(f"unix:{file['remote-endpoint']}")
        self._pods: dict[str, Any] = {}
        self._containers: dict[str, Any] = {}

    @contextlib.contextmanager
    def serving(self, socket: Path) -> Iterator[None]:
        server = grpc.server(ThreadPoolExecutor(4))
        server.add_generic_rpc_handlers((self,))
        server.add_insecure_port(f"unix:{socket}")
        server.start()
        try:
            yield
        finally:
            server.stop(None).wait()
            self._backend.close()
            self._hooks.close()

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[bytes, bytes]:
        path = handler_call_details.method
        edit = {
            RUNTIME + "RunPodSandbox": self._run_pod,
            RUNTIME + "CreateContainer": self._create,
            RUNTIME + "UpdateContainerResources": self._update,
        }.get(path)

        def handle(request: bytes, context: Context) -> bytes:
            remember: Remember = _nothing
            if edit is not None:
                edited, remember = edit(request)
                request = edited.SerializeToString()
            try:
                answer = _call(self._backend, path, request)
            except grpc.RpcError as error:
                context.abort(error.code(), error.details() or "")
            remember(answer)
            return answer

        return grpc.unary_unary_rpc_method_handler(handle)

    def _ask(self, stage: str, request: Any) -> Any:
        """The hook's answer; None if the server does not list the stage."""
        if stage not in self._stages:
            return None
        kind = self._protocol["PodSandboxHookResponse" if is_pod_stage(stage) else "ContainerResourceHookResponse"]
        return kind.FromString(_call(self._hooks, f"{SERVICE}{stage}Hook", request.SerializeToString()))

    # What is edited, and what is remembered after the runtime's success

    def _run_pod(self, message: bytes) -> tuple[Message, Remember]:
        request = cri.RunPodSandboxRequest.FromString(message)
        config, metadata = request.config, request.config.metadata
        pod = self._protocol["PodSandboxHookRequest"](
            pod_meta={"name": metadata.name, "uid": metadata.uid, "namespace": metadata.namespace},
            runtime_handler=request.runtime_handler, labels=config.labels, annotations=config.annotations,
            cgroup_parent=config.linux.cgroup_parent,
        )  # fmt: skip
        answer = self._ask("PreRunPodSandbox", pod)
        if answer is not None:
            pod.labels.update(answer.labels)
            pod.annotations.update(answer.annotations)
            pod.cgroup_parent = answer.cgroup_parent or pod.cgroup_parent
            config.labels.update(pod.labels)
            config.annotations.update(pod.annotations)
            config.linux.cgroup_parent = pod.cgroup_parent

        def remember(reply: bytes) -> None:
            self._pods[cri.RunPodSandboxResponse.FromString(reply).pod_sandbox_id] = pod

        return request, remember

    def _create(self, message: bytes) -> tuple[Message, Remember]:
        request = cri.CreateContainerRequest.FromString(message)
        container = self._container_of(request)
        answer = self._ask("PreCreateContainer", container)
        if answer is not None:
            self._merge(container, answer)
            config = request.config
            config.annotations.update(container.container_annotations)
            config.linux.resources.CopyFrom(_resources(container))
            del config.envs[:]
            for key, value in container.container_envs.items():
                config.envs.add(key=key, value=value.encode())
            request.sandbox_config.linux.cgroup_parent = container.pod_cgroup_parent

        def remember(reply: bytes) -> None:
            container.container_meta.id = cri.CreateContainerResponse.FromString(reply).container_id
            self._containers[container.container_meta.id] = container

        return request, remember

    def _container_of(self, request: cri.CreateContainerRequest) -> Any:
        pod, config = self._pods[request.pod_sandbox_id], request.config
        container = self._protocol["ContainerResourceHookRequest"](
            pod_meta=pod.pod_meta, pod_labels=pod.labels, pod_annotations=pod.annotations,
            pod_cgroup_parent=request.sandbox_config.linux.cgroup_parent,
            container_meta={"name": config.metadata.name, "attempt": config.metadata.attempt},
            container_annotations=config.annotations,
            container_envs={variable.key: variable.value.decode() for variable in config.envs},
        )  # fmt: skip
        gomerge.copied(config.linux.resources, container.container_resources)
        return container

    def _update(self, message: bytes) -> tuple[Message, Remember]:
        request = cri.UpdateContainerResourcesRequest.FromString(message)
        container = self._protocol["ContainerResourceHookRequest"]()
        container.CopyFrom(self._containers[request.container_id])
        gomerge.update_over_known(container.container_resources, request.linux)
        container.container_annotations.update(request.annotations)
        answer = self._ask("PreUpdateContainerResources", container)
        if answer is not None:
            self._merge(container, answer)
            request.linux.CopyFrom(_resources(container))
            request.annotations.update(container.container_annotations)

        def remember(reply: bytes) -> None:
            self._containers[request.container_id] = container

        return request, remember

    def _merge(self, container: Any, answer: Any) -> None:
        gomerge.answer_over_known(container.container_resources, answer.container_resources)
        container.container_annotations.update(answer.container_annotations)
        container.pod_cgroup_parent = answer.pod_cgroup_parent or container.pod_cgroup_parent
        if answer.container_envs:
            container.container_envs.clear()
            container.container_envs.update(answer.container_envs)


def _resources(container: Any) -> cri.LinuxContainerResources:
    made: cri.LinuxContainerResources = gomerge.copied(container.container_resources, cri.LinuxContainerResources())
    return made


def _call(channel: grpc.Channel, path: str, message: bytes) -> bytes:
    call: grpc.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(path)
    return call(message, timeout=TIMEOUT_S)


def _nothing(reply: bytes) -> None:
    """Nothing to remember."""

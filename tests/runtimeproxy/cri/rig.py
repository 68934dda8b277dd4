"""An interceptor between a client that sends as kubelet does and a runtime that remembers what it was given."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from koord.http2.client import UnaryError
from koord.http2.grpc import NOT_FOUND, OK
from koord.http2.server import Refusal
from koord.pb.cri import api_pb2 as cri
from runtimeproxy.cri.handlercontext import HookOptions
from runtimeproxy.cri.interceptor import CriInterceptor
from runtimeproxy.cri.updaterecords import UpdateRecords
from runtimeproxy.hooks.directory import LoadedHookFile
from runtimeproxy.hooks.hookfile import FailurePolicy, ServerSpec
from runtimeproxy.hooks.stages import STAGES
from runtimeproxy.intercept import Call, Forward, Refuse, Treatment
from tests.fakes.runtime import CriRuntime
from tests.runtimeproxy.hooks.doubles import Caller, Handler, Recorder

V1, V1ALPHA2 = "/runtime.v1.RuntimeService/", "/runtime.v1alpha2.RuntimeService/"
RUNTIME = "/run/containerd.sock"
UID = "0f0e0d0c-1111-2222-3333-444455556666"
PARENT = f"/kubepods/besteffort/pod{UID}"


@dataclass
class Runtime(CriRuntime):
    """The runtime's side: what it holds, and its answers to lists and verbose status as containerd gives them."""

    pods: dict[str, cri.PodSandboxConfig] = field(default_factory=dict)
    containers: dict[str, tuple[str, cri.ContainerConfig]] = field(default_factory=dict)
    specs: dict[str, dict[str, Any]] = field(default_factory=dict)

    async def handle(self, path: str, message: bytes) -> tuple[bytes, Mapping[bytes, bytes]]:
        try:
            return self.answer(path.rpartition("/")[2], message).SerializeToString(), {}
        except Refusal as refusal:
            raise UnaryError(refusal.code, refusal.message) from refusal

    def ListPodSandbox(self, request: cri.ListPodSandboxRequest) -> cri.ListPodSandboxResponse:
        return cri.ListPodSandboxResponse(
            items=[
                cri.PodSandbox(id=key, metadata=each.metadata, labels=each.labels, annotations=each.annotations)
                for key, each in self.pods.items()
            ]
        )

    def ListContainers(self, request: cri.ListContainersRequest) -> cri.ListContainersResponse:
        wanted = request.filter.id
        return cri.ListContainersResponse(
            containers=[
                cri.Container(id=id_, pod_sandbox_id=pod)
                for id_, (pod, _) in self.containers.items()
                if wanted in ("", id_)
            ]
        )

    def PodSandboxStatus(self, request: cri.PodSandboxStatusRequest) -> cri.PodSandboxStatusResponse:
        config = self.pods.get(request.pod_sandbox_id)
        if config is None:
            raise Refusal(NOT_FOUND, "no such sandbox")
        info = {"config": {"linux": {"cgroup_parent": config.linux.cgroup_parent}}}
        return cri.PodSandboxStatusResponse(
            info={"info": json.dumps(info)},
            status=cri.PodSandboxStatus(metadata=config.metadata, labels=config.labels, annotations=config.annotations),
        )

    def ContainerStatus(self, request: cri.ContainerStatusRequest) -> cri.ContainerStatusResponse:
        id_ = request.container_id
        if id_ not in self.containers:
            raise Refusal(NOT_FOUND, "no such container")
        pod, config = self.containers[id_]
        envs = [{"key": each.key, "value": "base64 or text"} for each in config.envs]
        info = {"sandboxID": pod, "config": {"envs": envs}, "runtimeSpec": self.specs.get(id_, {})}
        status = cri.ContainerStatus(id=id_, metadata=config.metadata, annotations=config.annotations)
        status.resources.linux.CopyFrom(config.linux.resources)
        return cri.ContainerStatusResponse(info={"info": json.dumps(info)}, status=status)


class Rig:
    """``servers``: hook server handlers by file name; ``requested``: directory of the records of updates."""

    def __init__(
        self,
        servers: Mapping[str, Handler],
        *,
        policy: FailurePolicy = FailurePolicy.IGNORE,
        runtime: Runtime | None = None,
        proc: str = "/nowhere",
        requested: str = "",
        stages: frozenset[str] = STAGES,
        stage_policies: tuple[tuple[str, FailurePolicy], ...] = (),
        **options: Any,
    ) -> None:
        self.recorder = Recorder()
        self.runtime = runtime or Runtime()
        self.callers = {f"/run/{file}": Caller(handler) for file, handler in servers.items()}
        self.callers[RUNTIME] = Caller(self.runtime.handle)
        options.setdefault("hook_timeout_s", 0.2)
        self.interceptor = CriInterceptor(
            HookOptions(version="1.0", **options),
            self.callers.__getitem__,
            RUNTIME,
            audit=self.recorder,
            metrics=self.recorder,
            updates=UpdateRecords(requested),
            proc=proc,
        )
        self.loaded = tuple(
            LoadedHookFile(ServerSpec(file, f"/run/{file}", policy, stages, stage_policies=stage_policies), (1, 1, 1))
            for file in servers
        )
        self.interceptor.use(self.loaded)
        self.sent: Any = None  # the last request that reached the runtime

    async def call(
        self,
        method: str,
        request: Any,
        answer: Any = None,
        *,
        status: int = 0,
        service: str = V1,
        timeout_s: float | None = 120.0,
    ) -> Refuse | None:
        """Send ``request`` through the interceptor, as the relay does. ``sent`` is what the runtime got."""
        call = Call(service + method, timeout_s, time.monotonic())
        plan = self.interceptor.plan(call.path)
        message = request.SerializeToString()
        if plan.treatment is Treatment.HOLD:
            decision = await self.interceptor.request(call, message)
            if isinstance(decision, Refuse):
                return decision
            assert isinstance(decision, Forward)
            message = decision.message
            if decision.then is not None:
                decision.then()
        elif plan.treatment is Treatment.TAP:
            self.interceptor.tapped(call, message)
        self.sent = type(request).FromString(message)
        wanted = plan.wants_answer and status == 0 and answer is not None
        self.interceptor.answered(call, status, answer.SerializeToString() if wanted else None)
        return None

    async def run_pod(self, config: cri.PodSandboxConfig | None = None, pod_id: str = "p1") -> Refuse | None:
        refused = await self.call(
            "RunPodSandbox",
            cri.RunPodSandboxRequest(config=config or pod()),
            cri.RunPodSandboxResponse(pod_sandbox_id=pod_id),
        )
        if refused is None:
            self.runtime.pods[pod_id] = self.sent.config
        return refused

    async def create(
        self,
        config: cri.ContainerConfig | None = None,
        sandbox: cri.PodSandboxConfig | None = None,
        pod_id: str = "p1",
        container_id: str = "c1",
        service: str = V1,
    ) -> Refuse | None:
        request = cri.CreateContainerRequest(
            pod_sandbox_id=pod_id, config=config or container(), sandbox_config=sandbox or pod()
        )
        refused = await self.call(
            "CreateContainer", request, cri.CreateContainerResponse(container_id=container_id), service=service
        )
        if refused is None:
            self.runtime.containers[container_id] = (pod_id, self.sent.config)
        return refused

    async def update(self, container_id: str = "c1", status: int = OK, **resources: Any) -> Refuse | None:
        request = cri.UpdateContainerResourcesRequest(
            container_id=container_id, linux=cri.LinuxContainerResources(**resources)
        )
        refused = await self.call("UpdateContainerResources", request, status=status)
        if refused is None and status == OK and container_id in self.runtime.containers:
            self.runtime.containers[container_id][1].linux.resources.MergeFrom(self.sent.linux)
        return refused

    def status(self, container_id: str = "c1", service: str = V1) -> cri.ContainerStatus:
        """What kubelet is told of the container."""
        answer = self.runtime.ContainerStatus(cri.ContainerStatusRequest(container_id=container_id))
        message = answer.SerializeToString()
        told = self.interceptor.rewritten(service + "ContainerStatus", message)
        assert len(told) == len(message)
        return cri.ContainerStatusResponse.FromString(told).status

    def server(self, file: str = "a.json") -> Caller:
        return self.callers[f"/run/{file}"]

    def counted(self, *entry: object) -> int:
        return self.recorder.counted.count(entry)


def pod(parent: str = PARENT, **more: Any) -> cri.PodSandboxConfig:
    """A BestEffort pod as kubelet describes it."""
    config = cri.PodSandboxConfig(metadata=cri.PodSandboxMetadata(name="pod", uid=UID, namespace="ns"), **more)
    config.labels["app"] = "batch"
    config.labels["io.kubernetes.pod.uid"] = UID
    config.annotations["note"] = "x"
    config.linux.cgroup_parent = parent
    return config


def container(**resources: Any) -> cri.ContainerConfig:
    """A container of that pod."""
    config = cri.ContainerConfig(metadata=cri.ContainerMetadata(name="main"), command=["run"])
    config.annotations["io.kubernetes.container.hash"] = "f00"
    for key, value in (("PATH", b"/bin"), ("RAW", b"\xff\xfe"), ("LANG", b"C")):
        config.envs.add(key=key, value=value)
    kubelet = {"cpu_period": 100_000, "cpu_shares": 2, "oom_score_adj": 1000, **resources}
    config.linux.resources.MergeFrom(cri.LinuxContainerResources(**kubelet))
    return config

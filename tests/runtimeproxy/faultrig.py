"""A small node in one process: client, relay with its hooks, two hook servers and a runtime, on unix sockets.

``lifecycle`` sends every call that is intercepted, from a pod's sandbox to its removal, over one client connection, and
says what became of each. Any two lifecycles send the same.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from koord.http2.client import UnaryClient, UnaryError
from koord.http2.grpc import INTERNAL
from koord.http2.server import Method, Refusal, ServerReply, UnaryServer
from koord.pb.cri import api_pb2 as cri
from koord.pb.hooks import api_pb2 as hooks
from runtimeproxy.audit import AuditLog
from runtimeproxy.cri.handlercontext import HookOptions
from runtimeproxy.cri.interceptor import CriInterceptor
from runtimeproxy.hooks.directory import LoadedHookFile
from runtimeproxy.hooks.hookfile import FailurePolicy, ServerSpec
from runtimeproxy.hooks.stages import STAGES, CallStage
from runtimeproxy.metrics import Metrics
from runtimeproxy.relay.server import RelayServer
from tests.runtimeproxy.cri.rig import PARENT, V1, Runtime, container, pod
from tests.runtimeproxy.relay.rig import listening

DEADLINE_S = 10.0  # of each call; only a call that hangs takes so long
MOVED = f"{PARENT}/inner"
Say = Callable[[str, bytes, str], ServerReply]
HELD = ("RunPodSandbox", "RestorePod", "CreateContainer", "UpdateContainerResources", "UpdatePodSandboxResources")
PASSED = ("Version", "CheckpointContainer", "CheckpointPod")


def requests() -> list[tuple[str, Any]]:
    """Every intercepted call of the life of a pod with one container; a further pod is left alone, one is restored."""
    resources = cri.LinuxContainerResources(cpu_shares=100, cpuset_cpus="0-1")
    exempt = pod()
    exempt.metadata.namespace = "kube-system"  # where the mark counts under policy Fail, too
    exempt.labels[HookOptions(version="").skip.mark_key] = "true"
    return [
        ("RunPodSandbox", cri.RunPodSandboxRequest(config=pod())),
        ("CreateContainer", cri.CreateContainerRequest(pod_sandbox_id="p", config=container(), sandbox_config=pod())),
        ("StartContainer", cri.StartContainerRequest(container_id="c")),
        ("UpdateContainerResources", cri.UpdateContainerResourcesRequest(container_id="c", linux=resources)),
        ("UpdatePodSandboxResources", cri.UpdatePodSandboxResourcesRequest(pod_sandbox_id="p", resources=resources)),
        ("StopContainer", cri.StopContainerRequest(container_id="c")),
        ("RemoveContainer", cri.RemoveContainerRequest(container_id="c")),
        ("StopPodSandbox", cri.StopPodSandboxRequest(pod_sandbox_id="p")),
        ("RemovePodSandbox", cri.RemovePodSandboxRequest(pod_sandbox_id="p")),
        ("RunPodSandbox", cri.RunPodSandboxRequest(config=exempt)),
        ("RemovePodSandbox", cri.RemovePodSandboxRequest(pod_sandbox_id="p")),
        ("RestorePod", cri.RestorePodRequest(config=pod(), container_configs=[container()])),
        ("RemovePodSandbox", cri.RemovePodSandboxRequest(pod_sandbox_id="p")),
    ]


@dataclass(frozen=True)
class Outcome:
    """``received``: the requests that the runtime got for one call; ``refused``: the status, if it was no success.

    ``needless``: the call was not made, since its pod or container was refused.
    """

    method: str
    received: tuple[Any, ...] = ()
    refused: UnaryError | None = None
    needless: bool = False


def _presence(message: Any) -> ServerReply:
    return ServerReply(message.SerializeToString(), (("koord-presence", "1"),))


def edit(path: str, message: bytes, name: str) -> ServerReply:
    """What both hook servers say; the second overrides the first."""
    if "PodSandbox" in path:
        edited = hooks.PodSandboxHookResponse(annotations={"koordinator.sh/x": name}, cgroup_parent=MOVED)
        edited.resources.cpu_shares = 7
        return _presence(edited)
    said = hooks.ContainerResourceHookResponse(
        container_annotations={"koordinator.sh/y": name, "io.kubernetes.z": "dropped"},
        container_envs={"LANG": b"en", "NEW": b"1"},
        removed_container_annotations=["gone"],
    )
    said.container_resources.cpu_shares = 7
    said.container_resources.cpuset_cpus = "1"
    return _presence(said)


def fail_or_echo(path: str, message: bytes, name: str) -> ServerReply:
    """The first server fails, the second answers as koordlet does, with all that it was shown."""
    if name == "a":
        raise Refusal(INTERNAL, "no idea")
    if "PodSandbox" in path:
        pod = hooks.PodSandboxHookRequest.FromString(message)
        return ServerReply(
            hooks.PodSandboxHookResponse(annotations=pod.annotations, resources=pod.resources).SerializeToString()
        )
    shown = hooks.ContainerResourceHookRequest.FromString(message)
    said = hooks.ContainerResourceHookResponse(
        container_annotations=shown.container_annotations,
        container_resources=shown.container_resources,
        container_envs=shown.container_envs,
    )
    said.container_resources.cpu_shares = 9
    return ServerReply(said.SerializeToString())


@dataclass
class Node:
    """``unhandled``: what the event loop heard of exceptions that nobody caught."""

    client: UnaryClient
    relay: RelayServer
    metrics: Metrics
    interceptor: CriInterceptor
    runtime: Runtime
    accepted: dict[str, int]
    received: list[tuple[str, bytes]] = field(default_factory=list)
    unhandled: list[str] = field(default_factory=list)
    audit: list[str] = field(default_factory=list)
    forgetful: bool = False

    async def call(self, method: str, request: Any) -> Outcome:
        self.received.clear()
        refused = None
        try:
            await self.client.call(V1 + method, request.SerializeToString(), DEADLINE_S)
        except UnaryError as error:
            refused = error
        received = [type(request).FromString(message) for path, message in self.received if path == V1 + method]
        return Outcome(method, tuple(received), refused)

    async def lifecycle(self) -> list[Outcome]:
        """What becomes of ``requests``; if the node is ``forgetful`` the proxy knows of nothing before each of them."""
        outcomes: list[Outcome] = []
        for method, request in requests():
            known = (
                self.runtime.containers if "container_id" in request.DESCRIPTOR.fields_by_name else self.runtime.pods
            )
            makes = method in ("RunPodSandbox", "RestorePod", "CreateContainer")
            needless = not known if not makes else method == "CreateContainer" and not self.runtime.pods
            if self.forgetful:
                self.interceptor.forget()
            outcomes.append(Outcome(method, needless=True) if needless else await self.call(method, request))
        for _ in range(3):  # what follows the last answer
            await asyncio.sleep(0)
        return outcomes

    @property
    def counted(self) -> int:
        """All that tells of an error of the proxy's own."""
        metrics = self.metrics
        return sum(metrics.fail_open.values()) + metrics.refused + sum(metrics.faults.values())

    def handle(self, path: str, message: bytes, fields: Mapping[bytes, bytes]) -> ServerReply:
        """The runtime."""
        self.received.append((path, message))
        answer: Any = None
        if path.endswith("RunPodSandbox"):
            self.runtime.pods["p"] = cri.RunPodSandboxRequest.FromString(message).config
            answer = cri.RunPodSandboxResponse(pod_sandbox_id="p")
        elif path.endswith("CreateContainer"):
            self.runtime.containers["c"] = "p", cri.CreateContainerRequest.FromString(message).config
            answer = cri.CreateContainerResponse(container_id="c")
        elif path.endswith("RestorePod"):
            self.runtime.pods["p"] = cri.RestorePodRequest.FromString(message).config
            restored = cri.RestoredContainer(name="main", container_id="c")
            answer = cri.RestorePodResponse(pod_sandbox_id="p", restored_containers=[restored])
        elif path.endswith("RemovePodSandbox"):
            self.runtime.pods.pop("p", None)
        elif path.endswith("RemoveContainer"):
            self.runtime.containers.pop("c", None)
        return ServerReply(answer.SerializeToString() if answer else b"")

    async def read(self, path: str, message: bytes) -> ServerReply:
        """What the proxy itself asks of the runtime."""
        try:
            return ServerReply((await self.runtime.handle(path, message))[0])
        except UnaryError as error:
            raise Refusal(error.code, error.message) from error


def _method(handle: Any, path: str) -> Method:
    return lambda message, fields: handle(path, message, fields)


def _saying(say: Say, path: str, name: str) -> Method:
    return lambda message, fields: say(path, message, name)


def _reading(node: Node, path: str) -> Method:
    return lambda message, fields: node.read(path, message)


@contextlib.asynccontextmanager
async def running(
    directory: Path,
    policy: FailurePolicy = FailurePolicy.IGNORE,
    say: Say = edit,
    forgetful: bool = False,
    advice: bool = False,
) -> AsyncIterator[Node]:
    """A node with both hook servers registered for every stage. They ``say`` so, given path, message and their name;
    ``advice``: they only want to know of sandboxes."""
    os.makedirs(directory, exist_ok=True)
    loop = asyncio.get_running_loop()
    metrics, audit = Metrics(), list[str]()
    interceptor = CriInterceptor(
        HookOptions(version="1"),
        lambda path: UnaryClient(path, loop),
        f"{directory}/runtime.sock",
        audit=AuditLog(audit.append),
        metrics=metrics,
    )
    relay = RelayServer(loop, f"{directory}/runtime.sock", interceptor, metrics=metrics)
    client = UnaryClient(f"{directory}/proxy.sock", loop)
    node = Node(client, relay, metrics, interceptor, Runtime(), {}, audit=audit, forgetful=forgetful)
    loop.set_exception_handler(lambda _, context: node.unhandled.append(str(context)))
    servers = {
        "runtime": UnaryServer(
            {V1 + name: _method(node.handle, V1 + name) for name in {name for name, _ in requests()} | {*PASSED}}
            | {V1 + name: _reading(node, V1 + name) for name in READ}
        ),
        **{
            name: UnaryServer({stage.path: _saying(say, stage.path, name) for stage in CallStage})
            for name in ("a", "b")
        },
    }
    async with contextlib.AsyncExitStack() as stack:
        for name, server in servers.items():
            await stack.enter_async_context(_listening(node, directory, name, server))
        told = frozenset({CallStage.PRE_RUN_POD.value}) if advice else frozenset[str]()
        specs = [
            ServerSpec(f"{name}.json", f"{directory}/{name}.sock", policy, STAGES, advice=told) for name in ("a", "b")
        ]
        interceptor.use(tuple(LoadedHookFile(spec, (1, 1, 1)) for spec in specs))
        relay.add_listener(listening(directory / "proxy.sock"))
        yield node
        client.close()
        interceptor.close()
        relay.drain()
        await relay.drained(0.0)


READ = ("ListPodSandbox", "PodSandboxStatus", "ContainerStatus", "ListContainers")


@contextlib.asynccontextmanager
async def _listening(node: Node, directory: Path, name: str, server: UnaryServer) -> AsyncIterator[None]:
    def accept() -> asyncio.BaseProtocol:
        node.accepted[name] = node.accepted.get(name, 0) + 1
        return server.protocol()

    listener = await asyncio.get_running_loop().create_unix_server(accept, f"{directory}/{name}.sock")
    try:
        yield
    finally:
        listener.close()
        server.close()

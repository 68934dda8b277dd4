"""Peers and observers for the hook tests: servers as hook servers of others are, called in this process."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field

from koord.http2.client import Answer, UnaryError
from koord.http2.grpc import DEADLINE_EXCEEDED
from koord.pb.hooks import api_pb2 as hooks
from runtimeproxy.hooks.client import HookClient
from runtimeproxy.hooks.edits import RESOURCE_SCALARS
from runtimeproxy.hooks.hookfile import FailurePolicy, ServerSpec
from runtimeproxy.hooks.stages import STAGES
from runtimeproxy.metrics import Metrics
from tests.fakes.clock import Clock

PRESENCE = {b"koord-presence": b"1"}
Handler = Callable[[str, bytes], Awaitable[tuple[bytes, Mapping[bytes, bytes]]]]
ContainerRule = Callable[[hooks.ContainerResourceHookRequest, hooks.ContainerResourceHookResponse], None]
PodRule = Callable[[hooks.PodSandboxHookRequest, hooks.PodSandboxHookResponse], None]


class Caller:
    """A ``UnaryCaller`` whose peer is a function; keeps what it was asked."""

    def __init__(self, handler: Handler, peer_pid: int | None = None) -> None:
        self.handler = handler
        self.peer_pid = peer_pid
        self.asked: list[tuple[str, bytes]] = []
        self.metadata: list[tuple[tuple[str, str], ...]] = []
        self.closed = False

    async def call(
        self,
        path: str,
        message: bytes,
        timeout_s: float,
        metadata: Sequence[tuple[str, str]] = (),
    ) -> Answer:
        self.asked.append((path, message))
        self.metadata.append(tuple(metadata))
        try:
            async with asyncio.timeout(timeout_s):
                return Answer(*await self.handler(path, message))
        except TimeoutError:
            raise UnaryError(DEADLINE_EXCEEDED, f"no answer within {timeout_s:.3g} s") from None

    def close(self) -> None:
        self.closed = True


@dataclass
class Recorder(Metrics):
    """Audit and metrics in one; every call as a tuple."""

    audit: list[tuple[str, str, str, str, str]] = field(default_factory=list)
    counted: list[tuple[object, ...]] = field(default_factory=list)

    def edited(self, subject: str, field: str, before: str, after: str, who: str) -> None:
        self.audit.append((subject, field, before, after, who))

    def edit(self, method: str, field: str) -> None:
        self.counted.append(("edit", method, field))

    def hook_call(self, server: str, stage: str, result: str, seconds: float) -> None:
        self.counted.append(("call", server, str(stage), result))

    def hook_failure(self, server: str, stage: str, outcome: str) -> None:
        self.counted.append(("policy", server, outcome))

    def hook_conflict(self, field: str) -> None:
        self.counted.append(("conflict", field))

    def hook_guard(self, reason: str) -> None:
        self.counted.append(("guard", reason))

    def post_dropped(self, server: str, stage: str) -> None:
        self.counted.append(("dropped", server))

    def exemption(self, reason: str) -> None:
        self.counted.append(("exempt", reason))

    def fault(self, doing: str) -> None:
        self.counted.append(("fault", doing))


def without_zeros(resources: hooks.LinuxContainerResources) -> None:
    """What a plain proto3 peer writes: it cannot tell zero from absent."""
    for name in RESOURCE_SCALARS:
        if not getattr(resources, name):
            resources.ClearField(name)


def koordlet(
    container: ContainerRule = lambda request, response: None, pod: PodRule = lambda request, response: None
) -> Handler:
    """Answers as koordlet does: an echo of everything, in plain proto3, in which plugins overwrite fields."""

    async def handle(path: str, message: bytes) -> tuple[bytes, Mapping[bytes, bytes]]:
        if "PodSandbox" in path:
            asked = hooks.PodSandboxHookRequest.FromString(message)
            said = hooks.PodSandboxHookResponse(
                labels=asked.labels,
                annotations=asked.annotations,
                cgroup_parent=asked.cgroup_parent,
                resources=asked.resources,
            )
            pod(asked, said)
            without_zeros(said.resources)
            return said.SerializeToString(), {}
        request = hooks.ContainerResourceHookRequest.FromString(message)
        response = hooks.ContainerResourceHookResponse(
            container_annotations=request.container_annotations,
            container_resources=request.container_resources,
            pod_cgroup_parent=request.pod_cgroup_parent,
            container_envs=request.container_envs,
        )
        container(request, response)
        without_zeros(response.container_resources)
        return response.SerializeToString(), {}

    return handle


def saying(
    answer: hooks.ContainerResourceHookResponse | hooks.PodSandboxHookResponse,
    metadata: Mapping[bytes, bytes] = PRESENCE,
) -> Handler:
    """Always the same answer, by default with presence declared."""

    async def handle(path: str, message: bytes) -> tuple[bytes, Mapping[bytes, bytes]]:
        return answer.SerializeToString(), metadata

    return handle


def failing(code: int = 14, message: str = "not there") -> Handler:
    async def handle(path: str, _: bytes) -> tuple[bytes, Mapping[bytes, bytes]]:
        raise UnaryError(code, message)

    return handle


def raising(error: BaseException) -> Handler:
    """What no hook client should raise, and a fault of its own might."""

    async def handle(path: str, _: bytes) -> tuple[bytes, Mapping[bytes, bytes]]:
        raise error

    return handle


async def hanging(path: str, message: bytes) -> tuple[bytes, Mapping[bytes, bytes]]:
    await asyncio.Event().wait()
    return b"", {}


async def garbage(path: str, message: bytes) -> tuple[bytes, Mapping[bytes, bytes]]:
    return b"\xff\xff\xff", {}


def server(
    handler: Handler,
    recorder: Recorder,
    file: str = "a.json",
    policy: FailurePolicy = FailurePolicy.IGNORE,
    *,
    timeout_s: float = 1.0,
    clock: Callable[[], float] | None = None,
    failed_calls: bool = False,
) -> HookClient:
    spec = ServerSpec(file, "/run/hooks.sock", policy, STAGES, failed_calls=failed_calls)
    return HookClient(
        spec, Caller(handler), default_timeout_s=timeout_s, version="test", metrics=recorder, clock=clock or Clock().now
    )

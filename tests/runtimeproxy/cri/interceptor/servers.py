"""What the hook servers of these tests say, and what they were asked."""

from __future__ import annotations

from typing import Any

from koord.pb.hooks import api_pb2 as hooks
from tests.runtimeproxy.cri.rig import PARENT, Rig

MOVED = f"{PARENT}/koord"


def best_effort(request: hooks.ContainerResourceHookRequest, said: hooks.ContainerResourceHookResponse) -> None:
    """koordlet's plugins for a batch pod: amounts of its own, and kubelet's CPU set dropped."""
    said.container_resources.cpu_shares = 1024
    said.container_resources.cpu_quota = 200_000
    said.container_resources.memory_limit_in_bytes = 1 << 30
    said.container_resources.cpuset_cpus = ""


def exclusive(request: hooks.ContainerResourceHookRequest, said: hooks.ContainerResourceHookResponse) -> None:
    """koordlet's plugins for an LSR pod."""
    said.container_resources.cpuset_cpus = "2-3"
    said.container_resources.cpu_quota = -1


def moving(request: hooks.PodSandboxHookRequest, said: hooks.PodSandboxHookResponse) -> None:
    said.cgroup_parent = MOVED
    said.annotations["rdt.resources.beta.kubernetes.io/pod"] = "BE"


def answer(**fields: Any) -> hooks.ContainerResourceHookResponse:
    return hooks.ContainerResourceHookResponse(container_resources=hooks.LinuxContainerResources(**fields))


def told(rig: Rig, call: str, file: str = "a.json") -> list[Any]:
    """What the server was told at that stage."""
    kind = hooks.PodSandboxHookRequest if "PodSandbox" in call else hooks.ContainerResourceHookRequest
    return [kind.FromString(message) for path, message in rig.server(file).asked if path.endswith(f"/{call}Hook")]


def hooks_asked(rig: Rig) -> list[str]:
    return [path for path, _ in rig.server().asked if path.endswith("Hook")]

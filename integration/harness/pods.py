"""Pods as a test describes them, and the CRI messages that kubelet makes of them.

Formulas and names are those of kubelet 1.34 with the cgroupfs driver on cgroup v1: shares = 1024 × CPU, quota =
period × CPU, and a pod that requests only batch resources is BestEffort to kubelet.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from integration.harness import images
from koord.pb.cri import api_pb2 as pb

CPU_PERIOD_US = 100_000
MIN_SHARES = 2
MIN_QUOTA_US = 1000
POD_ROOT = "/kubepods"
"""kubelet's own with the cgroupfs driver: where a runtime makes cgroups, another's pods may be in it."""
MEMORY_CAPACITY_BYTES = 16 << 30  # of the node; only the OOM score of Burstable pods depends on it
SLEEP = ("/bin/sh", "-c", "trap 'exit 0' TERM; echo started; while :; do sleep 1; done")


@dataclass(frozen=True, slots=True)
class Container:
    """Native requests and limits (0 = none); what Koord edits is not here but in the pod's labels and annotations."""

    name: str
    cpu_request_milli: int = 0
    cpu_limit_milli: int = 0
    memory_request_bytes: int = 0
    memory_limit_bytes: int = 0
    envs: Mapping[str, bytes] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    cpuset_cpus: str = ""
    command: tuple[str, ...] = SLEEP


@dataclass(frozen=True, slots=True)
class Pod:
    """``cgroup_root`` is the cgroup that holds kubelet's QoS classes; ``logs`` the directory of container logs.

    A root that is a slice means the systemd cgroup driver.
    """

    name: str
    containers: tuple[Container, ...]
    namespace: str = "default"
    uid: str = field(default_factory=lambda: str(uuid.uuid4()))
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    host_network: bool = True
    cgroup_root: str = field(kw_only=True)
    logs: Path | None = None

    @property
    def qos_class(self) -> str:
        """Kubernetes' class: Guaranteed, Burstable or BestEffort."""
        amounts = [_amounts(container) for container in self.containers]
        if not any(any(amount) for amount in amounts):
            return "BestEffort"
        full = all(all(amount) and amount[:2] == amount[2:] for amount in amounts)
        return "Guaranteed" if full else "Burstable"

    @property
    def cgroup_parent(self) -> str:
        """The pod's cgroup, relative to a controller's mount."""
        middle = {"Guaranteed": "", "Burstable": "burstable", "BestEffort": "besteffort"}[self.qos_class]
        parts = [part for part in (middle, f"pod{self.uid}") if part]
        if not self.cgroup_root.endswith(".slice"):
            return "/".join((self.cgroup_root, *parts))
        path, name = self.cgroup_root, self.cgroup_root.rpartition("/")[2].removesuffix(".slice")
        for part in parts:
            name = f"{name}-{part.replace('-', '_')}"
            path = f"{path}/{name}.slice"
        return path


def cpu_shares(milli: int) -> int:
    return max(MIN_SHARES, milli * 1024 // 1000)


def cpu_quota_us(milli: int) -> int:
    """CFS quota of a limit; 0 = no limit was set."""
    return max(MIN_QUOTA_US, milli * CPU_PERIOD_US // 1000) if milli else 0


def sandbox_config(pod: Pod) -> pb.PodSandboxConfig:
    """The sandbox that kubelet asks for in RunPodSandbox, and repeats in each CreateContainer."""
    network = pb.NODE if pod.host_network else pb.POD
    options = pb.NamespaceOption(network=network, pid=pb.CONTAINER, ipc=pb.POD)
    return pb.PodSandboxConfig(
        metadata=pb.PodSandboxMetadata(name=pod.name, uid=pod.uid, namespace=pod.namespace, attempt=0),
        hostname="" if pod.host_network else pod.name,
        log_directory=str(pod.logs) if pod.logs else "",
        labels={**pod.labels, **_identity(pod)},
        annotations={
            **pod.annotations,
            "kubernetes.io/config.seen": "2025-01-01T00:00:00.000000000Z",
            "kubernetes.io/config.source": "api",
        },
        linux=pb.LinuxPodSandboxConfig(
            cgroup_parent=pod.cgroup_parent,
            security_context=pb.LinuxSandboxSecurityContext(namespace_options=options),
            overhead=pb.LinuxContainerResources(),
            resources=pod_resources(pod),
        ),
    )


def container_config(pod: Pod, container: Container) -> pb.ContainerConfig:
    """One container as kubelet asks for it. Pod annotations are not repeated here: kubelet does not either."""
    network = pb.NODE if pod.host_network else pb.POD
    options = pb.NamespaceOption(network=network, pid=pb.CONTAINER, ipc=pb.POD)
    return pb.ContainerConfig(
        metadata=pb.ContainerMetadata(name=container.name, attempt=0),
        image=pb.ImageSpec(image=images.BUSYBOX),
        command=list(container.command),
        envs=[pb.KeyValue(key=key, value=value) for key, value in container.envs.items()],
        labels={**_identity(pod), "io.kubernetes.container.name": container.name},
        annotations={
            **container.annotations,
            "io.kubernetes.container.hash": "8f3f2b6c",
            "io.kubernetes.container.restartCount": "0",
            "io.kubernetes.container.terminationMessagePath": "/dev/termination-log",
            "io.kubernetes.container.terminationMessagePolicy": "File",
            "io.kubernetes.pod.terminationGracePeriod": "30",
        },
        log_path=f"{container.name}/0.log" if pod.logs else "",
        linux=pb.LinuxContainerConfig(
            resources=container_resources(pod, container),
            security_context=pb.LinuxContainerSecurityContext(namespace_options=options),
        ),
    )


def container_resources(pod: Pod, container: Container) -> pb.LinuxContainerResources:
    return pb.LinuxContainerResources(
        cpu_period=CPU_PERIOD_US,
        cpu_quota=cpu_quota_us(container.cpu_limit_milli),
        cpu_shares=cpu_shares(container.cpu_request_milli or container.cpu_limit_milli),
        memory_limit_in_bytes=container.memory_limit_bytes,
        oom_score_adj=_oom_score_adj(pod, container),
        cpuset_cpus=container.cpuset_cpus,
        hugepage_limits=[pb.HugepageLimit(page_size=size, limit=0) for size in ("2MB", "1GB")],
    )


def pod_resources(pod: Pod) -> pb.LinuxContainerResources:
    """The sums that kubelet sends as ``sandbox.linux.resources`` and writes to the pod's cgroup; 0 = no limit."""
    requests_milli = sum(container.cpu_request_milli or container.cpu_limit_milli for container in pod.containers)
    cpu_limits = [container.cpu_limit_milli for container in pod.containers]
    memory_limits = [container.memory_limit_bytes for container in pod.containers]
    return pb.LinuxContainerResources(
        cpu_period=CPU_PERIOD_US,
        cpu_quota=cpu_quota_us(sum(cpu_limits)) if all(cpu_limits) else 0,
        cpu_shares=cpu_shares(requests_milli),
        memory_limit_in_bytes=sum(memory_limits) if all(memory_limits) else 0,
    )


def _amounts(container: Container) -> tuple[int, int, int, int]:
    return (
        container.cpu_request_milli or container.cpu_limit_milli,
        container.memory_request_bytes or container.memory_limit_bytes,
        container.cpu_limit_milli,
        container.memory_limit_bytes,
    )


def _identity(pod: Pod) -> dict[str, str]:
    return {
        "io.kubernetes.pod.name": pod.name,
        "io.kubernetes.pod.namespace": pod.namespace,
        "io.kubernetes.pod.uid": pod.uid,
    }


def _oom_score_adj(pod: Pod, container: Container) -> int:
    """kubelet's policy: Guaranteed -997, BestEffort 1000, Burstable the less the more memory is requested."""
    if pod.qos_class == "Guaranteed":
        return -997
    if pod.qos_class == "BestEffort":
        return 1000
    request = container.memory_request_bytes or container.memory_limit_bytes
    score = 1000 - 1000 * request // MEMORY_CAPACITY_BYTES
    return min(max(score, 3), 999)

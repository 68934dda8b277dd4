"""A hook server that answers as koordlet does: an echo of the whole request, in which its plugins overwrite fields.

Two plugins, those that change what a container gets: CPUSetAllocator and BatchResource. What koordlet writes into the
pod's own cgroup by itself does not pass through a proxy and is not played. It reads and writes plain proto3: it cannot
say "explicitly zero", and it says nothing of presence.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from integration.harness.hookserver import Question, Reply
from integration.peers.upstream import Protocol, is_pod_stage

STAGES = ("PreRunPodSandbox", "PreCreateContainer", "PreUpdateContainerResources")
QOS = "koordinator.sh/qosClass"
RESOURCE_STATUS = "scheduling.koordinator.sh/resource-status"
EXTENDED_RESOURCES = "node.koordinator.sh/extended-resource-spec"
BATCH_CPU, BATCH_MEMORY = "kubernetes.io/batch-cpu", "kubernetes.io/batch-memory"
BINARY_UNITS = {"Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30}
UNLIMITED = -1


@dataclass(frozen=True, slots=True)
class Koordlet:
    """``ls_pool``: the share pools of all NUMA nodes, joined. kubelet's CPU manager policy is taken for ``none``."""

    ls_pool: str
    protocol: Protocol

    def answer(self, question: Question) -> Reply:
        echo = self._pod(question.message) if is_pod_stage(question.stage) else self._container(question.message)
        return Reply(echo.SerializeToString())

    def _pod(self, message: bytes) -> Any:
        asked = self.protocol["PodSandboxHookRequest"].FromString(message)
        return self.protocol["PodSandboxHookResponse"](
            labels=asked.labels, annotations=asked.annotations, cgroup_parent=asked.cgroup_parent,
            resources=asked.resources,
        )  # fmt: skip

    def _container(self, message: bytes) -> Any:
        asked = self.protocol["ContainerResourceHookRequest"].FromString(message)
        answer = self.protocol["ContainerResourceHookResponse"](
            container_annotations=asked.container_annotations, container_resources=asked.container_resources,
            pod_cgroup_parent=asked.pod_cgroup_parent, container_envs=asked.container_envs,
        )  # fmt: skip
        batch_resource(asked, answer.container_resources)
        self.cpuset_allocator(asked, answer.container_resources)
        return answer

    def cpuset_allocator(self, asked: Any, resources: Any) -> None:
        """Decides the CPU set anew at every create and update; the first rule that applies wins."""
        bound = json.loads(asked.pod_annotations.get(RESOURCE_STATUS, "{}")).get("cpuset", "")
        qos = asked.pod_labels.get(QOS, "")
        if bound:
            resources.cpuset_cpus, resources.cpu_quota = bound, UNLIMITED
        elif qos == "LS":
            resources.cpuset_cpus = self.ls_pool
        elif "besteffort" in asked.pod_cgroup_parent:
            resources.cpuset_cpus = ""
        else:
            resources.cpuset_cpus = self.ls_pool


def batch_resource(asked: Any, resources: Any) -> None:
    """Shares, quota and memory limit of a BE container from its batch resources."""
    containers = json.loads(asked.pod_annotations.get(EXTENDED_RESOURCES, "{}")).get("containers", {})
    spec = containers.get(asked.container_meta.name)
    if asked.pod_labels.get(QOS) != "BE" or spec is None:
        return
    requests, limits = spec.get("requests", {}), spec.get("limits", {})
    resources.cpu_shares = max(2, min(262_144, _number(requests, BATCH_CPU) * 1024 // 1000))
    limit_milli = _number(limits, BATCH_CPU)
    resources.cpu_quota = max(1000, limit_milli * 100) if limit_milli else UNLIMITED
    resources.memory_limit_in_bytes = _number(limits, BATCH_MEMORY) or UNLIMITED


def _number(amounts: Mapping[str, str], name: str) -> int:
    """A whole number, or one with a binary unit; 0 if there is none."""
    text = str(amounts.get(name, "0"))
    unit = BINARY_UNITS.get(text[-2:])
    return int(text[:-2]) * unit if unit else int(text)

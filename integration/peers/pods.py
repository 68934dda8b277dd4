"""The pods of the comparison, as kubelet makes them, and what happens to each: created, re-pinned, resized.

kubelet's CPU manager pins every container to its shared CPUs, at creation and again by an update that says nothing
else; an in-place resize sends all values anew, and no CPU set.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from integration.harness.cri import RUNTIME, Cri
from integration.harness.pods import POD_ROOT, Container, Pod, container_config, container_resources, sandbox_config
from integration.peers.koordlet import BATCH_CPU, BATCH_MEMORY, EXTENDED_RESOURCES, QOS, RESOURCE_STATUS
from koord.pb.cri import api_pb2 as pb

NODE_CPUS, KUBELET_CPUS = "0-7", "0-3"
LS_POOL = "1-3"
BOUND_CPUS = "2"
UNIFIED = {"memory.oom.group": "1"}
ENVS = {"HOME": b"/", "EMPTY": b"", "AREA": b"eu"}
MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Story:
    """A pod with one container, and that container after the resize."""

    pod: Pod
    resized: Container

    @property
    def container(self) -> Container:
        return self.pod.containers[0]


def stories() -> dict[str, Story]:
    """By QoS class. The LSR pod has CPU 2 for itself. The BE pods have batch resources only, one of them no limits, so
    that to kubelet they are BestEffort pods with nothing to resize."""
    small = Container("main", cpu_limit_milli=1000, memory_limit_bytes=128 * MIB, cpuset_cpus=KUBELET_CPUS, envs=ENVS)
    shared = Container("main", cpu_request_milli=500, cpu_limit_milli=1000, memory_limit_bytes=128 * MIB,
                       cpuset_cpus=KUBELET_CPUS, envs=ENVS)  # fmt: skip
    batch = Container("main", cpuset_cpus=KUBELET_CPUS, envs=ENVS)
    requests, limits = {BATCH_CPU: "500", BATCH_MEMORY: "64Mi"}, {BATCH_CPU: "1000", BATCH_MEMORY: "64Mi"}
    return {
        "LSR": Story(
            _pod("lsr", small, "LSR", "koord-prod", {RESOURCE_STATUS: json.dumps({"cpuset": BOUND_CPUS})}),
            Container("main", cpu_limit_milli=2000, memory_limit_bytes=256 * MIB),
        ),
        "LS": Story(
            _pod("ls", shared, "LS", "koord-prod", {}),
            Container("main", cpu_request_milli=1000, cpu_limit_milli=2000, memory_limit_bytes=256 * MIB),
        ),
        "BE": Story(_best_effort("be", batch, {"requests": requests, "limits": limits}), Container("main")),
        "BE, no limits": Story(_best_effort("be-free", batch, {"requests": requests}), Container("main")),
    }  # fmt: skip


def _best_effort(name: str, container: Container, amounts: Mapping[str, Mapping[str, str]]) -> Pod:
    spec = json.dumps({"containers": {container.name: amounts}})
    return _pod(name, container, "BE", "koord-batch", {EXTENDED_RESOURCES: spec})


def _pod(name: str, container: Container, qos: str, priority_class: str, annotations: Mapping[str, str]) -> Pod:
    labels = {QOS: qos, "koordinator.sh/priority-class": priority_class}
    return Pod(name, (container,), cgroup_root=POD_ROOT, labels=labels, annotations=annotations)


def create(cri: Cri, story: Story) -> str:
    """Start the pod and its container; the container's id."""
    sandbox_id = cri.run_pod(story.pod)
    request = pb.CreateContainerRequest(
        pod_sandbox_id=sandbox_id,
        config=container_config(story.pod, story.container),
        sandbox_config=sandbox_config(story.pod),
    )
    request.config.linux.resources.cpuset_mems = "0"
    request.config.linux.resources.unified.update(UNIFIED)
    answer = cri.call(RUNTIME + "CreateContainer", request, pb.CreateContainerResponse)
    cri.start_container(answer.container_id)
    return answer.container_id


def pin_again(cri: Cri, container_id: str) -> None:
    cri.update_container(container_id, pb.LinuxContainerResources(cpuset_cpus=KUBELET_CPUS))


def resize(cri: Cri, container_id: str, story: Story) -> None:
    resources = container_resources(story.pod, story.resized)
    resources.unified.update(UNIFIED)
    cri.update_container(container_id, resources)

"""What a hook may know of a pod: the request as it came, and its labels and annotations decoded once.

A label or annotation that cannot be understood is a sentence in ``problems`` and counts as absent, so the other
hooks go on. CRI does not carry ``spec.priority`` nor a pod's requests: the priority class comes from its label,
the Kubernetes QoS class from the tier that kubelet's cgroup parent shows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from koord.model import cgroup_parent, qos
from koord.model.annotations import ContainerResources, PodAnnotations, PodMemoryQOS
from koord.model.priority import BATCH_CPU, BATCH_MEMORY, MID_CPU, MID_MEMORY, PriorityClass
from koord.model.qos import DerivationRules, DerivedQoS, KubeQoS, QoSClass
from koord.model.strategies import CPUQOS
from qosd.hooks.edits import Resources

BATCH, MID = "batch", "mid"
_NAMES = {BATCH: (BATCH_CPU, BATCH_MEMORY), MID: (MID_CPU, MID_MEMORY)}
_NEVER_BY_BAND = (QoSClass.LSE, QoSClass.LSR, QoSClass.SYSTEM)


class Stage(StrEnum):
    """The stages at which a hook can edit, by their names in a hook-server file."""

    RUN_SANDBOX = "PreRunPodSandbox"
    UPDATE_SANDBOX = "PreUpdatePodSandboxResources"
    CREATE = "PreCreateContainer"
    UPDATE = "PreUpdateContainerResources"


POD_STAGES = frozenset({Stage.RUN_SANDBOX, Stage.UPDATE_SANDBOX})
CONTAINER_STAGES = frozenset({Stage.CREATE, Stage.UPDATE})


@dataclass(frozen=True, slots=True)
class Request:
    """One request to the runtime, in plain values. ``container`` is "" for the sandbox itself."""

    stage: Stage
    namespace: str
    name: str
    uid: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    cgroup_parent: str
    asked: Resources
    container: str = ""
    container_annotations: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Amounts:
    """A container's batch or mid resources (``kind``); 0 = not set."""

    kind: str
    cpu_request_milli: int
    cpu_limit_milli: int
    memory_request_bytes: int
    memory_limit_bytes: int

    @property
    def any(self) -> bool:
        cpu = self.cpu_request_milli or self.cpu_limit_milli
        return bool(cpu or self.memory_request_bytes or self.memory_limit_bytes)


@dataclass(frozen=True, slots=True)
class PodContext:
    """A request with what its pod says. ``kube_qos`` is None outside kubelet's cgroups, where Burstable is assumed."""

    request: Request
    said: PodAnnotations
    kube_qos: KubeQoS | None
    problems: tuple[str, ...]

    @classmethod
    def read(cls, request: Request) -> PodContext:
        """Decode labels and annotations; raises nothing, whatever they say."""
        said = PodAnnotations.read(request.labels, request.annotations)
        kube = cgroup_parent.kube_qos(request.cgroup_parent)
        return cls(request, said, kube, tuple(f"{problem}; treated as absent" for problem in said.problems))

    def __str__(self) -> str:
        container = f" container {self.container}" if self.is_container else ""
        return f"pod {self.request.namespace}/{self.request.name}{container}"

    @property
    def stage(self) -> Stage:
        return self.request.stage

    @property
    def container(self) -> str:
        return self.request.container

    @property
    def is_container(self) -> bool:
        return self.stage in CONTAINER_STAGES

    @property
    def asked(self) -> Resources:
        return self.request.asked

    @property
    def raw_qos(self) -> QoSClass | None:
        """The class the label says."""
        return self.said.qos_class

    @property
    def is_free(self) -> bool:
        """A pod of the free band that its class does not bind: native limits, everything else of BE."""
        return self.said.priority_class is PriorityClass.FREE and self.raw_qos not in _NEVER_BY_BAND

    @property
    def bound_cpus(self) -> str:
        """The CPUs that the scheduler bound for the pod; "" = none."""
        return str(self.said.resource_status.cpuset) if self.said.resource_status else ""

    @property
    def numa_nodes(self) -> frozenset[int]:
        """The NUMA nodes on which the scheduler gave the pod CPU."""
        status = self.said.resource_status
        return frozenset(numa.node for numa in status.numa_node_resources if numa.has_cpu) if status else frozenset()

    @property
    def cpu_qos(self) -> CPUQOS | None:
        return self.said.cpu_qos

    @property
    def memory_qos(self) -> PodMemoryQOS | None:
        return self.said.memory_qos

    @property
    def extended(self) -> Mapping[str, ContainerResources]:
        """Batch and mid resources by container name."""
        return self.said.extended_resource_spec.containers if self.said.extended_resource_spec else {}

    def derived(self, rules: DerivationRules, running: bool) -> DerivedQoS:
        """The class and where it comes from, for people."""
        return qos.derive(self.raw_qos, self.kube_qos or KubeQoS.BURSTABLE, running=running, rules=rules)

    def treated_as(self, rules: DerivationRules) -> QoSClass:
        """The class by which hooks treat the pod: free pods as BE, bound pods without a label as LSR."""
        if self.is_free:
            return QoSClass.BE
        by_hook = qos.hook_class(self.raw_qos, bool(self.bound_cpus))
        return by_hook or self.derived(rules, running=False).qos

    def amounts_of(self, container: str) -> Amounts | None:
        """What ``container`` has of batch resources (pods labelled BE), else of mid resources."""
        resources = self.extended.get(container)
        if resources is None:
            return None
        batch = _amounts(BATCH, resources)
        if batch.any and self.raw_qos is QoSClass.BE:
            return batch
        mid = _amounts(MID, resources)
        return mid if mid.any else None


def _amounts(kind: str, resources: ContainerResources) -> Amounts:
    cpu, memory = _NAMES[kind]
    return Amounts(
        kind=kind,
        cpu_request_milli=resources.request_milli(cpu) or 0,
        cpu_limit_milli=resources.limit_milli(cpu) or 0,
        memory_request_bytes=resources.request_bytes(memory) or 0,
        memory_limit_bytes=resources.limit_bytes(memory) or 0,
    )

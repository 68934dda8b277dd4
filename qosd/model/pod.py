"""A pod as hooks and strategies see it: the request as it came, and its labels and annotations decoded once.

A label or annotation that cannot be understood is a sentence in ``problems`` and counts as absent, so the other
hooks go on. CRI does not carry ``spec.priority`` nor a pod's requests: the priority class comes from its label,
the Kubernetes QoS class from the tier that kubelet's cgroup parent shows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from enum import StrEnum
from itertools import islice
from typing import Any

import msgspec
from msgspec.structs import replace

from koord.model import cfs, cgroup_parent, qos
from koord.model.annotations import ContainerResources, ExtendedResourceSpec, PodAnnotations, PodMemoryQOS
from koord.model.cpuset import EMPTY, CPUSet
from koord.model.crifields import Field
from koord.model.podtotal import Role
from koord.model.priority import BATCH_CPU, BATCH_MEMORY, MID_CPU, MID_MEMORY, PriorityClass
from koord.model.qos import DerivationRules, DerivedQoS, KubeQoS, QoSClass
from koord.model.qos_settings import CPUQOS
from koord.model.requirements import ContainerAmounts

BATCH, MID = "batch", "mid"
_NAMES = {BATCH: (BATCH_CPU, BATCH_MEMORY), MID: (MID_CPU, MID_MEMORY)}
_NOTHING = ContainerResources()
_NEVER_BY_BAND = (QoSClass.LSE, QoSClass.LSR, QoSClass.SYSTEM)


class HookStage(StrEnum):
    """The stages at which a hook can edit, by their names in a hook-server file.

    The last four are no calls: the reconciler asks hooks about cgroups. Of a container it asks for the edits of its
    creation and for values that no CRI call carries; a container in a virtual machine has a stage of its own.
    """

    RUN_SANDBOX = "PreRunPodSandbox"
    UPDATE_SANDBOX = "PreUpdatePodSandboxResources"
    CREATE = "PreCreateContainer"
    UPDATE = "PreUpdateContainerResources"
    POD_CGROUP = "pod cgroup"
    SANDBOX_CGROUP = "sandbox cgroup"
    CONTAINER_CGROUP = "container cgroup"
    GUEST_CGROUP = "container cgroup of a virtual machine"


CGROUP_STAGES = frozenset(
    {HookStage.POD_CGROUP, HookStage.SANDBOX_CGROUP, HookStage.CONTAINER_CGROUP, HookStage.GUEST_CGROUP}
)
"""The stages that are no calls, but cgroups that are there."""
POD_STAGES = frozenset({HookStage.RUN_SANDBOX, HookStage.UPDATE_SANDBOX})
CALL_STAGES = frozenset({HookStage.CREATE, HookStage.UPDATE})
"""The calls that carry values of a container."""
CONTAINER_STAGES = CALL_STAGES | {HookStage.CONTAINER_CGROUP, HookStage.GUEST_CGROUP}


class Resources(msgspec.Struct, frozen=True):
    """The resources that kubelet requested of the runtime and that hooks compute with; None = not set."""

    cpu_period_us: int | None = None
    cpu_quota_us: int | None = None
    memory_limit_bytes: int | None = None
    cpu_shares: int | None = None
    memory_request_bytes: int | None = None
    """From kubelet's pod list: CRI does not carry requests."""
    is_assumed: bool = False
    """Worked out from the limits of the pod's spec: kubelet may have made another quota of them, or none."""

    @property
    def quota_period_us(self) -> int:
        """The CFS period that a quota is of: kubelet's, ``cpuCFSQuotaPeriod``, else the kernel's own."""
        return self.cpu_period_us or cfs.PERIOD_US

    def at_period(self, period_us: int | None) -> Resources:
        """Returns the same with its CPU limit as a quota of ``period_us``; None: as it is."""
        if period_us is None:
            return self
        quota_us = self.cpu_quota_us
        if quota_us is not None:
            quota_us = max(cfs.MIN_QUOTA_US, quota_us * period_us // self.quota_period_us)
        return replace(self, cpu_period_us=period_us, cpu_quota_us=quota_us)

    @classmethod
    def of(cls, values: Mapping[Field, Any]) -> Resources:
        """Returns the resources from the values of a request or a specification; 0 is not set."""
        return cls(
            cpu_period_us=values[Field.CPU_PERIOD] or None,
            cpu_quota_us=values[Field.CPU_QUOTA] or None,
            memory_limit_bytes=values[Field.MEMORY_LIMIT] or None,
            cpu_shares=values[Field.CPU_SHARES] or None,
        )


class RuntimeRequest(msgspec.Struct, frozen=True):
    """One request to the runtime, in plain values. ``container`` is "" for the sandbox itself."""

    stage: HookStage
    namespace: str
    name: str
    uid: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    cgroup_parent: str
    requested: Resources
    container: str = ""
    container_annotations: Mapping[str, str] | None = None
    pod_shares: int | None = None
    """For a container: the CPU shares that kubelet asks for the whole pod; None: unknown."""
    cpu_request_milli: int | None = None
    """The CPU request of the whole pod, by kubelet's pod list; None: the list lacks the pod."""
    extended: ExtendedResourceSpec | None = None
    """The batch and mid amounts of the pod's spec, by kubelet's pod list; None: unknown."""


class ExtendedAmounts(msgspec.Struct, frozen=True):
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

    @property
    def decides_cpu(self) -> bool:
        """Do these amounts set shares and quota (a missing limit is no limit)? Else kubelet's stay."""
        return self.kind == BATCH or bool(self.cpu_request_milli or self.cpu_limit_milli)

    @property
    def decides_memory(self) -> bool:
        return self.kind == BATCH or bool(self.memory_limit_bytes)


OVERHEAD = "(overhead)"
"""The name of the runtime class's overhead among the pod's containers."""


class SpecContainer(msgspec.Struct, frozen=True):
    """A container as the pod's spec has it, with its native requests and limits."""

    name: str
    role: Role
    native: ContainerAmounts


class PodContext(msgspec.Struct, frozen=True):
    """A request with its pod's labels and annotations, decoded once for all hooks."""

    request: RuntimeRequest
    annotations: PodAnnotations
    kube_qos: KubeQoS | None
    """None outside kubelet's cgroups, where Burstable is assumed."""
    problems: tuple[str, ...]
    is_container: bool
    raw_qos: QoSClass | None
    """The class by the label."""
    is_free: bool
    """Is it a pod of the free band whose class does not bind it? It has native limits, and all else as BE."""
    bound_cpus: str
    """The CPUs that the scheduler bound for the pod, as many as it requests at most; "" = none."""
    is_best_effort: bool
    """Does suppression cover the pod?"""
    spec_containers: tuple[SpecContainer, ...] | None = None
    """For the pod's own cgroup: every container of the pod, by kubelet's pod list; None: unknown."""
    seen_containers: tuple[str, ...] = ()
    """For the pod's own cgroup: the names of the containers that the runtime has made so far."""

    @classmethod
    def read(cls, request: RuntimeRequest) -> PodContext:
        """Decodes labels and annotations; raises nothing, whatever they say."""
        annotations, claims = _as_listed(PodAnnotations.read(request.labels, request.annotations), request.extended)
        kube_qos = cgroup_parent.kube_qos(request.cgroup_parent)
        is_free = annotations.priority_class is PriorityClass.FREE and annotations.qos_class not in _NEVER_BY_BAND
        bound_cpus, excess = _bound_cpus(annotations, request, kube_qos)
        return cls(
            request=request,
            annotations=annotations,
            kube_qos=kube_qos,
            problems=(*[f"{problem}; treated as absent" for problem in annotations.problems], *claims, *excess),
            is_container=request.stage in CONTAINER_STAGES,
            raw_qos=annotations.qos_class,
            is_free=is_free,
            bound_cpus=bound_cpus,
            is_best_effort=_is_best_effort(annotations, kube_qos, is_free, bound_cpus),
        )

    def __str__(self) -> str:
        container = f" container {self.container}" if self.is_container else ""
        return f"pod {self.request.namespace}/{self.request.name}{container}"

    def at(
        self, stage: HookStage, requested: Resources, container: str = "", annotations: Mapping[str, str] | None = None
    ) -> PodContext:
        """Returns the context of the pod at another stage, or of one of its containers, without decoding again."""
        request = replace(
            self.request, stage=stage, requested=requested, container=container, container_annotations=annotations
        )
        return replace(self, request=request, is_container=stage in CONTAINER_STAGES)

    @property
    def stage(self) -> HookStage:
        return self.request.stage

    @property
    def container(self) -> str:
        return self.request.container

    @property
    def requested(self) -> Resources:
        return self.request.requested

    @property
    def numa_nodes(self) -> frozenset[int]:
        """The NUMA nodes on which the scheduler gave the pod CPU."""
        status = self.annotations.resource_status
        return frozenset(numa.node for numa in status.numa_node_resources if numa.has_cpu) if status else frozenset()

    @property
    def cpu_qos(self) -> CPUQOS | None:
        return self.annotations.cpu_qos

    @property
    def memory_qos(self) -> PodMemoryQOS | None:
        return self.annotations.memory_qos

    @property
    def extended(self) -> Mapping[str, ContainerResources]:
        """Batch and mid resources by container name, of regular containers."""
        return self.annotations.extended_resource_spec.containers if self.annotations.extended_resource_spec else {}

    @property
    def extended_init(self) -> Mapping[str, ContainerResources]:
        """Batch and mid resources of init containers, sidecars among them."""
        spec = self.annotations.extended_resource_spec
        return spec.init_containers if spec else {}

    def extended_of(self, container: str) -> ContainerResources | None:
        """Returns the batch and mid resources of ``container``, a regular or an init one."""
        return self.extended.get(container) or self.extended_init.get(container)

    def derived(self, rules: DerivationRules, running: bool) -> DerivedQoS:
        """Returns the class and where it comes from, for people."""
        return qos.derive(self.raw_qos, self.kube_qos or KubeQoS.BURSTABLE, running=running, rules=rules)

    def treated_as(self, rules: DerivationRules) -> QoSClass:
        """Returns the class by which hooks treat the pod: free pods as BE, bound pods without a label as LSR."""
        if self.is_free:
            return QoSClass.BE
        by_hook = qos.hook_class(self.raw_qos, bool(self.bound_cpus))
        return by_hook or self.derived(rules, running=False).qos

    def amounts_of(self, container: str) -> ExtendedAmounts | None:
        """Returns the batch resources of ``container`` (pods labelled BE), else its mid resources; None without any."""
        resources = self.extended_of(container)
        if resources is None:
            return None
        batch = _amounts(BATCH, resources)
        if batch.any and self.raw_qos is QoSClass.BE:
            return batch
        mid = _amounts(MID, resources)
        return mid if mid.any else None


def _as_listed(
    annotations: PodAnnotations, listed: ExtendedResourceSpec | None
) -> tuple[PodAnnotations, tuple[str, ...]]:
    """Returns the annotations with the amounts that the spec has in ``listed``, and what is wrong in them.

    extended-resource-spec repeats the spec for readers that do not see it, but a cluster without the webhook accepts it
    from any user.
    """
    said = annotations.extended_resource_spec
    if listed is None or said is None:
        return annotations, ()
    counts = ExtendedResourceSpec(
        containers={name: listed.containers.get(name, _NOTHING) for name in said.containers},
        init_containers={name: listed.init_containers.get(name, _NOTHING) for name in said.init_containers},
    )
    problems = [
        f"annotation extended-resource-spec: container {name} has more there than in the pod's spec, which counts"
        for of_annotation, of_spec in (
            (said.containers, counts.containers), (said.init_containers, counts.init_containers),
        )
        for name, amounts in of_annotation.items()
        if any(_is_more(_amounts(kind, amounts), _amounts(kind, of_spec[name])) for kind in (BATCH, MID))
    ]  # fmt: skip
    return replace(annotations, extended_resource_spec=counts), tuple(problems)


def _is_more(amounts: ExtendedAmounts, spec: ExtendedAmounts) -> bool:
    """Are the amounts more than those of the spec? A missing limit is more than any limit."""
    pairs = (
        (amounts.cpu_request_milli, spec.cpu_request_milli or spec.cpu_limit_milli),
        (amounts.memory_request_bytes, spec.memory_request_bytes or spec.memory_limit_bytes),
        (amounts.cpu_limit_milli or spec.cpu_limit_milli + 1, spec.cpu_limit_milli),
        (amounts.memory_limit_bytes or spec.memory_limit_bytes + 1, spec.memory_limit_bytes),
    )
    return amounts.any and any(has > may for has, may in pairs)


def _bound_cpus(
    annotations: PodAnnotations, request: RuntimeRequest, kube_qos: KubeQoS | None
) -> tuple[str, tuple[str, ...]]:
    """Returns the CPUs that ``resource-status`` gives the pod, at most as many as it requests, and what is wrong there.

    The annotation is the scheduler's, but a cluster without the webhook accepts it from any user. On an amplified node
    requests are larger than the CPUs that they stand for, so they cut nothing that the scheduler gave.
    """
    cpus = annotations.resource_status.cpuset if annotations.resource_status else EMPTY
    requested_milli = _requested_milli(request, kube_qos)
    most = None if requested_milli is None else math.ceil(requested_milli / 1000)
    if most is None or len(cpus) <= most:
        return str(cpus), ()
    kept = CPUSet.of(islice(cpus, most))
    why = f"annotation resource-status: CPUs {cpus} are more than the {requested_milli}m that the pod requests"
    return str(kept), (f"{why}; it has {kept or 'none of them'}",)


def _requested_milli(request: RuntimeRequest, kube_qos: KubeQoS | None) -> int | None:
    """Returns the pod's CPU request: by kubelet's list, else by its tier, else by the shares that kubelet asks for it.

    If the pod's shares are unknown, the container's own count, which are no more. Without a request there are the least
    shares that exist. None: unknown.
    """
    if request.cpu_request_milli is not None:
        return request.cpu_request_milli
    if kube_qos is KubeQoS.BEST_EFFORT:
        return 0
    shares = request.requested.cpu_shares if request.pod_shares is None else request.pod_shares
    if shares is None:
        return None
    return round(shares * 1000 / cfs.SHARES_PER_CPU) if shares > cfs.MIN_SHARES else 0


def _is_best_effort(annotations: PodAnnotations, kube_qos: KubeQoS | None, is_free: bool, bound_cpus: str) -> bool:
    """Is it a best-effort pod? CRI lacks ``spec.priority``: the mid band is told by label or mid resources."""
    raw_qos, spec = annotations.qos_class, annotations.extended_resource_spec
    if raw_qos is None and bound_cpus:
        return False
    has_mid = any(_amounts(MID, each).any for each in spec.containers.values()) if spec else False
    is_mid = annotations.priority_class is PriorityClass.MID or has_mid
    return qos.is_best_effort(raw_qos, kube_qos or KubeQoS.BURSTABLE, is_free=is_free, is_mid=is_mid)


def _amounts(kind: str, resources: ContainerResources) -> ExtendedAmounts:
    cpu, memory = _NAMES[kind]
    return ExtendedAmounts(
        kind=kind,
        cpu_request_milli=resources.request_milli(cpu) or 0,
        cpu_limit_milli=resources.limit_milli(cpu) or 0,
        memory_request_bytes=resources.request_bytes(memory) or 0,
        memory_limit_bytes=resources.limit_bytes(memory) or 0,
    )

"""The pod as a scheduler places it, and the node that it is placed on: core/v1."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from koord.model import core
from koord.model.core import Amount, Condition, ResourceRequirements, Slim
from koord.model.selector import LabelSelector

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


# node affinity


class NodeSelectorRequirement(Slim, frozen=True):
    key: str = ""
    operator: str = ""
    """``In``, ``NotIn``, ``Exists``, ``DoesNotExist``, ``Gt`` or ``Lt``."""
    values: tuple[str, ...] = ()


class NodeSelectorTerm(Slim, frozen=True):
    """Holds if all of its requirements do; one without any holds for no node."""

    match_expressions: tuple[NodeSelectorRequirement, ...] = ()
    match_fields: tuple[NodeSelectorRequirement, ...] = ()


class NodeSelector(Slim, frozen=True):
    """Holds if one of its terms does."""

    node_selector_terms: tuple[NodeSelectorTerm, ...] = ()


class PreferredSchedulingTerm(Slim, frozen=True):
    weight: int = 0
    """1 to 100."""
    preference: NodeSelectorTerm = NodeSelectorTerm()


class NodeAffinity(Slim, frozen=True):
    required: NodeSelector | None = msgspec.field(default=None, name=_REQUIRED)
    preferred: tuple[PreferredSchedulingTerm, ...] = msgspec.field(default=(), name=_PREFERRED)


# pod affinity


class PodAffinityTerm(Slim, frozen=True):
    """Without ``namespaces`` and ``namespace_selector``: of the pod's own namespace. A selector None matches no pod."""

    label_selector: LabelSelector | None = None
    namespaces: tuple[str, ...] = ()
    namespace_selector: LabelSelector | None = None
    topology_key: str = ""
    match_label_keys: tuple[str, ...] = ()
    mismatch_label_keys: tuple[str, ...] = ()


class WeightedPodAffinityTerm(Slim, frozen=True):
    weight: int = 0
    """1 to 100."""
    pod_affinity_term: PodAffinityTerm = PodAffinityTerm()


class PodAffinity(Slim, frozen=True):
    """Of pods to be near, or to be apart from."""

    required: tuple[PodAffinityTerm, ...] = msgspec.field(default=(), name=_REQUIRED)
    preferred: tuple[WeightedPodAffinityTerm, ...] = msgspec.field(default=(), name=_PREFERRED)


class Affinity(Slim, frozen=True):
    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


# the rest of what decides where a pod goes


class Toleration(Slim, frozen=True):
    key: str = ""
    """ "" with ``Exists``: all taints."""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""
    """ "": all effects."""
    toleration_seconds: int | None = None
    """Of ``NoExecute``; None: for ever."""


class TopologySpreadConstraint(Slim, frozen=True):
    max_skew: int = 0
    topology_key: str = ""
    when_unsatisfiable: str = ""
    """``DoNotSchedule`` or ``ScheduleAnyway``."""
    label_selector: LabelSelector | None = None
    min_domains: int | None = None
    node_affinity_policy: str = "Honor"
    node_taints_policy: str = "Ignore"
    match_label_keys: tuple[str, ...] = ()


class SchedulingGate(Slim, frozen=True):
    name: str = ""


class ContainerPort(Slim, frozen=True):
    container_port: int = 0
    host_port: int = 0
    """0: none of the node's."""
    host_ip: str = msgspec.field(default="", name="hostIP")
    protocol: str = "TCP"
    name: str = ""


class ResourceClaim(Slim, frozen=True):
    """Of dynamic resource allocation: one of the pod's claims by its name, and a request in it."""

    name: str = ""
    request: str = ""


class ContainerResourceRequirements(ResourceRequirements, frozen=True):
    claims: tuple[ResourceClaim, ...] = ()


class Container(core.Container, frozen=True):
    resources: ContainerResourceRequirements = ContainerResourceRequirements()
    image: str = ""
    ports: tuple[ContainerPort, ...] = ()


class PodResourceClaim(Slim, frozen=True):
    name: str = ""
    resource_claim_name: str = ""
    resource_claim_template_name: str = ""


class WorkloadReference(Slim, frozen=True):
    """Of Kubernetes 1.35: the Workload and the group in it that the pod is one of."""

    name: str = ""
    pod_group: str = ""


class SchedulingGroup(Slim, frozen=True):
    """Of Kubernetes 1.36 on: the group that the pod is placed with."""

    pod_group_name: str = ""


# volumes


class GCEPersistentDisk(Slim, frozen=True):
    pd_name: str = ""
    read_only: bool = False


class AWSElasticBlockStore(Slim, frozen=True):
    volume_id: str = msgspec.field(default="", name="volumeID")


class ISCSI(core.Source, frozen=True):
    iqn: str = ""
    read_only: bool = False


class RBD(Slim, frozen=True):
    monitors: tuple[str, ...] = ()
    pool: str = "rbd"
    image: str = ""
    read_only: bool = False


class AzureDisk(Slim, frozen=True):
    disk_uri: str = msgspec.field(default="", name="diskURI")


class NamedVolume(Slim, frozen=True):
    """A volume of Cinder or Portworx."""

    volume_id: str = msgspec.field(default="", name="volumeID")


class Volume(core.Volume, frozen=True):
    """With what tells one disk from another, of the kinds of which a node takes some only."""

    iscsi: ISCSI | None = None
    gce_persistent_disk: GCEPersistentDisk | None = None
    aws_elastic_block_store: AWSElasticBlockStore | None = None
    azure_disk: AzureDisk | None = None
    cinder: NamedVolume | None = None
    portworx_volume: NamedVolume | None = None
    rbd: RBD | None = None


class PodSpec(core.PodSpec, frozen=True):
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    volumes: tuple[Volume, ...] = ()
    node_selector: Mapping[str, str] = {}
    affinity: Affinity | None = None
    tolerations: tuple[Toleration, ...] = ()
    topology_spread_constraints: tuple[TopologySpreadConstraint, ...] = ()
    scheduling_gates: tuple[SchedulingGate, ...] = ()
    """While there is one, nobody places the pod."""
    preemption_policy: str = "PreemptLowerPriority"
    resource_claims: tuple[PodResourceClaim, ...] = ()
    workload_ref: WorkloadReference | None = None
    scheduling_group: SchedulingGroup | None = None
    termination_grace_period_seconds: int | None = None

    @property
    def claim_names(self) -> tuple[str, ...]:
        """The PersistentVolumeClaims that its volumes name, in their order; ephemeral volumes name none."""
        claims = (volume.persistent_volume_claim for volume in self.volumes)
        return tuple([claim.claim_name for claim in claims if claim is not None])


class ContainerStatus(core.ContainerStatus, frozen=True):
    allocated_resources: Mapping[str, Amount] = {}
    """What the node has set aside, which a resize may not have reached yet."""
    resources: ResourceRequirements | None = None
    """Those in force."""


class PodStatus(core.PodStatus, frozen=True):
    container_statuses: tuple[ContainerStatus, ...] = ()
    init_container_statuses: tuple[ContainerStatus, ...] = ()
    conditions: tuple[Condition, ...] = ()
    nominated_node_name: str = ""
    reason: str = ""

    def condition(self, type: str) -> Condition | None:
        return next((each for each in self.conditions if each.type == type), None)


class Pod(core.Pod, frozen=True):
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


# Node


class ContainerImage(Slim, frozen=True):
    names: tuple[str, ...] = ()
    size_bytes: int = 0


class NodeStatus(core.NodeStatus, frozen=True):
    images: tuple[ContainerImage, ...] = ()


class Node(core.Node, frozen=True):
    status: NodeStatus = NodeStatus()

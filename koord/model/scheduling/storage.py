"""Where a pod's volumes can be: PersistentVolumeClaim and PersistentVolume of core/v1, storage.k8s.io/v1."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from koord.model.core import CSI, Amount, ObjectMeta, ResourceRequirements, Slim
from koord.model.scheduling.pods import (
    AWSElasticBlockStore,
    AzureDisk,
    GCEPersistentDisk,
    NamedVolume,
    NodeSelector,
)
from koord.model.selector import LabelSelector


class ObjectReference(Slim, frozen=True):
    """An object, as far as whoever refers to it says."""

    api_version: str = ""
    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""
    resource_version: str = ""
    field_path: str = ""


# PersistentVolumeClaim


class ClaimSpec(Slim, frozen=True):
    access_modes: tuple[str, ...] = ()
    resources: ResourceRequirements = ResourceRequirements()
    selector: LabelSelector | None = None
    storage_class_name: str | None = None
    """ "": of no class; None: of the default class, which admission writes here."""
    volume_mode: str = "Filesystem"
    volume_name: str = ""
    """ "": not bound."""
    volume_attributes_class_name: str = ""


class ClaimStatus(Slim, frozen=True):
    phase: str = ""
    access_modes: tuple[str, ...] = ()
    capacity: Mapping[str, Amount] = {}


class PersistentVolumeClaim(Slim, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: ClaimSpec = ClaimSpec()
    status: ClaimStatus = ClaimStatus()


# PersistentVolume


class VolumeNodeAffinity(Slim, frozen=True):
    required: NodeSelector | None = None


class CSISource(CSI, frozen=True):
    volume_handle: str = ""


class LocalSource(Slim, frozen=True):
    path: str = ""


class PersistentVolumeSpec(Slim, frozen=True):
    capacity: Mapping[str, Amount] = {}
    access_modes: tuple[str, ...] = ()
    claim_ref: ObjectReference | None = None
    node_affinity: VolumeNodeAffinity | None = None
    """From which nodes it can be reached; None: from all."""
    persistent_volume_reclaim_policy: str = ""
    storage_class_name: str = ""
    volume_mode: str = "Filesystem"
    volume_attributes_class_name: str = ""
    csi: CSISource | None = None
    local: LocalSource | None = None
    gce_persistent_disk: GCEPersistentDisk | None = None
    aws_elastic_block_store: AWSElasticBlockStore | None = None
    azure_disk: AzureDisk | None = None
    cinder: NamedVolume | None = None
    portworx_volume: NamedVolume | None = None


class PersistentVolumeStatus(Slim, frozen=True):
    phase: str = ""


class PersistentVolume(Slim, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: PersistentVolumeSpec = PersistentVolumeSpec()
    status: PersistentVolumeStatus = PersistentVolumeStatus()


# StorageClass


class TopologyRequirement(Slim, frozen=True):
    key: str = ""
    values: tuple[str, ...] = ()


class TopologyTerm(Slim, frozen=True):
    match_label_expressions: tuple[TopologyRequirement, ...] = ()


class StorageClass(Slim, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    provisioner: str = ""
    parameters: Mapping[str, str] = {}
    reclaim_policy: str = "Delete"
    allow_volume_expansion: bool = False
    volume_binding_mode: str = "Immediate"
    """``WaitForFirstConsumer``: the scheduler chooses the node first."""
    allowed_topologies: tuple[TopologyTerm, ...] = ()


# CSINode


class VolumeLimit(Slim, frozen=True):
    count: int | None = None
    """None: no limit."""


class CSINodeDriver(Slim, frozen=True):
    name: str = ""
    node_id: str = msgspec.field(default="", name="nodeID")
    topology_keys: tuple[str, ...] = ()
    allocatable: VolumeLimit | None = None


class CSINodeSpec(Slim, frozen=True):
    drivers: tuple[CSINodeDriver, ...] = ()


class CSINode(Slim, frozen=True):
    """Has its node's name."""

    metadata: ObjectMeta = ObjectMeta()
    spec: CSINodeSpec = CSINodeSpec()


# VolumeAttachment


class AttachmentSource(Slim, frozen=True):
    persistent_volume_name: str = ""
    """ "": it is of a volume that a pod describes itself."""


class AttachmentSpec(Slim, frozen=True):
    attacher: str = ""
    """The CSI driver."""
    node_name: str = ""
    source: AttachmentSource = AttachmentSource()


class VolumeAttachment(Slim, frozen=True):
    """What the attach controller wants attached to a node, whether it is yet or not."""

    metadata: ObjectMeta = ObjectMeta()
    spec: AttachmentSpec = AttachmentSpec()


# CSIDriver, CSIStorageCapacity


class CSIDriverSpec(Slim, frozen=True):
    storage_capacity: bool = False
    """It says in CSIStorageCapacities how much room there is; without one there is none."""


class CSIDriver(Slim, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: CSIDriverSpec = CSIDriverSpec()


class CSIStorageCapacity(Slim, frozen=True):
    """The room for volumes of one class that the nodes of one topology reach."""

    metadata: ObjectMeta = ObjectMeta()
    storage_class_name: str = ""
    node_topology: LabelSelector | None = None
    """None: no node reaches it."""
    capacity: Amount | None = None
    maximum_volume_size: Amount | None = None
    """The size that counts where it is set."""

"""The kinds that a scheduler follows, read as it needs them: ``koord.model.scheduling``.

Apart from ``koord.kube.kind``, so that a component which places no pods imports none of their structs.
"""

from __future__ import annotations

from koord.kube import kind
from koord.kube.kind import Kind
from koord.model.scheduling.koordinator import POD_GROUP_API, SCHEDULING_API, Device, PodGroup, Reservation
from koord.model.scheduling.owners import ReplicaSet, ReplicationController, Service, StatefulSet
from koord.model.scheduling.pods import Node, Pod
from koord.model.scheduling.policies import PodDisruptionBudget, PriorityClass
from koord.model.scheduling.storage import (
    CSIDriver,
    CSINode,
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    VolumeAttachment,
)

POD = kind.POD.decoded_as(Pod)
NODE = kind.NODE.decoded_as(Node)
SERVICE = Kind("", "v1", "Service", "services", True, Service)
REPLICATION_CONTROLLER = Kind("", "v1", "ReplicationController", "replicationcontrollers", True, ReplicationController)
REPLICA_SET = Kind("apps", "v1", "ReplicaSet", "replicasets", True, ReplicaSet)
STATEFUL_SET = Kind("apps", "v1", "StatefulSet", "statefulsets", True, StatefulSet)
PRIORITY_CLASS = kind.PRIORITY_CLASS.decoded_as(PriorityClass)
POD_DISRUPTION_BUDGET = Kind("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets", True, PodDisruptionBudget)
PERSISTENT_VOLUME_CLAIM = Kind("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims", True, PersistentVolumeClaim)
PERSISTENT_VOLUME = Kind("", "v1", "PersistentVolume", "persistentvolumes", False, PersistentVolume)
STORAGE_CLASS = Kind("storage.k8s.io", "v1", "StorageClass", "storageclasses", False, StorageClass)
CSI_NODE = Kind("storage.k8s.io", "v1", "CSINode", "csinodes", False, CSINode)
VOLUME_ATTACHMENT = Kind("storage.k8s.io", "v1", "VolumeAttachment", "volumeattachments", False, VolumeAttachment)
CSI_DRIVER = Kind("storage.k8s.io", "v1", "CSIDriver", "csidrivers", False, CSIDriver)
CSI_STORAGE_CAPACITY = Kind(
    "storage.k8s.io", "v1", "CSIStorageCapacity", "csistoragecapacities", True, CSIStorageCapacity
)
POD_GROUP = Kind(POD_GROUP_API, "v1alpha1", "PodGroup", "podgroups", True, PodGroup)
RESERVATION = Kind(SCHEDULING_API, "v1alpha1", "Reservation", "reservations", False, Reservation)
DEVICE = Kind(SCHEDULING_API, "v1alpha1", "Device", "devices", False, Device)

"""The objects of volumes that tests of scheduling make, and a state of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import msgspec

from koord.model import core
from koord.model.scheduling.storage import (
    CSIDriver,
    CSINode,
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    VolumeAttachment,
)
from koord.scheduling.state import ClusterState
from koord.scheduling.volumes import BIND_COMPLETED

DRIVER = "csi.example.com"
EBS = "ebs.csi.aws.com"
StorageObject: TypeAlias = (
    PersistentVolumeClaim
    | PersistentVolume
    | StorageClass
    | CSINode
    | CSIDriver
    | CSIStorageCapacity
    | VolumeAttachment
)


def claim(
    name: str,
    /,
    size: str | None = "5Gi",
    *,
    storage_class: str | None = "fast",
    volume: str = "",
    modes: Sequence[str] = ("ReadWriteOnce",),
    annotations: Mapping[str, str] | None = None,
    metadata: Mapping[str, Any] | None = None,
    phase: str = "",
    namespace: str = "default",
    **spec: Any,
) -> PersistentVolumeClaim:
    """One that is bound, unless ``volume`` is ""; its uid is ``uid-`` and its name."""
    marks = {**({BIND_COMPLETED: "yes"} if volume else {}), **(annotations or {})}
    made = {
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": f"uid-{name}",
            "annotations": marks,
            **(metadata or {}),
        },
        "spec": {
            "accessModes": list(modes),
            "resources": {"requests": {} if size is None else {"storage": size}},
            "volumeName": volume,
            **({} if storage_class is None else {"storageClassName": storage_class}),
            **spec,
        },
        "status": {"phase": phase or ("Bound" if volume else "Pending")},
    }
    return core.read(PersistentVolumeClaim, msgspec.json.encode(made))


def volume(
    name: str,
    /,
    size: str = "10Gi",
    *,
    storage_class: str = "fast",
    at: Mapping[str, Sequence[str]] | None = None,
    claim_ref: str = "",
    claim_uid: str | None = None,
    phase: str = "Available",
    labels: Mapping[str, str] | None = None,
    metadata: Mapping[str, Any] | None = None,
    **spec: Any,
) -> PersistentVolume:
    """``at``: the labels and values that nodes need to reach it. ``claim_ref``: a claim of the namespace default."""
    made: dict[str, Any] = {
        "metadata": {"name": name, "labels": dict(labels or {}), **(metadata or {})},
        "spec": {
            "capacity": {"storage": size},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": storage_class,
            **spec,
        },
        "status": {"phase": phase},
    }
    if at is not None:
        terms = [{"key": key, "operator": "In", "values": list(values)} for key, values in at.items()]
        made["spec"]["nodeAffinity"] = {"required": {"nodeSelectorTerms": [{"matchExpressions": terms}]}}
    if claim_ref:
        uid = f"uid-{claim_ref}" if claim_uid is None else claim_uid
        made["spec"]["claimRef"] = {"namespace": "default", "name": claim_ref, "uid": uid}
    return core.read(PersistentVolume, msgspec.json.encode(made))


def storage_class(
    name: str = "fast",
    /,
    provisioner: str = DRIVER,
    *,
    waits: bool = True,
    topologies: Sequence[Mapping[str, Any]] = (),
) -> StorageClass:
    """``topologies``: one of which a node needs, each by label with its values."""
    terms = [
        {"matchLabelExpressions": [{"key": key, "values": list(values)} for key, values in each.items()]}
        for each in topologies
    ]
    made = {
        "metadata": {"name": name},
        "provisioner": provisioner,
        "volumeBindingMode": "WaitForFirstConsumer" if waits else "Immediate",
        "allowedTopologies": terms,
    }
    return core.read(StorageClass, msgspec.json.encode(made))


def csi_node(name: str, /, **limits: int | None) -> CSINode:
    """``limits``: by driver, with ``_`` for the dots of its name."""
    drivers = [
        {
            "name": driver.replace("_", "."),
            "nodeID": name,
            **({} if count is None else {"allocatable": {"count": count}}),
        }
        for driver, count in limits.items()
    ]
    return core.read(CSINode, msgspec.json.encode({"metadata": {"name": name}, "spec": {"drivers": drivers}}))


def attachment(name: str, /, node: str, volume: str, attacher: str = DRIVER) -> VolumeAttachment:
    """``volume`` "": of a volume that a pod describes itself."""
    source: dict[str, Any] = {"persistentVolumeName": volume} if volume else {"inlineVolumeSpec": {}}
    made = {"metadata": {"name": name}, "spec": {"attacher": attacher, "nodeName": node, "source": source}}
    return core.read(VolumeAttachment, msgspec.json.encode(made))


def driver(name: str = DRIVER, /, storage_capacity: bool = True) -> CSIDriver:
    made = {"metadata": {"name": name}, "spec": {"storageCapacity": storage_capacity}}
    return core.read(CSIDriver, msgspec.json.encode(made))


def capacity(
    name: str, /, size: str | None, topology: Mapping[str, Any] | None, *, storage_class: str = "fast", **members: Any
) -> CSIStorageCapacity:
    """``topology``: a label selector; None: no node reaches it."""
    made = {
        "metadata": {"name": name, "namespace": "kube-system"},
        "storageClassName": storage_class,
        **({} if size is None else {"capacity": size}),
        **({} if topology is None else {"nodeTopology": topology}),
        **members,
    }
    return core.read(CSIStorageCapacity, msgspec.json.encode(made))


def put(state: ClusterState, objects: Iterable[StorageObject]) -> None:
    volumes = state.volumes
    for each in objects:
        match each:
            case PersistentVolumeClaim():
                assert not volumes.put_claim(each)
            case PersistentVolume():
                assert not volumes.put_volume(each)
            case StorageClass():
                volumes.put_class(each)
            case CSINode():
                volumes.limits.put(each)
            case VolumeAttachment():
                volumes.attachments.put(each)
            case CSIDriver():
                volumes.put_driver(each)
            case CSIStorageCapacity():
                assert not volumes.put_capacity(each)


def of_claims(*names: str) -> list[dict[str, Any]]:
    """A pod's volumes."""
    return [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in names]


def of_ephemeral(*names: str) -> list[dict[str, Any]]:
    return [{"name": name, "ephemeral": {"volumeClaimTemplate": {"spec": {}}}} for name in names]

"""What a scheduler reads: each struct of a document that has every field, and what becomes of one that is not right."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from msgspec import inspect

from koord.kube import schedulingkinds
from koord.kube.kind import Kind
from koord.model import core
from koord.model.scheduling.koordinator import Device, PodGroup, Reservation
from koord.model.scheduling.owners import ReplicaSet, ReplicationController, Service, StatefulSet
from koord.model.scheduling.pods import ISCSI, RBD, AWSElasticBlockStore, GCEPersistentDisk, Node, Pod
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
from tests.model.scheduling import everyfield

DOCUMENTS: dict[type[msgspec.Struct], dict[str, Any]] = {
    Pod: everyfield.POD,
    Node: everyfield.NODE,
    PersistentVolumeClaim: everyfield.PERSISTENT_VOLUME_CLAIM,
    PersistentVolume: everyfield.PERSISTENT_VOLUME,
    StorageClass: everyfield.STORAGE_CLASS,
    VolumeAttachment: everyfield.VOLUME_ATTACHMENT,
    CSINode: everyfield.CSI_NODE,
    CSIDriver: everyfield.CSI_DRIVER,
    CSIStorageCapacity: everyfield.CSI_STORAGE_CAPACITY,
    Service: everyfield.SERVICE,
    ReplicationController: everyfield.REPLICATION_CONTROLLER,
    ReplicaSet: everyfield.REPLICA_SET,
    StatefulSet: everyfield.STATEFUL_SET,
    PodDisruptionBudget: everyfield.POD_DISRUPTION_BUDGET,
    PriorityClass: everyfield.PRIORITY_CLASS,
    PodGroup: everyfield.POD_GROUP,
    Reservation: everyfield.RESERVATION,
    Device: everyfield.DEVICE,
}
STRUCTS = pytest.mark.parametrize("struct", list(DOCUMENTS), ids=lambda struct: struct.__name__)
Path = tuple[str | int, ...]
SELECTING_MAPS = ((("spec", "selector"), Service), (("spec", "selector"), ReplicationController))
"""Selectors without operators."""
OF_OTHERS = ("metadata", "containerStatuses", "initContainerStatuses", "volumes")
"""Members whose fields are of ``koord.model.core``, which has tests of its own."""


def read(struct: type[msgspec.Struct], document: Any) -> msgspec.Struct:
    return core.read(struct, json.dumps(document, separators=(",", ":")).encode())


def outcome(struct: type[msgspec.Struct], document: Any) -> msgspec.Struct | str:
    """The object, or why there is none."""
    try:
        return read(struct, document)
    except ValueError as error:
        return str(error)


def members(value: Any, path: Path = ()) -> Iterator[Path]:
    """The paths of all members of objects in a document."""
    if isinstance(value, dict):
        for name, member in value.items():
            yield (*path, name)
            yield from members(member, (*path, name))
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from members(item, (*path, number))


def changed(document: Any, path: Path, value: Any) -> Any:
    result = copy.deepcopy(document)
    inner = result
    for step in path[:-1]:
        inner = inner[step]
    if value is ...:
        del inner[path[-1]]
    else:
        inner[path[-1]] = value
    return result


def undefined(value: Any, path: str = "$") -> Iterator[str]:
    """The fields of structs that have their default."""
    for field in inspect.type_info(type(value)).fields:  # type: ignore[attr-defined]
        if field.encode_name in OF_OTHERS:
            continue
        member, place = getattr(value, field.name), f"{path}.{field.encode_name}"
        if member == field.default or (field.default_factory in (dict, tuple) and not member):
            yield place
        for item in member if isinstance(member, tuple) else (member,):
            if isinstance(item, msgspec.Struct):
                yield from undefined(item, place)


@STRUCTS
def test_a_document_with_every_field_leaves_none_at_its_default(struct: type[msgspec.Struct]) -> None:
    """So no name is misspelt here, where the document has those of the API reference."""
    unset = {path for path in undefined(read(struct, DOCUMENTS[struct])) if path not in everyfield.EXCLUSIVE}
    assert not unset


@STRUCTS
def test_what_is_read_is_written_the_same(struct: type[msgspec.Struct]) -> None:
    value = read(struct, DOCUMENTS[struct])
    assert core.read(struct, msgspec.json.encode(value)) == value


@STRUCTS
def test_a_member_that_is_null_is_absent(struct: type[msgspec.Struct]) -> None:
    document = DOCUMENTS[struct]
    for path in members(document):
        null, absent = (outcome(struct, changed(document, path, value)) for value in (None, ...))
        assert null == absent, path


@STRUCTS
def test_members_that_nobody_knows_are_skipped(struct: type[msgspec.Struct]) -> None:
    document = DOCUMENTS[struct]
    value = read(struct, document)
    for path in members(document):
        parent = path[:-1]
        is_map = parent[-1:] in everyfield.MAPS or (parent, struct) in SELECTING_MAPS
        if isinstance(path[-1], str) and not is_map:
            assert read(struct, changed(document, (*parent, "ofALaterRelease"), {"a": [1]})) == value, path


@STRUCTS
def test_an_empty_document_is_all_defaults(struct: type[msgspec.Struct]) -> None:
    assert read(struct, {}) == struct()


WRONG = [
    (Pod, ("spec", "affinity"), [], "Expected `object | null`, got `array` - at `$.spec.affinity`"),
    (Pod, ("spec", "tolerations"), {}, "Expected `array`, got `object` - at `$.spec.tolerations`"),
    (Pod, ("spec", "tolerations", 0, "tolerationSeconds"), "5",
     "Expected `int | null`, got `str` - at `$.spec.tolerations[0].tolerationSeconds`"),
    (Pod, ("spec", "containers", 0, "ports", 0, "hostPort"), "80",
     "Expected `int`, got `str` - at `$.spec.containers[0].ports[0].hostPort`"),
    (Pod, ("spec", "schedulingGates", 0, "name"), 1, "Expected `str`, got `int` - at `$.spec.schedulingGates[0].name`"),
    (Node, ("status", "images", 0, "sizeBytes"), "5", "Expected `int`, got `str` - at `$.status.images[0].sizeBytes`"),
    (Node, ("spec", "taints", 0, "key"), 7, "Expected `str`, got `int` - at `$.spec.taints[0].key`"),
    (PersistentVolumeClaim, ("spec", "storageClassName"), 7,
     "Expected `str | null`, got `int` - at `$.spec.storageClassName`"),
    (PersistentVolume, ("spec", "claimRef", "uid"), 7, "Expected `str`, got `int` - at `$.spec.claimRef.uid`"),
    (StorageClass, ("volumeBindingMode",), True, "Expected `str`, got `bool` - at `$.volumeBindingMode`"),
    (CSINode, ("spec", "drivers", 0, "allocatable", "count"), "25",
     "Expected `int | null`, got `str` - at `$.spec.drivers[0].allocatable.count`"),
    (PodDisruptionBudget, ("spec", "minAvailable"), [],
     "Expected `int | str | null`, got `array` - at `$.spec.minAvailable`"),
    (Service, ("spec", "selector"), [], "Expected `object | null`, got `array` - at `$.spec.selector`"),
    (ReplicaSet, ("spec", "selector", "matchLabels"), [],
     "Expected `object`, got `array` - at `$.spec.selector.matchLabels`"),
    (PriorityClass, ("value",), "1000", "Expected `int`, got `str` - at `$.value`"),
    (PodGroup, ("spec", "minMember"), "3", "Expected `int`, got `str` - at `$.spec.minMember`"),
    (Reservation, ("spec", "allocateOnce"), "true", "Expected `bool`, got `str` - at `$.spec.allocateOnce`"),
    (Reservation, ("spec", "template", "spec", "nodeName"), 1,
     "Expected `str`, got `int` - at `$.spec.template.spec.nodeName`"),
    (Device, ("spec", "devices", 0, "topology", "socketID"), "0",
     "Expected `int`, got `str` - at `$.spec.devices[0].topology.socketID`"),
]  # fmt: skip


@pytest.mark.parametrize(("struct", "path", "value", "problem"), WRONG)
def test_a_member_of_another_type_is_named(struct: type[msgspec.Struct], path: Path, value: Any, problem: str) -> None:
    with pytest.raises(ValueError) as caught:
        read(struct, changed(DOCUMENTS[struct], path, value))
    assert str(caught.value) == problem


def kinds() -> list[Kind[Any]]:
    return [kind for kind in vars(schedulingkinds).values() if isinstance(kind, Kind)]


@pytest.mark.parametrize("kind", kinds(), ids=str)
def test_kinds(kind: Kind[Any]) -> None:
    document = DOCUMENTS[kind.struct]
    assert (document["apiVersion"], document["kind"]) == (kind.api_version, kind.name)
    assert kind.namespaced is ("namespace" in document["metadata"])


def test_every_struct_has_a_kind() -> None:
    assert {kind.struct for kind in kinds()} == set(DOCUMENTS)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ({"iscsi": {"iqn": "iqn.a", "readOnly": True, "lun": 0}}, ISCSI("iqn.a", True)),
        ({"gcePersistentDisk": {"pdName": "d", "readOnly": True}}, GCEPersistentDisk("d", True)),
        ({"awsElasticBlockStore": {"volumeID": "vol-1", "fsType": "ext4"}}, AWSElasticBlockStore("vol-1")),
        ({"rbd": {"monitors": ["m"], "image": "i", "pool": "p", "readOnly": True}}, RBD(("m",), "p", "i", True)),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_disks_that_pods_may_not_share(source: dict[str, Any], expected: msgspec.Struct) -> None:
    pod = core.read(Pod, json.dumps({"spec": {"volumes": [{"name": "v", **source}]}}).encode())
    (volume,) = pod.spec.volumes
    assert volume.kind == next(iter(source))
    assert expected in [getattr(volume, field) for field in volume.__struct_fields__]


def test_the_claims_of_a_pod() -> None:
    pod = read(Pod, everyfield.POD)
    assert isinstance(pod, Pod)
    assert pod.spec.claim_names == ("data",)
    scheduled = pod.status.condition("PodScheduled")
    assert scheduled is not None
    assert scheduled.reason == "Unschedulable"
    assert pod.status.condition("Ready") is None

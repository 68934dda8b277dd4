"""The storage of a compared cluster: read into a state, and bound as the cluster's controllers do it.

Schedulers leave it to the controller of volumes to say that a claim is bound, and to a provisioner to make a volume on
the node that they select. No such controller runs beside the API server: `StorageController` does what they would.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import msgspec

from integration.cluster.api import Api
from integration.cluster.comparedclusters import DRIVER, collection
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
from koord.scheduling.volumes import BIND_COMPLETED, SELECTED_NODE, Volumes
from tests.scheduling.clusters import HOSTNAME

T = TypeVar("T", bound=msgspec.Struct)


class Plurals(NamedTuple):
    namespaced: tuple[str, ...]
    cluster_wide: tuple[str, ...]

    @property
    def all(self) -> tuple[str, ...]:
        return (*self.namespaced, *self.cluster_wide)


STORAGE = Plurals(
    ("persistentvolumeclaims", "csistoragecapacities"), ("volumeattachments", "persistentvolumes", "csinodes")
)
"""What each cluster has of its own."""


@dataclass(frozen=True)
class Storage:
    """The objects, as they were when they were read."""

    claims: Sequence[PersistentVolumeClaim]
    volumes: Sequence[PersistentVolume]
    classes: Sequence[StorageClass]
    csi_nodes: Sequence[CSINode]
    drivers: Sequence[CSIDriver]
    capacities: Sequence[CSIStorageCapacity]
    attachments: Sequence[VolumeAttachment]

    @classmethod
    def read(cls, api: Api) -> Storage:
        def items(kind: type[T], plural: str) -> Sequence[T]:
            return core.read_list(kind, api.raw("GET", collection(plural))).items

        return cls(
            items(PersistentVolumeClaim, "persistentvolumeclaims"),
            items(PersistentVolume, "persistentvolumes"),
            items(StorageClass, "storageclasses"),
            items(CSINode, "csinodes"),
            items(CSIDriver, "csidrivers"),
            items(CSIStorageCapacity, "csistoragecapacities"),
            items(VolumeAttachment, "volumeattachments"),
        )

    def put(self, volumes: Volumes) -> None:
        for claim in self.claims:
            volumes.put_claim(claim)
        for volume in self.volumes:
            volumes.put_volume(volume)
        for storage_class in self.classes:
            volumes.put_class(storage_class)
        for csi_node in self.csi_nodes:
            volumes.limits.put(csi_node)
        for driver in self.drivers:
            volumes.put_driver(driver)
        for capacity in self.capacities:
            volumes.put_capacity(capacity)
        for attachment in self.attachments:
            volumes.attachments.put(attachment)


class StorageController:
    def __init__(self, api: Api) -> None:
        self._api = api

    def bind(self) -> None:
        """Binds the claims for which a scheduler keeps a volume, or has one made."""
        by_name = {
            (each["metadata"]["namespace"], each["metadata"]["name"]): each
            for each in self._api.items(collection("persistentvolumeclaims"))
            if not each["spec"].get("volumeName")
        }
        kept = set()
        for volume in self._api.items(collection("persistentvolumes")):
            ref = volume["spec"].get("claimRef", {})
            key = ref.get("namespace", ""), ref.get("name", "")
            claim = by_name.get(key)
            if claim is not None and ref.get("uid") == claim["metadata"]["uid"]:
                self._bound(claim, volume["metadata"]["name"])
                kept.add(key)
        for key, claim in by_name.items():
            node = claim["metadata"].get("annotations", {}).get(SELECTED_NODE)
            if key not in kept and node:
                self._bound(claim, self._provisioned(claim, node))

    def _provisioned(self, claim: dict[str, Any], node: str) -> str:
        metadata, spec = claim["metadata"], claim["spec"]
        name = f"made-{metadata['uid']}"
        term = {"matchExpressions": [{"key": HOSTNAME, "operator": "In", "values": [node]}]}
        ref = {"kind": "PersistentVolumeClaim", "namespace": metadata["namespace"]}
        document = {
            "metadata": {"name": name},
            "spec": {
                "capacity": {"storage": spec["resources"]["requests"]["storage"]},
                "accessModes": spec["accessModes"],
                "storageClassName": spec["storageClassName"],
                "claimRef": {**ref, "name": metadata["name"], "uid": metadata["uid"]},
                "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
                "csi": {"driver": DRIVER, "volumeHandle": name},
            },
        }
        self._api.create(collection("persistentvolumes"), document)
        return name

    def _bound(self, claim: dict[str, Any], volume: str) -> None:
        path = f"{collection('persistentvolumeclaims', claim['metadata']['namespace'])}/{claim['metadata']['name']}"
        self._api.merge(f"{collection('persistentvolumes')}/{volume}/status", {"status": {"phase": "Bound"}})
        self._api.merge(path, {"metadata": {"annotations": {BIND_COMPLETED: "yes"}}, "spec": {"volumeName": volume}})
        self._api.merge(f"{path}/status", {"status": {"phase": "Bound"}})

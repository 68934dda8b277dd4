"""The plugins of volumes once more, node by node and object by object: slow, and of other code.

It is told of assumptions as if the objects said them: a volume that is kept for its claim, a claim with a node.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from koord.model.scheduling.pods import Node, NodeSelectorTerm, Volume
from koord.model.scheduling.storage import (
    CSIDriver,
    CSINode,
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    VolumeAttachment,
)
from koord.scheduling.podinfo import PodInfo

SELECTED, BOUND = "volume.kubernetes.io/selected-node", "pv.kubernetes.io/bind-completed"
UNITS = {"Mi": 1 << 20, "Gi": 1 << 30}
ZONE_LABELS = (
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
)


@dataclass
class VolumeOracle:
    nodes: dict[str, Node] = field(default_factory=dict)
    placed: dict[str, tuple[PodInfo, str]] = field(default_factory=dict)
    claims: dict[tuple[str, str], PersistentVolumeClaim] = field(default_factory=dict)
    volumes: dict[str, PersistentVolume] = field(default_factory=dict)
    classes: dict[str, StorageClass] = field(default_factory=dict)
    csi_nodes: dict[str, CSINode] = field(default_factory=dict)
    drivers: dict[str, CSIDriver] = field(default_factory=dict)
    capacities: dict[str, CSIStorageCapacity] = field(default_factory=dict)
    attachments: dict[str, VolumeAttachment] = field(default_factory=dict)

    def reasons(self, pod: PodInfo, name: str) -> dict[str, list[str]]:
        """By plugin, the reasons against one node."""
        found = {
            "VolumeRestrictions": self._restrictions(pod, name),
            "NodeVolumeLimits": self._limits(pod, name),
            "VolumeZone": self._zones(pod, self.nodes[name]),
            "VolumeBinding": self._binding(pod, self.nodes[name])[0],
        }
        return {plugin: reasons for plugin, reasons in found.items() if reasons}

    def decision(self, pod: PodInfo, name: str) -> tuple[dict[str, str], list[str]]:
        """The volume of each claim that is to be bound, and the claims for which one is to be made."""
        return self._binding(pod, self.nodes[name])[1:]

    def _claim_names(self, pod: PodInfo, with_ephemeral: bool = True) -> list[tuple[str, bool]]:
        found = []
        for each in pod.spec.volumes:
            if each.persistent_volume_claim:
                found.append((each.persistent_volume_claim.claim_name, False))
            elif each.ephemeral and with_ephemeral:
                found.append((pod.name + "-" + each.name, True))
        return found

    # VolumeRestrictions

    def _restrictions(self, pod: PodInfo, name: str) -> list[str]:
        exclusive = set()
        for claim_name, _ in self._claim_names(pod, with_ephemeral=False):
            claim = self.claims.get((pod.namespace, claim_name))
            if claim is None:
                return [f'persistentvolumeclaim "{claim_name}" not found']
            if "ReadWriteOncePod" in claim.spec.access_modes:
                exclusive.add(claim_name)
        for other, place in self.placed.values():
            if place == name and any(
                _collide(mine, theirs) for mine in pod.spec.volumes for theirs in other.spec.volumes
            ):
                return ["node(s) had no available disk"]
        for other, place in self.placed.values():
            used = {claim_name for claim_name, _ in self._claim_names(other)}
            if place in self.nodes and other.namespace == pod.namespace and used & exclusive:
                return ["node has pod using PersistentVolumeClaim with the same name and ReadWriteOncePod access mode"]
        return []

    # NodeVolumeLimits

    def _limits(self, pod: PodInfo, name: str) -> list[str]:
        for claim_name, _ in self._claim_names(pod):
            if (pod.namespace, claim_name) not in self.claims:
                full = f"{pod.namespace}/{claim_name}"
                return [f'looking up PVC {full}: persistentvolumeclaim "{claim_name}" not found']
        there = {volume for other, place in self.placed.values() if place == name for volume in self._attached(other)}
        new = self._attached(pod) - there
        held = set()
        for each in self.attachments.values():
            named = self.volumes.get(each.spec.source.persistent_volume_name)
            if each.spec.node_name == name and each.spec.attacher and named and named.spec.csi:
                held.add((each.spec.attacher, named.spec.csi.volume_handle))
        limits = {
            each.name: each.allocatable.count
            for each in (self.csi_nodes[name].spec.drivers if name in self.csi_nodes else ())
            if each.allocatable
        }
        for driver in {driver for driver, _ in new}:
            limit = limits.get(driver)
            if limit is not None and _count(there | held, driver) + _count(new, driver) > limit:
                return ["node(s) exceed max volume count"]
        return []

    def _attached(self, pod: PodInfo) -> set[tuple[str, str]]:
        found = set()
        for inline in pod.spec.volumes:
            if inline.aws_elastic_block_store:
                found.add(("ebs.csi.aws.com", inline.aws_elastic_block_store.volume_id))
            elif inline.gce_persistent_disk:
                name = inline.gce_persistent_disk.pd_name
                found.add(("pd.csi.storage.gke.io", f"projects/UNSPECIFIED/zones/UNSPECIFIED/disks/{name}"))
        for claim_name, _ in self._claim_names(pod):
            claim = self.claims.get((pod.namespace, claim_name))
            if claim is None:
                continue
            volume = self.volumes.get(claim.spec.volume_name)
            if volume is not None:
                if volume.spec.csi:
                    found.add((volume.spec.csi.driver, volume.spec.csi.volume_handle))
                elif volume.spec.aws_elastic_block_store:
                    found.add(("ebs.csi.aws.com", volume.spec.aws_elastic_block_store.volume_id))
            elif (storage_class := self.classes.get(claim.spec.storage_class_name or "")) and storage_class.provisioner:
                found.add((storage_class.provisioner, f"of {pod.namespace}/{claim_name}"))
        return found

    # VolumeZone

    def _zones(self, pod: PodInfo, node: Node) -> list[str]:
        wanted = []
        for claim_name, _ in self._claim_names(pod, with_ephemeral=False):
            claim = self.claims.get((pod.namespace, claim_name))
            if claim is None:
                return [f'persistentvolumeclaim "{claim_name}" not found']
            if not claim.spec.volume_name:
                class_name = claim.spec.storage_class_name
                if not class_name:
                    return ["PersistentVolumeClaim had no pv name and storageClass name"]
                if class_name not in self.classes:
                    return [f'storageclass.storage.k8s.io "{class_name}" not found']
                if self.classes[class_name].volume_binding_mode != "WaitForFirstConsumer":
                    return ["PersistentVolume had no name"]
            elif claim.spec.volume_name not in self.volumes:
                return [f'persistentvolume "{claim.spec.volume_name}" not found']
            else:
                wanted.append(self.volumes[claim.spec.volume_name].metadata.labels)
        labels = node.metadata.labels
        if not any(label in labels for label in ZONE_LABELS):
            return []
        for volume_labels in wanted:
            for label in ZONE_LABELS:
                if label in volume_labels:
                    fallback = labels.get(label.replace("failure-domain.beta.", "topology."), "")
                    if labels.get(label, fallback) not in volume_labels[label].split("__"):
                        return ["node(s) had no available volume zone"]
        return []

    # VolumeBinding

    def _binding(self, pod: PodInfo, node: Node) -> tuple[list[str], dict[str, str], list[str]]:
        bound: list[PersistentVolumeClaim] = []
        waiting: list[PersistentVolumeClaim] = []
        for claim_name, is_ephemeral in self._claim_names(pod):
            claim = self.claims.get((pod.namespace, claim_name))
            if claim is None:
                if is_ephemeral:
                    text = "waiting for ephemeral volume controller to create the persistentvolumeclaim"
                    return [f'{text} "{claim_name}"'], {}, []
                return [f'persistentvolumeclaim "{claim_name}" not found'], {}, []
            if claim.status.phase == "Lost":
                text = f'persistentvolumeclaim "{claim_name}" bound to non-existent persistentvolume'
                return [f'{text} "{claim.spec.volume_name}"'], {}, []
            if claim.metadata.deletion_timestamp:
                return [f'persistentvolumeclaim "{claim_name}" is being deleted'], {}, []
            if is_ephemeral and not any(each.uid == pod.uid for each in claim.metadata.owner_references):
                full, whose = f"{pod.namespace}/{claim_name}", f"{pod.namespace}/{pod.name}"
                return [f"PVC {full} was not created for pod {whose} (pod is not owner)"], {}, []
            (bound if claim.spec.volume_name and BOUND in claim.metadata.annotations else waiting).append(claim)
        for claim in waiting:
            storage_class = self.classes.get(claim.spec.storage_class_name or "")
            if (
                claim.spec.volume_name
                or not storage_class
                or storage_class.volume_binding_mode != "WaitForFirstConsumer"
            ):
                return ["pod has unbound immediate PersistentVolumeClaims"], {}, []
        reasons = []
        for claim in bound:
            if claim.spec.volume_name not in self.volumes:
                reasons.append("node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)")
                break
            if not _reaches(node, self.volumes[claim.spec.volume_name]):
                reasons.append("node(s) had volume node affinity conflict")
                break
        reason, bindings, provisions = self._unbound(waiting, node)
        return [*reasons, reason] if reason else reasons, bindings, provisions

    def _unbound(self, claims: list[PersistentVolumeClaim], node: Node) -> tuple[str, dict[str, str], list[str]]:
        nothing = "node(s) didn't find available persistent volumes to bind"
        if any(claim.metadata.annotations.get(SELECTED, node.metadata.name) != node.metadata.name for claim in claims):
            return nothing, {}, []
        to_make = [claim for claim in claims if SELECTED in claim.metadata.annotations]
        bindings: dict[str, str] = {}
        for claim in sorted([each for each in claims if each not in to_make], key=_request):
            name = self._match(claim, node, set(bindings.values()))
            if name:
                bindings[claim.metadata.name] = name
            else:
                to_make.append(claim)
        for claim in to_make:
            storage_class = self.classes[claim.spec.storage_class_name or ""]
            if storage_class.provisioner in ("", "kubernetes.io/no-provisioner"):
                return nothing, {}, []
            topologies = storage_class.allowed_topologies
            if topologies and not any(
                all(node.metadata.labels.get(each.key) in each.values for each in term.match_label_expressions)
                for term in topologies
            ):
                return nothing, {}, []
            if not self._has_room(claim, storage_class, node):
                return "node(s) did not have enough free storage", {}, []
        return "", bindings, [claim.metadata.name for claim in to_make]

    def _match(self, claim: PersistentVolumeClaim, node: Node, taken: set[str]) -> str | None:
        fitting = [
            each
            for each in self.volumes.values()
            if each.metadata.name not in taken
            and each.spec.storage_class_name == claim.spec.storage_class_name
            and _size(each.spec.capacity["storage"]) >= _request(claim)
            and each.spec.volume_mode == claim.spec.volume_mode
            and not each.metadata.deletion_timestamp
        ]
        fitting.sort(key=lambda each: (_size(each.spec.capacity["storage"]), each.metadata.name))
        for each in fitting:
            ref, own = each.spec.claim_ref, claim.metadata
            if ref and (ref.namespace, ref.name) == (own.namespace, own.name) and ref.uid in ("", own.uid):
                return each.metadata.name if _reaches(node, each) else None
        for each in fitting:
            if (
                each.spec.claim_ref is None
                and each.status.phase == "Available"
                and _reaches(node, each)
                and set(claim.spec.access_modes) <= set(each.spec.access_modes)
                and (not claim.spec.selector or claim.spec.selector.matches(each.metadata.labels))
            ):
                return each.metadata.name
        return None

    def _has_room(self, claim: PersistentVolumeClaim, storage_class: StorageClass, node: Node) -> bool:
        driver = self.drivers.get(storage_class.provisioner)
        if not driver or not driver.spec.storage_capacity or "storage" not in claim.spec.resources.requests:
            return True
        return any(
            each.storage_class_name == storage_class.metadata.name
            and _size(each.maximum_volume_size or each.capacity) >= _request(claim)
            and each.node_topology is not None
            and each.node_topology.matches(node.metadata.labels)
            for each in self.capacities.values()
        )


def _count(volumes: set[tuple[str, str]], driver: str) -> int:
    return sum(driver == each for each, _ in volumes)


def _collide(mine: Volume, theirs: Volume) -> bool:
    if mine.gce_persistent_disk and theirs.gce_persistent_disk:
        one, two = mine.gce_persistent_disk, theirs.gce_persistent_disk
        return one.pd_name == two.pd_name and not (one.read_only and two.read_only)
    if mine.aws_elastic_block_store and theirs.aws_elastic_block_store:
        return mine.aws_elastic_block_store == theirs.aws_elastic_block_store
    if mine.rbd and theirs.rbd:
        is_same = (mine.rbd.pool, mine.rbd.image) == (theirs.rbd.pool, theirs.rbd.image)
        is_met = bool(set(mine.rbd.monitors) & set(theirs.rbd.monitors))
        return is_same and is_met and not (mine.rbd.read_only and theirs.rbd.read_only)
    return False


def _reaches(node: Node, volume: PersistentVolume) -> bool:
    affinity = volume.spec.node_affinity
    if affinity is None or affinity.required is None:
        return True
    return any(_holds(term, node.metadata.labels) for term in affinity.required.node_selector_terms)


def _holds(term: NodeSelectorTerm, labels: Mapping[str, str]) -> bool:
    for each in term.match_expressions:
        is_in = labels.get(each.key) in each.values
        if is_in != (each.operator == "In"):
            return False
    return bool(term.match_expressions)


def _request(claim: PersistentVolumeClaim) -> int:
    return _size(claim.spec.resources.requests.get("storage", "0Gi"))


def _size(text: object) -> int:
    return int(str(text)[:-2]) * UNITS[str(text)[-2:]]

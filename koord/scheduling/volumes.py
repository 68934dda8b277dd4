"""The volumes of a cluster, as a scheduler sees them: claims, what they are bound to, and what can be made for them.

Events of the API server put and remove the objects. A decision that binds a claim to a volume, or selects the node on
which a volume is made for it, is assumed with its pod: it counts from then on. The event of the object that says the
same confirms it; where pod or assumption is taken back, no trace is left.
A class of a claim or volume is that of the annotation before that of its spec, as everywhere in Kubernetes.

Invariant: what is said here equals what the same objects and assumptions say in any other order.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import NamedTuple
from weakref import WeakValueDictionary

from koord.model import quantity
from koord.model.core import Amount, ObjectMeta
from koord.model.problem import Problem
from koord.model.quantity import QuantityError
from koord.model.scheduling.pods import NodeSelectorRequirement, NodeSelectorTerm
from koord.model.scheduling.storage import (
    CSIDriver,
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
)
from koord.model.selector import LabelSelector
from koord.scheduling import csivolumes
from koord.scheduling.attachments import AttachedCounts, VolumeAttachments
from koord.scheduling.csivolumes import AttachedVolume
from koord.scheduling.podinfo import ClaimKey
from koord.scheduling.table import Bools, Int64s, Table
from koord.scheduling.volumeusers import VolumeLimits, VolumeUsers

SELECTED_NODE = "volume.kubernetes.io/selected-node"
BIND_COMPLETED = "pv.kubernetes.io/bind-completed"
NO_PROVISIONER = "kubernetes.io/no-provisioner"
_TOO_LARGE = 2**62
_CLASS = "volume.beta.kubernetes.io/storage-class"
_STORAGE, _WAITS, _AVAILABLE = "storage", "WaitForFirstConsumer", "Available"
_MOST_SIZES = 256


class Reach:
    """The nodes for which one of ``terms`` holds. What they are is kept here by `koord.scheduling.reach`.

    ``pin``: the one label and its values, where that is all that the terms ask for.
    """

    __slots__ = ("__weakref__", "mask", "pin", "rows", "terms", "version")

    def __init__(self, terms: tuple[NodeSelectorTerm, ...]) -> None:
        self.terms = terms
        self.pin = _pin(terms)
        self.mask: Bools | None = None
        self.rows: Int64s | None = None
        self.version = (-1, -1)


class ClaimRef(NamedTuple):
    """The claim that a volume is kept for. ``uid`` "": any of this name."""

    key: ClaimKey
    uid: str

    def is_of(self, claim: ClaimInfo) -> bool:
        return self.key == claim.key and self.uid in ("", claim.object.metadata.uid)


class ClaimInfo(NamedTuple):
    """``request_bytes`` None: it asks for no size."""

    object: PersistentVolumeClaim
    key: ClaimKey
    class_name: str
    request_bytes: int | None

    @property
    def is_bound(self) -> bool:
        """Returns whether the claim and its volume are bound to each other for good."""
        return bool(self.object.spec.volume_name) and BIND_COMPLETED in self.object.metadata.annotations


class VolumeInfo(NamedTuple):
    """``reach`` None: every node reaches it. ``taken_over``: the kind of it that a driver may have taken over on a
    node, which reaches it by ``taken_over_reach`` then; "": none.
    """

    object: PersistentVolume
    class_name: str
    capacity_bytes: int
    reach: Reach | None
    taken_over: str = ""
    taken_over_reach: Reach | None = None

    @property
    def name(self) -> str:
        return self.object.metadata.name


class ClassInfo(NamedTuple):
    """``reach`` None: its volumes can be made for every node."""

    object: StorageClass
    reach: Reach | None

    @property
    def waits(self) -> bool:
        """Returns whether a claim of it is bound only once a pod that uses it has a node."""
        return self.object.volume_binding_mode == _WAITS

    @property
    def is_provisioned(self) -> bool:
        return self.object.provisioner not in ("", NO_PROVISIONER)


class CapacityInfo(NamedTuple):
    """Room for volumes of up to ``limit_bytes`` that the nodes of ``reach`` can use; None: all of them."""

    limit_bytes: int
    reach: Reach | None


class ClaimBinding(NamedTuple):
    claim: ClaimKey
    volume: str


class VolumeDecision(NamedTuple):
    """What has to be so before a pod can run on ``node``: the volumes of ``bindings`` are kept for their claims, the
    claims of ``provisions`` say that the node is selected. An object that says so already needs no write; the pod
    waits until all of these claims are bound.
    """

    node: str
    bindings: tuple[ClaimBinding, ...] = ()
    provisions: tuple[ClaimKey, ...] = ()

    @property
    def claims(self) -> tuple[ClaimKey, ...]:
        return (*[each.claim for each in self.bindings], *self.provisions)


class Volumes:
    """``users``: what the pods on nodes use. ``attached``, ``limits``: how many volumes nodes have and take."""

    def __init__(self, table: Table) -> None:
        self.attached = AttachedCounts(table)
        self.attachments = VolumeAttachments(self.attached, self._object)
        self.users = VolumeUsers(self.attached, self.attached_volume)
        self.limits = VolumeLimits(table)
        self._claims: dict[ClaimKey, ClaimInfo] = {}
        self._claims_of_volume: dict[str, set[ClaimKey]] = {}
        self._volumes: dict[str, VolumeInfo] = {}
        self._classes: dict[str, ClassInfo] = {}
        self._drivers: dict[str, CSIDriver] = {}
        self._capacities: dict[str, dict[tuple[str, str], CapacityInfo]] = {}
        self._class_of_capacity: dict[tuple[str, str], str] = {}
        self.rooms: dict[tuple[str, int], tuple[tuple[int, int], Bools]] = {}
        """By class and size, the nodes with room for one; kept by `koord.scheduling.reach`."""
        self._free: dict[str, list[tuple[int, str]]] = {}
        self._kept: dict[ClaimKey, set[str]] = {}
        self._reaches: WeakValueDictionary[tuple[NodeSelectorTerm, ...], Reach] = WeakValueDictionary()
        self._place: dict[str, ClaimKey | tuple[str, int]] = {}
        self._assumed: dict[str, VolumeDecision] = {}
        self._assumed_refs: dict[str, dict[str, ClaimRef]] = {}
        self._assumed_nodes: dict[ClaimKey, dict[str, str]] = {}

    # what plugins read

    def claim(self, key: ClaimKey) -> ClaimInfo | None:
        return self._claims.get(key)

    def volume(self, name: str) -> VolumeInfo | None:
        return self._volumes.get(name)

    def storage_class(self, name: str) -> ClassInfo | None:
        return self._classes.get(name)

    def selected_node(self, claim: ClaimInfo) -> str | None:
        """Returns the node for which a volume of the claim is to be made; None: none is selected."""
        selected = claim.object.metadata.annotations.get(SELECTED_NODE)
        return selected if selected is not None else next(iter(self._assumed_nodes.get(claim.key, {}).values()), None)

    def claim_ref(self, volume: VolumeInfo) -> ClaimRef | None:
        """Returns the claim that the volume is kept for; None: it is for any."""
        ref = volume.object.spec.claim_ref
        if ref is not None:
            return ClaimRef(ClaimKey(ref.namespace, ref.name), ref.uid)
        return next(iter(self._assumed_refs.get(volume.name, {}).values()), None)

    def kept_for(self, claim: ClaimInfo) -> list[VolumeInfo]:
        """Returns the volumes that are kept for the claim, smallest first."""
        found = [self._volumes[name] for name in self._kept.get(claim.key, ())]
        fitting = [each for each in found if (ref := self.claim_ref(each)) is not None and ref.is_of(claim)]
        return sorted(fitting, key=lambda each: (each.capacity_bytes, each.name))

    def free(self, class_name: str, least_bytes: int) -> Iterator[VolumeInfo]:
        """Yields the volumes of a class that are for any claim and at least so large, smallest first."""
        listed = self._free.get(class_name, [])
        for index in range(bisect_left(listed, (least_bytes, "")), len(listed)):
            yield self._volumes[listed[index][1]]

    def attached_volume(self, key: ClaimKey) -> AttachedVolume | None:
        """Returns what a node has attached for a pod that uses the claim; None: nothing that a driver counts."""
        claim = self._claims.get(key)
        if claim is None:
            return None
        volume = self._volumes.get(claim.object.spec.volume_name)
        if volume is not None:
            return csivolumes.of_object(volume.object)
        found = self._classes.get(claim.class_name)
        driver = "" if found is None else csivolumes.driver_of(found.object.provisioner)
        return AttachedVolume(driver, f"\0{key.namespace}/{key.name}") if driver else None

    def has_capacities(self, driver: str) -> bool:
        """Returns whether the driver says how much room there is."""
        found = self._drivers.get(driver)
        return found is not None and found.spec.storage_capacity

    def capacities(self, class_name: str) -> Iterable[CapacityInfo]:
        return self._capacities.get(class_name, {}).values()

    # events

    def put_claim(self, claim: PersistentVolumeClaim) -> tuple[Problem, ...]:
        """Returns what could not be read, which counts as larger than any volume."""
        problems: list[Problem] = []
        amount = claim.spec.resources.requests.get(_STORAGE)
        request = (
            None if amount is None else _bytes(amount, _TOO_LARGE, f"spec.resources.requests[{_STORAGE}]", problems)
        )
        key = ClaimKey(claim.metadata.namespace, claim.metadata.name)
        self._forget_volume_of(key)
        self._claims[key] = ClaimInfo(claim, key, _class_name(claim.metadata, claim.spec.storage_class_name), request)
        if claim.spec.volume_name:
            self._claims_of_volume.setdefault(claim.spec.volume_name, set()).add(key)
        if claim.spec.volume_name or SELECTED_NODE in claim.metadata.annotations:
            self._assumed_nodes.pop(key, None)
        self.users.update((key,))
        return tuple(problems)

    def remove_claim(self, namespace: str, name: str) -> None:
        key = ClaimKey(namespace, name)
        self._forget_volume_of(key)
        self._claims.pop(key, None)
        self.users.update((key,))

    def put_volume(self, volume: PersistentVolume) -> tuple[Problem, ...]:
        """Returns what could not be read, which counts as less than any claim asks for."""
        problems: list[Problem] = []
        name, spec = volume.metadata.name, volume.spec
        capacity = _bytes(spec.capacity.get(_STORAGE, 0), -1, f"spec.capacity[{_STORAGE}]", problems)
        affinity = spec.node_affinity.required if spec.node_affinity else None
        reach = None if affinity is None else self._reach(affinity.node_selector_terms)
        class_name = _class_name(volume.metadata, spec.storage_class_name)
        plugin, terms = csivolumes.taken_over(volume) or ("", None)
        other_reach = None if terms is None else self._reach(terms)
        self._volumes[name] = VolumeInfo(volume, class_name, capacity, reach, plugin, other_reach)
        if spec.claim_ref is not None:
            self._assumed_refs.pop(name, None)
        self._volume_changed(name)
        return tuple(problems)

    def remove_volume(self, name: str) -> None:
        self._volumes.pop(name, None)
        self._volume_changed(name)

    def put_class(self, storage_class: StorageClass) -> None:
        name = storage_class.metadata.name
        self._classes[name] = ClassInfo(
            storage_class, self._reach(_topologies(storage_class)) if storage_class.allowed_topologies else None
        )
        self._update_class(name)

    def remove_class(self, name: str) -> None:
        self._classes.pop(name, None)
        self._update_class(name)

    def put_driver(self, driver: CSIDriver) -> None:
        self._drivers[driver.metadata.name] = driver

    def remove_driver(self, name: str) -> None:
        self._drivers.pop(name, None)

    def put_capacity(self, capacity: CSIStorageCapacity) -> tuple[Problem, ...]:
        """Returns what could not be read, which counts as no room."""
        problems: list[Problem] = []
        metadata = capacity.metadata
        self.remove_capacity(metadata.namespace, metadata.name)
        field = "capacity" if capacity.maximum_volume_size is None else "maximumVolumeSize"
        amount = capacity.capacity if capacity.maximum_volume_size is None else capacity.maximum_volume_size
        if amount is not None and capacity.node_topology is not None:
            limit = _bytes(amount, -1, field, problems)
            key = metadata.namespace, metadata.name
            topology = capacity.node_topology
            reach = None if topology.is_empty else self._reach((_as_term(topology),))
            self._capacities.setdefault(capacity.storage_class_name, {})[key] = CapacityInfo(limit, reach)
            self._class_of_capacity[key] = capacity.storage_class_name
        return tuple(problems)

    def remove_capacity(self, namespace: str, name: str) -> None:
        key = namespace, name
        self.rooms.clear()
        class_name = self._class_of_capacity.pop(key, None)
        if class_name is not None:
            del self._capacities[class_name][key]
            if not self._capacities[class_name]:
                del self._capacities[class_name]

    def keep_room(self, class_name: str, size: int, version: tuple[int, int], room: Bools) -> None:
        """Keeps which nodes have room for a volume, as of a version of the state."""
        if len(self.rooms) >= _MOST_SIZES:
            self.rooms.clear()
        self.rooms[class_name, size] = version, room

    # decisions

    def decision(self, uid: str) -> VolumeDecision | None:
        """Returns what was assumed for the pod."""
        return self._assumed.get(uid)

    def assume(self, uid: str, decision: VolumeDecision) -> None:
        """What the decision wants counts from now on, for the pod, as far as the objects do not say it already."""
        if not decision.claims:
            return
        self._assumed[uid] = decision
        for key, name in decision.bindings:
            volume, claim = self._volumes.get(name), self._claims.get(key)
            if volume is not None and volume.object.spec.claim_ref is None and claim is not None:
                self._assumed_refs.setdefault(name, {})[uid] = ClaimRef(key, claim.object.metadata.uid)
                self._put_in_place(name)
        for key in decision.provisions:
            claim = self._claims.get(key)
            if claim is not None and SELECTED_NODE not in claim.object.metadata.annotations:
                self._assumed_nodes.setdefault(key, {})[uid] = decision.node

    def forget(self, uid: str) -> None:
        """Takes back what was assumed for the pod and no object has confirmed."""
        decision = self._assumed.pop(uid, None)
        if decision is None:
            return
        for _, name in decision.bindings:
            refs = self._assumed_refs.get(name, {})
            refs.pop(uid, None)
            if not refs:
                self._assumed_refs.pop(name, None)
            self._put_in_place(name)
        for key in decision.provisions:
            nodes = self._assumed_nodes.get(key, {})
            nodes.pop(uid, None)
            if not nodes:
                self._assumed_nodes.pop(key, None)

    @contextmanager
    def holding(self, uids: Iterable[str]) -> Iterator[None]:
        """For the block what is assumed for these pods stays, even if they are forgotten in it."""
        held = {uid: decision for uid in uids if (decision := self._assumed.pop(uid, None)) is not None}
        try:
            yield
        finally:
            self._assumed.update(held)

    # the rest

    def _object(self, name: str) -> PersistentVolume | None:
        found = self._volumes.get(name)
        return None if found is None else found.object

    def _volume_changed(self, name: str) -> None:
        self._put_in_place(name)
        self.users.update(self._claims_of_volume.get(name, ()))
        self.attachments.volume_changed(name)

    def _reach(self, terms: tuple[NodeSelectorTerm, ...]) -> Reach:
        """Volumes of equal terms have one."""
        found = self._reaches.get(terms)
        if found is None:
            found = self._reaches[terms] = Reach(terms)
        return found

    def _forget_volume_of(self, key: ClaimKey) -> None:
        before = self._claims.get(key)
        if before is not None and (name := before.object.spec.volume_name):
            claims = self._claims_of_volume[name]
            claims.discard(key)
            if not claims:
                del self._claims_of_volume[name]

    def _put_in_place(self, name: str) -> None:
        """Puts the volume among those for any claim of its class, among those for one claim, or nowhere."""
        match self._place.pop(name, None):
            case ClaimKey() as key:
                self._kept[key].discard(name)
                if not self._kept[key]:
                    del self._kept[key]
            case (class_name, capacity):
                listed = self._free[class_name]
                del listed[bisect_left(listed, (capacity, name))]
                if not listed:
                    del self._free[class_name]
        volume = self._volumes.get(name)
        if volume is None or volume.object.metadata.deletion_timestamp is not None:
            return
        ref = self.claim_ref(volume)
        if ref is not None:
            self._kept.setdefault(ref.key, set()).add(name)
            self._place[name] = ref.key
        elif volume.object.status.phase == _AVAILABLE:
            insort(self._free.setdefault(volume.class_name, []), (volume.capacity_bytes, name))
            self._place[name] = volume.class_name, volume.capacity_bytes

    def _update_class(self, name: str) -> None:
        used = [key for key in self.users.claims if key in self._claims and self._claims[key].class_name == name]
        self.users.update(used)


def _class_name(metadata: ObjectMeta, named: str | None) -> str:
    return metadata.annotations.get(_CLASS, named or "")


def _bytes(amount: Amount, otherwise: int, path: str, problems: list[Problem]) -> int:
    try:
        return quantity.from_json(amount).value()
    except QuantityError as error:
        problems.append(Problem(path, str(error)))
        return otherwise


def _pin(terms: tuple[NodeSelectorTerm, ...]) -> tuple[str, tuple[str, ...]] | None:
    """The label and the values of it that alone decide."""
    if len(terms) != 1 or terms[0].match_fields or len(terms[0].match_expressions) != 1:
        return None
    (requirement,) = terms[0].match_expressions
    return (requirement.key, tuple(dict.fromkeys(requirement.values))) if requirement.operator == "In" else None


def _topologies(storage_class: StorageClass) -> tuple[NodeSelectorTerm, ...]:
    return tuple(
        [
            NodeSelectorTerm(
                tuple([NodeSelectorRequirement(each.key, "In", each.values) for each in term.match_label_expressions])
            )
            for term in storage_class.allowed_topologies
        ]
    )


def _as_term(selector: LabelSelector) -> NodeSelectorTerm:
    labels = [NodeSelectorRequirement(key, "In", (value,)) for key, value in selector.match_labels.items()]
    others = [NodeSelectorRequirement(each.key, each.operator, each.values) for each in selector.match_expressions]
    return NodeSelectorTerm((*labels, *others))

"""The stored NodeResourceTopology of this node: how it is made, and which parts have to change.

Ours are the annotations and labels that ``nodetopology`` wants, kubelet's topology policy, the list of zones, and of a
zone's resources CPU, memory and huge pages. All else belongs to other writers and stays: other annotations, a zone's
costs, and resources such as batch-cpu, which the manager adds. Pure. Invariant: another spelling (of an amount, of
JSON) is no change.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from koord.model import quantity
from koord.model.core import Amount
from koord.model.mergepatch import Patch
from koord.model.noderesourcetopology import NodeResourceTopology, Zone
from koord.model.priority import CPU, MEMORY
from koord.model.quantity import QuantityError
from qosd.cluster.nodetopology import HUGE_PAGES, NO_POLICY, DesiredTopology, by_name

OURS = frozenset({CPU, MEMORY, *HUGE_PAGES})
"""The resources of a zone that no other writer has."""


def document(name: str, wanted: DesiredTopology) -> dict[str, Any]:
    """Returns the whole object, for a node that has none."""
    return {
        "metadata": {
            "name": name,
            "labels": {key: text for key, text in wanted.labels.items() if text is not None},
            "annotations": {**wanted.annotations_if_absent, **wanted.annotations},
            "ownerReferences": _owners(name, wanted.owner_uid),
        },
        "topologyPolicies": list(wanted.policies or (NO_POLICY,)),
        "zones": _plain(wanted.zones),
    }


def patch(stored: NodeResourceTopology, wanted: DesiredTopology) -> Patch:
    """Returns the merge patch that brings ``stored`` to ``wanted``; {} if there is no difference.

    It holds good for this very version of the object, since a patch replaces the list of zones as a whole.
    """
    metadata = _metadata(stored, wanted)
    changes: Patch = {"metadata": metadata} if metadata else {}
    if wanted.policies and stored.topology_policies != wanted.policies:
        changes["topologyPolicies"] = list(wanted.policies)
    zones = _merged(stored.zones, wanted.zones)
    if list(map(_meaning, stored.zones)) != list(map(_meaning, zones)):
        changes["zones"] = _plain(zones)
    if changes:
        changes["metadata"] = {**metadata, "resourceVersion": stored.metadata.resource_version}
    return changes


def _plain(zones: Sequence[Zone]) -> Any:
    """Returns the values as JSON has them."""
    return msgspec.json.decode(msgspec.json.encode(zones))


def _metadata(stored: NodeResourceTopology, wanted: DesiredTopology) -> Patch:
    metadata = stored.metadata
    changes: Patch = {}
    annotations = {
        key: text for key, text in wanted.annotations.items() if not _is_same_json(metadata.annotations.get(key), text)
    } | {key: text for key, text in wanted.annotations_if_absent.items() if key not in metadata.annotations}
    labels = {key: text for key, text in wanted.labels.items() if metadata.labels.get(key) != text}
    if annotations:
        changes["annotations"] = annotations
    if labels:
        changes["labels"] = labels
    owners = metadata.owner_references
    is_ours = all(owner.kind == "Node" for owner in owners)
    if is_ours and wanted.owner_uid not in {owner.uid for owner in owners}:
        changes["ownerReferences"] = _owners(metadata.name, wanted.owner_uid)
    return changes


def _owners(name: str, uid: str) -> list[dict[str, Any]]:
    """Returns the Node as the owner: the object is deleted with it."""
    return [{"apiVersion": "v1", "kind": "Node", "name": name, "uid": uid, "controller": True}]


def _is_same_json(stored: str | None, text: str) -> bool:
    """Returns whether both texts are the same JSON: another agent may have written its keys in another order."""
    if stored is None or stored == text:
        return stored == text
    try:
        return bool(msgspec.json.decode(stored) == msgspec.json.decode(text))
    except (msgspec.DecodeError, RecursionError):
        return False


def _merged(stored: Iterable[Zone], wanted: Iterable[Zone]) -> tuple[Zone, ...]:
    """Returns the wanted zones, each with the resources and costs of other writers."""
    by_name = {zone.name: zone for zone in stored}
    return tuple(_with_others(zone, by_name.get(zone.name)) for zone in wanted)


def _with_others(zone: Zone, stored: Zone | None) -> Zone:
    if stored is None:
        return zone
    others = [resource for resource in stored.resources if resource.name not in OURS]
    return msgspec.structs.replace(stored, type=zone.type, resources=by_name([*zone.resources, *others]))


def _meaning(zone: Zone) -> object:
    """Returns the zone with our amounts as numbers: an API server or another agent may spell them otherwise."""
    ours = {
        resource.name: tuple(map(_number, (resource.capacity, resource.allocatable, resource.available)))
        for resource in zone.resources
        if resource.name in OURS
    }
    return zone.name, zone.type, ours


def _number(amount: Amount) -> object:
    try:
        return quantity.from_json(amount).nano
    except QuantityError:
        return amount

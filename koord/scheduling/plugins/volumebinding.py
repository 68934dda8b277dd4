"""VolumeBinding: nodes that reach the pod's bound volumes and can get the others.

A claim that waits for its pod's node is bound to the smallest volume that is there and suits it, seen from each node by
itself; of several claims the smaller one chooses first. A claim for which there is none gets a new volume, if its class
has a provisioner that can make one for the node. Equally large volumes are taken in the order of their names.

Source: pkg/scheduler/framework/plugins/volumebinding, k8s.io/component-helpers/storage/volume.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

import numpy as np

from koord.scheduling import reach
from koord.scheduling.plugin import Rejection
from koord.scheduling.plugins.volumes import VolumePlugin, not_found
from koord.scheduling.podinfo import ClaimKey, PodInfo
from koord.scheduling.state import ClusterState
from koord.scheduling.table import Bools, Int32s
from koord.scheduling.volumes import ClaimBinding, ClaimInfo, VolumeDecision, VolumeInfo

_LOST = "Lost"
_NONE = -1


class VolumeBinding(VolumePlugin):
    """Rejects nodes that cannot reach one of the pod's volumes, or for which there is none and none can be made."""

    name: ClassVar[str] = "VolumeBinding"
    immediate_reason: ClassVar[str] = "pod has unbound immediate PersistentVolumeClaims"
    reach_reason: ClassVar[str] = "node(s) had volume node affinity conflict"
    missing_reason: ClassVar[str] = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"
    none_reason: ClassVar[str] = "node(s) didn't find available persistent volumes to bind"
    room_reason: ClassVar[str] = "node(s) did not have enough free storage"

    def rejections(self, state: ClusterState, pod: PodInfo) -> Sequence[Rejection]:
        if not pod.claims:
            return ()
        claims = _claims(state, pod)
        if isinstance(claims, str):
            return (Rejection(claims, state.table.exists, False, is_of_pod=True),)
        found = []
        if claims.bound:
            unreached, missing = _unreached(state, claims.bound)
            found += [Rejection(self.reach_reason, unreached, False), Rejection(self.missing_reason, missing, False)]
        if claims.waiting:
            search = _searched(state, claims.waiting)
            found += [
                Rejection(self.none_reason, search.has_none, False),
                Rejection(self.room_reason, search.has_no_room, False),
            ]
        return found


def binding(state: ClusterState, pod: PodInfo, node: str) -> VolumeDecision:
    """Returns what has to be so before the pod can run on ``node``, which the plugin lets pass."""
    row = state.table.row(node)
    claims = _claims(state, pod) if pod.claims else ""
    if row is None or isinstance(claims, str) or not claims.waiting:
        return VolumeDecision(node)
    search = _searched(state, claims.waiting)
    bindings = [
        ClaimBinding(claim.key, search.volumes[chosen[row]].name)
        for claim, chosen in search.chosen
        if chosen[row] != _NONE
    ]
    bound = {each.claim for each in bindings}
    provisions = [claim.key for claim in search.in_order if claim.key not in bound]
    return VolumeDecision(node, tuple(bindings), tuple(provisions))


class _PodClaims(NamedTuple):
    """``waiting``: for a node before they are bound."""

    bound: list[ClaimInfo]
    waiting: list[ClaimInfo]


def _claims(state: ClusterState, pod: PodInfo) -> _PodClaims | str:
    """The pod's claims; or why it can be on no node."""
    found: list[ClaimInfo] = []
    for key, is_ephemeral in pod.claims:
        claim = state.volumes.claim(key)
        if claim is None:
            return _waits_for(key) if is_ephemeral else not_found(key)
        if reason := _unusable(claim, pod, is_ephemeral):
            return reason
        found.append(claim)
    claims = _PodClaims([], [])
    for claim in found:
        storage_class = state.volumes.storage_class(claim.class_name)
        if claim.is_bound:
            claims.bound.append(claim)
        elif storage_class is not None and storage_class.waits and not claim.object.spec.volume_name:
            claims.waiting.append(claim)
        else:
            return VolumeBinding.immediate_reason
    return claims


def _waits_for(key: ClaimKey) -> str:
    return f'waiting for ephemeral volume controller to create the persistentvolumeclaim "{key.name}"'


def _unusable(claim: ClaimInfo, pod: PodInfo, is_ephemeral: bool) -> str:
    """Why no pod can use the claim, or not this one; "" if it can."""
    metadata, spec = claim.object.metadata, claim.object.spec
    if claim.object.status.phase == _LOST:
        return f'persistentvolumeclaim "{metadata.name}" bound to non-existent persistentvolume "{spec.volume_name}"'
    if metadata.deletion_timestamp is not None:
        return f'persistentvolumeclaim "{metadata.name}" is being deleted'
    if is_ephemeral and (metadata.controller is None or metadata.controller.uid != pod.uid):
        names = f"{metadata.namespace}/{metadata.name} was not created for pod {pod.namespace}/{pod.name}"
        return f"PVC {names} (pod is not owner)"
    return ""


def _unreached(state: ClusterState, claims: Sequence[ClaimInfo]) -> tuple[Bools, Bools]:
    """bool[N] each: the nodes that cannot reach a volume, and those for which there is no object of one. What a node
    comes upon first, in the order of the claims, counts.
    """
    unreached, missing = np.zeros(state.length, np.bool_), np.zeros(state.length, np.bool_)
    for claim in claims:
        volume = state.volumes.volume(claim.object.spec.volume_name)
        if volume is None:
            missing = ~unreached
            break
        unreached |= ~_reached(state, volume)
    return unreached, missing


def _reached(state: ClusterState, volume: VolumeInfo) -> Bools:
    """bool[N]: the nodes that reach a bound volume."""
    reached = reach.mask(state, volume.reach)
    taken_over = state.volumes.limits.is_taken_over(volume.taken_over) if volume.taken_over else None
    return reached if taken_over is None else np.where(taken_over, reach.mask(state, volume.taken_over_reach), reached)


@dataclass
class _Search:
    """``chosen``: by claim, int32[N], the place in ``volumes`` of what each node would bind to it. ``in_order``: the
    claims as they are provisioned, unless they are bound.
    """

    has_none: Bools
    has_no_room: Bools
    in_order: list[ClaimInfo]
    volumes: list[VolumeInfo] = field(default_factory=list)
    chosen: list[tuple[ClaimInfo, Int32s]] = field(default_factory=list)
    numbers: dict[str, int] = field(default_factory=dict)

    def number(self, volume: VolumeInfo) -> int:
        found = self.numbers.get(volume.name)
        if found is None:
            found = self.numbers[volume.name] = len(self.volumes)
            self.volumes.append(volume)
        return found


def _searched(state: ClusterState, claims: Sequence[ClaimInfo]) -> _Search:
    """Finds what each node can do for claims that wait."""
    selected = [(claim, node) for claim in claims if (node := state.volumes.selected_node(claim)) is not None]
    decided = {claim.key for claim, _ in selected}
    others = sorted([each for each in claims if each.key not in decided], key=lambda each: each.request_bytes or 0)
    nowhere = np.zeros(state.length, np.bool_)
    search = _Search(nowhere.copy(), nowhere.copy(), [*[claim for claim, _ in selected], *others])
    for _, node in selected:
        row = state.table.row(node)
        is_another = np.ones(state.length, np.bool_)
        if row is not None:
            is_another[row] = False
        search.has_none |= is_another
    left = ~search.has_none
    for claim in others:
        search.chosen.append((claim, _chosen(state, claim, search, left)))
    bound = {claim.key: np.not_equal(chosen, _NONE) for claim, chosen in search.chosen}
    for claim in search.in_order:
        _provision(state, claim, search, left if claim.key in decided else left & ~bound[claim.key])
        left = left & ~search.has_none & ~search.has_no_room
    return search


def _chosen(state: ClusterState, claim: ClaimInfo, search: _Search, rows: Bools) -> Int32s:
    """int32[N]: the volume that each of ``rows`` would bind to the claim."""
    chosen = np.full(state.length, _NONE, np.int32)
    request = claim.request_bytes or 0
    for volume in state.volumes.kept_for(claim):
        if _may_have(claim, volume) and volume.class_name == claim.class_name and volume.capacity_bytes >= request:
            chosen[rows & reach.mask(state, volume.reach)] = search.number(volume)
            return chosen
    left = int(np.count_nonzero(rows & state.table.exists))
    for volume in _suitable(state, claim):
        if not left:
            break
        some = None if volume.reach is None else reach.rows(state, volume.reach)
        if some is None:
            some = np.flatnonzero(reach.mask(state, volume.reach) & state.table.exists)
        number = search.numbers.get(volume.name, _NONE)
        if len(some) == 1:
            row = some[0]
            if chosen[row] != _NONE or not rows[row] or _is_taken(search, number, row):
                continue
            chosen[row] = search.number(volume)
            left -= 1
            continue
        some = some[(chosen[some] == _NONE) & rows[some]]
        if number != _NONE:
            for _, taken in search.chosen:
                some = some[taken[some] != number]
        if len(some):
            chosen[some] = search.number(volume)
            left -= len(some)
    return chosen


def _is_taken(search: _Search, number: int, row: int) -> bool:
    """Returns whether the node would bind the volume to an earlier claim."""
    return number != _NONE and any(taken[row] == number for _, taken in search.chosen)


def _suitable(state: ClusterState, claim: ClaimInfo) -> Iterator[VolumeInfo]:
    """Yields the volumes for any claim that suit this one, smallest first."""
    spec = claim.object.spec
    for volume in state.volumes.free(claim.class_name, claim.request_bytes or 0):
        offered = volume.object.spec
        if (
            _may_have(claim, volume)
            and offered.volume_attributes_class_name == spec.volume_attributes_class_name
            and all(mode in offered.access_modes for mode in spec.access_modes)
            and (spec.selector is None or spec.selector.matches(volume.object.metadata.labels))
        ):
            yield volume


def _may_have(claim: ClaimInfo, volume: VolumeInfo) -> bool:
    return volume.object.spec.volume_mode == claim.object.spec.volume_mode


def _provision(state: ClusterState, claim: ClaimInfo, search: _Search, rows: Bools) -> None:
    """Notes for which of ``rows`` no new volume can be made for the claim."""
    volumes = state.volumes
    storage_class = volumes.storage_class(claim.class_name)
    if storage_class is None or not storage_class.is_provisioned:
        search.has_none |= rows
        return
    if storage_class.reach is not None:
        allowed = reach.mask(state, storage_class.reach)
        search.has_none |= rows & ~allowed
        rows = rows & allowed
    if claim.request_bytes is not None and volumes.has_capacities(storage_class.object.provisioner):
        search.has_no_room |= rows & ~reach.with_room(state, claim.class_name, claim.request_bytes)

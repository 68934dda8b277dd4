"""Plugins that go by volumes that are there: who has them, how many a node takes, and the zones that they are in.

Sources: pkg/scheduler/framework/plugins/{volumerestrictions,nodevolumelimits,volumezone}.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar, NamedTuple

import numpy as np

from koord.scheduling.csivolumes import AttachedVolume
from koord.scheduling.labels import OLD_REGION, OLD_ZONE, REGION, ZONE
from koord.scheduling.plugin import Event, EventKind, Explanation, Plugin, Reason, Rejection
from koord.scheduling.podinfo import ClaimKey, PodInfo
from koord.scheduling.state import ClusterState
from koord.scheduling.table import Bools, Int64s
from koord.scheduling.volumeusers import NO_LIMIT

_READ_WRITE_ONCE_POD = "ReadWriteOncePod"
_TOPOLOGY = {OLD_ZONE: ZONE, OLD_REGION: REGION, ZONE: ZONE, REGION: REGION}
"""Labels of volumes and nodes, each with the one that a node may have instead."""


def not_found(claim: ClaimKey) -> str:
    return f'persistentvolumeclaim "{claim.name}" not found'


class VolumePlugin(Plugin):
    """Goes by claims and volumes, and by no pod of another node, unless it says so."""

    def goes_by_pods(self, state: ClusterState, pod: PodInfo) -> bool:
        return False

    def is_helped_by(self, state: ClusterState, pod: PodInfo, event: Event) -> bool:
        return False


class VolumeRestrictions(VolumePlugin):
    """Rejects nodes on which a pod has a disk that two pods cannot have, and all while another pod uses a claim that is
    for one pod alone.
    """

    name: ClassVar[str] = "VolumeRestrictions"
    disk_reason: ClassVar[str] = "node(s) had no available disk"
    one_pod_reason: ClassVar[str] = (
        "node has pod using PersistentVolumeClaim with the same name and ReadWriteOncePod access mode"
    )

    def goes_by_pods(self, state: ClusterState, pod: PodInfo) -> bool:
        return bool(pod.disks) or any(_for_one_pod(state, pod))

    def is_helped_by(self, state: ClusterState, pod: PodInfo, event: Event) -> bool:
        if event.kind is not EventKind.POD_LEFT or event.pod is None:
            return False
        left = {claim.key for claim in event.pod.claims}
        return any(key in left for key in _for_one_pod(state, pod))

    def rejections(self, state: ClusterState, pod: PodInfo) -> Sequence[Rejection]:
        if not pod.claims and not pod.disks:
            return ()
        for key, is_ephemeral in pod.claims:
            if not is_ephemeral and state.volumes.claim(key) is None:
                return (Rejection(not_found(key), state.table.exists, False, is_of_pod=True),)
        users, found = state.volumes.users, []
        left = state.table.exists
        if pod.disks:
            taken = np.zeros(state.length, np.bool_)
            for disk in pod.disks:
                taken[users.rows_of_disk(*disk)] = True
            found.append(Rejection(self.disk_reason, taken))
            left = left & ~taken
        if any(users.rows_of(key) for key in _for_one_pod(state, pod)):
            found.append(Rejection(self.one_pod_reason, left))
        return found


class NodeVolumeLimits(VolumePlugin):
    """Rejects nodes to which a driver cannot attach as many volumes as there would be with the pod."""

    name: ClassVar[str] = "NodeVolumeLimits"
    reason: ClassVar[str] = "node(s) exceed max volume count"

    def goes_by_pods(self, state: ClusterState, pod: PodInfo) -> bool:
        return any(state.volumes.limits.of(driver) is not None for driver in _by_driver(state, pod))

    def rejections(self, state: ClusterState, pod: PodInfo) -> Sequence[Rejection]:
        if not pod.claims and not pod.inline_volumes:
            return ()
        for key, _ in pod.claims:
            if state.volumes.claim(key) is None:
                reason = f"looking up PVC {key.namespace}/{key.name}: {not_found(key)}"
                return (Rejection(reason, state.table.exists, False),)
        exceeds = np.zeros(state.length, np.bool_)
        for driver, volumes in _by_driver(state, pod).items():
            limits = state.volumes.limits.of(driver)
            if limits is not None:
                added = _added(state, volumes)
                exceeds |= (added > 0) & (_attached(state, driver) + added > limits)
        return (Rejection(self.reason, exceeds),)

    def explain(self, state: ClusterState, pod: PodInfo, row: int, feasible: Bools) -> Explanation:
        said = super().explain(state, pod, row, feasible)
        if not said.reasons or said.reasons[0].text != self.reason:
            return said
        return Explanation((Reason(self.reason, True, ", ".join(_figures(state, pod, row))),))


class VolumeZone(VolumePlugin):
    """Rejects nodes of other zones or regions than those that the labels of a bound volume name."""

    name: ClassVar[str] = "VolumeZone"
    reason: ClassVar[str] = "node(s) had no available volume zone"

    def rejections(self, state: ClusterState, pod: PodInfo) -> Sequence[Rejection]:
        if not pod.claims:
            return ()
        topologies = _topologies(state, pod)
        if isinstance(topologies, str):
            return (Rejection(topologies, state.table.exists, False, is_of_pod=True),)
        if not topologies:
            return ()
        labels = state.nodes.labels
        is_somewhere = np.zeros(state.length, np.bool_)
        for key in _TOPOLOGY:
            is_somewhere |= labels.has(key)
        rejected = np.zeros(state.length, np.bool_)
        for key, values in topologies:
            suits = _has_one_of(state, key, values)
            if _TOPOLOGY[key] != key:
                suits |= ~labels.has(key) & _has_one_of(state, _TOPOLOGY[key], values)
            rejected |= ~suits
        return (Rejection(self.reason, rejected & is_somewhere, False),)


class _Topology(NamedTuple):
    """The values of a label, one of which a node needs."""

    key: str
    values: frozenset[str]


def _for_one_pod(state: ClusterState, pod: PodInfo) -> Iterator[ClaimKey]:
    """Yields the pod's claims that one pod alone may use."""
    for key, is_ephemeral in pod.claims:
        claim = None if is_ephemeral else state.volumes.claim(key)
        if claim is not None and _READ_WRITE_ONCE_POD in claim.object.spec.access_modes:
            yield key


def _by_driver(state: ClusterState, pod: PodInfo) -> Mapping[str, set[AttachedVolume]]:
    """The pod's volumes, by their drivers."""
    found: dict[str, set[AttachedVolume]] = {}
    named = [state.volumes.attached_volume(key) for key, _ in pod.claims]
    for volume in (*named, *pod.inline_volumes):
        if volume is not None:
            found.setdefault(volume.driver, set()).add(volume)
    return found


def _added(state: ClusterState, volumes: set[AttachedVolume]) -> Int64s:
    """int64[N]: how many of the volumes no pod of each node has. One that is attached without a pod counts here and
    among those that are, as upstream counts it.
    """
    added = np.full(state.length, len(volumes), np.int64)
    for volume in volumes:
        rows = state.volumes.attached.rows_used(volume)
        if rows:
            added[np.fromiter(rows, np.int64, len(rows))] -= 1
    return added


def _attached(state: ClusterState, driver: str) -> Int64s | int:
    counts = state.volumes.attached.of(driver)
    return 0 if counts is None else counts


def _figures(state: ClusterState, pod: PodInfo, row: int) -> Iterator[str]:
    for driver, volumes in _by_driver(state, pod).items():
        limits, counts = state.volumes.limits.of(driver), state.volumes.attached.of(driver)
        limit, count = NO_LIMIT if limits is None else int(limits[row]), 0 if counts is None else int(counts[row])
        added = sum(row not in state.volumes.attached.rows_used(volume) for volume in volumes)
        if added and count + added > limit:
            yield f"{driver}: {count} of {limit} are attached, {added} to be added"


def _topologies(state: ClusterState, pod: PodInfo) -> list[_Topology] | str:
    """What the labels of the pod's bound volumes ask of nodes; or why the pod can be on none."""
    found: list[_Topology] = []
    for key, is_ephemeral in pod.claims:
        if is_ephemeral:
            continue
        if not key.name:
            return "PersistentVolumeClaim had no name"
        claim = state.volumes.claim(key)
        if claim is None:
            return not_found(key)
        name = claim.object.spec.volume_name
        if not name:
            if not claim.class_name:
                return "PersistentVolumeClaim had no pv name and storageClass name"
            storage_class = state.volumes.storage_class(claim.class_name)
            if storage_class is None:
                return f'storageclass.storage.k8s.io "{claim.class_name}" not found'
            if not storage_class.waits:
                return "PersistentVolume had no name"
            continue
        volume = state.volumes.volume(name)
        if volume is None:
            return f'persistentvolume "{name}" not found'
        labels = volume.object.metadata.labels
        named = [(label, _values(labels[label])) for label in _TOPOLOGY if label in labels]
        found += [_Topology(label, values) for label, values in named if values]
    return found


def _values(text: str) -> frozenset[str]:
    """The zones of a volume that is in several; none if one of them has no name, and then the label does not count."""
    values = [each.strip() for each in text.split("__")]
    return frozenset(values) if all(values) else frozenset()


def _has_one_of(state: ClusterState, key: str, values: frozenset[str]) -> Bools:
    """bool[N]"""
    found = np.zeros(state.length, np.bool_)
    for value in values:
        found[state.nodes.labels.rows(key, value)] = True
    return found

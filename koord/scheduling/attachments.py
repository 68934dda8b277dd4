"""How many volumes of each CSI driver are attached to each node.

A node has a volume attached for the pods on it, or because the attach controller says so in a VolumeAttachment, which
is there for a while before and after its pods. Either way it is one volume.

Invariant: the counts equal those that are made anew of the same pods and objects, in any order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from koord.model.scheduling.storage import PersistentVolume, VolumeAttachment
from koord.scheduling import csivolumes
from koord.scheduling.csivolumes import AttachedVolume
from koord.scheduling.table import Column, Int64s, Table

_NO_ROWS: Mapping[int, int] = {}


class AttachedCounts:
    """By row what pods use, by the name of a node what VolumeAttachments say, since these may come before it."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._used: dict[AttachedVolume, dict[int, int]] = {}
        self._held: dict[str, dict[AttachedVolume, int]] = {}
        self._counts: dict[str, Column[np.int64]] = {}

    def of(self, driver: str) -> Int64s | None:
        """int64[N]: how many volumes of the driver each node has attached; None: none ever."""
        column = self._counts.get(driver)
        return None if column is None else column.values[: self._table.length]

    def rows_used(self, volume: AttachedVolume) -> Mapping[int, int]:
        """Returns how many uses pods have of the volume, by row."""
        return self._used.get(volume, _NO_ROWS)

    def use(self, row: int, volume: AttachedVolume, sign: int = 1) -> None:
        """A pod on the node uses the volume once more, or, of ``sign`` -1, once less."""
        rows = self._used.setdefault(volume, {})
        before = rows.get(row, 0)
        rows[row] = before + sign
        if not rows[row]:
            del rows[row]
            if not rows:
                del self._used[volume]
        if (not before or before + sign == 0) and volume not in self._held.get(self._table.name(row), ()):
            self._count(row, volume, sign)

    def hold(self, node: str, volume: AttachedVolume, sign: int = 1) -> None:
        """One VolumeAttachment more, or, of ``sign`` -1, one less says that the node has the volume."""
        volumes = self._held.setdefault(node, {})
        before = volumes.get(volume, 0)
        volumes[volume] = before + sign
        if not volumes[volume]:
            del volumes[volume]
            if not volumes:
                del self._held[node]
        row = self._table.row(node)
        if (not before or before + sign == 0) and row is not None and row not in self.rows_used(volume):
            self._count(row, volume, sign)

    def node_came(self, row: int, name: str) -> None:
        """The node has a row from now on, and no pod is counted on it yet."""
        for volume in self._held.get(name, ()):
            self._count(row, volume, 1)

    def _count(self, row: int, volume: AttachedVolume, sign: int) -> None:
        column = self._counts.get(volume.driver)
        if column is None:
            column = self._counts[volume.driver] = self._table.column(np.int64)
        column.values[row] += sign


class _Held(NamedTuple):
    """``volume`` None: nothing that counts."""

    node: str
    volume_name: str
    attacher: str
    volume: AttachedVolume | None


class VolumeAttachments:
    """The objects of the attach controller. ``volume_named``: a PersistentVolume as it is now."""

    def __init__(self, counts: AttachedCounts, volume_named: Callable[[str], PersistentVolume | None]) -> None:
        self._counts, self._volume_named = counts, volume_named
        self._held: dict[str, _Held] = {}
        self._by_volume: dict[str, set[str]] = {}

    def put(self, attachment: VolumeAttachment) -> None:
        spec = attachment.spec
        self._put(
            attachment.metadata.name, _Held(spec.node_name, spec.source.persistent_volume_name, spec.attacher, None)
        )

    def remove(self, name: str) -> None:
        before = self._held.pop(name, None)
        if before is None:
            return
        names = self._by_volume[before.volume_name]
        names.discard(name)
        if not names:
            del self._by_volume[before.volume_name]
        if before.volume is not None:
            self._counts.hold(before.node, before.volume, -1)

    def volume_changed(self, name: str) -> None:
        """The PersistentVolume came, went, or has changed."""
        for each in tuple(self._by_volume.get(name, ())):
            self._put(each, self._held[each])

    def _put(self, name: str, said: _Held) -> None:
        """A volume that names its driver's disk itself has no attachment that counts, as upstream has it."""
        self.remove(name)
        found = self._volume_named(said.volume_name)
        volume = None if found is None or found.spec.csi is None else csivolumes.of_object(found)
        if volume is not None and said.attacher:
            volume = volume._replace(driver=said.attacher)
            self._counts.hold(said.node, volume)
        else:
            volume = None
        self._held[name] = said._replace(volume=volume)
        self._by_volume.setdefault(said.volume_name, set()).add(name)

"""Which claims and disks the pods of each node use, and how many volumes of each CSI driver it takes.

A claim is one volume of its driver however many pods of a node use it, and two claims may be the same volume. Which
volume a claim is changes with the objects of claims, volumes and classes; what is attached follows.

Invariant: the counts equal those that are made anew of the same pods and objects.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

import numpy as np

from koord.model.scheduling.storage import CSINode
from koord.scheduling.attachments import AttachedCounts
from koord.scheduling.csivolumes import AttachedVolume
from koord.scheduling.podinfo import ClaimKey, DiskKey, PodInfo
from koord.scheduling.table import Bools, Column, Int64s, Table

NO_LIMIT = 2**62
_TAKEN_OVER = "storage.alpha.kubernetes.io/migrated-plugins"
"""Of a CSINode, the names of kinds of volumes, with commas between."""
_NO_ROWS: Mapping[int, int] = {}


class _DiskUse(NamedTuple):
    """How many uses there are on one node, and how many of them share it."""

    total: int
    shared: int


class VolumeUsers:
    """``volume_of``: what a claim attaches now; None: nothing that counts."""

    def __init__(self, attached: AttachedCounts, volume_of: Callable[[ClaimKey], AttachedVolume | None]) -> None:
        self._attached = attached
        self._volume_of = volume_of
        self._claims: dict[ClaimKey, dict[int, int]] = {}
        self._volumes: dict[ClaimKey, AttachedVolume] = {}
        self._disks: dict[DiskKey, dict[int, _DiskUse]] = {}

    @property
    def claims(self) -> Iterable[ClaimKey]:
        """Those that a pod on a node uses."""
        return self._claims.keys()

    def rows_of(self, claim: ClaimKey) -> Mapping[int, int]:
        """Returns how many pods use the claim, by the row of their node."""
        return self._claims.get(claim, _NO_ROWS)

    def rows_of_disk(self, disk: DiskKey, is_shared: bool) -> list[int]:
        """Returns the rows on which the disk cannot be used once more, shared or for one pod alone."""
        uses = self._disks.get(disk, {})
        return [row for row, use in uses.items() if not is_shared or use.shared < use.total]

    def count(self, row: int, pod: PodInfo, sign: int) -> None:
        """Counts what the pod uses on the node, or, of ``sign`` -1, no longer."""
        for claim in pod.claims:
            self._count_claim(row, claim.key, sign)
        for volume in pod.inline_volumes:
            self._attached.use(row, volume, sign)
        for key, is_shared in pod.disks:
            uses = self._disks.setdefault(key, {})
            before = uses.get(row, _DiskUse(0, 0))
            uses[row] = _DiskUse(before.total + sign, before.shared + sign * is_shared)
            if not uses[row].total:
                del uses[row]
                if not uses:
                    del self._disks[key]

    def update(self, claims: Iterable[ClaimKey]) -> None:
        """The objects by which these claims are volumes may have changed."""
        for claim in claims:
            rows = self._claims.get(claim)
            if rows is None:
                continue
            before, after = self._volumes.get(claim), self._volume_of(claim)
            if before == after:
                continue
            for row in rows:
                self._attach(row, before, -1)
                self._attach(row, after, 1)
            self._keep(claim, after)

    def _count_claim(self, row: int, claim: ClaimKey, sign: int) -> None:
        rows = self._claims.get(claim)
        if rows is None:
            rows = self._claims[claim] = {}
            self._keep(claim, self._volume_of(claim))
        before = rows.get(row, 0)
        rows[row] = before + sign
        if not before:
            self._attach(row, self._volumes.get(claim), 1)
        elif not rows[row]:
            del rows[row]
            self._attach(row, self._volumes.get(claim), -1)
            if not rows:
                del self._claims[claim]
                self._volumes.pop(claim, None)

    def _keep(self, claim: ClaimKey, volume: AttachedVolume | None) -> None:
        if volume is None:
            self._volumes.pop(claim, None)
        else:
            self._volumes[claim] = volume

    def _attach(self, row: int, volume: AttachedVolume | None, sign: int) -> None:
        if volume is not None:
            self._attached.use(row, volume, sign)


class VolumeLimits:
    """How many volumes of each CSI driver a node takes, and which kinds of volumes drivers have taken over on it, as
    its CSINode says, which may come before the node.
    """

    def __init__(self, table: Table) -> None:
        self._table = table
        self._by_node: dict[str, Mapping[str, int]] = {}
        self._columns: dict[str, Column[np.int64]] = {}
        self._plugins_by_node: dict[str, frozenset[str]] = {}
        self._plugin_columns: dict[str, Column[np.bool_]] = {}

    def is_taken_over(self, plugin: str) -> Bools | None:
        """bool[N]: whether a driver has taken the kind of volume over; None: on no node ever."""
        column = self._plugin_columns.get(plugin)
        return None if column is None else column.values[: self._table.length]

    def of(self, driver: str) -> Int64s | None:
        """int64[N], ``NO_LIMIT`` where a node does not say it; None: no node ever did."""
        column = self._columns.get(driver)
        return None if column is None else column.values[: self._table.length]

    def put(self, csi_node: CSINode) -> None:
        limits = {each.name: each.allocatable.count for each in csi_node.spec.drivers if each.allocatable}
        name, said = csi_node.metadata.name, csi_node.metadata.annotations.get(_TAKEN_OVER, "")
        self._put(name, {driver: limit for driver, limit in limits.items() if limit is not None})
        self._put_plugins(name, frozenset(said.split(",")) - {""})

    def remove(self, name: str) -> None:
        self._put(name, {})
        self._put_plugins(name, frozenset())
        del self._by_node[name], self._plugins_by_node[name]

    def node_came(self, row: int, name: str) -> None:
        """The node has a row from now on."""
        for driver, limit in self._by_node.get(name, {}).items():
            self._column(driver).values[row] = limit
        for plugin in self._plugins_by_node.get(name, ()):
            self._plugin_column(plugin).values[row] = True

    def _put_plugins(self, name: str, plugins: frozenset[str]) -> None:
        before, row = self._plugins_by_node.get(name, frozenset()), self._table.row(name)
        self._plugins_by_node[name] = plugins
        if row is not None:
            for plugin in before ^ plugins:
                self._plugin_column(plugin).values[row] = plugin in plugins

    def _plugin_column(self, plugin: str) -> Column[np.bool_]:
        column = self._plugin_columns.get(plugin)
        if column is None:
            column = self._plugin_columns[plugin] = self._table.column(np.bool_)
        return column

    def _put(self, name: str, limits: Mapping[str, int]) -> None:
        row = self._table.row(name)
        if row is not None:
            for driver in self._by_node.get(name, {}).keys() - limits.keys():
                self._column(driver).values[row] = NO_LIMIT
            for driver, limit in limits.items():
                self._column(driver).values[row] = limit
        self._by_node[name] = limits

    def _column(self, driver: str) -> Column[np.int64]:
        column = self._columns.get(driver)
        if column is None:
            column = self._columns[driver] = self._table.column(np.int64, NO_LIMIT)
        return column

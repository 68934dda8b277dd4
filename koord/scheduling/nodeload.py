"""How loaded nodes are: what was measured of them, and the columns that profiles' settings make of that.

No clock: ``advance`` tells the time, and a measurement expires with it, not before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import numpy as np

from koord.model.problem import Bad
from koord.scheduling.loadcolumns import LoadColumns
from koord.scheduling.loadfacts import LoadFacts, Measurements
from koord.scheduling.loadsettings import LoadSettings
from koord.scheduling.nodecolumns import NodeColumns
from koord.scheduling.nodeusage import NodeUsage, UsageSource
from koord.scheduling.podinfo import PodInfo
from koord.scheduling.table import Table


class NodeLoads:
    """``changed``: called with each row whose load has changed; ``helped`` with each row that pods may fit on now that
    it was too loaded for, for others to set. ``pods_on``: by the node's name.
    """

    def __init__(
        self,
        table: Table,
        nodes: NodeColumns,
        pods_on: Callable[[str], Iterable[PodInfo]],
        changed: Callable[[int], None],
    ) -> None:
        self._table, self._changed = table, changed
        self._facts = LoadFacts(nodes, pods_on)
        self.helped: Callable[[int], None] = lambda row: None
        self._columns: dict[LoadSettings, LoadColumns] = {}

    @property
    def now_s(self) -> float:
        """Seconds since 1970."""
        return self._facts.now_s

    def of(self, settings: LoadSettings) -> LoadColumns:
        """Returns the columns by these settings, which are kept up to date from then on."""
        found = self._columns.get(settings)
        if found is None:
            found = self._columns[settings] = LoadColumns(settings, self._facts, self._table)
            for row in np.flatnonzero(self._table.exists).tolist():
                found.renew(row)
        return found

    @property
    def columns(self) -> tuple[LoadColumns, ...]:
        """Those of all settings that were asked for."""
        return tuple(self._columns.values())

    def measurements(self, node: str) -> Measurements:
        return self._facts.measurements(node)

    def sources(self) -> dict[UsageSource, int]:
        """How many nodes are judged by which source."""
        found = dict.fromkeys(UsageSource, 0)
        for row in np.flatnonzero(self._table.exists).tolist():
            newest = self.measurements(self._table.name(row)).newest
            if newest is not None:
                found[newest.source] += 1
        return found

    # what others tell

    def advance(self, now_s: float) -> None:
        """It is ``now_s``, or later: what was measured too long ago expires."""
        self._facts.now_s = max(self._facts.now_s, now_s)
        for columns in self._columns.values():
            for row in columns.expired_rows():
                self._renew(columns, row)

    def put_metric(self, node: str, usage: NodeUsage | None) -> None:
        """The node's NodeMetric says this; None: there is none any more."""
        before = self.measurements(node)
        self._facts.put(node, usage, before.fresh, before.anomaly)
        self._renew_node(node)

    def put_fresh(self, node: str, usage: NodeUsage | None, anomaly: str = "") -> None:
        """The manager's stream says this; None: it says nothing of the node any more. ``anomaly``: why the manager does
        not trust the node with more pods: then it scores nothing.
        """
        self._facts.put(node, self.measurements(node).metric, usage, anomaly)
        self._renew_node(node)

    def put_node(self, row: int, annotations: Mapping[str, str], bad: Bad) -> None:
        """The node's object has changed; ``bad`` is told what cannot be read of it."""
        self._facts.put_node(row, annotations, bad)
        for columns in self._columns.values():
            self._renew(columns, row)

    def remove_node(self, row: int) -> None:
        """The table has not given the row back yet."""
        self._facts.remove_node(row)
        for columns in self._columns.values():
            columns.forget(row)

    def assumed(self, uid: str) -> None:
        """The pod gets its node now."""
        self._facts.assumed(uid)

    def forget_pod(self, uid: str) -> None:
        self._facts.forget_pod(uid)

    def put_pod(self, row: int, pod: PodInfo) -> None:
        """The pod counts on the node."""
        for columns in self._columns.values():
            columns.put_pod(row, pod)

    def renew_pod(self, row: int, pod: PodInfo) -> None:
        """The pod is on the node as before, and its times may be others."""
        for columns in self._columns.values():
            if columns.put_pod(row, pod):
                self._changed(row)

    def remove_pod(self, row: int, pod: PodInfo) -> None:
        for columns in self._columns.values():
            columns.remove_pod(row, pod)

    def _renew_node(self, node: str) -> None:
        row = self._table.row(node)
        if row is not None:
            for columns in self._columns.values():
                self._renew(columns, row)

    def _renew(self, columns: LoadColumns, row: int) -> None:
        may_help = columns.renew(row)
        self._changed(row)
        if may_help:
            self.helped(row)

"""Keeps one gauge per cgroup, and makes the rows of all of them, for collectors of cgroups.

A gauge is made when its cgroup comes, and its files are closed when the cgroup goes. Invariant: a cgroup that is gone
or prints nonsense has no row in this batch; the others have theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Generic, Protocol, TypeVar

from koord.host.reader import KeptFiles
from qosd.model.metric import Scope
from qosd.sense.rates import NANOSECONDS
from qosd.sense.row import TICK_S, Panel, Row
from qosd.sense.targets import SampledCgroup, SampleTargets
from qosd.sense.tick import Batch, Tick

_EARLY_NS = int(TICK_S / 2 * NANOSECONDS)
"""The most that a tick comes early or late."""


class CgroupGauge(Protocol):
    """Measures one cgroup. ``paths``: the files that it keeps open."""

    @property
    def paths(self) -> Sequence[str]: ...

    def sample(self) -> Row | None:
        """Returns the row; None if there is nothing to measure. Raises OSError, ValueError."""


G = TypeVar("G", bound=CgroupGauge)


class PerCgroup(Generic[G]):
    """The gauges of the cgroups for which ``measures`` is true, in each scope that has a row in ``rows``.

    ``phase_s``: for a collector that runs every tick and has panels of a longer period, how long after the first tick
    these begin, so that not all collectors' panels are due at once; None: every run fills all panels.
    """

    def __init__(
        self,
        rows: Mapping[Scope, type[Row]],
        files: KeptFiles,
        gauge: Callable[[SampledCgroup], G],
        measures: Callable[[SampledCgroup], bool] = lambda _: True,
        phase_s: float | None = None,
    ) -> None:
        self.panels: Mapping[Scope, Panel] = {scope: row.panel for scope, row in rows.items()}
        self._phase_s = phase_s
        self._due_ns: dict[Panel, int] = {}
        self._files, self._gauge, self._measures = files, gauge, measures
        self._targets: SampleTargets | None = None
        self._kept: dict[tuple[Scope, str], tuple[str, G]] = {}
        self._lists: Mapping[Scope, list[tuple[str, G]]] = {}

    def batch(self, tick: Tick) -> Batch:
        """Returns the rows of all cgroups, for the panels that are due."""
        by_panel = [(self.panels[scope], gauges) for scope, gauges in self.of(tick.targets).items()]
        return [(panel, _rows(gauges)) for panel, gauges in by_panel if self._is_due(panel, tick.at_ns)]

    def _is_due(self, panel: Panel, at_ns: int) -> bool:
        if self._phase_s is None or panel.period_s <= TICK_S:
            return True
        if at_ns < self._due_ns.setdefault(panel, at_ns + int(self._phase_s * NANOSECONDS)) - _EARLY_NS:
            return False
        self._due_ns[panel] = at_ns + int(panel.period_s * NANOSECONDS)
        return True

    def of(self, targets: SampleTargets) -> Mapping[Scope, list[tuple[str, G]]]:
        """Returns (subject, gauge) by scope, for the cgroups of ``targets``."""
        if targets is not self._targets:
            self._follow(targets)
        return self._lists

    def _follow(self, targets: SampleTargets) -> None:
        before, kept = self._kept, dict[tuple[Scope, str], tuple[str, G]]()
        lists: dict[Scope, list[tuple[str, G]]] = {}
        for scope in self.panels:
            lists[scope] = []
            for cgroup in filter(self._measures, targets.cgroups[scope]):
                path, gauge = before.pop((scope, cgroup.subject), (None, None))
                if gauge is not None and path != cgroup.path:
                    self._files.drop(gauge.paths)
                    gauge = None
                gauge = self._gauge(cgroup) if gauge is None else gauge
                kept[scope, cgroup.subject] = (cgroup.path, gauge)
                lists[scope].append((cgroup.subject, gauge))
        for _, gauge in before.values():
            self._files.drop(gauge.paths)
        self._kept, self._lists, self._targets = kept, lists, targets

    def close(self) -> None:
        for _, gauge in self._kept.values():
            self._files.drop(gauge.paths)
        self._kept, self._lists, self._targets = {}, {}, None


def _rows(gauges: Sequence[tuple[str, CgroupGauge]]) -> Mapping[str, Row]:
    rows: dict[str, Row] = {}
    for subject, gauge in gauges:
        try:
            row = gauge.sample()
        except (OSError, ValueError):
            continue
        if row is not None:
            rows[subject] = row
    return rows

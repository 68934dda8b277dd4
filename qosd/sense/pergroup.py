"""One gauge per cgroup, and the rows of all of them: how collectors of cgroups keep what they compare with.

A gauge is made when its group comes and its files are closed when the group goes. Invariant: a cgroup that is gone or
prints nonsense has no row of this batch, and the others have theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Generic, Protocol, TypeVar

from koord.host.reader import KeptFiles
from qosd.metric import Scope
from qosd.sense.row import Panel, Row
from qosd.sense.targets import Group, SampleTargets
from qosd.sense.tick import Batch


class Gauge(Protocol):
    """What measures one cgroup. ``paths``: the files that it keeps open."""

    @property
    def paths(self) -> Sequence[str]: ...

    def sample(self) -> Row | None:
        """None if there is nothing to measure. Raises OSError, ValueError."""


G = TypeVar("G", bound=Gauge)


class PerGroup(Generic[G]):
    """The gauges of the groups that ``measures`` lets pass, of each scope that has a row in ``rows``."""

    def __init__(
        self,
        rows: Mapping[Scope, type[Row]],
        files: KeptFiles,
        gauge: Callable[[Group], G],
        measures: Callable[[Group], bool] = lambda _: True,
    ) -> None:
        self.panels: Mapping[Scope, Panel] = {scope: row.panel for scope, row in rows.items()}
        self._files, self._gauge, self._measures = files, gauge, measures
        self._targets: SampleTargets | None = None
        self._kept: dict[tuple[Scope, str], tuple[str, G]] = {}
        self._lists: Mapping[Scope, list[tuple[str, G]]] = {}

    def batch(self, targets: SampleTargets) -> Batch:
        """The rows of all groups of ``targets``."""
        return [(self.panels[scope], _rows(gauges)) for scope, gauges in self.of(targets).items()]

    def of(self, targets: SampleTargets) -> Mapping[Scope, list[tuple[str, G]]]:
        """(subject, gauge) by scope, for the groups of ``targets``."""
        if targets is not self._targets:
            self._follow(targets)
        return self._lists

    def _follow(self, targets: SampleTargets) -> None:
        before, kept = self._kept, dict[tuple[Scope, str], tuple[str, G]]()
        lists: dict[Scope, list[tuple[str, G]]] = {}
        for scope in self.panels:
            lists[scope] = []
            for group in filter(self._measures, targets.groups[scope]):
                path, gauge = before.pop((scope, group.subject), (None, None))
                if gauge is not None and path != group.path:
                    self._files.drop(gauge.paths)
                    gauge = None
                gauge = self._gauge(group) if gauge is None else gauge
                kept[scope, group.subject] = (group.path, gauge)
                lists[scope].append((group.subject, gauge))
        for _, gauge in before.values():
            self._files.drop(gauge.paths)
        self._kept, self._lists, self._targets = kept, lists, targets

    def close(self) -> None:
        for _, gauge in self._kept.values():
            self._files.drop(gauge.paths)
        self._kept, self._lists, self._targets = {}, {}, None


def _rows(gauges: Sequence[tuple[str, Gauge]]) -> Mapping[str, Row]:
    rows: dict[str, Row] = {}
    for subject, gauge in gauges:
        try:
            row = gauge.sample()
        except (OSError, ValueError):
            continue
        if row is not None:
            rows[subject] = row
    return rows

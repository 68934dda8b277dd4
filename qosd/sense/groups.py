"""Usage of every cgroup that is measured: containers, pods, tiers, host applications, in one batch.

The kubepods root and the pods in it are read in the same batch as the node, so that their difference is of one
moment. Invariant: a cgroup that is gone or prints nonsense has no sample of this batch, and the others have theirs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import cycle

from koord.host.cgroup import Tree
from koord.host.reader import KeptFiles
from qosd.sense import table
from qosd.sense.meters import REFRESH_TICKS, Clock, Meter
from qosd.sense.metric import Panel
from qosd.sense.store import Row
from qosd.sense.targets import PerGroup
from qosd.sense.tick import Batch, Tick


class Groups:
    """The collector ``groups``."""

    name = "groups"
    period_s = table.TICK_S
    panels: Sequence[Panel] = tuple(table.GROUPS.values())

    def __init__(self, tree: Tree, files: KeptFiles, clock: Clock) -> None:
        phases = cycle(range(REFRESH_TICKS))  # so that not all are refreshed in the same tick
        self._meters = PerGroup(
            make=lambda group: Meter(tree, group.path, files, clock, next(phases)),
            end=lambda meter: files.drop(meter.paths),
        )

    def collect(self, tick: Tick) -> Batch:
        return [(table.GROUPS[scope], _rows(meters)) for scope, meters in self._meters.of(tick.targets).items()]

    def close(self) -> None:
        self._meters.close()


def _rows(meters: Sequence[tuple[str, Meter]]) -> Mapping[str, Row]:
    rows: dict[str, Row] = {}
    for subject, meter in meters:
        try:
            row = meter.sample()
        except (OSError, ValueError):
            continue
        if row is not None:
            rows[subject] = row
    return rows

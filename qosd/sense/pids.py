"""Counts the tasks of each pod and container, as ``pids.max`` limits them.

Invariant: a cgroup without the pids controller has no row.
"""

from __future__ import annotations

from qosd.model.metric import Scope
from qosd.sense.host import CollectorHost
from qosd.sense.meters import path_of
from qosd.sense.percgroup import PerCgroup
from qosd.sense.row import SLOW_S, Column, Row
from qosd.sense.targets import SampledCgroup
from qosd.sense.tick import Batch, Tick


class PidsRow(Row):
    pids: Column = Column("tasks", "Processes and threads of the cgroup and all below it, as pids.max counts them.")


PIDS = PidsRow.by_scope((Scope.POD, Scope.CONTAINER), "pids", SLOW_S)


class PidsCollector:
    """The collector ``pids``."""

    name = "pids"
    period_s = SLOW_S
    panels = tuple(row.panel for row in PIDS.values())

    def __init__(self, host: CollectorHost) -> None:
        def gauge(cgroup: SampledCgroup) -> PidsGauge:
            return PidsGauge(path_of(host.tree, cgroup.path, "pids.current"), host)

        self._gauges = PerCgroup(PIDS, host.files, gauge)

    def collect(self, tick: Tick) -> Batch:
        return self._gauges.batch(tick)

    def close(self) -> None:
        self._gauges.close()


class PidsGauge:
    """The tasks of one cgroup."""

    __slots__ = ("_host", "_path")

    def __init__(self, path: str, host: CollectorHost) -> None:
        self._path, self._host = path, host

    @property
    def paths(self) -> tuple[str, ...]:
        return (self._path,)

    def sample(self) -> PidsRow | None:
        """Returns the number of tasks; None without the file. Raises OSError, ValueError."""
        text = self._host.files.read(self._path)
        return None if text is None else PidsRow(pids=float(int(text)))

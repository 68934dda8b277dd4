"""Measures the limits in force on each cgroup, as the kernel shows them; an unlimited one has no sample."""

from __future__ import annotations

from collections.abc import Sequence

from koord.host.cgroup import Tree
from koord.host.files import row
from koord.host.reader import KeptFiles
from qosd.model.metric import CGROUP_SCOPES
from qosd.sense.host import CollectorHost
from qosd.sense.meters import path_of
from qosd.sense.percgroup import PerCgroup
from qosd.sense.row import NO_SAMPLE, SLOW_S, Column, Row
from qosd.sense.tick import Batch, Tick

_NAMES = ("memory_limit_in_bytes", "cpu_quota", "cpu_period")


class LimitsRow(Row):
    memory_limit_bytes: Column = Column("bytes", "The cgroup's own memory limit; none = unlimited.", history=False)
    cpu_limit_cores: Column = Column("cores", "The cgroup's own CFS quota / period; none = unlimited.", history=False)


LIMITS = LimitsRow.by_scope(CGROUP_SCOPES, "limits", SLOW_S)


class LimitsCollector:
    """The collector ``limits``."""

    name = "limits"
    period_s = SLOW_S
    panels = tuple(row.panel for row in LIMITS.values())

    def __init__(self, host: CollectorHost) -> None:
        self._gauges = PerCgroup(LIMITS, host.files, lambda cgroup: LimitsGauge(host.tree, cgroup.path, host.files))

    def collect(self, tick: Tick) -> Batch:
        return self._gauges.batch(tick)

    def close(self) -> None:
        self._gauges.close()


class LimitsGauge:
    """The limits of one cgroup; a text that did not change is not parsed again."""

    __slots__ = ("_files", "_row", "_texts", "_version", "paths")

    def __init__(self, tree: Tree, cgroup: str, files: KeptFiles) -> None:
        self._files, self._version = files, tree.version
        self.paths = tuple(path_of(tree, cgroup, name) for name in _NAMES)
        self._texts: list[bytes | None] = []
        self._row: LimitsRow | None = None

    def sample(self) -> LimitsRow | None:
        """Returns the limits; NaN = unlimited, or no such file. Raises OSError, ValueError."""
        texts = [self._files.read(path) for path in self.paths]
        if texts != self._texts:
            self._row, self._texts = self._parse(texts), texts
        return self._row

    def _parse(self, texts: Sequence[bytes | None]) -> LimitsRow:
        memory, quota, period = (
            None if text is None else row(name).parse(text.decode().strip(), self._version)
            for name, text in zip(_NAMES, texts, strict=True)
        )
        cores = quota / period if isinstance(quota, int) and isinstance(period, int) and period else -1
        return LimitsRow(
            memory_limit_bytes=float(memory) if isinstance(memory, int) and memory >= 0 else NO_SAMPLE,
            cpu_limit_cores=cores if cores >= 0 else NO_SAMPLE,
        )

"""The limits that are in force on each cgroup, as the kernel shows them; unlimited is no sample."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from koord.host.cgroup import Tree
from koord.host.files import row
from koord.host.reader import KeptFiles
from qosd.sense import table
from qosd.sense.meters import path_of
from qosd.sense.metric import NO_SAMPLE, Panel
from qosd.sense.store import Row
from qosd.sense.targets import PerGroup
from qosd.sense.tick import Batch, Tick

_NAMES = ("memory_limit_in_bytes", "cpu_quota", "cpu_period")


class Limits:
    """The collector ``limits``."""

    name = "limits"
    period_s = table.SLOW_S
    panels: Sequence[Panel] = tuple(table.LIMITS.values())

    def __init__(self, tree: Tree, files: KeptFiles) -> None:
        self._gauges = PerGroup(
            make=lambda group: Gauge(tree, group.path, files), end=lambda gauge: files.drop(gauge.paths)
        )

    def collect(self, tick: Tick) -> Batch:
        return [(table.LIMITS[scope], _rows(gauges)) for scope, gauges in self._gauges.of(tick.targets).items()]

    def close(self) -> None:
        self._gauges.close()


class Gauge:
    """The limits of one cgroup; a text that did not change is not parsed again."""

    __slots__ = ("_files", "_row", "_texts", "_version", "paths")

    def __init__(self, tree: Tree, group: str, files: KeptFiles) -> None:
        self._files, self._version = files, tree.version
        self.paths = tuple(path_of(tree, group, name) for name in _NAMES)
        self._texts: list[bytes | None] = []
        self._row: Row = ()

    def sample(self) -> Row:
        """(memory bytes, CPU cores); NaN = unlimited, or no such file. Raises OSError, ValueError."""
        texts = [self._files.read(path) for path in self.paths]
        if texts != self._texts:
            self._row, self._texts = self._parse(texts), texts
        return self._row

    def _parse(self, texts: Sequence[bytes | None]) -> Row:
        memory, quota, period = (
            None if text is None else row(name).parse(text.decode().strip(), self._version)
            for name, text in zip(_NAMES, texts, strict=True)
        )
        cores = quota / period if isinstance(quota, int) and isinstance(period, int) and period else -1
        return (
            float(memory) if isinstance(memory, int) and memory >= 0 else NO_SAMPLE,
            cores if cores >= 0 else NO_SAMPLE,
        )


def _rows(gauges: Sequence[tuple[str, Gauge]]) -> Mapping[str, Row]:
    rows: dict[str, Row] = {}
    for subject, gauge in gauges:
        try:
            rows[subject] = gauge.sample()
        except (OSError, ValueError):
            continue
    return rows

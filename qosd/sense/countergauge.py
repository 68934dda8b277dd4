"""Measures the rates of a cgroup's counters: the gauge of collectors whose files hold only counters.

Tiers are read every tick, and so are latency-sensitive containers if they ran since the last batch: strategies act by
them. Other containers are read once in ``HELD_TICKS``, not all in the same tick, and their newest rates hold until
then; pods and host applications have panels of that period. Invariant: a rate is between two readings of the same
cgroup (same paths and inodes, no failed reading between). A counter that this kernel lacks, or that fell, leaves only
its own rate without a sample.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import cycle

from qosd.model.metric import CGROUP_SCOPES, Scope
from qosd.sense.host import CollectorHost
from qosd.sense.meters import path_of
from qosd.sense.percgroup import CgroupGauge, PerCgroup
from qosd.sense.rates import per_second
from qosd.sense.row import NO_SAMPLE, SLOW_S, TICK_S, Row
from qosd.sense.targets import SampledCgroup
from qosd.sense.tick import Batch, Tick
from qosd.sense.usage import USAGE

PERIODS_S: Mapping[Scope, float] = {
    **dict.fromkeys(CGROUP_SCOPES, SLOW_S),
    Scope.TIER: TICK_S,
    Scope.CONTAINER: TICK_S,
}
HELD_TICKS = round(SLOW_S / TICK_S)
_CONTAINER_CORES = USAGE[Scope.CONTAINER].cpu_usage_cores
Text = bytes | None
"""The text of a file; None if it is missing."""
Count = int | None
Parse = Callable[[Sequence[Text]], Sequence[Count]]
"""Returns the counters in a cgroup's files; None for one that is not counted there. Raises ValueError."""


class CounterGauge:
    """A gauge of one cgroup. ``parse`` reads the counters from ``paths``; ``row`` is made of their growth per second.

    A cgroup that has not run is read only once in ``HELD_TICKS``: its counters do not move, unless the kernel writes
    back for it. That counts for the tick at which it is read.
    """

    __slots__ = (
        "_at_ns",
        "_counts",
        "_has_run",
        "_host",
        "_inodes",
        "_parse",
        "_quiet",
        "_row",
        "_skipped",
        "_texts",
        "paths",
    )

    def __init__(
        self,
        paths: Sequence[str],
        parse: Parse,
        row: Callable[[Sequence[float]], Row],
        host: CollectorHost,
        has_run: Callable[[], bool] = lambda: True,
    ) -> None:
        self.paths, self._parse, self._row, self._host, self._has_run = tuple(paths), parse, row, host, has_run
        self._at_ns = self._skipped = 0
        self._inodes: tuple[int, ...] = ()
        self._texts: tuple[Text, ...] = ()
        self._counts: Sequence[Count] = ()
        self._quiet: Row | None = None  # of no growth; None: the next reading is a first one

    def sample(self) -> Row | None:
        """Returns the rates; None if no file is there, or counts anything. Raises OSError, ValueError."""
        if self._quiet is not None and self._skipped < HELD_TICKS - 1 and not self._has_run():
            self._skipped += 1
            self._at_ns = self._host.clock()
            return self._quiet
        self._skipped = 0
        return self._read()

    def _read(self) -> Row | None:
        """Reads the files. Texts that did not change are not parsed again."""
        files, quiet, self._quiet = self._host.files, self._quiet, None
        texts, inodes = tuple(map(files.read, self.paths)), tuple(map(files.inode, self.paths))
        was_ns, self._at_ns = self._at_ns, self._host.clock()
        before = self._counts if quiet is not None and inodes == self._inodes else None
        if before is not None and texts == self._texts:
            self._quiet = quiet
            return quiet
        is_there = any(text is not None for text in texts)
        self._texts, self._inodes, self._counts = texts, inodes, self._parse(texts) if is_there else ()
        if all(count is None for count in self._counts):
            return None
        self._quiet = self._row([NO_SAMPLE if count is None else 0.0 for count in self._counts])
        return self._row(_rates(before, self._counts, self._at_ns - was_ns))


class SampleAndHold:
    """A gauge that is read once in ``HELD_TICKS`` ticks, first after ``phase``; in between its newest row holds."""

    __slots__ = ("_gauge", "_rest", "_row")

    def __init__(self, gauge: CgroupGauge, phase: int) -> None:
        self._gauge, self._rest = gauge, phase
        self._row: Row | None = None

    @property
    def paths(self) -> Sequence[str]:
        return self._gauge.paths

    def sample(self) -> Row | None:
        """Returns the newest row; None if there was nothing to measure. Raises OSError, ValueError."""
        if self._rest == 0:
            self._rest, self._row = HELD_TICKS, None
            self._row = self._gauge.sample()
        self._rest -= 1
        return self._row


class CounterGauges:
    """Gauges of the files ``names`` of every cgroup, for a collector that runs after ``usage``.

    ``phase_s``: see PerCgroup.
    """

    def __init__(
        self,
        rows: Mapping[Scope, type[Row]],
        names: Sequence[str],
        parse: Parse,
        row: Callable[[Sequence[float]], Row],
        host: CollectorHost,
        phase_s: float,
    ) -> None:
        phases = cycle(range(HELD_TICKS))

        def gauge(cgroup: SampledCgroup) -> CgroupGauge:
            paths = [path_of(host.tree, cgroup.path, name) for name in names]
            if cgroup.container is None:
                return CounterGauge(paths, parse, row, host)
            if not cgroup.latency_sensitive:
                return SampleAndHold(CounterGauge(paths, parse, row, host), next(phases))
            return CounterGauge(paths, parse, row, host, lambda: self._cores.get(cgroup.subject) != 0)

        self._cores: Mapping[str, float] = {}
        self._at_ns = 0
        self._gauges = PerCgroup(rows, host.files, gauge, phase_s=phase_s)

    def batch(self, tick: Tick) -> Batch:
        """Returns the rows. After a missed batch it is unknown which containers ran, so all are read."""
        self._cores = tick.values(_CONTAINER_CORES) if tick.before_ns == self._at_ns else {}
        self._at_ns = tick.at_ns
        return self._gauges.batch(tick)

    def close(self) -> None:
        self._gauges.close()


def _rates(before: Sequence[Count] | None, now: Sequence[Count], elapsed_ns: int) -> Sequence[float]:
    if before is None:
        return [NO_SAMPLE] * len(now)
    return [
        NO_SAMPLE if was is None or count is None else per_second(was, count, elapsed_ns)
        for was, count in zip(before, now, strict=True)
    ]

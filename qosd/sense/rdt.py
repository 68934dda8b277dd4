"""Measures last-level cache and memory bandwidth by resctrl group, as the CPU monitors them (CMT, MBM).

It reads every group and every monitored L3 domain, whatever their names and numbers; the root group is called ``root``.
Invariant: a counter that cannot be read now (``Unavailable``, ``Error``, a group that vanished) leaves only itself
without a sample; bandwidth is a rate between two readings, across a wrap of the counter, and never across a reset.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from koord.host import resctrl
from koord.host.cgroup import read_text
from koord.host.resctrl import LLC_OCCUPANCY, MBM_LOCAL, MBM_TOTAL, MonitoringFile
from qosd.model.metric import Kind, Koordlet, Scope
from qosd.sense.host import Clock, CollectorHost
from qosd.sense.rates import per_second_wrapping
from qosd.sense.row import NO_SAMPLE, SLOW_S, Column, Row
from qosd.sense.tick import Batch, NotApplicable, Tick

RESOURCE = "L3"


@dataclass(frozen=True, slots=True)
class RDTReading:
    """The counters of one domain for a group: bytes by feature."""

    at_ns: int
    counts: Mapping[str, int]


def _bytes(feature: str) -> Column:
    koordlet = Koordlet("resctrl_memory_bandwidth", {"mb_type": feature})
    return Column("bytes", "As the CPU counts it.", Kind.COUNTER, koordlet, history=False)


class CacheRow(Row, source="resctrl", scope=Scope.CACHE, period_s=SLOW_S):
    llc_occupancy_bytes: Column = Column(
        "bytes", "Last-level cache that the resctrl group occupies.", koordlet=Koordlet("resctrl_llc_occupancy")
    )
    mbm_total_bytes_per_s: Column = Column("bytes/s", "Memory bandwidth of the resctrl group.", Kind.RATE)
    mbm_local_bytes_per_s: Column = Column("bytes/s", "The same, to the socket's own memory.", Kind.RATE)
    mbm_total_bytes: Column = _bytes(MBM_TOTAL)
    mbm_local_bytes: Column = _bytes(MBM_LOCAL)


class ResctrlCollector:
    """The collector ``resctrl``."""

    name = "resctrl"
    period_s = SLOW_S
    panels = (CacheRow.panel,)

    def __init__(self, host: CollectorHost) -> None:
        self._root, self._clock = host.tree.resctrl, host.clock
        self._before: Mapping[str, RDTReading] = {}

    def collect(self, tick: Tick) -> Batch:
        if not (self._root / "schemata").is_file():
            raise NotApplicable(f"no resctrl mount at {self._root}")
        groups = {name or "root": resctrl.counters(self._root, name) for name in ("", *resctrl.groups(self._root))}
        if not any(groups.values()):
            raise NotApplicable("this CPU monitors neither cache nor memory bandwidth")
        now = {
            f"{name}/{domain}": reading
            for name, files in groups.items()
            for domain, reading in read(files, self._clock).items()
        }
        before, self._before = self._before, now
        return [(CacheRow.panel, {subject: _row(before.get(subject), now[subject]) for subject in now})]

    def close(self) -> None:
        pass


def read(files: Sequence[MonitoringFile], clock: Clock) -> Mapping[int, RDTReading]:
    """Returns the counters in a group's monitoring ``files``, by domain of the L3 cache."""
    found: dict[int, dict[str, int]] = {}
    for file in files:
        if file.resource != RESOURCE:
            continue
        try:
            text = read_text(file.path)
            count = None if text is None else resctrl.parse_counter(text, str(file.path))
        except (OSError, ValueError):
            continue
        if count is not None:
            found.setdefault(file.domain, {})[file.feature] = count
    return {domain: RDTReading(clock(), counts) for domain, counts in found.items()}


def bandwidth(feature: str, before: RDTReading | None, now: RDTReading) -> float:
    """Returns bytes per second of one domain; NaN if a reading lacks the counter."""
    if before is None or feature not in before.counts or feature not in now.counts:
        return NO_SAMPLE
    return per_second_wrapping(before.counts[feature], now.counts[feature], now.at_ns - before.at_ns)


def _row(before: RDTReading | None, now: RDTReading) -> CacheRow:
    occupancy, total_bytes, local_bytes = (
        float(now.counts[name]) if name in now.counts else NO_SAMPLE for name in (LLC_OCCUPANCY, MBM_TOTAL, MBM_LOCAL)
    )
    return CacheRow(
        llc_occupancy_bytes=occupancy,
        mbm_total_bytes_per_s=bandwidth(MBM_TOTAL, before, now),
        mbm_local_bytes_per_s=bandwidth(MBM_LOCAL, before, now),
        mbm_total_bytes=total_bytes,
        mbm_local_bytes=local_bytes,
    )

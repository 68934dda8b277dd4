"""Last-level cache occupancy and memory bandwidth by resctrl group, as the CPU monitors them (CMT, MBM).

Every group and every monitored L3 domain there is, whatever their names and numbers; the root group is called
``root``. Invariant: a counter that is not to be had now (``Unavailable``, ``Error``, a group that vanished) costs its
own sample only; bandwidth is a rate between two readings, across a wrap of the counter, and never across a reset.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from koord.host import resctrl
from koord.host.cgroup import read_text
from koord.host.resctrl import LLC_OCCUPANCY, MBM_LOCAL, MBM_TOTAL, Counter
from qosd.metric import Kind, Koordlet, Scope
from qosd.sense.host import Host
from qosd.sense.rates import per_second_wrapping
from qosd.sense.row import NO_SAMPLE, SLOW_S, Column, Row
from qosd.sense.tick import Batch, NotApplicable, Tick

_RESOURCE = "L3"
_Counts = Mapping[str, int]
_NONE: _Counts = {}


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


class Resctrl:
    """The collector ``resctrl``."""

    name = "resctrl"
    period_s = SLOW_S
    panels = (CacheRow.panel,)

    def __init__(self, host: Host) -> None:
        self._root, self._clock = host.tree.resctrl, host.clock
        self._before: Mapping[str, tuple[int, _Counts]] = {}

    def collect(self, tick: Tick) -> Batch:
        if not (self._root / "schemata").is_file():
            raise NotApplicable(f"no resctrl mount at {self._root}")
        groups = {name or "root": resctrl.counters(self._root, name) for name in ("", *resctrl.groups(self._root))}
        if not any(groups.values()):
            raise NotApplicable("this CPU monitors neither cache nor memory bandwidth")
        now = {subject: counts for name, files in groups.items() for subject, counts in self._read(name, files).items()}
        before, self._before = self._before, now
        return [(CacheRow.panel, {subject: _row(before.get(subject), *now[subject]) for subject in now})]

    def close(self) -> None:
        pass

    def _read(self, group: str, files: Sequence[Counter]) -> Mapping[str, tuple[int, _Counts]]:
        """(instant, bytes by feature) of each domain of ``group``."""
        found: dict[str, dict[str, int]] = {}
        for file in files:
            if file.resource != _RESOURCE:
                continue
            try:
                text = read_text(file.path)
                count = None if text is None else resctrl.parse_counter(text, str(file.path))
            except (OSError, ValueError):
                continue
            if count is not None:
                found.setdefault(f"{group}/{file.domain}", {})[file.feature] = count
        return {subject: (self._clock(), counts) for subject, counts in found.items()}


def _row(before: tuple[int, _Counts] | None, at_ns: int, now: _Counts) -> CacheRow:
    was_ns, was = before or (at_ns, _NONE)
    total, local = (
        per_second_wrapping(was[name], now[name], at_ns - was_ns) if name in was and name in now else NO_SAMPLE
        for name in (MBM_TOTAL, MBM_LOCAL)
    )
    occupancy, total_bytes, local_bytes = (
        float(now[name]) if name in now else NO_SAMPLE for name in (LLC_OCCUPANCY, MBM_TOTAL, MBM_LOCAL)
    )
    return CacheRow(
        llc_occupancy_bytes=occupancy,
        mbm_total_bytes_per_s=total,
        mbm_local_bytes_per_s=local,
        mbm_total_bytes=total_bytes,
        mbm_local_bytes=local_bytes,
    )

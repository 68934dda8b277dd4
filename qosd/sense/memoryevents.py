"""Counts the memory events of each cgroup: reclaim at its bounds, and OOM kills.

v2 counts in ``memory.events`` the events of the cgroup and all below it; v1 those of the cgroup itself, and only limit
hits (``memory.failcnt``) and kills (``memory.oom_control``). Invariant: an event that this kernel does not count has no
sample.
"""

from __future__ import annotations

from collections.abc import Sequence

from qosd.model.metric import CGROUP_SCOPES, Kind
from qosd.sense.countergauge import PERIODS_S, Count, CounterGauges, Text
from qosd.sense.flatkeys import FlatKeys
from qosd.sense.host import CollectorHost
from qosd.sense.row import TICK_S, Column, Row
from qosd.sense.tick import Batch, Tick

_ABSENT = -1
_V1_FILES = "memory.failcnt", "memory.oom_control"
_V2_FILES = ("memory.events",)
_PHASE_S = 6.0


class MemoryEventsRow(Row):
    memory_low_events_per_s: Column = Column(
        "1/s", "Reclaims of the cgroup although it used less than its memory.low; v2 only.", Kind.RATE, history=False
    )
    memory_high_events_per_s: Column = Column(
        "1/s", "Allocations that were throttled at memory.high, in the cgroup and all below it; v2 only.", Kind.RATE
    )
    memory_max_events_per_s: Column = Column(
        "1/s", "Allocations at the memory limit; on v1 at the cgroup's own.", Kind.RATE
    )
    oom_events_per_s: Column = Column(
        "1/s", "Allocations that were about to fail at the memory limit; v2 only.", Kind.RATE, history=False
    )
    oom_kills_per_s: Column = Column(
        "1/s",
        "Processes of the cgroup that the kernel killed for want of memory; on v1 without those below it.",
        Kind.RATE,
    )


_row = MemoryEventsRow.in_order(
    [
        "memory_low_events_per_s",
        "memory_high_events_per_s",
        "memory_max_events_per_s",
        "oom_events_per_s",
        "oom_kills_per_s",
    ]
)
MEMORY_EVENTS = MemoryEventsRow.by_scope(CGROUP_SCOPES, "memory_events", PERIODS_S)


class MemoryEventsCollector:
    """The collector ``memory_events``; runs after ``usage``."""

    name = "memory_events"
    period_s = TICK_S
    panels = tuple(row.panel for row in MEMORY_EVENTS.values())

    def __init__(self, host: CollectorHost) -> None:
        names, parse = (_V1_FILES, _V1()) if host.tree.version == 1 else (_V2_FILES, _V2())
        self._gauges = CounterGauges(MEMORY_EVENTS, names, parse, _row, host, _PHASE_S)

    def collect(self, tick: Tick) -> Batch:
        return self._gauges.batch(tick)

    def close(self) -> None:
        self._gauges.close()


class _V1:
    """Parses ``_V1_FILES``."""

    def __init__(self) -> None:
        self._keys = FlatKeys((b"oom_kill_disable",), (b"oom_kill",), absent=_ABSENT)

    def __call__(self, texts: Sequence[Text]) -> Sequence[Count]:
        failures, oom_control = texts
        kills = None if oom_control is None else _numbers(self._keys, oom_control)[1]
        return None, None, None if failures is None else int(failures), None, kills


class _V2:
    """Parses ``_V2_FILES``."""

    def __init__(self) -> None:
        self._keys = FlatKeys((b"low", b"high", b"max"), (b"oom", b"oom_kill"), absent=_ABSENT)

    def __call__(self, texts: Sequence[Text]) -> Sequence[Count]:
        return _numbers(self._keys, texts[0] or b"")


def _numbers(keys: FlatKeys, text: bytes) -> Sequence[Count]:
    """Returns the numbers of the keys, None for an absent one. Raises ValueError."""
    numbers = keys.numbers(text)
    if numbers is None:
        raise ValueError(f"{text!r} lacks a key or its number")
    return [None if number == _ABSENT else number for number in numbers]

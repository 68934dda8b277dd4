"""The one table that says how each of qosd's own figures is called, and the numbers that are counted for it.

A hook call adds to half a dozen of them while a pod waits, so they are plain numbers, which ``koord.service.metrics``
turns into Prometheus' form. One thread counts and reads.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from koord.service import metrics
from koord.service.metrics import Declared, Histogram, Kind, Labels

PREFIX = "koord_qosd_"
_TICK_BOUNDS_S = (0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 1.0)
_HOOK_BOUNDS_S = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.05, 0.25, 1.0)


def _histograms(bounds_s: tuple[float, ...]) -> Callable[[], defaultdict[str, Histogram]]:
    return lambda: defaultdict(partial(Histogram, bounds_s))


@dataclass(slots=True)
class Metrics:
    """What is counted, by label values in the order of the table; ``followed``: what others keep (see ``figures``)."""

    log_lines_dropped: Callable[[], int] = lambda: 0
    hook_calls: Counter[Labels] = field(default_factory=Counter)
    hook_seconds: Mapping[str, Histogram] = field(default_factory=_histograms(_HOOK_BOUNDS_S))
    hook_edits: Counter[Labels] = field(default_factory=Counter)
    unrecorded_edits: int = 0
    pod_problems: Counter[str] = field(default_factory=Counter)
    tick_seconds: Mapping[str, Histogram] = field(default_factory=_histograms(_TICK_BOUNDS_S))
    failed_ticks: int = 0
    writes: Counter[str] = field(default_factory=Counter)
    rules_loads: Counter[str] = field(default_factory=Counter)
    followed: tuple[Declared[Metrics], ...] = ()

    def take(self) -> metrics.Snapshot:
        """Every metric as it is now."""
        return metrics.take((*METRICS, *self.followed), self)


METRICS: tuple[Declared[Metrics], ...] = (
    Declared(
        "log_lines_dropped",
        Kind.COUNTER,
        "Lines of the log that nobody read in time.",
        (),
        lambda m: m.log_lines_dropped(),
    ),
    Declared(
        "hook_calls",
        Kind.COUNTER,
        "Hook calls answered, by stage, caller and result (edited, unchanged, yielded, error).",
        ("stage", "caller", "result"),
        lambda m: m.hook_calls,
    ),
    Declared("hook_seconds", Kind.HISTOGRAM, "Time to answer a hook call.", ("stage",), lambda m: m.hook_seconds),
    Declared("hook_edits", Kind.COUNTER, "Fields edited, by hook.", ("hook", "field"), lambda m: m.hook_edits),
    Declared(
        "unrecorded_edits",
        Kind.COUNTER,
        "Containers made or updated with edits of which the undo record could not be told.",
        (),
        lambda m: m.unrecorded_edits,
    ),
    Declared(
        "pod_problems",
        Kind.COUNTER,
        "Labels and annotations that were treated as absent, by stage.",
        ("stage",),
        lambda m: m.pod_problems,
    ),
    Declared(
        "tick_seconds",
        Kind.HISTOGRAM,
        "Time from the beginning of a tick to its last write, by kind (beat, change, urgent).",
        ("kind",),
        lambda m: m.tick_seconds,
    ),
    Declared("failed_ticks", Kind.COUNTER, "Ticks that an error of our own ended.", (), lambda m: m.failed_ticks),
    Declared(
        "writes", Kind.COUNTER, "Writes to kernel files that were decided, by result.", ("result",), lambda m: m.writes
    ),
    Declared(
        "rules_loads",
        Kind.COUNTER,
        "Attempts to load the rules file, by result (loaded, defaults, kept_last_good, unknown).",
        ("result",),
        lambda m: m.rules_loads,
    ),
)

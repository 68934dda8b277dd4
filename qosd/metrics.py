"""koord-qosd's own metrics: their names and help on the page, and the numbers that are counted.

A hook call adds to half a dozen of them while a pod waits, so they are plain numbers (``koord.service.metrics``). One
thread counts and reads them.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from math import nan

from koord.service import metrics
from koord.service.metrics import Gauge, Histogram, Labels, Live, counter, gauge, histogram

PREFIX = "koord_qosd_"
_TICK_BOUNDS_S = (0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 1.0)
_WRITE_BOUNDS_S = tuple([4**power / 1e5 for power in range(8)])
_KUBELET_BOUNDS_S = tuple([4**power / 1e3 for power in range(7)])
_HOOK_BOUNDS_S = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.05, 0.25, 1.0)


@dataclass(slots=True)
class Metrics:
    """``gauges``: the gauges of other parts' state (``qosd.gauges``)."""

    log_lines_dropped: Live = counter("Lines of the log that nobody read in time.")
    hook_calls: Counter[Labels] = counter(
        "Hook calls answered, by stage, caller and result (edited, unchanged, yielded, error).",
        "stage", "caller", "result",
    )  # fmt: skip
    hook_seconds: dict[str, Histogram] = histogram("Time to answer a hook call.", "stage", bounds=_HOOK_BOUNDS_S)
    hook_edits: Counter[Labels] = counter("Fields edited, by hook.", "hook", "field")
    late_limits: int = counter("Limits that could not be written before a container's program started.")
    unrecorded_edits: int = counter("Containers made or updated with edits of which the undo record could not be told.")
    pod_problems: Counter[str] = counter("Labels and annotations that were treated as absent, by stage.", "stage")
    tick_seconds: dict[str, Histogram] = histogram(
        "Time from the beginning of a tick to its last write, by kind (beat, change, urgent).",
        "kind",
        bounds=_TICK_BOUNDS_S,
    )
    failed_ticks: int = counter("Ticks that an error of our own ended.")
    writes: Counter[str] = counter("Writes to kernel files that were decided, by result.", "result")
    write_seconds: dict[Labels, Histogram] = histogram(
        "Time to write a kernel file and to read it back, by kind of file (cgroup, resctrl, other) and result"
        " (done, failed).",
        "kind", "result", bounds=_WRITE_BOUNDS_S,
    )  # fmt: skip
    kubelet_seconds: dict[Labels, Histogram] = histogram(
        "Time of a request to kubelet, by path and HTTP status (0: no answer).",
        "path", "status", bounds=_KUBELET_BOUNDS_S,
    )  # fmt: skip
    rules_loads: Counter[str] = counter(
        "Attempts to load the rules file, by result (loaded, defaults, kept_last_good, unknown).", "result"
    )
    cluster_reports: Counter[Labels] = counter(
        "Reports to the cluster, by what is reported and result (written, unchanged, conflict, failed).",
        "report",
        "result",
    )
    cluster_crashes: Counter[str] = counter(
        "Parts of the connection to the cluster that an error of our own ended, and that run again.", "part"
    )
    cluster_reachable: Live = gauge("1 while the API server says what is the case; 0 without a cluster.")
    cluster_silence_seconds: Live = gauge(
        "Since the API server last said anything; NaN: it never did.", factory=lambda: nan
    )
    gauges: tuple[Gauge, ...] = ()

    def take(self) -> metrics.Snapshot:
        """Returns every metric as it is now."""
        return metrics.take(self, self.gauges)

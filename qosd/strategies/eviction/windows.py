"""The window over which usage of CPU is judged before pods are evicted for it: ``cpuEvictTimeWindowSeconds``.

It counts once there are samples for a third of it, in number and in time: ticks between two beats bring more samples,
but no more of the past.
"""

from __future__ import annotations

from qosd.model.metric import Metric
from qosd.model.rules import Rules
from qosd.model.snapshot import NodeSnapshot, Window
from qosd.sense.row import TICK_S


def cpu_window(metric: Metric, rules: Rules) -> Window:
    """That of ``metric``, a second at least."""
    thresholds = rules.slo.thresholds
    seconds = (thresholds.cpu_evict_time_window_seconds if thresholds is not None else None) or 0
    over_s = max(int(TICK_S), seconds)
    return Window(metric, float(over_s), at_least=max(1, over_s // 3))


def covers(snapshot: NodeSnapshot, window: Window) -> float | None:
    """The mean of a node's metric over the window; None while there are too few samples."""
    aggregate = snapshot.window(window)
    if aggregate is None or aggregate.span_s + TICK_S < window.over_s // 3:
        return None
    return aggregate.mean

"""The window over which CPU usage is judged before pods are evicted for it: ``cpuEvictTimeWindowSeconds``.

It counts once it has samples for a third of it, in number and in time: ticks between two beats bring more samples, but
no more of the past. A window longer than samples are kept is refused: it would be the mean of a shorter one, and might
never have a third of its samples.
"""

from __future__ import annotations

from collections.abc import Iterable

from koord.model.slo import ResourceThresholds
from qosd.model.metric import Metric
from qosd.model.policy import EffectivePolicy
from qosd.model.snapshot import NodeSnapshot, Window
from qosd.sense.row import NODE_RETENTION_S, TICK_S
from qosd.strategies.eviction.evicting import SettingError


def cpu_window(metric: Metric, policy: EffectivePolicy) -> Window:
    """Returns the window of ``metric``, of a second at least."""
    thresholds = policy.slo.thresholds
    seconds = (thresholds.cpu_evict_time_window_seconds if thresholds is not None else None) or 0
    over_s = max(int(TICK_S), seconds)
    return Window(metric, float(over_s), at_least=max(1, over_s // 3))


def cpu_windows(metrics: Iterable[Metric], policy: EffectivePolicy) -> tuple[Window, ...]:
    """Returns the windows of ``metrics``; none if ``check_window`` refuses the setting."""
    windows = tuple([cpu_window(metric, policy) for metric in metrics])
    return () if any(window.over_s > NODE_RETENTION_S for window in windows) else windows


def check_window(thresholds: ResourceThresholds) -> None:
    """Raises SettingError if the window is longer than samples are kept."""
    seconds = thresholds.cpu_evict_time_window_seconds or 0
    if seconds > NODE_RETENTION_S:
        why = f"is more than {NODE_RETENTION_S:.0f}, the seconds for which samples are kept"
        raise SettingError("cpu_evict_time_window_seconds", seconds, why)


def covers(snapshot: NodeSnapshot, window: Window) -> float | None:
    """Returns the mean of a node's metric over the window; None while it has too few samples."""
    aggregate = snapshot.window(window)
    if aggregate is None or aggregate.span_s + TICK_S < window.over_s // 3:
        return None
    return aggregate.mean

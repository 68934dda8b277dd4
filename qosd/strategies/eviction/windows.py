"""The window over which usage of CPU is judged before pods are evicted for it: ``cpuEvictTimeWindowSeconds``.

It counts once there are samples for a third of it, in number and in time: ticks between two beats bring more samples,
but no more of the past. A window longer than samples are kept would be the mean of a shorter one, and a third of it
might never come together: it is refused.
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
    """That of ``metric``, a second at least."""
    thresholds = policy.slo.thresholds
    seconds = (thresholds.cpu_evict_time_window_seconds if thresholds is not None else None) or 0
    over_s = max(int(TICK_S), seconds)
    return Window(metric, float(over_s), at_least=max(1, over_s // 3))


def cpu_windows(metrics: Iterable[Metric], policy: EffectivePolicy) -> tuple[Window, ...]:
    """Those of ``metrics``; none where ``check_window`` refuses the setting."""
    windows = tuple([cpu_window(metric, policy) for metric in metrics])
    return () if any(window.over_s > NODE_RETENTION_S for window in windows) else windows


def check_window(thresholds: ResourceThresholds) -> None:
    """Raises SettingError where samples are not kept for as long as the window is."""
    seconds = thresholds.cpu_evict_time_window_seconds or 0
    if seconds > NODE_RETENTION_S:
        why = f"is more than {NODE_RETENTION_S:.0f}, the seconds for which samples are kept"
        raise SettingError("cpu_evict_time_window_seconds", seconds, why)


def covers(snapshot: NodeSnapshot, window: Window) -> float | None:
    """The mean of a node's metric over the window; None while there are too few samples."""
    aggregate = snapshot.window(window)
    if aggregate is None or aggregate.span_s + TICK_S < window.over_s // 3:
        return None
    return aggregate.mean

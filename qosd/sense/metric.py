"""What a metric is: its name, unit and meaning, of what object it tells, and how long its history is kept.

A panel is the metrics that one collector fills for one kind of object: they share a time axis, and a row holds one
number per metric in the panel's order (NaN = no sample). Invariant: in a panel the metrics with history come first.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

NO_SAMPLE = math.nan


class Scope(StrEnum):
    """The kind of object a metric tells of, and so what its subjects are."""

    NODE = "node"  # ""
    NUMA = "numa"  # the NUMA node's number
    TIER = "tier"  # cgroup path of the kubepods root and of the QoS tiers below it
    POD = "pod"  # cgroup path
    CONTAINER = "container"  # cgroup path
    HOST_APP = "host_app"  # the application's name
    DISK = "disk"  # the kernel's name of the block device
    NETWORK = "network"  # the interface's name
    CACHE = "cache"  # "<resctrl group>/<cache id>"
    COLLECTOR = "collector"  # the collector's name


class Kind(StrEnum):
    GAUGE = "gauge"
    RATE = "rate"  # a counter's growth per second, or a ratio of two counters' growth
    COUNTER = "counter"  # as the kernel counts, since the object exists


@dataclass(frozen=True, slots=True)
class Koordlet:
    """The name (without ``koordlet_``) and fixed labels under which upstream's dashboards know a metric."""

    name: str
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Metric:
    """One row of the metric table. ``source`` is the collector that fills it, every ``period_s`` seconds."""

    name: str
    unit: str
    help: str
    scope: Scope
    kind: Kind
    source: str
    period_s: float
    retention_s: float  # 0 = only the newest sample is kept
    koordlet: Koordlet | None = None


@dataclass(frozen=True, slots=True)
class Column:
    """A metric before it is known of which objects it tells; ``stem`` is its name without the scope."""

    stem: str
    unit: str
    help: str
    kind: Kind = Kind.GAUGE
    koordlet: Mapping[Scope, Koordlet] = field(default_factory=dict)
    history: bool = True


@dataclass(frozen=True, eq=False)
class Panel:
    """The metrics that ``source`` fills for the objects of ``scope``, in the order of a row."""

    source: str
    scope: Scope
    period_s: float
    retention_s: float
    metrics: tuple[Metric, ...]
    kept: int = field(init=False)

    def __post_init__(self) -> None:
        with_history = [metric.retention_s > 0 for metric in self.metrics]
        kept = sum(with_history)
        if not all(with_history[:kept]):
            raise ValueError(f"{self.source}/{self.scope}: metrics with history must come first")
        object.__setattr__(self, "kept", kept)

    @property
    def capacity(self) -> int:
        """Samples per ring."""
        return max(1, math.ceil(self.retention_s / self.period_s))


def panel(source: str, scope: Scope, period_s: float, retention_s: float, *columns: Column) -> Panel:
    """``columns`` as metrics named ``<scope>_<stem>``; the node's devices (disks, NUMA nodes …) likewise."""
    metrics = tuple(
        Metric(
            name=f"{scope}_{column.stem}",
            unit=column.unit,
            help=column.help,
            scope=scope,
            kind=column.kind,
            source=source,
            period_s=period_s,
            retention_s=retention_s if column.history else 0.0,
            koordlet=column.koordlet.get(scope),
        )
        for column in columns
    )
    return Panel(source, scope, period_s, retention_s, metrics)

"""Metrics: name, unit, meaning, kind of object, and how long the history is kept.

The rows of collectors (``qosd.sense.row``) declare metrics, and readers of samples name them by the ``Metric`` itself.
Invariant: a metric equals only itself, so it may be a key.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Scope(StrEnum):
    """The kind of object that a metric measures, which says what its subjects are."""

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


CGROUP_SCOPES = (Scope.TIER, Scope.POD, Scope.CONTAINER, Scope.HOST_APP)
"""The kinds of objects that are cgroups."""


class Kind(StrEnum):
    GAUGE = "gauge"
    RATE = "rate"  # a counter's growth per second, or a ratio of two counters' growth
    COUNTER = "counter"  # as the kernel counts, since the object exists


@dataclass(frozen=True, slots=True)
class Koordlet:
    """The name (without ``koordlet_``) and fixed labels under which upstream's dashboards know a metric."""

    name: str
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
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

"""The tables of sensing: all collectors, and the metrics that they measure in the order in which they are shown.

Prometheus, the documentation and koordctl are rendered from the metrics, which the rows of the collectors declare.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from qosd.model.metric import CGROUP_SCOPES, Metric, Scope
from qosd.sense.besteffort import BestEffortCollector
from qosd.sense.cycles import CyclesCollector
from qosd.sense.devices import DisksCollector, NetworkCollector
from qosd.sense.host import CollectorHost
from qosd.sense.io import IOCollector
from qosd.sense.limits import LimitsCollector
from qosd.sense.memoryevents import MemoryEventsCollector
from qosd.sense.mongroups import MonGroupsCollector
from qosd.sense.node import NodeCollector
from qosd.sense.pids import PidsCollector
from qosd.sense.podnetwork import PodNetworkCollector
from qosd.sense.prediction import PredictionRow
from qosd.sense.pressure import NodePressureCollector, PressureCollector
from qosd.sense.rdt import ResctrlCollector
from qosd.sense.reclaim import ReclaimCollector
from qosd.sense.row import Panel
from qosd.sense.runqueue import RunQueueCollector
from qosd.sense.sampler import CollectorRow
from qosd.sense.stalls import StallsCollector
from qosd.sense.system import SystemCollector
from qosd.sense.tick import Collector
from qosd.sense.usage import UsageCollector


class CollectorClass(Protocol):
    """A class of collectors, which are made from the host alone."""

    @property
    def name(self) -> str: ...
    @property
    def panels(self) -> Sequence[Panel]: ...

    def __call__(self, host: CollectorHost, /) -> Collector: ...


COLLECTORS: tuple[CollectorClass, ...] = (
    NodeCollector,
    NodePressureCollector,
    ReclaimCollector,
    UsageCollector,
    SystemCollector,
    BestEffortCollector,
    LimitsCollector,
    PressureCollector,
    StallsCollector,
    RunQueueCollector,
    CyclesCollector,
    IOCollector,
    MemoryEventsCollector,
    PidsCollector,
    PodNetworkCollector,
    MonGroupsCollector,
    DisksCollector,
    NetworkCollector,
    ResctrlCollector,
)
"""In the order in which they run: a collector comes after those whose samples it needs."""


def _shown(panel: Panel) -> int:
    """Returns the place of a panel: the node, its NUMA nodes, cgroups of all kinds, then devices."""
    return list(Scope).index(CGROUP_SCOPES[0] if panel.scope in CGROUP_SCOPES else panel.scope)


_MEASURED = sorted((panel for collector in COLLECTORS for panel in collector.panels), key=_shown)
PANELS: tuple[Panel, ...] = (*_MEASURED, PredictionRow.panel, CollectorRow.panel)
METRICS: tuple[Metric, ...] = tuple(metric for panel in PANELS for metric in panel.metrics)

"""THE tables of sensing: all collectors, and the metrics that they measure in the order in which they are shown.

Prometheus, the documentation and koordctl are rendered from the metrics. What is in them, the rows of the collectors
declare.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from qosd.model.metric import CGROUP_SCOPES, Metric, Scope
from qosd.sense.besteffort import BestEffort
from qosd.sense.cycles import Cycles
from qosd.sense.devices import Disks, Network
from qosd.sense.host import Host
from qosd.sense.io import IO
from qosd.sense.limits import Limits
from qosd.sense.memoryevents import MemoryEvents
from qosd.sense.mongroups import MonGroups
from qosd.sense.node import Node
from qosd.sense.pids import Pids
from qosd.sense.podnetwork import PodNetwork
from qosd.sense.prediction import PredictionRow
from qosd.sense.pressure import NodePressure, Pressure
from qosd.sense.rdt import Resctrl
from qosd.sense.reclaim import Reclaim
from qosd.sense.row import Panel
from qosd.sense.runqueue import RunQueue
from qosd.sense.sampler import CollectorRow
from qosd.sense.stalls import Stalls
from qosd.sense.system import System
from qosd.sense.tick import Collector
from qosd.sense.usage import Usage


class CollectorClass(Protocol):
    """A class of collectors, made of nothing but the host."""

    @property
    def name(self) -> str: ...
    @property
    def panels(self) -> Sequence[Panel]: ...

    def __call__(self, host: Host, /) -> Collector: ...


COLLECTORS: tuple[CollectorClass, ...] = (
    Node,
    NodePressure,
    Reclaim,
    Usage,
    System,
    BestEffort,
    Limits,
    Pressure,
    Stalls,
    RunQueue,
    Cycles,
    IO,
    MemoryEvents,
    Pids,
    PodNetwork,
    MonGroups,
    Disks,
    Network,
    Resctrl,
)
"""In the order in which they run, which is that of their need of each other's samples."""


def _shown(panel: Panel) -> int:
    """The node before its parts, and these before cgroups, whatever kind they are of; then devices."""
    return list(Scope).index(CGROUP_SCOPES[0] if panel.scope in CGROUP_SCOPES else panel.scope)


_MEASURED = sorted((panel for collector in COLLECTORS for panel in collector.panels), key=_shown)
PANELS: tuple[Panel, ...] = (*_MEASURED, PredictionRow.panel, CollectorRow.panel)
METRICS: tuple[Metric, ...] = tuple(metric for panel in PANELS for metric in panel.metrics)

"""THE metric table: all that qosd measures, in the order in which it is shown.

Prometheus, the documentation and koordctl are rendered from it. What is in it, the rows of the collectors declare.
"""

from __future__ import annotations

from qosd.metric import Metric
from qosd.sense.besteffort import BestEffortRow
from qosd.sense.cycles import CyclesRow
from qosd.sense.devices import DiskRow, InterfaceRow
from qosd.sense.groups import USAGE
from qosd.sense.limits import LIMITS
from qosd.sense.node import NodeRow, NumaRow
from qosd.sense.prediction import PredictionRow
from qosd.sense.pressure import PRESSURE, NodePressureRow
from qosd.sense.rdt import CacheRow
from qosd.sense.reclaim import ReclaimRow
from qosd.sense.row import Panel, Row
from qosd.sense.runqueue import RunQueueRow
from qosd.sense.sampler import CollectorRow
from qosd.sense.stalls import STALLS
from qosd.sense.system import NumaSystemRow, SystemRow

_ROWS: tuple[type[Row], ...] = (
    NodeRow,
    NodePressureRow,
    ReclaimRow,
    SystemRow,
    BestEffortRow,
    NumaRow,
    NumaSystemRow,
    *USAGE.values(),
    *LIMITS.values(),
    *PRESSURE.values(),
    *STALLS.values(),
    RunQueueRow,
    CyclesRow,
    DiskRow,
    InterfaceRow,
    CacheRow,
    PredictionRow,
    CollectorRow,
)
PANELS: tuple[Panel, ...] = tuple(row.panel for row in _ROWS)
METRICS: tuple[Metric, ...] = tuple(metric for panel in PANELS for metric in panel.metrics)

"""What the load of nodes is reckoned from: measurements, what nodes have and say of themselves, and the time.

Invariant: facts of one node replace each other, and nothing here depends on the order in which they came.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from koord.model.priority import CPU, MEMORY
from koord.model.problem import Bad
from koord.overcommit import nodeamounts
from koord.scheduling import loadsettings
from koord.scheduling.loadsettings import OwnThresholds
from koord.scheduling.nodecolumns import NodeColumns
from koord.scheduling.nodeusage import NodeUsage
from koord.scheduling.podinfo import PodInfo


class Measurements(NamedTuple):
    """Of one node. ``metric``: its NodeMetric; ``fresh``: what the manager's stream says. ``newest``: what is used now,
    by the newer of both; None: neither is there. ``anomaly``: why the manager does not trust the node with more pods.
    """

    metric: NodeUsage | None = None
    fresh: NodeUsage | None = None
    newest: NodeUsage | None = None
    anomaly: str = ""

    @classmethod
    def of(cls, metric: NodeUsage | None, fresh: NodeUsage | None, anomaly: str = "") -> Measurements:
        """The stream leaves batch pods out, which the NodeMetric has; how often an agent writes that stays what a pod
        has to be older than.
        """
        newest = metric
        if fresh is not None:
            newest = fresh
            if metric is not None:
                pods = {**metric.pods, **fresh.pods}
                newest = fresh._replace(pods=pods, report_interval_s=metric.report_interval_s)
        return cls(metric, fresh, newest, anomaly)


_UNKNOWN = Measurements()


class LoadFacts:
    """``pods_on``: by the node's name. ``now_s``: since 1970."""

    def __init__(self, nodes: NodeColumns, pods_on: Callable[[str], Iterable[PodInfo]]) -> None:
        self._nodes, self.pods_on = nodes, pods_on
        self.now_s = 0.0
        self._measurements: dict[str, Measurements] = {}
        self._assumed_s: dict[str, float] = {}
        self._raw: dict[int, Mapping[str, int]] = {}
        self._thresholds: dict[int, OwnThresholds] = {}

    def measurements(self, node: str) -> Measurements:
        return self._measurements.get(node, _UNKNOWN)

    def capacity(self, row: int, resource: str) -> int:
        """What the node has: what is allocatable, and where the node is amplified, what it was before."""
        raw = self._raw.get(row, {}).get(resource)
        return self._nodes.allocatable.at(row, resource) if raw is None else raw

    def thresholds(self, row: int) -> OwnThresholds | None:
        """Returns those that the node has for itself."""
        return self._thresholds.get(row)

    def placed_s(self, pod: PodInfo) -> float:
        """Returns since when the pod has its node, as well as that is known."""
        if pod.scheduled_s is not None:
            return pod.scheduled_s
        return self._assumed_s.get(pod.uid, pod.created_s)

    def put(self, node: str, metric: NodeUsage | None, fresh: NodeUsage | None, anomaly: str) -> None:
        """The node's measurements are these now."""
        if metric is None and fresh is None and not anomaly:
            self._measurements.pop(node, None)
        else:
            self._measurements[node] = Measurements.of(metric, fresh, anomaly)

    def put_node(self, row: int, annotations: Mapping[str, str], bad: Bad) -> None:
        """``bad`` is told what cannot be read."""
        self.remove_node(row)
        if nodeamounts.RAW_ALLOCATABLE in annotations:
            raw = nodeamounts.kubelets_allocatable(annotations, {}, bad)
            known = ((CPU, raw.cpu_milli), (MEMORY, raw.memory_bytes))
            self._raw[row] = {name: amount for name, amount in known if amount is not None}
        if (own := loadsettings.own_thresholds(annotations, bad)) is not None:
            self._thresholds[row] = own

    def remove_node(self, row: int) -> None:
        self._raw.pop(row, None)
        self._thresholds.pop(row, None)

    def assumed(self, uid: str) -> None:
        """The pod gets its node now."""
        self._assumed_s[uid] = self.now_s

    def forget_pod(self, uid: str) -> None:
        self._assumed_s.pop(uid, None)

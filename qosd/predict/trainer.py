"""Training: a minute of the node, summed tick by tick, becomes one sample per model.

Sums are made within one tick and the 90th percentile is taken of the sums, never a sum of percentiles, so the class and
system models are not biased. Only prod pods and their workloads have models of their own, because only prod is
predicted. Invariant: a model learns from measurements only. A tick in which a running pod could not be read adds
nothing to the sums it belongs to, a tick without known pods adds nothing to any sum of pods; a minute with too few
ticks adds nothing at all. While the pods are unknown, no model is forgotten for having no sample.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from koord.model.priority import PriorityClass
from qosd.model.metric import Metric, Scope
from qosd.model.snapshot import NodeSnapshot, PodView
from qosd.predict.bank import INTERVAL_S, NODE, SYSTEM, Bank, class_key, pod_key, workload_key
from qosd.predict.workload import workload_name
from qosd.sense.node import NodeRow
from qosd.sense.ring import nearest_rank
from qosd.sense.system import SystemRow
from qosd.sense.usage import USAGE

QUANTILE = 0.9
_FEWEST_TICKS = 10
_NANOSECONDS = 1_000_000_000
_POD = USAGE[Scope.POD].cpu_usage_cores, USAGE[Scope.POD].memory_usage_bytes
_OF_NODE = {
    NODE: (NodeRow.cpu_usage_cores, NodeRow.memory_usage_bytes),
    SYSTEM: (SystemRow.system_cpu_usage_cores, SystemRow.system_memory_usage_bytes),
}
_RUNNING = "SANDBOX_READY"

Usage = tuple[float, float]
"""CPU in cores and memory in bytes, of one tick."""


class Trainer:
    """Feeds ``bank`` from snapshots; one thread calls it."""

    def __init__(self, bank: Bank) -> None:
        self._bank = bank
        self._minute: dict[str, list[Usage]] = {}
        self._learning: dict[str, PodView] = {}
        self._began_ns: int | None = None
        self._known_since_s: float | None = None

    def observe(self, snapshot: NodeSnapshot) -> bool:
        """Takes one tick. Returns True if a minute was full and the models have learnt."""
        if self._began_ns is None:
            self._began_ns = snapshot.monotonic_ns
        for key, usage in _usages(snapshot):
            self._minute.setdefault(key, []).append(usage)
        if not snapshot.knows_pods:
            self._known_since_s = None
        else:
            self._learning |= {pod_key(pod.uid): pod for pod in snapshot.pods if _is_predicted(pod)}
            if self._known_since_s is None:
                self._known_since_s = snapshot.wall_ns / _NANOSECONDS
        if snapshot.monotonic_ns - self._began_ns < INTERVAL_S * _NANOSECONDS:
            return False
        self._learn(snapshot.wall_ns / _NANOSECONDS)
        self._began_ns = snapshot.monotonic_ns
        return True

    def _learn(self, at_s: float) -> None:
        for key, usages in self._minute.items():
            if len(usages) < _FEWEST_TICKS:
                continue
            cpu_cores, memory_bytes = _peak(usages)
            self._bank.add(key, cpu_cores, memory_bytes, at_s)
            if key in self._learning:
                pod = self._learning[key]
                workload = workload_key(pod.namespace, workload_name(pod.name))
                self._bank.add(workload, cpu_cores, memory_bytes, at_s)
        self._minute.clear()
        self._learning.clear()
        self._bank.expire(at_s, at_s if self._known_since_s is None else self._known_since_s)


def _peak(usages: Sequence[Usage]) -> Usage:
    return (
        nearest_rank((cpu for cpu, _ in usages), QUANTILE) or 0.0,
        nearest_rank((memory for _, memory in usages), QUANTILE) or 0.0,
    )


def _usages(snapshot: NodeSnapshot) -> Iterable[tuple[str, Usage]]:
    """Yields the use of this tick for each model; a key whose sum is incomplete is left out."""
    is_known = snapshot.knows_pods
    by_class: dict[str, Usage | None] = {class_key(each): (0.0, 0.0) for each in PriorityClass} if is_known else {}
    for pod in snapshot.pods if is_known else ():
        if pod.state != _RUNNING:
            continue
        usage = _usage(snapshot, _POD, pod.cgroup)
        if usage is not None and _is_predicted(pod):
            yield pod_key(pod.uid), usage
        key = class_key(pod.priority_class)
        by_class[key] = _plus(by_class.get(key), usage)
    for key, metrics in _OF_NODE.items():
        by_class[key] = _usage(snapshot, metrics, "")
    yield from ((key, usage) for key, usage in by_class.items() if usage is not None)


def _is_predicted(pod: PodView) -> bool:
    return pod.priority_class is PriorityClass.PROD


def _usage(snapshot: NodeSnapshot, metrics: tuple[Metric, Metric], subject: str) -> Usage | None:
    cpu_cores, memory_bytes = (snapshot.value(metric, subject) for metric in metrics)
    return None if cpu_cores is None or memory_bytes is None else (cpu_cores, memory_bytes)


def _plus(total: Usage | None, usage: Usage | None) -> Usage | None:
    return None if total is None or usage is None else (total[0] + usage[0], total[1] + usage[1])

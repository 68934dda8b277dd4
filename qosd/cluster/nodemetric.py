"""The node's report of its use: the status of its NodeMetric, made of the samples that are kept at one tick.

Pure. All instants are those of the snapshot, ``updateTime`` too, so a report is never newer than its samples. Plain
figures are means of the policy's window, aggregated ones of the windows that it lists. Amounts are truncated, CPU to
thousandths and memory to bytes, as upstream's.

Invariant: only measured figures are reported. A pod without both samples is left out, and its readers count it with its
request. If the node's or the system's use is not known, or the samples are old, there is no report at all
(``NotMeasured``), so that the last one grows old and is degraded: an empty usage would read as none. A prediction
without evidence is 0: nothing can be given away.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from koord.model import priority, quantity
from koord.model.core import api_time
from koord.model.nodemetric import (
    AggregatedUsage,
    HostApplicationUsage,
    MemoryCollectPolicy,
    NodeMetricStatus,
    NodeUsage,
    NUMAUsage,
    PodUsage,
    ReclaimableMetric,
    ResourceMap,
)
from koord.model.qos import QoSClass
from koord.model.quantity import Format
from koord.model.slo import HostApplication
from koord.overcommit.amounts import ZERO, CPUMemory
from qosd.cluster import systemusage, usage
from qosd.cluster.collectpolicy import AggregateWindow, EffectiveCollectPolicy
from qosd.cluster.systemusage import SystemUsage
from qosd.cluster.usage import Samples
from qosd.model.metric import Metric, Scope
from qosd.model.snapshot import NodeSnapshot, PodView
from qosd.pods.cri import SANDBOX_READY
from qosd.sense.node import NodeRow, NumaRow
from qosd.sense.prediction import PREDICTION_S, PredictionRow
from qosd.sense.store import SampleStore
from qosd.sense.system import NumaSystemRow
from qosd.sense.usage import USAGE

MAX_AGE_S = 10.0
"""Older samples are withdrawn, and figures made of the remaining ones would be wrong."""

_COLLECTORS = ("node", "usage", "system")
_PREDICTION_MAX_AGE_S = 3 * PREDICTION_S
_NANOSECONDS = 1_000_000_000
_PLAIN: Mapping[Scope, Metric] = {
    Scope.NODE: NodeRow.memory_usage_bytes,
    Scope.POD: USAGE[Scope.POD].memory_usage_bytes,
    Scope.HOST_APP: USAGE[Scope.HOST_APP].memory_usage_bytes,
}
_WITH_PAGE_CACHE: Mapping[Scope, Metric] = {
    Scope.NODE: NodeRow.memory_with_page_cache_bytes,
    Scope.POD: USAGE[Scope.POD].memory_with_page_cache_bytes,
    Scope.HOST_APP: USAGE[Scope.HOST_APP].memory_with_page_cache_bytes,
}
_RECLAIMABLE = PredictionRow.prod_reclaimable_cpu_cores, PredictionRow.prod_reclaimable_memory_bytes
_PEAK = PredictionRow.prod_peak_cpu_cores, PredictionRow.prod_peak_memory_bytes


class NotMeasured(Exception):
    """There is no report; the message says why."""


class NodeReport(NamedTuple):
    """``node_usage``: the plain one of the status. ``problems``: which settings of the policy could not be followed
    now."""

    status: NodeMetricStatus
    node_usage: CPUMemory
    problems: tuple[str, ...] = ()


class _Series(NamedTuple):
    """Samples of CPU in cores and of memory in bytes."""

    cpu: Samples
    memory: Samples

    def mean(self, since_ns: int) -> CPUMemory | None:
        """Returns the mean use; None unless there are samples of both."""
        return _both(usage.mean(usage.since(self.cpu, since_ns)), usage.mean(usage.since(self.memory, since_ns)))


def report(snapshot: NodeSnapshot, store: SampleStore, policy: EffectiveCollectPolicy) -> NodeReport:
    """Raises NotMeasured."""
    _check_age(snapshot)
    problems: list[str] = []
    memory = _memory_metrics(snapshot, store, policy, problems)
    kept = [window.length_s for window in policy.windows if window.is_kept]
    longest_ns = usage.begin_ns(snapshot.monotonic_ns, max(policy.aggregate_s, *kept, 0.0))
    since_ns = usage.begin_ns(snapshot.monotonic_ns, policy.aggregate_s)
    node = _node(store, memory, longest_ns)
    cpu = systemusage.read(snapshot, store, systemusage.CPU, longest_ns)
    mem = systemusage.read(snapshot, store, systemusage.MEMORY, longest_ns)
    system = _Series(cpu.total, mem.total)
    node_mean, system_mean = node.mean(since_ns), system.mean(since_ns)
    if node_mean is None or system_mean is None:
        raise NotMeasured(f"no samples of the {'system' if node_mean else 'node'}'s use in {policy.aggregate_s:g} s")
    reclaimable = _predicted(store, snapshot.monotonic_ns, _RECLAIMABLE)
    peak = _predicted(store, snapshot.monotonic_ns, _PEAK)
    status = NodeMetricStatus(
        update_time=api_time(snapshot.wall_ns // _NANOSECONDS),
        node_metric=NodeUsage(
            node_usage=_resources(node_mean),
            system_usage=_resources(system_mean),
            aggregated_node_usages=_aggregated(node, policy.windows, snapshot.monotonic_ns),
            aggregated_system_usages=_aggregated(system, policy.windows, snapshot.monotonic_ns),
            numa_usages=tuple(_numa_usages(store, since_ns, cpu, mem)),
        ),
        pods_metric=tuple(_pods(snapshot, store, memory[Scope.POD], since_ns)),
        host_application_metric=tuple(_host_applications(snapshot, store, memory[Scope.HOST_APP], since_ns)),
        prod_reclaimable_metric=ReclaimableMetric(_resources(reclaimable or ZERO)),
        prod_peak_metric=None if peak is None else ReclaimableMetric(_resources(peak)),
    )
    return NodeReport(status, node_mean, tuple(problems))


def node_usage(snapshot: NodeSnapshot, store: SampleStore, policy: EffectiveCollectPolicy) -> CPUMemory | None:
    """Returns the node's use of ``report`` alone; None if there would be no report."""
    try:
        _check_age(snapshot)
    except NotMeasured:
        return None
    since_ns = usage.begin_ns(snapshot.monotonic_ns, policy.aggregate_s)
    return _node(store, _memory_metrics(snapshot, store, policy, []), since_ns).mean(since_ns)


def _check_age(snapshot: NodeSnapshot) -> None:
    """Raises NotMeasured if a collector has no fresh samples: a difference to another's samples would be wrong."""
    for name in _COLLECTORS:
        age_s = snapshot.ages_s.get(name)
        if age_s is None:
            raise NotMeasured(f"the collector {name} has not measured yet")
        if age_s > MAX_AGE_S:
            raise NotMeasured(f"the samples of the collector {name} are {age_s:.0f} s old")


def _memory_metrics(
    snapshot: NodeSnapshot, store: SampleStore, policy: EffectiveCollectPolicy, problems: list[str]
) -> Mapping[Scope, Metric]:
    if policy.memory is not MemoryCollectPolicy.PAGE_CACHE:
        return _PLAIN
    since_ns = usage.begin_ns(snapshot.monotonic_ns, policy.aggregate_s)
    if store.series(_WITH_PAGE_CACHE[Scope.NODE], "", since_ns):
        return _WITH_PAGE_CACHE
    problems.append(
        f"NodeMetric spec.metricCollectPolicy.nodeMemoryCollectPolicy: {policy.memory} has no samples on this node,"
        f" so it counts as {MemoryCollectPolicy.NO_PAGE_CACHE}"
    )
    return _PLAIN


def _node(store: SampleStore, memory: Mapping[Scope, Metric], since_ns: int) -> _Series:
    return _Series(store.series(NodeRow.cpu_usage_cores, "", since_ns), store.series(memory[Scope.NODE], "", since_ns))


# amounts


def _both(cpu_cores: float | None, memory_bytes: float | None) -> CPUMemory | None:
    """Returns both as they are reported; None unless both are known."""
    if cpu_cores is None or memory_bytes is None:
        return None
    return CPUMemory(int(cpu_cores * 1000), int(memory_bytes))


def _resources(amount: CPUMemory) -> ResourceMap:
    """Returns the amounts as Kubernetes spells them: "1500m", "5712464Ki"."""
    memory = quantity.of(amount.memory_bytes, Format.BINARY_SI)
    return ResourceMap({"cpu": str(quantity.of_milli(amount.cpu_milli)), "memory": str(memory)})


# the node


def _aggregated(series: _Series, windows: Iterable[AggregateWindow], now_ns: int) -> tuple[AggregatedUsage, ...]:
    return tuple(AggregatedUsage(each.duration, _aggregations(series, each, now_ns)) for each in windows)


def _aggregations(series: _Series, window: AggregateWindow, now_ns: int) -> Mapping[str, ResourceMap]:
    """Returns the aggregated usage by name; nothing where the samples cover less than half of the window."""
    if not window.is_kept:
        return {}
    since_ns = usage.begin_ns(now_ns, window.length_s)
    cpu, memory = usage.since(series.cpu, since_ns), usage.since(series.memory, since_ns)
    if usage.span_s(cpu) < window.length_s / 2:
        return {}
    memory_bytes = usage.aggregations(memory)
    pairs = ((name, _both(cores, memory_bytes.get(name))) for name, cores in usage.aggregations(cpu).items())
    return {name: _resources(amount) for name, amount in pairs if amount is not None}


def _numa_usages(store: SampleStore, since_ns: int, cpu: SystemUsage, memory: SystemUsage) -> Iterator[NUMAUsage]:
    """Yields the use of each NUMA node. Unattributed use is known for the whole node alone, so it is divided by their
    use.
    """
    node_cores, node_bytes = (
        usage.means(store, metric, since_ns) for metric in (NumaRow.cpu_usage_cores, NumaRow.memory_usage_bytes)
    )
    system_cores = usage.means(store, NumaSystemRow.system_cpu_usage_cores, since_ns)
    system_bytes = usage.means(store, NumaSystemRow.system_memory_usage_bytes, since_ns)
    rest_cores, rest_bytes = _unattributed(cpu, since_ns), _unattributed(memory, since_ns)
    for subject in sorted(node_cores.keys() & node_bytes.keys(), key=int):
        node = _both(node_cores[subject], node_bytes[subject])
        system = _both(
            _plus_share(system_cores.get(subject), rest_cores, node_cores, subject),
            _plus_share(system_bytes.get(subject), rest_bytes, node_bytes, subject),
        )
        if node is not None:
            yield NUMAUsage(
                numa_node_id=int(subject),
                node_usage=_resources(node),
                system_usage=ResourceMap() if system is None else _resources(system),
            )


def _unattributed(system: SystemUsage, since_ns: int) -> float:
    total, own = usage.mean(usage.since(system.total, since_ns)), usage.mean(usage.since(system.own, since_ns))
    return 0.0 if total is None or own is None else max(0.0, total - own)


def _plus_share(own: float | None, rest: float, by_node: Mapping[str, float], subject: str) -> float | None:
    total = sum(by_node.values())
    share = by_node[subject] / total if total else 1 / len(by_node)
    return None if own is None else own + rest * share


# pods and host applications


def _pods(snapshot: NodeSnapshot, store: SampleStore, memory: Metric, since_ns: int) -> Iterator[PodUsage]:
    """Yields the use of each pod, by name; two pods of one name, such as one that ends and its successor, are one."""
    cores = usage.means(store, USAGE[Scope.POD].cpu_usage_cores, since_ns)
    memory_bytes = usage.means(store, memory, since_ns)
    by_name: dict[tuple[str, str], dict[str, PodView]] = {}
    for pod in snapshot.pods:
        if pod.cgroup in cores and pod.cgroup in memory_bytes:
            by_name.setdefault((pod.namespace, pod.name), {})[pod.cgroup] = pod
    for (namespace, name), pods in sorted(by_name.items()):
        amount = _both(sum(cores[cgroup] for cgroup in pods), sum(memory_bytes[cgroup] for cgroup in pods))
        newest = max(pods.values(), key=lambda pod: pod.state == SANDBOX_READY)
        if amount is not None:
            yield PodUsage(
                name=name,
                namespace=namespace,
                pod_usage=_resources(amount),
                priority=newest.priority_class.value,
                qos=newest.qos.value,
            )


def _host_applications(
    snapshot: NodeSnapshot, store: SampleStore, memory: Metric, since_ns: int
) -> Iterator[HostApplicationUsage]:
    cores = usage.means(store, USAGE[Scope.HOST_APP].cpu_usage_cores, since_ns)
    memory_bytes = usage.means(store, memory, since_ns)
    for app in {each.name: each for each in snapshot.policy.slo.host_applications or ()}.values():
        amount = _both(cores.get(app.name), memory_bytes.get(app.name))
        if amount is not None:
            yield HostApplicationUsage(name=app.name, usage=_resources(amount), priority=_priority(app), qos=app.qos)


def _priority(app: HostApplication) -> str:
    """Returns the application's own priority class, else that of its QoS class: upstream ignores one without."""
    own = priority.parse(app.priority)
    return (own or priority.effective({}, None, app.qos_class or QoSClass.LS)).value


# predictions


def _predicted(store: SampleStore, now_ns: int, metrics: tuple[Metric, Metric]) -> CPUMemory | None:
    """Returns the newest prediction; None if none was made lately, as while the pods are unknown."""
    if not store.series(metrics[0], "", usage.begin_ns(now_ns, _PREDICTION_MAX_AGE_S)):
        return None
    return _both(store.value(metrics[0]), store.value(metrics[1]))

"""The sources of koordlet's metrics: each a function from a scrape to its samples, none while there is nothing.

Pure. A strategy's decision is read from its result, as any reader of a report finds it: its limits of best-effort pods,
the content of its files, its acts. So a strategy need not know that it is exported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from koord.host.taskattributes import TaskAttribute
from koord.model import cpuset
from koord.model.priority import BATCH_CPU, BATCH_MEMORY, MID_CPU, MID_MEMORY
from koord.service.metrics import Histogram
from qosd.act.evictionreport import RECENT_S, EvictionReport
from qosd.decide.decision import Decision
from qosd.koordlet.scrape import Sample, Scrape
from qosd.model.metric import Metric
from qosd.model.pod import ExtendedAmounts
from qosd.model.policy import Pool
from qosd.model.snapshot import ContainerView, PodView, has_cgroup
from qosd.sense.exposition import label_text
from qosd.sense.prediction import PredictionRow
from qosd.sense.pressure import PRESSURE
from qosd.sense.table import METRICS

SUPPRESSION, BURST, OOM_SCORE = "cpuSuppress", "cpuBurst", "oomScoreAdj"
"""The strategies with exported decisions."""
_NANOSECONDS = 1_000_000_000
_MILLISECONDS = 1000.0
_CPU_UNIT, _BYTE_UNIT = "integer", "byte"
_NAMES = {"batch": (BATCH_CPU, BATCH_MEMORY), "mid": (MID_CPU, MID_MEMORY)}


def samples_of(name: str, scrape: Scrape) -> Iterator[Sample]:
    """Yields the samples of the columns that say they are koordlet's ``name``."""
    for metric in METRICS:
        if metric.koordlet is not None and metric.koordlet.name == name:
            yield from _of_column(metric, scrape)


def _of_column(metric: Metric, scrape: Scrape) -> Iterator[Sample]:
    assert metric.koordlet is not None
    fixed = dict(metric.koordlet.labels)
    is_psi = "psi_degree" in fixed
    full = scrape.newest.get(PRESSURE[metric.scope].cpu_pressure_full_avg10_percent, {}) if is_psi else {}
    for subject, value in scrape.newest.get(metric, {}).items():
        labels = scrape.labels.of(metric.scope, subject)
        if labels is None:
            continue
        if is_psi:
            fixed["cpu_full_supported"] = "true" if subject in full else "false"
        yield ",".join(filter(None, (labels, label_text(fixed)))), value


def start_time(scrape: Scrape) -> Iterator[Sample]:
    yield "", scrape.started_unix_s


# decisions of strategies


def cores_left(scrape: Scrape) -> Iterator[Sample]:
    """Yields the CPUs of the set, and the CPUs' worth of time, that suppression leaves to best-effort pods."""
    left = _decision(scrape, SUPPRESSION).best_effort
    if left is not None and left.cpus:
        yield label_text({"type": "cpuset"}), float(len(cpuset.parse(left.cpus)))
    if left is not None and left.cpu_milli:
        yield label_text({"type": "cfsQuota"}), left.cpu_milli / 1000


def burst_values(row: str, scrape: Scrape) -> Iterator[Sample]:
    """Yields the value of the file ``row`` of each container that CPU burst has an opinion on."""
    targets = {target.cgroup: target for target in _decision(scrape, BURST).opinions if target.name == row}
    for pod, container in _containers(scrape):
        target = targets.get(container.cgroup)
        composed = None if target is None else scrape.report.files.composed(target)
        if composed is not None and isinstance(composed.value, int):
            yield label_text(scrape.labels.of_container(pod, container)), float(composed.value)


def oom_scores(scrape: Scrape) -> Iterator[Sample]:
    """Yields the OOM score adjustment that each container's processes shall have."""
    acts = _decision(scrape, OOM_SCORE).acts
    scores = {act.cgroup: act.value for act in acts if isinstance(act, TaskAttribute)}
    for pod, container in _containers(scrape):
        score = scores.get(container.cgroup)
        if score is not None:
            labels = {"pod_name": pod.name, "pod_namespace": pod.namespace, "pod_uid": pod.uid}
            yield label_text({**labels, "container_name": container.name}), float(score)


def _decision(scrape: Scrape, strategy: str) -> Decision:
    """Returns the strategy's decision in force."""
    results = scrape.report.decisions.results
    return next((result.decision for result in results if result.name == strategy), Decision(""))


# evictions


def evictions(scrape: Scrape) -> Iterator[Sample]:
    for gate, count in _evictions(scrape).counts.items():
        yield label_text({"reason": _reason(gate)}), float(count)


def recent_evictions(scrape: Scrape) -> Iterator[Sample]:
    """Yields the evictions of the last five minutes, by pod."""
    snapshot = scrape.report.snapshot
    since_ns = 0 if snapshot is None else snapshot.monotonic_ns - RECENT_S * _NANOSECONDS
    for (gate, pod), each in _evictions(scrape).recent_counts.items():
        if each.last_ns >= since_ns:
            namespace, _, name = pod.partition("/")
            labels = {"pod_namespace": namespace, "pod_name": name, "reason": _reason(gate)}
            yield label_text(labels), float(each.count)


def _evictions(scrape: Scrape) -> EvictionReport:
    reports = (each for each in scrape.report.act_reports if isinstance(each, EvictionReport))
    return next(reports, EvictionReport({}))


def _reason(gate: str) -> str:
    return f"trigger by koordlet feature {gate}" if gate else "begun before the last start"


# pools


def ls_pools(scrape: Scrape) -> tuple[Pool, ...]:
    return () if scrape.policy is None else scrape.policy.node.ls_pools


def be_pools(scrape: Scrape) -> tuple[Pool, ...]:
    return () if scrape.policy is None else scrape.policy.node.be_pools


def pool_size(pools: Callable[[Scrape], tuple[Pool, ...]], scrape: Scrape) -> Iterator[Sample]:
    sizes = [len(cpuset.parse(pool.cpuset)) for pool in pools(scrape)]
    if sizes:
        yield "", float(sum(sizes))


def pool_cpus(pools: Callable[[Scrape], tuple[Pool, ...]], scrape: Scrape) -> Iterator[Sample]:
    """Yields 1 for each CPU, if single CPUs are asked for."""
    if scrape.policy is not None and scrape.policy.gate("PerCPUMetric").is_on:
        for pool in pools(scrape):
            yield from ((label_text({"cpu": str(cpu)}), 1.0) for cpu in cpuset.parse(pool.cpuset))


# prediction


def prod_reclaimable(scrape: Scrape) -> Iterator[Sample]:
    figures = (
        ("cpu", "core", PredictionRow.prod_reclaimable_cpu_cores),
        ("memory", _BYTE_UNIT, PredictionRow.prod_reclaimable_memory_bytes),
    )
    for resource, unit, metric in figures:
        value = scrape.value(metric)
        if value is not None:
            yield label_text({"priority": "koord-prod", "resource": resource, "unit": unit}), value


def prediction_status(scrape: Scrape) -> Iterator[Sample]:
    """Yields 0 if there is a prediction, 1 if there is none."""
    is_there = scrape.value(PredictionRow.prod_reclaimable_cpu_cores) is not None
    yield label_text({"priority": "koord-prod"}), 0.0 if is_there else 1.0


# requests of pods


def requests(scrape: Scrape) -> Iterator[Sample]:
    return _amounts(scrape, lambda each: (each.cpu_request_milli, each.memory_request_bytes))


def limits(scrape: Scrape) -> Iterator[Sample]:
    return _amounts(scrape, lambda each: (each.cpu_limit_milli, each.memory_limit_bytes))


def _amounts(scrape: Scrape, of: Callable[[ExtendedAmounts], tuple[int, int]]) -> Iterator[Sample]:
    for pod, container in _containers(scrape):
        amounts = pod.context.amounts_of(container.name)
        if amounts is None:
            continue
        for resource, unit, value in zip(_NAMES[amounts.kind], (_CPU_UNIT, _BYTE_UNIT), of(amounts), strict=True):
            if value:
                labels = {"resource": resource, "unit": unit, "pod_uid": pod.uid}
                yield label_text({**labels, **scrape.labels.of_container(pod, container)}), float(value)


def _containers(scrape: Scrape) -> Iterator[tuple[PodView, ContainerView]]:
    """Yields the containers that exist, with their pods."""
    for pod in scrape.pods:
        for container in pod.containers:
            if not container.is_sandbox and has_cgroup(container.state):
                yield pod, container


# counters of the daemon


def write_times(scrape: Scrape) -> Iterator[Sample]:
    kinds = {"cgroup": "cgroup", "resctrl": "resctrl-schema"}
    for (kind, result), times in _histograms(scrape, "write_seconds"):
        labels = {"type": kinds.get(kind, "default"), "status": "success" if result == "done" else "failed"}
        yield label_text(labels), _times(_MILLISECONDS, times)


def kubelet_times(scrape: Scrape) -> Iterator[Sample]:
    for (path, status), times in _histograms(scrape, "kubelet_seconds"):
        yield label_text({"verb": "GET", "path": path, "code": status}), times


def hook_times(scrape: Scrape) -> Iterator[Sample]:
    for (stage,), times in _histograms(scrape, "hook_seconds"):
        labels = {"hook": "all", "stage": stage, "status": "success"}
        yield label_text(labels), _times(_MILLISECONDS, times)


def _histograms(scrape: Scrape, name: str) -> Iterator[tuple[tuple[str, ...], Histogram]]:
    for labels, value in scrape.counted.get(name, ()):
        if isinstance(value, Histogram) and any(value.counts):
            yield labels, value


def _times(factor: float, times: Histogram) -> Histogram:
    scaled_times = Histogram(tuple(float(f"{bound * factor:.12g}") for bound in times.bounds))
    scaled_times.counts, scaled_times.sum = times.counts, times.sum * factor
    return scaled_times

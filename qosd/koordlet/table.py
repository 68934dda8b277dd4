"""Every metric of koordlet: its source here, or why it is not exported.

The rows are in the order of upstream's documentation. Names, kinds and labels are upstream's, since dashboards and
alerts use them; a deviation is said in the row. Invariant: a metric of the samples' table that names one of these
(``Column.koordlet``) is exported by its row, and by no other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

from qosd.koordlet import sources
from qosd.koordlet.scrape import Sample, Scrape

PREFIX = "koordlet_"
GAUGE, COUNTER, HISTOGRAM = "gauge", "counter", "histogram"
Source = Callable[[Scrape], Iterable[Sample]]


@dataclass(frozen=True, slots=True)
class KoordletMetric:
    """A row. ``labels``: those beside ``node``, which each row ``by_node`` has.

    ``source`` None: it is not exported. ``remark`` says why, or how it differs from koordlet's. ``own``: koord-qosd's
    own metrics of the same figure.
    """

    name: str
    kind: str
    labels: tuple[str, ...]
    meaning: str
    source: Source | None
    remark: str = ""
    own: tuple[str, ...] = ()
    by_node: bool = True


def _columns(name: str, labels: tuple[str, ...], meaning: str, remark: str = "") -> KoordletMetric:
    """Returns the row of a gauge that columns of the samples' table feed."""
    return KoordletMetric(name, GAUGE, labels, meaning, partial(sources.samples_of, name), remark)


def _not(name: str, kind: str, labels: tuple[str, ...], meaning: str, why: str, *own: str) -> KoordletMetric:
    return KoordletMetric(name, kind, labels, meaning, None, why, own)


_POD = ("pod_uid", "pod_name", "pod_namespace")
_CONTAINER = ("pod_namespace", "pod_name", "container_id", "container_name")
_PSI = ("psi_resource_type", "psi_precision", "psi_degree", "cpu_full_supported")
_RESOURCE = ("resource", "unit")
_LSCPU = "nothing asks lscpu or lsblk: the topology is read from sysfs when it changes, devices by a collector"
_UNREPORTED = "the mean of minutes that the NodeMetric has: it is read there"
_NO_CORES = "core scheduling is not there yet"

KOORDLET: tuple[KoordletMetric, ...] = (
    KoordletMetric("start_time", GAUGE, (), "When the daemon started, Unix time.", sources.start_time),
    _not("collect_node_cpu_info_status", COUNTER, ("status",), "Rounds of lscpu.", _LSCPU, "collector_failures"),
    _not("collect_node_numa_info_status", COUNTER, ("status",), "Rounds of it for NUMA.", _LSCPU, "collector_failures"),
    _not(
        "collect_node_local_storage_info_status",
        COUNTER,
        ("status",),
        "Rounds of lsblk and its like.",
        _LSCPU,
        "collector_failures",
    ),
    _columns("node_used_cpu_cores", (), "CPU of the node in use."),
    _columns("node_used_memory_bytes", (), "Memory of the node in use, without page cache."),
    KoordletMetric(
        "pod_eviction",
        COUNTER,
        ("reason",),
        "Evictions, by the feature gate behind which they were done.",
        sources.evictions,
        "counted when all containers have exited and their cgroups are gone, not when that is ordered",
    ),
    KoordletMetric(
        "pod_eviction_detail",
        COUNTER,
        ("pod_namespace", "pod_name", "reason"),
        "The same by pod, for five minutes after the last.",
        sources.recent_evictions,
    ),
    KoordletMetric(
        "be_suppress_cpu_cores",
        GAUGE,
        ("type",),
        "CPU that suppression leaves to best-effort pods.",
        sources.cores_left,
        "there while suppression bounds them; with the policy `pressure`, of both types whichever is bounded",
    ),
    _columns("be_suppress_ls_used_cpu_cores", (), "CPU in use by pods that are not best-effort."),
    _columns("be_suppress_be_used_cpu_cores", (), "CPU in use by best-effort pods."),
    KoordletMetric(
        "container_scaled_cfs_burst_us",
        GAUGE,
        _CONTAINER,
        "CFS burst of containers of which CPU burst speaks.",
        partial(sources.burst_values, "cpu.max.burst"),
        "what the file is held to: on a stock kernel never above the quota",
    ),
    KoordletMetric(
        "container_scaled_cfs_quota_us",
        GAUGE,
        _CONTAINER,
        "CFS quota of containers of which CPU burst speaks.",
        partial(sources.burst_values, "cpu_quota"),
        "what the file is held to, all that shapes it included (normalization, suppression)",
    ),
    KoordletMetric(
        "cpuset_share_pool_cpu_cores", GAUGE, (), "CPUs in the LS pool.", partial(sources.pool_size, sources.ls_pools)
    ),
    KoordletMetric(
        "cpuset_be_share_pool_cpu_cores",
        GAUGE,
        (),
        "CPUs in the BE pool.",
        partial(sources.pool_size, sources.be_pools),
    ),
    KoordletMetric(
        "cpuset_share_pool_info",
        GAUGE,
        ("cpu",),
        "1 for each CPU of the LS pool.",
        partial(sources.pool_cpus, sources.ls_pools),
        "gate PerCPUMetric",
    ),
    KoordletMetric(
        "cpuset_be_share_pool_info",
        GAUGE,
        ("cpu",),
        "1 for each CPU of the BE pool.",
        partial(sources.pool_cpus, sources.be_pools),
        "gate PerCPUMetric",
    ),
    _columns(
        "node_predicted_resource_reclaimable",
        ("predictor", *_RESOURCE),
        "What prod pods requested and will not need.",
        "`minPredictor` alone: the smaller of both predictors is all that is kept",
    ),
    _columns(
        "node_predicted_resource_peak",
        ("predictor", *_RESOURCE),
        "Predicted peak of prod pods and system.",
        "`minPredictor` alone",
    ),
    _not("node_metric_node_usage", GAUGE, _RESOURCE, "Node usage as reported.", _UNREPORTED, "node_cpu_usage_cores"),
    _not(
        "node_metric_system_usage",
        GAUGE,
        _RESOURCE,
        "System usage as reported.",
        _UNREPORTED,
        "node_system_cpu_usage_cores",
    ),
    _not(
        "node_metric_numa_node_usage",
        GAUGE,
        ("numa_node_id", *_RESOURCE),
        "NUMA node usage as reported.",
        _UNREPORTED,
        "numa_cpu_usage_cores",
    ),
    _not(
        "node_metric_numa_system_usage",
        GAUGE,
        ("numa_node_id", *_RESOURCE),
        "System usage by NUMA node as reported.",
        _UNREPORTED,
        "numa_system_cpu_usage_cores",
    ),
    _not(
        "container_core_sched_cookie",
        GAUGE,
        (*_POD, "container_name", "container_id", "core_sched_group", "core_sched_cookie"),
        "Core scheduling cookie of a container.",
        _NO_CORES,
    ),
    _not(
        "core_sched_cookie_manage_status",
        COUNTER,
        ("core_sched_group", "status"),
        "Changes of core scheduling cookies.",
        _NO_CORES,
    ),
    KoordletMetric(
        "container_oom_score_adj",
        GAUGE,
        (*_POD, "container_name"),
        "OOM score adjustment that the processes of a container shall have.",
        sources.oom_scores,
        "gate OOMScoreAdj",
    ),
    KoordletMetric(
        "resource_update_duration_milliseconds",
        HISTOGRAM,
        ("type", "status"),
        "Time to write a kernel file.",
        sources.write_times,
        "of writes alone, each with reading back; koordlet's also counts files that it finds as they should be",
        ("write_seconds",),
        by_node=False,
    ),
    KoordletMetric(
        "kubelet_request_duration_seconds",
        HISTOGRAM,
        ("verb", "path", "code"),
        "Time of a request to kubelet.",
        sources.kubelet_times,
        "code 0: no answer",
        ("kubelet_seconds",),
        by_node=False,
    ),
    KoordletMetric(
        "runtime_hook_invoked_duration_milliseconds",
        HISTOGRAM,
        ("hook", "stage", "status"),
        "Time to answer a hook call.",
        sources.hook_times,
        "one call asks all hooks at once: hook is `all`; an error of our own is answered too and counted in "
        "`koord_qosd_hook_calls_total`, so status is `success`; buckets are ours",
        ("hook_seconds",),
    ),
    _not(
        "runtime_hook_reconciler_invoked_duration_milliseconds",
        HISTOGRAM,
        ("level", "resource_type", "status"),
        "Time of a hook's reconciliation.",
        "all files are reconciled together, in a tick",
        "tick_seconds",
    ),
    _columns(
        "host_application_resource_usage",
        ("host_application_name", "resource", "priority_class", "qos"),
        "CPU cores or bytes of memory in use by a host application.",
    ),
    _not(
        "node_resource_allocatable",
        GAUGE,
        _RESOURCE,
        "Batch and mid resources of the node.",
        "they stand in the Node object (`status.allocatable`)",
    ),
    KoordletMetric(
        "node_priority_resource_reclaimable",
        GAUGE,
        ("priority", *_RESOURCE),
        "What prod pods requested and will not need, as reported.",
        sources.prod_reclaimable,
        "as predicted, whether it is reported or not",
        ("node_prod_reclaimable_cpu_cores", "node_prod_reclaimable_memory_bytes"),
    ),
    KoordletMetric(
        "node_resource_priority_reclaimable_status",
        GAUGE,
        ("priority",),
        "0: there is a prediction, 1: there is none.",
        sources.prediction_status,
    ),
    KoordletMetric(
        "container_resource_requests",
        GAUGE,
        (*_RESOURCE, *_POD, "container_id", "container_name"),
        "Batch or mid resources that a container requests, CPU in thousandths.",
        sources.requests,
        "unit is `integer` of CPU and `byte` of memory; koordlet's is `integer` of both",
    ),
    KoordletMetric(
        "container_resource_limits",
        GAUGE,
        (*_RESOURCE, *_POD, "container_id", "container_name"),
        "Their limits.",
        sources.limits,
        "unit is `integer` of CPU and `byte` of memory; koordlet's is `byte` of both",
    ),
    _columns(
        "container_cpi",
        (*_POD, "container_id", "container_name", "cpi_field"),
        "Cycles and instructions in the window.",
    ),
    _columns(
        "container_psi",
        (*_POD, "container_id", "container_name", *_PSI),
        "PSI averages of a container, percent.",
    ),
    _columns("pod_psi", (*_POD, *_PSI), "PSI averages of a pod, percent."),
    _columns("resctrl_llc_occupancy", ("cache_id", "qos"), "Bytes of last-level cache that a resctrl group occupies."),
    _columns("resctrl_memory_bandwidth", ("cache_id", "qos", "mb_type"), "Bytes that a resctrl group has moved."),
)

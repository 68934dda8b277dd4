"""THE metric table: all that qosd measures. Prometheus, the documentation and koordctl are rendered from it.

Collectors name their panels here and return rows in the panels' order, so that a metric cannot be measured without
being declared, nor declared without unit, help and period. History: 30 minutes for the node, its tiers and devices,
5 minutes for pods, containers and host applications; figures that only dashboards want have none.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product

from qosd.sense.metric import Column, Kind, Koordlet, Metric, Panel, Scope, panel

NODE_RETENTION_S = 1800.0
POD_RETENTION_S = 300.0
TICK_S = 1.0
SLOW_S = 10.0
DEVICES_S = 5.0
PREDICTION_S = 60.0
CYCLES_S = 60.0

PRESSURES = ("cpu", "memory", "io")
DEGREES = ("some", "full")
AVERAGES = ("avg10", "avg60", "avg300")
GROUP_SCOPES = (Scope.TIER, Scope.POD, Scope.CONTAINER, Scope.HOST_APP)
_SHORT_LIVED = (Scope.POD, Scope.CONTAINER, Scope.HOST_APP)
_RATE, _COUNTER = Kind.RATE, Kind.COUNTER


def _panel(source: str, scope: Scope, period_s: float, *columns: Column) -> Panel:
    return panel(source, scope, period_s, POD_RETENTION_S if scope in _SHORT_LIVED else NODE_RETENTION_S, *columns)


def _host_app(resource: str) -> Mapping[Scope, Koordlet]:
    return {Scope.HOST_APP: Koordlet("host_application_resource_usage", {"resource": resource})}


def _node(name: str) -> Mapping[Scope, Koordlet]:
    return {Scope.NODE: Koordlet(name)}


NODE = _panel(
    "node",
    Scope.NODE,
    TICK_S,
    Column(
        "cpu_usage_cores",
        "cores",
        "CPU in use: user, nice, system, irq and softirq time; idle, iowait and steal are not usage.",
        _RATE,
        _node("node_used_cpu_cores"),
    ),
    Column("cpu_steal_cores", "cores", "CPU that was wanted here and that the hypervisor gave to others.", _RATE),
    Column("cpu_iowait_cores", "cores", "CPU idle while a task waited for I/O.", _RATE),
    Column(
        "memory_usage_bytes",
        "bytes",
        "Memory in use without page cache: MemTotal - MemAvailable.",
        koordlet=_node("node_used_memory_bytes"),
    ),
    Column("memory_with_page_cache_bytes", "bytes", "Memory in use with page cache: MemTotal - MemFree."),
    Column("page_cache_bytes", "bytes", "File pages in memory: Active(file) + Inactive(file)."),
    Column("memory_total_bytes", "bytes", "MemTotal.", history=False),
)
NUMA = _panel(
    "node",
    Scope.NUMA,
    TICK_S,
    Column("cpu_usage_cores", "cores", "CPU in use on the CPUs of the NUMA node.", _RATE),
    Column(
        "memory_usage_bytes",
        "bytes",
        "Memory in use without page cache: MemTotal - MemFree - Active(file) - Inactive(file) - SReclaimable.",
    ),
)

_USAGE = (
    Column("cpu_usage_cores", "cores", "CPU in use by the cgroup and all below it.", _RATE, _host_app("cpu")),
    Column("cpu_throttled_ratio", "ratio", "CFS periods in which the quota ran out, of all; 0 if none began.", _RATE),
    Column("cpu_throttled_us_per_s", "us/s", "Time for which the quota stopped runnable threads.", _RATE),
    Column(
        "memory_usage_bytes",
        "bytes",
        "Memory without page cache: active and inactive anon pages + unevictable.",
        koordlet=_host_app("memory"),
    ),
    Column("memory_with_page_cache_bytes", "bytes", "The same + active and inactive file pages."),
    Column("memory_working_set_bytes", "bytes", "What kubelet evicts by: all charged memory - inactive file pages."),
    Column("memory_refaults_per_s", "pages/s", "Pages read back after reclaim had taken them.", _RATE),
)
GROUPS = {scope: _panel("groups", scope, TICK_S, *_USAGE) for scope in GROUP_SCOPES}

SYSTEM = _panel(
    "system",
    Scope.NODE,
    TICK_S,
    Column("system_cpu_usage_cores", "cores", "CPU in use outside kubepods and host applications.", _RATE),
    Column(
        "system_memory_usage_bytes", "bytes", "Memory in use (no page cache) outside kubepods and host applications."
    ),
    Column("unattributed_cpu_cores", "cores", "CPU in use in kubepods by no pod that could be read.", _RATE),
    Column("unattributed_memory_bytes", "bytes", "Memory in use in kubepods by no pod that could be read."),
    Column("unreadable_pods", "pods", "Running pods whose cgroup could not be read in this tick."),
    Column(
        "non_be_pods_cpu_usage_cores",
        "cores",
        "CPU in use by all pods whose QoS class is not BE.",
        _RATE,
        _node("be_suppress_ls_used_cpu_cores"),
    ),
)
SYSTEM_NUMA = _panel(
    "system",
    Scope.NUMA,
    TICK_S,
    Column("system_cpu_usage_cores", "cores", "The system's CPU, shared out as the NUMA nodes' own usage is.", _RATE),
    Column("system_memory_usage_bytes", "bytes", "Memory in use (no page cache) outside kubepods."),
)
BEST_EFFORT = _panel(
    "besteffort",
    Scope.NODE,
    TICK_S,
    Column(
        "be_cpu_usage_cores",
        "cores",
        "CPU in use by the BestEffort tier.",
        _RATE,
        _node("be_suppress_be_used_cpu_cores"),
    ),
    Column("be_cpu_request_cores", "cores", "Sum of the batch-cpu requests of BE pods."),
    Column("be_cpu_real_limit_cores", "cores", "CPU that the BestEffort tier can get: its CPU set, its CFS quota."),
)
LIMITS = {
    scope: _panel(
        "limits",
        scope,
        SLOW_S,
        Column("memory_limit_bytes", "bytes", "The cgroup's own memory limit; none = unlimited.", history=False),
        Column("cpu_limit_cores", "cores", "The cgroup's own CFS quota / period; none = unlimited.", history=False),
    )
    for scope in GROUP_SCOPES
}


def _psi(resource: str, degree: str, average: str) -> Mapping[Scope, Koordlet]:
    kind = "mem" if resource == "memory" else resource
    labels = {"psi_resource_type": kind, "psi_precision": average, "psi_degree": degree}
    return {scope: Koordlet(f"{scope}_psi", labels) for scope in (Scope.POD, Scope.CONTAINER)}


def _pressure() -> list[Column]:
    """Per resource and degree the stall time and avg10 with history; then the longer averages, without."""
    kept: list[Column] = []
    newest: list[Column] = []
    for resource, degree in product(PRESSURES, DEGREES):
        stem = f"{resource}_pressure_{degree}"
        what = f"PSI: {'a task' if degree == 'some' else 'every non-idle task'} waited for {resource}"
        kept.append(Column(f"{stem}_us_per_s", "us/s", f"{what}, exactly, from `total`.", _RATE))
        for average in AVERAGES:
            koordlet = _psi(resource, degree, average)
            column = Column(
                f"{stem}_{average}_percent",
                "percent",
                f"{what}, the kernel's {average}.",
                koordlet=koordlet,
                history=average == "avg10",
            )
            (kept if column.history else newest).append(column)
    return kept + newest


PRESSURE = {scope: _panel("pressure", scope, SLOW_S, *_pressure()) for scope in GROUP_SCOPES}
NODE_PRESSURE = _panel("node_pressure", Scope.NODE, TICK_S, *_pressure())


def _stalls() -> list[Column]:
    what = "Share of every second for which {} waited for {}, exactly; of tiers and latency-sensitive containers."
    tasks = {"some": "a task", "full": "every non-idle task"}
    return [
        Column(f"{resource}_stall_{degree}_us_per_s", "us/s", what.format(tasks[degree], resource), _RATE)
        for resource, degree in product(PRESSURES, DEGREES)
    ]


STALLS = {scope: _panel("stalls", scope, TICK_S, *_stalls()) for scope in (Scope.TIER, Scope.CONTAINER)}
RUN_QUEUE = _panel(
    "run_queue",
    Scope.CONTAINER,
    TICK_S,
    Column(
        "run_queue_delay_us_per_s",
        "us/s",
        "Time for which threads of a latency-sensitive container were runnable and waited for a CPU, summed.",
        _RATE,
    ),
    Column("run_queue_delay_us", "us", "The same per time slice: mean wait for a CPU.", _RATE),
    Column("run_queue_threads", "threads", "Threads whose delay is in the sum.", history=False),
)
CYCLES = _panel(
    "cycles",
    Scope.CONTAINER,
    CYCLES_S,
    Column("cycles_per_instruction", "cycles", "CPI over the window: cycles / instructions.", _RATE),
    Column("instructions_per_s", "1/s", "Instructions retired per second.", _RATE),
    Column(
        "window_cycles",
        "cycles",
        "CPU cycles in the window.",
        koordlet={Scope.CONTAINER: Koordlet("container_cpi", {"cpi_field": "cycles"})},
        history=False,
    ),
    Column(
        "window_instructions",
        "instructions",
        "Instructions in the window.",
        koordlet={Scope.CONTAINER: Koordlet("container_cpi", {"cpi_field": "instructions"})},
        history=False,
    ),
)
DISKS = _panel(
    "disks",
    Scope.DISK,
    DEVICES_S,
    Column("read_bytes_per_s", "bytes/s", "Read from the block device.", _RATE),
    Column("written_bytes_per_s", "bytes/s", "Written to the block device.", _RATE),
    Column("reads_per_s", "1/s", "Reads completed.", _RATE),
    Column("writes_per_s", "1/s", "Writes completed.", _RATE),
    Column("busy_ratio", "ratio", "Share of time with at least one request in flight.", _RATE),
    Column("wait_us", "us", "Mean time from request to completion, reads and writes.", _RATE),
)
NETWORK = _panel(
    "network",
    Scope.NETWORK,
    DEVICES_S,
    Column("received_bytes_per_s", "bytes/s", "Received by the interface.", _RATE),
    Column("sent_bytes_per_s", "bytes/s", "Sent by the interface.", _RATE),
    Column("received_packets_per_s", "1/s", "Packets received.", _RATE),
    Column("sent_packets_per_s", "1/s", "Packets sent.", _RATE),
    Column("drops_per_s", "1/s", "Packets dropped, both ways.", _RATE),
)


def _bandwidth(field: str) -> Mapping[Scope, Koordlet]:
    return {Scope.CACHE: Koordlet("resctrl_memory_bandwidth", {"mb_type": field})}


RESCTRL = _panel(
    "resctrl",
    Scope.CACHE,
    SLOW_S,
    Column(
        "llc_occupancy_bytes",
        "bytes",
        "Last-level cache that the resctrl group occupies.",
        koordlet={Scope.CACHE: Koordlet("resctrl_llc_occupancy")},
    ),
    Column("mbm_total_bytes_per_s", "bytes/s", "Memory bandwidth of the resctrl group.", _RATE),
    Column("mbm_local_bytes_per_s", "bytes/s", "The same, to the socket's own memory.", _RATE),
    Column("mbm_total_bytes", "bytes", "As the CPU counts it.", _COUNTER, _bandwidth("mbm_total_bytes"), history=False),
    Column("mbm_local_bytes", "bytes", "As the CPU counts it.", _COUNTER, _bandwidth("mbm_local_bytes"), history=False),
)
PREDICTION = _panel(
    "prediction",
    Scope.NODE,
    PREDICTION_S,
    Column("prod_reclaimable_cpu_cores", "cores", "Requested by prod pods and, by prediction, not needed by them."),
    Column("prod_reclaimable_memory_bytes", "bytes", "The same of memory."),
    Column("prod_peak_cpu_cores", "cores", "Predicted peak of prod pods and system, with margin."),
    Column("prod_peak_memory_bytes", "bytes", "The same of memory."),
    Column("prediction_confidence_ratio", "ratio", "Evidence in the weakest model the prediction rests on, 0 to 1."),
    Column("unpredicted_pods", "pods", "Prod pods that count with their requests, for want of evidence."),
)
COLLECTORS = _panel(
    "collectors",
    Scope.COLLECTOR,
    TICK_S,
    Column("duration_us", "us", "What the last run took.", history=False),
    Column("age_s", "s", "Since the last run that succeeded.", history=False),
    Column("failures", "runs", "Runs that failed since the last one that succeeded.", history=False),
    Column("overruns", "runs", "Runs that took longer than their deadline.", _COUNTER, history=False),
    Column("disabled", "", "1 where this node has nothing for the collector to read.", history=False),
)

PANELS: tuple[Panel, ...] = (
    NODE,
    NODE_PRESSURE,
    SYSTEM,
    BEST_EFFORT,
    NUMA,
    SYSTEM_NUMA,
    *GROUPS.values(),
    *LIMITS.values(),
    *PRESSURE.values(),
    *STALLS.values(),
    RUN_QUEUE,
    CYCLES,
    DISKS,
    NETWORK,
    RESCTRL,
    PREDICTION,
    COLLECTORS,
)
METRICS: tuple[Metric, ...] = tuple(metric for each in PANELS for metric in each.metrics)

"""Works out the node's usage outside of pods and host applications, and the usage in kubepods of unread pods.

system = node - kubepods - host applications, where kubepods is the usage of kubelet's root cgroup, so that a pod that
is new, short-lived or unreadable is never taken for the system. What such pods use is *unattributed*: kubepods - the
sum of the pods that could be read. Without a readable root the sum of the pods stands in for it, and nothing is known
of the unattributed. Invariant: only samples of one batch are subtracted from each other; none is below 0.

Per NUMA node: memory = the node's - that of the kubepods root (anon and unevictable pages, as in the node's figure);
CPU is the system's, shared out like the NUMA nodes' own (no kernel counts it).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from qosd.model.metric import Kind, Koordlet, Metric, Scope
from qosd.sense.host import CollectorHost
from qosd.sense.meters import path_of
from qosd.sense.node import NodeRow, NumaRow
from qosd.sense.row import NO_SAMPLE, TICK_S, Column, Row
from qosd.sense.tick import Batch, Tick
from qosd.sense.usage import USAGE

_ENDED = ("SANDBOX_NOTREADY", "Succeeded", "Failed")
_V1_NUMA = (b"hierarchical_anon", b"hierarchical_unevictable")
_V2_NUMA = (b"inactive_anon", b"active_anon", b"unevictable")
_CPU: Mapping[Scope, Metric] = {
    Scope.NODE: NodeRow.cpu_usage_cores,
    Scope.NUMA: NumaRow.cpu_usage_cores,
    **{scope: row.cpu_usage_cores for scope, row in USAGE.items()},
}
_MEMORY: Mapping[Scope, Metric] = {
    Scope.NODE: NodeRow.memory_usage_bytes,
    Scope.NUMA: NumaRow.memory_usage_bytes,
    **{scope: row.memory_usage_bytes for scope, row in USAGE.items()},
}


class SystemRow(Row, source="system", scope=Scope.NODE, period_s=TICK_S):
    system_cpu_usage_cores: Column = Column("cores", "CPU in use outside kubepods and host applications.", Kind.RATE)
    system_memory_usage_bytes: Column = Column(
        "bytes", "Memory in use (no page cache) outside kubepods and host applications."
    )
    unattributed_cpu_cores: Column = Column("cores", "CPU in use in kubepods by no pod that could be read.", Kind.RATE)
    unattributed_memory_bytes: Column = Column("bytes", "Memory in use in kubepods by no pod that could be read.")
    unreadable_pods: Column = Column("pods", "Running pods whose cgroup could not be read in this tick.")
    non_be_pods_cpu_usage_cores: Column = Column(
        "cores",
        "CPU in use by all pods that are no best-effort pods.",
        Kind.RATE,
        Koordlet("be_suppress_ls_used_cpu_cores"),
    )


class NumaSystemRow(Row, source="system", scope=Scope.NUMA, period_s=TICK_S):
    system_cpu_usage_cores: Column = Column(
        "cores", "The system's CPU, shared out as the NUMA nodes' own usage is.", Kind.RATE
    )
    system_memory_usage_bytes: Column = Column("bytes", "Memory in use (no page cache) outside kubepods.")


class SystemCollector:
    """The collector ``system``; runs after ``node`` and ``usage``."""

    name = "system"
    period_s = TICK_S
    panels = (SystemRow.panel, NumaSystemRow.panel)

    def __init__(self, host: CollectorHost) -> None:
        self._host = host
        self._unreadable: tuple[str, ...] = ()

    @property
    def unreadable_pods(self) -> tuple[str, ...]:
        """The running pods (``namespace/name``) that the last batch could not read."""
        return self._unreadable

    def collect(self, tick: Tick) -> Batch:
        self._unreadable = _unreadable(tick)
        cpu, cpu_unattributed = _system(tick, _CPU)
        memory, memory_unattributed = _system(tick, _MEMORY)
        row = SystemRow(
            system_cpu_usage_cores=cpu,
            system_memory_usage_bytes=memory,
            unattributed_cpu_cores=cpu_unattributed,
            unattributed_memory_bytes=memory_unattributed,
            unreadable_pods=float(len(self._unreadable)),
            non_be_pods_cpu_usage_cores=_not_be(tick),
        )
        return [(SystemRow.panel, {"": row}), (NumaSystemRow.panel, self._numa(tick, cpu))]

    def close(self) -> None:
        pass

    def _numa(self, tick: Tick, system_cores: float) -> Mapping[str, NumaSystemRow]:
        cores, used = tick.values(_CPU[Scope.NUMA]), tick.values(_MEMORY[Scope.NUMA])
        total = sum(cores.values())
        pods = self._kubepods_by_numa(tick, tuple(used))
        return {
            node: NumaSystemRow(
                system_cpu_usage_cores=system_cores * cores[node] / total if total and node in cores else NO_SAMPLE,
                system_memory_usage_bytes=max(0.0, used[node] - pods[node]) if node in pods else NO_SAMPLE,
            )
            for node in used
        }

    def _kubepods_by_numa(self, tick: Tick, nodes: Sequence[str]) -> Mapping[str, float]:
        """Returns bytes by NUMA node; {} if they cannot be read."""
        root = tick.targets.tiers.root
        if len(nodes) == 1:
            usage = tick.value(_MEMORY[Scope.TIER], root)
            return {} if usage is None else {nodes[0]: usage}
        try:
            data = self._host.files.read(path_of(self._host.tree, root, "memory.numa_stat")) if root else None
            return {} if data is None else numa_memory(data, self._host.tree.version, self._host.page_bytes)
        except (OSError, ValueError):
            return {}


def numa_memory(data: bytes, version: int, page_bytes: int) -> Mapping[str, float]:
    """Returns bytes without page cache by NUMA node, from ``memory.numa_stat`` of a cgroup and all below it.

    v1 counts pages, and only the ``hierarchical_`` lines include what is below; v2 counts bytes. Raises ValueError.
    """
    unit, wanted = (page_bytes, _V1_NUMA) if version == 1 else (1, _V2_NUMA)
    found: dict[str, float] = {}
    for line in data.splitlines():
        head, *words = line.split()
        if head.partition(b"=")[0] in wanted:
            for word in words:
                node, _, count = word.partition(b"=")
                name = node.decode().removeprefix("N")
                found[name] = found.get(name, 0.0) + int(count) * unit
    return found


def _system(tick: Tick, usage: Mapping[Scope, Metric]) -> tuple[float, float]:
    """Returns (system, unattributed); NaN if an input is missing."""
    node = tick.value(usage[Scope.NODE])
    kubepods = tick.value(usage[Scope.TIER], tick.targets.tiers.root)
    pods = sum(tick.values(usage[Scope.POD]).values())
    unattributed = NO_SAMPLE if kubepods is None else max(0.0, kubepods - pods)
    if node is None:
        return NO_SAMPLE, unattributed
    return max(0.0, node - (pods if kubepods is None else kubepods) - _host_apps(tick, usage)), unattributed


def _host_apps(tick: Tick, usage: Mapping[Scope, Metric]) -> float:
    """Returns the usage of the host applications outside kubepods; those inside are subtracted with it."""
    used = tick.values(usage[Scope.HOST_APP])
    root = tick.targets.tiers.root
    apps = tick.targets.cgroups[Scope.HOST_APP]
    return sum(used.get(app.subject, 0.0) for app in apps if not (root and (app.path + "/").startswith(root + "/")))


def _not_be(tick: Tick) -> float:
    usage = tick.values(_CPU[Scope.POD])
    return sum(usage.get(pod.cgroup, 0.0) for pod in tick.targets.pods if not pod.context.is_best_effort)


def _unreadable(tick: Tick) -> tuple[str, ...]:
    """Returns the running pods without any sample of this batch."""
    readable = tick.values(_CPU[Scope.POD]).keys() | tick.values(_MEMORY[Scope.POD]).keys()
    return tuple(pod.key for pod in tick.targets.pods if pod.state not in _ENDED and pod.cgroup not in readable)

"""The inputs of advice on one container: its limits and requests, its CPUs, and its last five minutes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

from koord.host.files import Target
from koord.model import cpuset
from koord.model.qos import KubeQoS
from koord.model.qos_settings import CPUBurstPolicy
from qosd.model.metric import Metric, Scope
from qosd.model.policy import join
from qosd.model.snapshot import ContainerView, NodeSnapshot, PodView, running_containers
from qosd.report import TickReport
from qosd.sense.memoryevents import MEMORY_EVENTS
from qosd.sense.runqueue import RunQueueRow
from qosd.sense.store import SampleStore
from qosd.sense.targets import SampledCgroup
from qosd.sense.usage import USAGE
from qosd.tuning.series import Series

_USAGE, _EVENTS = USAGE[Scope.CONTAINER], MEMORY_EVENTS[Scope.CONTAINER]
_CPUS = "cpuset_cpus"
_QOS_STAYS = "a resize in place never changes a pod's QoS class, BestEffort: it takes a new pod"
_BOUND = "the scheduler has bound its CPUs: it takes a new pod"
_EXCLUSIVE = "kubelet's CPU manager has given it CPUs: it takes a new pod"


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerHistory:
    """A container as it is now and was for five minutes. 0 = no limit; a request of None = it is not known.

    ``cpus``: how many it may use. ``is_guaranteed``: request and limit are the same, or the pod's class would change.
    ``cpu_fixed``, ``memory_fixed``: why kubelet would not resize it in place; "" = it would. ``left_milli``,
    ``left_bytes``: the part of the node that is not requested, None = not known. ``may_burst``: CPU burst is on.
    """

    name: str
    cpu_limit_milli: int = 0
    memory_limit_bytes: int = 0
    cpu_request_milli: int | None = None
    memory_request_bytes: int | None = None
    cpus: int = 0
    is_guaranteed: bool = False
    cpu_fixed: str = ""
    memory_fixed: str = ""
    left_milli: int | None = None
    left_bytes: int | None = None
    may_burst: bool = False
    usage_cores: Series = ()
    throttled_ratio: Series = ()
    throttled_us_per_s: Series = ()
    run_queue_us_per_s: Series = ()
    memory_usage_bytes: Series = ()
    working_set_bytes: Series = ()
    memory_high_per_s: Series = ()
    oom_kills_per_s: Series = ()


class PodHistory(NamedTuple):
    """``oom_kills_per_s``: in the pod's own cgroup and all that are or were below it; v1 does not count those."""

    containers: tuple[ContainerHistory, ...] = ()
    oom_kills_per_s: Series = ()


def of_pod(report: TickReport, store: SampleStore, pod: PodView) -> PodHistory:
    """Returns the history of the pod's running containers that are latency-sensitive. Reads the store."""
    if report.snapshot is None:
        return PodHistory()
    node, shared = report.snapshot, _of_pod_itself(report.snapshot, pod)
    protected = [
        each
        for each in running_containers(pod)
        if SampledCgroup(Scope.CONTAINER, each.cgroup, each.cgroup, pod, each).latency_sensitive
    ]
    kills = store.series(MEMORY_EVENTS[Scope.POD].oom_kills_per_s, pod.cgroup) if protected and pod.cgroup else ()
    return PodHistory(tuple(_of_container(report, node, store, each, pod, shared) for each in protected), kills)


def _of_pod_itself(node: NodeSnapshot, pod: PodView) -> ContainerHistory:
    """Returns what is the same for all its containers."""
    cpu_fixed = memory_fixed = _QOS_STAYS if pod.kube_qos is KubeQoS.BEST_EFFORT else ""
    if pod.context.bound_cpus:
        cpu_fixed = _BOUND
    elif pod.uid in node.kubelet_cpus:
        cpu_fixed = _EXCLUSIVE
    burst = node.policy.slo.cpu_burst
    return ContainerHistory(
        name="",
        is_guaranteed=pod.kube_qos is KubeQoS.GUARANTEED,
        cpu_fixed=cpu_fixed,
        memory_fixed=memory_fixed,
        left_milli=_left_milli(node),
        left_bytes=_left_bytes(node),
        may_burst=burst is not None and burst.policy not in (None, CPUBurstPolicy.NONE),
    )


def _of_container(
    report: TickReport,
    node: NodeSnapshot,
    store: SampleStore,
    container: ContainerView,
    pod: PodView,
    shared: ContainerHistory,
) -> ContainerHistory:
    def series(metric: Metric) -> Series:
        return store.series(metric, container.cgroup)

    spec = next((each.native for each in pod.spec_containers or () if each.name == container.name), None)
    requested = container.requested
    quota_us, period_us = requested.cpu_quota_us or 0, requested.cpu_period_us or 0
    return replace(
        shared,
        name=container.name,
        cpu_limit_milli=quota_us * 1000 // period_us if quota_us > 0 and period_us else 0,
        memory_limit_bytes=max(0, requested.memory_limit_bytes or 0),
        cpu_request_milli=None if spec is None else spec.cpu_request or 0,
        memory_request_bytes=None if spec is None else spec.memory_request or 0,
        cpus=_cpus(report, node, container),
        usage_cores=series(_USAGE.cpu_usage_cores),
        throttled_ratio=series(_USAGE.cpu_throttled_ratio),
        throttled_us_per_s=series(_USAGE.cpu_throttled_us_per_s),
        run_queue_us_per_s=series(RunQueueRow.run_queue_delay_us_per_s),
        memory_usage_bytes=series(_USAGE.memory_usage_bytes),
        working_set_bytes=series(_USAGE.memory_working_set_bytes),
        memory_high_per_s=series(_EVENTS.memory_high_events_per_s),
        oom_kills_per_s=series(_EVENTS.oom_kills_per_s),
    )


def _cpus(report: TickReport, node: NodeSnapshot, container: ContainerView) -> int:
    """Returns the number of its CPUs: of the set that is held for it, else of its pool, else all that are online."""
    state = report.files.states.get(Target(container.cgroup, _CPUS))
    cpus = str(state.written) if state is not None and state.is_held else join(node.policy.node.ls_pools)
    return len(cpuset.parse(cpus)) if cpus else len(node.topology.cpus)


def _left_milli(node: NodeSnapshot) -> int | None:
    requests = [pod.cpu_request_milli for pod in node.pods]
    known = [each for each in requests if each is not None]
    return node.allocatable_cpu_milli - sum(known) if known and len(known) == len(requests) else None


def _left_bytes(node: NodeSnapshot) -> int | None:
    requests = [pod.memory_request_bytes for pod in node.pods]
    known = [each for each in requests if each is not None]
    allocatable_bytes = node.policy.allocatable_memory_bytes
    return allocatable_bytes - sum(known) if allocatable_bytes and known and len(known) == len(requests) else None

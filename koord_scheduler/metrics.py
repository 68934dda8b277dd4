"""What koord-scheduler counts: of itself by its own names, of its pods by those that Kubernetes' scheduler has.

Dashboards and alerts for kube-scheduler or Koordinator's scheduler go on working: names, types, labels and buckets of
``SchedulingMetrics`` are theirs (pkg/scheduler/metrics; Koordinator's pkg/scheduler/metrics). A decision costs some
additions; what the queue and the state know is asked when somebody reads the page.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from koord.cluster.pages import ByName, ComponentMetrics, metric_prefix, none, zero
from koord.scheduling.queuedpod import QueuedPod
from koord.service.metrics import Histogram, counter, gauge, histogram
from koord_scheduler.options import NAME

PREFIX, UPSTREAMS_PREFIX = metric_prefix(NAME), "scheduler_"
_MOST_TRIES = 15
"""From as many on the label ``attempts`` says ``15+``, as upstream's does."""


class Result(StrEnum):
    """What an attempt to place a pod came to."""

    SCHEDULED = "scheduled"
    UNSCHEDULABLE = "unschedulable"
    ERROR = "error"


def _doubled(first: float, count: int) -> tuple[float, ...]:
    return tuple(float(f"{first * 2**step:.12g}") for step in range(count))


def no_labels() -> Mapping[tuple[str, str], float]:
    return {}


@dataclass(slots=True)
class Metrics(ComponentMetrics):
    """Of koord-scheduler itself."""

    binding_window: Callable[[], float] = gauge(
        "Bindings that may be under way at once: one more a window of answers, half when the API server says 429.",
        factory=lambda: zero,
    )
    bindings_under_way: Callable[[], float] = gauge("Bindings that are under way now.", factory=lambda: zero)
    usage_stream: Callable[[], float] = gauge(
        "1 while koord-manager's stream says what nodes use; 0: NodeMetrics do.", factory=lambda: zero
    )
    measured_nodes: ByName = gauge(
        "Nodes of which it is known what they use, by what said it last.", "source", factory=lambda: none
    )
    unreadable_pods: Callable[[], float] = gauge(
        "Pods of this scheduler that cannot be placed as they are; the log says why.", factory=lambda: zero
    )
    extender_duration_seconds: dict[tuple[str, str, str], Histogram] = histogram(
        "Time of a request to an extender, by its address and its verb: answered, or failed, as one that is not "
        "answered in time does.",
        "extender", "verb", "result", bounds=_doubled(0.001, 15),
    )  # fmt: skip

    def extender_told(self, extender: str, verb: str, is_answered: bool, seconds: float) -> None:
        """A request to an extender has ended."""
        self.extender_duration_seconds[extender, verb, "answered" if is_answered else "failed"].observe(seconds)


@dataclass(slots=True)
class SchedulingMetrics:
    """Of pods, by upstream's names."""

    schedule_attempts: Counter[tuple[str, str]] = counter(
        "Attempts to place a pod: scheduled once it is bound, unschedulable if no node would do, error else.",
        "result", "profile",
    )  # fmt: skip
    scheduling_attempt_duration_seconds: dict[tuple[str, str], Histogram] = histogram(
        "Time from when a pod was taken until it was bound, or until it was known that it cannot be.",
        "result", "profile", bounds=_doubled(0.001, 15),
    )  # fmt: skip
    scheduling_algorithm_duration_seconds: Histogram = histogram(
        "Time of a decision for which there is a node.", bounds=_doubled(0.001, 15)
    )
    pod_scheduling_sli_duration_seconds: dict[str, Histogram] = histogram(
        "Time from when a pod could first be tried until it was bound, by how often it was tried.",
        "attempts", bounds=_doubled(0.01, 20),
    )  # fmt: skip
    pod_scheduling_attempts: Histogram = histogram(
        "How often a pod was tried until it was bound.", bounds=_doubled(1, 5)
    )
    pod_scheduling_evaluated_nodes: Histogram = histogram(
        "Nodes that were looked at for a pod: all.", bounds=_doubled(1, 15)
    )
    pod_scheduling_feasible_nodes: Histogram = histogram(
        "Nodes that would have done for a pod that got one.", bounds=_doubled(1, 15)
    )
    preemption_attempts: int = counter("Pods for which others had to leave.")
    preemption_victims: Histogram = histogram("Pods that had to leave for one.", bounds=_doubled(1, 7))
    gang_schedule_cycle_duration_seconds: dict[tuple[str, str], Histogram] = histogram(
        "Time of a decision about a gang, by what it came to and the power of two that its members fit in.",
        "reason", "job_size", bounds=(0.1, 0.5, 1, 2, 3, 5, 7.5, 10, 12.5, 15, 20, 25, 30, 45, 60, 120),
    )  # fmt: skip
    waiting_gang_group_number: Callable[[], float] = gauge(
        "Groups of gangs of which members wait.", factory=lambda: zero
    )
    pending_pods: ByName = gauge("Pods that wait, by where they are in the queue.", "queue", factory=lambda: none)
    queue_incoming_pods: Callable[[], Mapping[tuple[str, str], float]] = counter(
        "Pods that came to a part of the queue, by what brought them there.", "queue", "event",
        factory=lambda: no_labels,
    )  # fmt: skip
    unschedulable_pods: Callable[[], Mapping[tuple[str, str], float]] = gauge(
        "Pods that wait for a change in the cluster, by each plugin that rejects nodes for them.", "plugin", "profile",
        factory=lambda: no_labels,
    )  # fmt: skip
    cache_size: ByName = gauge("Nodes, pods on them, and those of which that is assumed.", "type", factory=lambda: none)

    def decided(self, seconds: float, node_count: int, feasible_count: int) -> None:
        """A node was found for a pod, in so many seconds."""
        self.scheduling_algorithm_duration_seconds.observe(seconds)
        self.pod_scheduling_evaluated_nodes.observe(node_count)
        self.pod_scheduling_feasible_nodes.observe(feasible_count)

    def gang_decided(self, seconds: float, member_count: int, *, is_whole: bool) -> None:
        """It was decided about a gang of which so many members wait, in so many seconds."""
        key = (Result.SCHEDULED if is_whole else Result.UNSCHEDULABLE).value, str(1 << (member_count - 1).bit_length())
        self.gang_schedule_cycle_duration_seconds[key].observe(seconds)

    def tried(self, queued: QueuedPod, result: Result, now_s: float) -> None:
        """An attempt for the pod has ended."""
        key = result.value, queued.pod.spec.scheduler_name
        self.schedule_attempts[key] += 1
        self.scheduling_attempt_duration_seconds[key].observe(now_s - queued.entered_s)
        if result is Result.SCHEDULED:
            tries = str(queued.tries) if queued.tries < _MOST_TRIES else f"{_MOST_TRIES}+"
            self.pod_scheduling_sli_duration_seconds[tries].observe(now_s - queued.tried_from_s)
            self.pod_scheduling_attempts.observe(queued.tries)

    def preempted(self, victims: int) -> None:
        """So many pods have to leave for one."""
        self.preemption_attempts += 1
        self.preemption_victims.observe(victims)

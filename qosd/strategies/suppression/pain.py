"""How much latency-sensitive containers wait for CPUs because best-effort pods run on them.

    waited = growth of PSI cpu "some" - growth of its throttled time, at least 0           in µs per second
    part   = best-effort's CPU time on its CPUs / all CPU time there but its own
    pain   = waited * part

A container that its own quota stops waits for the quota: that is taken off, and since the kernel sums throttled time
over CPUs it is taken off in full. One with more threads than CPUs makes its threads wait for each other, so there its
own CPU time counts among what ran. Neither is best-effort's doing, and neither gives pain. What ran on which CPUs is
not measured per cgroup by any kernel: everybody's time is spread over the CPUs that its class may use.

Invariants: pure; between 0 and what the container waited; 0 where no best-effort pod may run on its CPUs. None where
the kernel does not tell how long it waited: nobody can say then, and the caller falls back.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

import msgspec

from koord.model import cpuset
from koord.model.cpuset import CPUSet
from koord.model.qos import QoSClass
from qosd.model.metric import Metric, Scope
from qosd.model.rules import join
from qosd.model.snapshot import ContainerView, NodeSnapshot, PodView, live, runs
from qosd.sense.pids import PIDS
from qosd.sense.stalls import STALLS
from qosd.sense.usage import USAGE
from qosd.strategies.suppression.allowance import Uses

_WAITED = STALLS[Scope.CONTAINER].cpu_stall_some_us_per_s
_THROTTLED = USAGE[Scope.CONTAINER].cpu_throttled_us_per_s
_CORES = USAGE[Scope.CONTAINER].cpu_usage_cores
_POD_CORES = USAGE[Scope.POD].cpu_usage_cores
_TASKS = PIDS[Scope.CONTAINER].pids
_PROTECTED = (QoSClass.LSE, QoSClass.LSR, QoSClass.LS)


class Pain(msgspec.Struct, frozen=True, order=True):
    """Of one container, in µs per second. ``waited``: with what is not best-effort's doing."""

    pain: float
    waited: float = 0.0
    pod: str = ""
    container: str = ""


class _Load(msgspec.Struct, frozen=True):
    """CPU time that is spread over ``cpus``."""

    cores: float
    cpus: CPUSet

    def on(self, cpus: CPUSet) -> float:
        """The part of it that ran on ``cpus``."""
        return self.cores * len(self.cpus & cpus) / len(self.cpus) if self.cpus else 0.0


def worst(snapshot: NodeSnapshot, uses: Uses) -> Pain | None:
    """The container with the most pain; None where none of them can be told."""
    return max(_pains(snapshot, uses), default=None)


def _pains(snapshot: NodeSnapshot, uses: Uses) -> Iterator[Pain]:
    online = snapshot.topology.online
    pool = _cpus(join(snapshot.rules.node.best_effort_pools), online)
    best_effort = _Load(uses.best_effort_milli / 1000, pool)
    others = [*_others(snapshot, online), _Load(uses.system_milli / 1000, online)]
    for pod, container in _protected(snapshot.pods):
        waited = _number(snapshot, _WAITED, container.cgroup)
        if waited is None:
            continue
        waited = max(0.0, waited - (_number(snapshot, _THROTTLED, container.cgroup) or 0.0))
        cpus = _of_pod(pod, snapshot, online)
        own = _number(snapshot, _CORES, container.cgroup) or 0.0
        crowded = (_number(snapshot, _TASKS, container.cgroup) or 0.0) > len(cpus)
        theirs = best_effort.on(cpus)
        ran = theirs + sum(load.on(cpus) for load in others) - (0.0 if crowded else own)
        part = min(1.0, theirs / max(ran, theirs)) if theirs > 0 else 0.0
        yield Pain(waited * part, waited, pod.key, container.name)


def _protected(pods: Iterable[PodView]) -> Iterator[tuple[PodView, ContainerView]]:
    """The containers that run of latency-sensitive pods."""
    for pod in pods:
        if pod.qos in _PROTECTED and not pod.context.is_best_effort and live(pod):
            for each in pod.containers:
                if each.cgroup and not each.is_sandbox and runs(each.state):
                    yield pod, each


def _others(snapshot: NodeSnapshot, online: CPUSet) -> Iterator[_Load]:
    """The CPU time of pods that are no best-effort pods."""
    for pod in snapshot.pods:
        cores = _number(snapshot, _POD_CORES, pod.cgroup)
        if cores and not pod.context.is_best_effort:
            yield _Load(cores, _of_pod(pod, snapshot, online))


def _of_pod(pod: PodView, snapshot: NodeSnapshot, online: CPUSet) -> CPUSet:
    """The CPUs that it may use: those bound for it, or the LS pool."""
    return _cpus(pod.context.bound_cpus or join(snapshot.rules.node.ls_pools), online)


def _cpus(text: str, online: CPUSet) -> CPUSet:
    return (cpuset.parse(text) & online) or online


def _number(snapshot: NodeSnapshot, metric: Metric, subject: str) -> float | None:
    value = snapshot.value(metric, subject)
    return value if value is not None and math.isfinite(value) else None

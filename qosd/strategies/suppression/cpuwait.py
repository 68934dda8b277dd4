"""Works out how long latency-sensitive containers wait for CPUs because best-effort pods run on them.

    waited = growth of PSI cpu "some" - growth of its throttled time, at least 0           in µs per second
    part   = best-effort's CPU time on its CPUs / all CPU time there but its own
    caused = waited * part

A container that its own quota throttles waits for the quota: that time is subtracted, and in full, because the kernel
sums throttled time over CPUs. In a container with more threads than CPUs threads wait for each other, so its own CPU
time counts among what ran. Best-effort pods cause neither. Nor do they count as the cause of waits that are brief on
the average (``BRIEF_US``, by the run queue's account of time slices), however many: PSI adds them up, and a limit would
only replace them by the wake-up of a sleeping CPU. No kernel measures per cgroup what ran on which CPUs: the time of
each pod is spread over the CPUs that its class may use.

Invariants: pure; a caused wait is between 0 and the whole wait, and 0 if no best-effort pod may run on the container's
CPUs. A container without a measured wait is left out, and the caller falls back.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

import msgspec

from koord.model import cpuset
from koord.model.cpuset import CPUSet
from koord.model.qos import QoSClass
from qosd.model.metric import Metric, Scope
from qosd.model.policy import join
from qosd.model.snapshot import ContainerView, NodeSnapshot, PodView, live, running_containers
from qosd.policy.scheduling import is_covered
from qosd.sense.pids import PIDS
from qosd.sense.runqueue import RunQueueRow
from qosd.sense.stalls import STALLS
from qosd.sense.usage import USAGE
from qosd.strategies.suppression.allowance import Uses

_WAITED = STALLS[Scope.CONTAINER].cpu_stall_some_us_per_s
_THROTTLED = USAGE[Scope.CONTAINER].cpu_throttled_us_per_s
_CORES = USAGE[Scope.CONTAINER].cpu_usage_cores
_POD_CORES = USAGE[Scope.POD].cpu_usage_cores
_TASKS = PIDS[Scope.CONTAINER].pids
_DELAY = RunQueueRow.run_queue_delay_us
BRIEF_US = 50.0
"""The time that a sleeping CPU takes to wake: 30 to 60 us of a request on the machine of bench/README."""
_PROTECTED = (QoSClass.LSE, QoSClass.LSR, QoSClass.LS)


class CPUWait(msgspec.Struct, frozen=True, order=True):
    """One container's wait for CPUs, in µs per second: ``caused`` by best-effort pods, and ``waited`` in all."""

    caused: float
    waited: float = 0.0
    pod: str = ""
    container: str = ""

    @property
    def name(self) -> str:
        return f"{self.pod} {self.container}".strip()


class _Loads:
    """CPU time by the set of CPUs over which it is spread, in cores."""

    def __init__(self) -> None:
        self._cores: dict[CPUSet, float] = {}
        self._on: dict[CPUSet, float] = {}

    def add(self, cores: float, cpus: CPUSet) -> None:
        self._cores[cpus] = self._cores.get(cpus, 0.0) + cores

    def on(self, cpus: CPUSet) -> float:
        """Returns the CPU time that ran on ``cpus``, worked out once for each set, after all ``add``."""
        found = self._on.get(cpus)
        if found is None:
            found = self._on[cpus] = sum(
                cores * len(each & cpus) / len(each) for each, cores in self._cores.items() if each
            )
        return found


def of_containers(snapshot: NodeSnapshot, uses: Uses) -> Iterator[CPUWait]:
    """Yields the wait of each latency-sensitive container that runs, where the kernel tells it."""
    online = snapshot.topology.online
    places = _Places(snapshot, online)
    best_effort, others = _Loads(), _Loads()
    best_effort.add(uses.best_effort_milli / 1000, _within(join(snapshot.limits.pools), online))
    others.add(uses.system_milli / 1000, online)
    for pod in snapshot.pods:
        cores = _number(snapshot, _POD_CORES, pod.cgroup)
        if cores and not is_covered(pod, snapshot.policy.node):
            others.add(cores, places.of(pod))
    for pod, container in _protected(snapshot.pods):
        waited = _number(snapshot, _WAITED, container.cgroup)
        if waited is None:
            continue
        waited = max(0.0, waited - (_number(snapshot, _THROTTLED, container.cgroup) or 0.0))
        cpus = places.of(pod)
        own = _number(snapshot, _CORES, container.cgroup) or 0.0
        crowded = (_number(snapshot, _TASKS, container.cgroup) or 0.0) > len(cpus)
        theirs = best_effort.on(cpus)
        ran = theirs + others.on(cpus) - (0.0 if crowded else own)
        part = min(1.0, theirs / max(ran, theirs)) if theirs > 0 else 0.0
        delay_us = _number(snapshot, _DELAY, container.cgroup)
        is_brief = delay_us is not None and delay_us < BRIEF_US
        yield CPUWait(0.0 if is_brief else waited * part, waited, pod.key, container.name)


def _protected(pods: Iterable[PodView]) -> Iterator[tuple[PodView, ContainerView]]:
    """Yields the running containers of latency-sensitive pods."""
    for pod in pods:
        if pod.qos in _PROTECTED and not pod.context.is_best_effort and live(pod):
            for each in running_containers(pod):
                yield pod, each


class _Places:
    """The CPUs that pods may use: those bound for them, or the LS pool."""

    def __init__(self, snapshot: NodeSnapshot, online: CPUSet) -> None:
        self._online = online
        self._pool = _within(join(snapshot.policy.node.ls_pools), online)

    def of(self, pod: PodView) -> CPUSet:
        bound = pod.context.bound_cpus
        return _within(bound, self._online) if bound else self._pool


def _within(text: str, online: CPUSet) -> CPUSet:
    return (cpuset.parse(text) & online) or online


def _number(snapshot: NodeSnapshot, metric: Metric, subject: str) -> float | None:
    value = snapshot.value(metric, subject)
    return value if value is not None and math.isfinite(value) else None

"""An immutable snapshot of the node per tick: all that decisions may use.

Sensing makes it, and nothing downstream reads a clock or a file. Snapshots share what changes seldom (pods, topology,
policy) as the same objects, so a strategy sees by identity what it need not decide again. An input that this node
cannot have is absent, and ``ages_s`` has the age of each other input.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType

import msgspec
from msgspec.structs import replace

from koord.host.files import Target
from koord.host.reconcile.state import FileState
from koord.host.topology import Topology
from koord.model import cpuset
from koord.model.core import Volume
from koord.model.priority import PriorityClass
from koord.model.qos import KubeQoS, QoSClass
from qosd.model.besteffort import NO_LIMITS, BestEffortLimits
from qosd.model.metric import Metric
from qosd.model.pod import PodContext, Resources, SpecContainer
from qosd.model.policy import EffectivePolicy, NodeSettings

PODS_MAX_AGE_S = 90.0
"""Nothing is decided by an older pod list: the last decisions stay. A quiet node lists every 60 s."""
_FINISHED = frozenset({"SANDBOX_NOTREADY"})
_RUNNING = "CONTAINER_RUNNING"
_WITH_CGROUP = frozenset({"CONTAINER_CREATED", _RUNNING})
_KATA = "kata"
"""Begins the names of Kata's own handlers: kata, kata-qemu, kata-clh, kata-fc…"""
_NOTHING: Mapping[str, float] = MappingProxyType({})
_NO_AGGREGATES: Mapping[str, Aggregate] = MappingProxyType({})


class ContainerView(msgspec.Struct, frozen=True, eq=False):
    """A container, or the sandbox itself (``is_sandbox``, name ""). ``cgroup``: its cgroup path (``/kubepods/…``)."""

    id: str
    name: str
    cgroup: str
    state: str
    requested: Resources
    annotations: Mapping[str, str]
    is_sandbox: bool = False
    attempt: int = 0
    requested_cpus: str = ""
    """The CPU set that the runtime was asked for; "" = none, or unknown."""


class Owner(msgspec.Struct, frozen=True):
    """The controller of a pod: ``ReplicaSet``, ``Job``, ``DaemonSet``…"""

    kind: str
    name: str


Controller = tuple[str, str, str]
"""Namespace, kind and name."""


class PodFacts(msgspec.Struct, frozen=True):
    """The facts of a pod that only kubelet tells, and that hooks do not need.

    ``started_unix_s``: when kubelet accepted it; ``deletion_unix_s``: by when it is to be gone, its grace period
    included; None: it is not being deleted.
    """

    owner: Owner | None = None
    started_unix_s: float | None = None
    deletion_unix_s: float | None = None
    host_network: bool = False
    runtime_class: str = ""
    restart_policy: str = ""
    pod_ips: tuple[str, ...] = ()
    """The node's own for a pod in the host's network; () before kubelet knows."""
    volumes: tuple[Volume, ...] = ()


NO_FACTS = PodFacts()


class PodView(msgspec.Struct, frozen=True, eq=False):
    """A pod as the runtime and kubelet tell it, decoded once. Compared by identity."""

    uid: str
    namespace: str
    name: str
    sandbox_id: str
    state: str
    cgroup: str
    """The pod's cgroup; "" if it is unknown."""
    context: PodContext
    """The pod as hooks see it, with labels and annotations decoded."""
    kube_qos: KubeQoS
    qos: QoSClass
    qos_source: str
    priority_class: PriorityClass
    sub_priority: int
    containers: tuple[ContainerView, ...]
    problems: tuple[str, ...] = ()
    cpu_request_milli: int | None = None
    """From kubelet's pod list; None if only the runtime tells of the pod."""
    memory_request_bytes: int | None = None
    spec_containers: tuple[SpecContainer, ...] | None = None
    """Every container of the spec with its native amounts; None if only the runtime tells of the pod."""
    priority: int | None = None
    """``spec.priority``. Kubelet tells this and ``phase`` and ``facts``; the runtime does not."""
    phase: str = ""
    facts: PodFacts = NO_FACTS
    runtime_handler: str = ""
    """The runtime's handler of the pod; "" = the default, or the runtime is not asked."""

    @property
    def key(self) -> str:
        """``namespace/name``, as people know it."""
        return f"{self.namespace}/{self.name}"

    @property
    def controller(self) -> Controller | None:
        """The controller that made the pod; None: no controller did, or kubelet has not told."""
        owner = self.facts.owner
        return None if owner is None else (self.namespace, owner.kind, owner.name)

    @property
    def cfs_period_us(self) -> int | None:
        """The CFS period with which kubelet had its containers made; None: unknown."""
        told = (each.requested.cpu_period_us for each in self.containers if not each.is_sandbox)
        return next((period_us for period_us in told if period_us), None)


class Window(msgspec.Struct, frozen=True):
    """The samples of ``metric`` of the last ``over_s`` seconds, by object.

    A strategy that declares it is frozen while no object has ``at_least`` samples. ``quantile`` (0..1): which
    percentile is wanted of them.
    """

    metric: Metric
    over_s: float
    at_least: int = 1
    quantile: float = 0.5


class PressureTrigger(msgspec.Struct, frozen=True):
    """Tasks that stalled for ``stall_us`` within ``window_us`` (0.5 to 10 s) wake the daemon, which samples at once.

    ``resource``: ``cpu``, ``memory`` or ``io``; ``degree``: ``some`` task, or in ``full`` all of them. ``tier``: of
    that tier's cgroup, None: of the whole node.
    """

    resource: str
    degree: str
    stall_us: int
    window_us: int
    tier: KubeQoS | None = None

    def __str__(self) -> str:
        subject = "the node" if self.tier is None else f"tier {self.tier}"
        return f"{self.degree} {self.resource} of {subject}: {self.stall_us} us in {self.window_us} us"


class Aggregate(msgspec.Struct, frozen=True):
    """The aggregate of one window and object, in the metric's unit.

    ``percentile``: by nearest rank. ``slope_per_s``: of the straight line that fits them best, 0 for a single one.
    ``span_s``: from the oldest of them to the newest.
    """

    count: int
    mean: float
    percentile: float
    slope_per_s: float
    span_s: float = 0.0


class EvictionPhase(StrEnum):
    """The phases of an eviction: its containers are being stopped; all have exited and their cgroups are gone; kubelet
    has started some again; they could not be stopped."""

    STOPPING = "stopping"
    STOPPED = "stopped"
    RESTARTED = "restarted"
    FAILED = "failed"


class EvictionState(msgspec.Struct, frozen=True):
    """An eviction under way: from the order until the pod is gone, or has not been ordered again for long.

    ``attempts``: how often its containers have been stopped, or should have been; ``since_ns``: when the last attempt
    began; ``retry_ns``: the next attempt may not begin earlier; both by the monotonic clock. ``owner``: the strategy.
    ``is_refused``: the last attempt was forbidden, as by a PodDisruptionBudget, and did nothing. ``is_replacement``: a
    controller has made the pod in place of the one that was evicted.
    """

    uid: str
    pod: str
    phase: EvictionPhase
    attempts: int
    since_ns: int
    retry_ns: int
    problem: str = ""
    owner: str = ""
    why: str = ""
    is_refused: bool = False
    is_replacement: bool = False

    @property
    def waits_in_emergency(self) -> bool:
        """Does the back-off hold in an emergency? Not for a pod to which nothing has been done yet."""
        return not (self.is_refused or self.is_replacement)


class NodeSnapshot(msgspec.Struct, frozen=True, eq=False):
    """``values``: the newest sample of every metric of the metric table, by metric, then by object.

    The object of a node metric is "", of a container's or pod's its cgroup path, of a device's its name.
    ``ages_s``: seconds since each input (collector or source, by name) last succeeded; absent = never.
    """

    tick: int
    wall_ns: int
    monotonic_ns: int
    policy: EffectivePolicy
    topology: Topology
    pods: tuple[PodView, ...]
    values: Mapping[Metric, Mapping[str, float]]
    ages_s: Mapping[str, float]
    limits: BestEffortLimits = NO_LIMITS
    """The limits of best-effort pods."""
    kubelet_cpus: Mapping[str, str] = MappingProxyType({})
    """Exclusive CPUs that kubelet's CPU manager gave, as cpuset lists by pod UID."""
    tiers: Mapping[KubeQoS, str] = MappingProxyType({})
    """The cgroups of kubelet's tiers, Guaranteed's being the root of all; empty while unknown."""
    files: Mapping[Target, FileState] = MappingProxyType({})
    """The files that are held, contested or waiting to be tried again, as the last tick left them."""
    sampled_ns: int = 0
    """The instant of the samples, by the monotonic clock; 0 before the first. Ticks between two beats share it."""
    windows: Mapping[Window, Mapping[str, Aggregate]] = MappingProxyType({})
    """The aggregates of the strategies' windows, by object as in ``values``."""
    refused: Mapping[Target, tuple[tuple[str, str], ...]] = MappingProxyType({})
    """(strategy, why) of the opinions that the last tick did not follow, by file."""
    evictions: Mapping[str, EvictionState] = MappingProxyType({})
    """The evictions under way, by the pod's UID: such a pod counts as having given what it has."""
    one_shots: Mapping[Target, str] = MappingProxyType({})
    """The result of the newest one-shot write of this run to each file, in the journal's words."""
    absent: Mapping[str, str] = MappingProxyType({})
    """Inputs that this node cannot have, with the reason: a strategy falls back, where a late input freezes it."""

    def limited(self, limits: BestEffortLimits) -> NodeSnapshot:
        """Returns the snapshot with these limits; itself if it has them."""
        return self if limits is self.limits else replace(self, limits=limits)

    @property
    def capacity_cpu_milli(self) -> int:
        """The CPUs that are online, in thousandths."""
        return 1000 * len(self.topology.cpus)

    @property
    def allocatable_cpu_milli(self) -> int:
        """The capacity without what the policy or kubelet reserves, whichever is more; never below 0."""
        node = self.policy.node
        by_rules_milli = 1000 * len(cpuset.parse(node.reserved_cpus)) if node.reserved_cpus else node.reserved_cpu_milli
        return max(0, self.capacity_cpu_milli - max(by_rules_milli, node.kubelet_reserved.cpu_milli))

    def sampled_by(self, *collectors: str) -> int:
        """Returns the instant of the oldest of the collectors' newest samples; of the batch if they have none."""
        ages_s = [self.ages_s[name] for name in collectors if name in self.ages_s]
        oldest_ns = self.monotonic_ns - round(max(ages_s, default=0.0) * 1e9)
        return min(self.sampled_ns, oldest_ns) if ages_s else self.sampled_ns

    @property
    def knows_pods(self) -> bool:
        """Is the pod list known, and young enough to say which pods run?"""
        return self._is_young("pods")

    @property
    def knows_priorities(self) -> bool:
        """Is kubelet's list, which alone tells priorities, known and young enough?"""
        return self._is_young("kubelet")

    def _is_young(self, pod_list: str) -> bool:
        age_s = self.ages_s.get(pod_list)
        return age_s is not None and age_s <= PODS_MAX_AGE_S

    def value(self, metric: Metric, subject: str = "") -> float | None:
        """Returns the newest sample of ``metric`` for ``subject``; None if there is none."""
        return self.values.get(metric, _NOTHING).get(subject)

    def window(self, window: Window, subject: str = "") -> Aggregate | None:
        """Returns the aggregate of the window for ``subject``; None while it has too few samples."""
        aggregate = self.windows.get(window, _NO_AGGREGATES).get(subject)
        return aggregate if aggregate is not None and aggregate.count >= window.at_least else None


def live(pod: PodView) -> bool:
    """Has the pod, or any container of it, cgroups in use?"""
    return pod.state not in _FINISHED or any(has_cgroup(one.state) for one in pod.containers if not one.is_sandbox)


def has_cgroup(container_state: str) -> bool:
    """Has a container in this state a cgroup? A created one has, before it runs."""
    return container_state in _WITH_CGROUP


def runs(container_state: str) -> bool:
    """Does a container in this state run? Before, the runtime itself writes its cgroup's files."""
    return container_state == _RUNNING


def running_containers(pod: PodView) -> list[ContainerView]:
    """Returns the pod's containers whose files may be written, without the sandbox."""
    return [each for each in pod.containers if each.cgroup and not each.is_sandbox and runs(each.state)]


def is_kata(pod: PodView, node: NodeSettings) -> bool:
    """Does the pod run in a virtual machine of its own, as Kata Containers makes it?

    The runtime tells the pod's handler, kubelet its runtime class, which is named after the handler as a rule. Kata's
    own names count, and those in ``sandboxSizingHandlers`` of the policy. The cgroups of such a pod hold the machine
    and not what runs in it, so what Koord measures and sets there is not the containers'.
    """
    return any(
        name.startswith(_KATA) or name in node.sandbox_sizing_handlers
        for name in (pod.runtime_handler, pod.facts.runtime_class)
        if name
    )

"""One immutable picture of the node per tick: all that a decision may know.

Sensing makes it, and nothing downstream reads a clock or a file. What changes seldom (pods, topology, rules) is
shared between snapshots as the very same objects, so that identity tells a strategy what it need not decide again.
An input that could not be had is absent, and ``ages_s`` says how old each of the others is.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import msgspec

from koord.host.files import Target
from koord.host.reconcile.state import FileState
from koord.host.topology import Topology
from koord.model.priority import PriorityClass
from koord.model.qos import KubeQoS, QoSClass
from qosd.hooks.context import PodContext, SpecContainer
from qosd.hooks.edits import Resources
from qosd.hooks.rules import Rules

PODS_MAX_AGE_S = 90.0
"""A pod list older than that decides nothing any more: what was decided stays. A quiet node lists every 60 s."""
_FINISHED = frozenset({"SANDBOX_NOTREADY"})
_RUNNING = "CONTAINER_RUNNING"
_WITH_CGROUP = frozenset({"CONTAINER_CREATED", _RUNNING})
_NOTHING: Mapping[str, float] = MappingProxyType({})


class ContainerView(msgspec.Struct, frozen=True, eq=False):
    """A container, or the sandbox itself (``is_sandbox``, name ""). ``group``: its cgroup path (``/kubepods/…``)."""

    id: str
    name: str
    group: str
    state: str
    requested: Resources
    annotations: Mapping[str, str]
    is_sandbox: bool = False
    attempt: int = 0


class PodView(msgspec.Struct, frozen=True, eq=False):
    """A pod as the runtime and kubelet tell it, decoded once. Two views are the same pod state only if identical."""

    uid: str
    namespace: str
    name: str
    sandbox_id: str
    state: str
    group: str
    """The pod's cgroup; "" if nobody tells."""
    context: PodContext
    """What hooks may know of the pod itself (labels and annotations decoded)."""
    kube_qos: KubeQoS
    qos: QoSClass
    qos_source: str
    priority_class: PriorityClass
    sub_priority: int
    containers: tuple[ContainerView, ...]
    problems: tuple[str, ...] = ()
    cpu_request_milli: int | None = None
    """From kubelet's pod list; None where only the runtime tells."""
    memory_request_bytes: int | None = None
    spec_containers: tuple[SpecContainer, ...] | None = None
    """Every container of the spec with its native amounts; None where only the runtime tells."""

    @property
    def key(self) -> str:
        """``namespace/name``, as people know it."""
        return f"{self.namespace}/{self.name}"


class NodeSnapshot(msgspec.Struct, frozen=True, eq=False):
    """``values``: the newest sample of every metric of the metric table, by metric name, then by object.

    The object of a node metric is "", of a container's or pod's its cgroup path, of a device's its name.
    ``ages_s``: seconds since each input (collector or source, by name) last succeeded; absent = never.
    """

    tick: int
    wall_ns: int
    monotonic_ns: int
    rules: Rules
    topology: Topology
    pods: tuple[PodView, ...]
    values: Mapping[str, Mapping[str, float]]
    ages_s: Mapping[str, float]
    kubelet_cpus: Mapping[str, str] = MappingProxyType({})
    """Exclusive CPUs that kubelet's CPU manager gave, as cpuset lists by pod UID."""
    tiers: Mapping[KubeQoS, str] = MappingProxyType({})
    """The cgroups of kubelet's tiers, Guaranteed's being the root of all; empty while nobody knows."""
    files: Mapping[Target, FileState] = MappingProxyType({})
    """The files that are held, contested or waiting to be tried again, as the last tick left them."""

    @property
    def knows_pods(self) -> bool:
        """Do ``pods`` say who runs now? Else nobody has told yet, or not for long."""
        age_s = self.ages_s.get("pods")
        return age_s is not None and age_s <= PODS_MAX_AGE_S

    def value(self, metric: str, subject: str = "") -> float | None:
        """The newest sample of ``metric`` for ``subject``; None if there is none."""
        return self.values.get(metric, _NOTHING).get(subject)


def live(pod: PodView) -> bool:
    """Has the pod, or has any container of it, cgroups to speak of?"""
    return pod.state not in _FINISHED or any(has_cgroup(one.state) for one in pod.containers if not one.is_sandbox)


def has_cgroup(container_state: str) -> bool:
    """A created container has a cgroup before it runs."""
    return container_state in _WITH_CGROUP


def runs(container_state: str) -> bool:
    """Is its cgroup the runtime's no more? While a container is being made, the runtime itself writes there."""
    return container_state == _RUNNING

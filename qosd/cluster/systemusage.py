"""The node's use that no pod and no host application of the report accounts for.

Upstream's system usage is the node's less that of all pods it could measure. Here the system's own is measured apart
from the *unattributed* use: that in kubepods which belongs to no readable pod. Cgroups that an ended pod has left
behind are such; their use would be sold again if it were in no report, so both together are the system's here.

Two things in the unattributed count elsewhere. A running pod that could not be read counts with its request where the
report lacks it; at such an instant the unattributed use is the system's only above the requests of the pods that are
pending now. And a host application whose cgroup is in kubepods has a figure of its own.

Invariant: each use of the node is in the system's usage, in a pod's, in an application's, or covered by the request of
a pod that the report lacks; and in only one of them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from typing import NamedTuple

from koord.model.qos import KubeQoS
from qosd.cluster.usage import Samples
from qosd.decide.shortage import Resource
from qosd.decide.victims import request_of
from qosd.model.metric import Metric, Scope
from qosd.model.snapshot import NodeSnapshot, PodView, live
from qosd.sense.store import SampleStore
from qosd.sense.system import SystemRow
from qosd.sense.targets import Tiers, app_cgroup
from qosd.sense.usage import USAGE


class Sources(NamedTuple):
    """The metrics of one resource. ``per_unit``: how many units of the request make one of the samples'."""

    resource: Resource
    per_unit: float
    pod: Metric
    system: Metric
    unattributed: Metric
    host_application: Metric


CPU = Sources(
    Resource.CPU_MILLI,
    1000.0,
    USAGE[Scope.POD].cpu_usage_cores,
    SystemRow.system_cpu_usage_cores,
    SystemRow.unattributed_cpu_cores,
    USAGE[Scope.HOST_APP].cpu_usage_cores,
)
MEMORY = Sources(
    Resource.MEMORY_BYTES,
    1.0,
    USAGE[Scope.POD].memory_usage_bytes,
    SystemRow.system_memory_usage_bytes,
    SystemRow.unattributed_memory_bytes,
    USAGE[Scope.HOST_APP].memory_usage_bytes,
)


class SystemUsage(NamedTuple):
    """In the samples' unit. ``total``: the system's own and the unattributed use."""

    total: Samples
    own: Samples


def read(snapshot: NodeSnapshot, store: SampleStore, sources: Sources, since_ns: int) -> SystemUsage:
    own = store.series(sources.system, "", since_ns)
    unattributed = dict(store.series(sources.unattributed, "", since_ns))
    unreadable = {at_ns for at_ns, pods in store.series(SystemRow.unreadable_pods, "", since_ns) if pods}
    requests = [request_of(pod, sources.resource) or 0 for pod in pending_pods(snapshot, sources.pod)]
    pending = sum(requests) / sources.per_unit
    applications = _sums(store, sources.host_application, applications_in_kubepods(snapshot), since_ns)

    def of_system(at_ns: int) -> float:
        rest = unattributed.get(at_ns, 0.0) - applications[at_ns]
        return max(0.0, rest - pending if at_ns in unreadable else rest)

    return SystemUsage([(at_ns, value + of_system(at_ns)) for at_ns, value in own], own)


def pending_pods(snapshot: NodeSnapshot, metric: Metric) -> list[PodView]:
    """Returns the pods that run and have no sample of ``metric`` now."""
    measured = snapshot.values.get(metric, {})
    return [pod for pod in snapshot.pods if live(pod) and pod.cgroup not in measured]


def applications_in_kubepods(snapshot: NodeSnapshot) -> Collection[str]:
    """Returns the host applications whose cgroup is one of those that pods are in, by name."""
    tiers = Tiers.of(snapshot.tiers)
    root = snapshot.tiers.get(KubeQoS.GUARANTEED, "")
    applications = snapshot.policy.slo.host_applications or ()
    return {app.name for app in applications if root and f"{app_cgroup(app, tiers)}/".startswith(f"{root}/")}


def _sums(store: SampleStore, metric: Metric, subjects: Collection[str], since_ns: int) -> Mapping[int, float]:
    """Returns the sums over all ``subjects`` by instant; 0 where they have no samples."""
    total: dict[int, float] = defaultdict(float)
    for subject in subjects:
        for at_ns, value in store.series(metric, subject, since_ns):
            total[at_ns] += value
    return total

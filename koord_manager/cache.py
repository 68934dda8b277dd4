"""What the manager's caches have of objects that there are thousands of: as much as it has a use for, small.

A cluster has tens of thousands of pods, most of them replicas: labels, annotations, containers and owners of one are
those of hundreds, and so is what it counts in its node's offer, which is worked out once for those that do not differ.
A NodeMetric with thirty pods takes five times the memory of its text, and is read once a minute; so it is packed. Most
NodeSLOs have one spec, and what an API server keeps beside it, who has written which field, is larger than the spec. Of
a NodeResourceTopology the manager reads the CPU model; its zones and allocations are for schedulers, and change with
pods.

Invariant: a cached pod equals the one that came but for its volumes and for what its status has beside phase and QoS
class, of which nothing but its demand depends; that is its own.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from koord.kube.interner import MAX_PARTS, Interner
from koord.kube.kind import Unstructured
from koord.kube.recent import Recent
from koord.model.core import ObjectMeta, Pod, PodStatus
from koord.model.nodemetric import NodeMetric, NodeMetricSpec, NodeMetricStatus
from koord.model.noderesourcetopology import NodeResourceTopology
from koord.model.topologyannotations import CPU_BASIC_INFO
from koord.overcommit import demand
from koord.overcommit.demand import PodDemand


class CountedPod(Pod, frozen=True, gc=False, kw_only=True):
    demand: PodDemand


class _Counted(NamedTuple):
    """What a demand was worked out from, but for names, and that demand. Parts of replicas are the same objects."""

    labels: object
    spec: object
    status: object
    is_started: bool
    demand: PodDemand


class PodSharing:
    def __init__(self, most: int = MAX_PARTS) -> None:
        self._interner = Interner(most)
        self._counted = Recent[str, _Counted](most)

    def __call__(self, pod: Pod) -> CountedPod:
        """Returns the pod as it is cached."""
        template = pod.metadata.template
        spec = replace(pod.spec, node_name="", volumes=())
        status = PodStatus(pod.status.phase, pod.status.qos_class)
        cached = self._interner.intern_like(template, Pod(pod.metadata, spec, status))
        counted, spec = self._demand(template, pod, cached), cached.spec
        if pod.spec.node_name:
            spec = replace(spec, node_name=self._interner.intern(pod.spec.node_name))
        return CountedPod(cached.metadata, spec, cached.status, demand=counted)

    def _demand(self, template: str, pod: Pod, cached: Pod) -> PodDemand:
        """Returns that of the pod as it came: whether kubelet has admitted it, its cached status does not say."""
        metadata, is_started = cached.metadata, pod.status.start_time is not None
        last = self._counted.get(template)
        if (
            last is not None
            and last.labels is metadata.labels
            and last.spec is cached.spec
            and last.status is cached.status
            and last.is_started is is_started
        ):
            return replace(last.demand, namespace=metadata.namespace, name=metadata.name)
        counted = replace(demand.of_pod(pod), namespace=metadata.namespace)
        if last is not None:
            counted = self._interner.intern_like(template, counted)
        self._counted.put(template, _Counted(metadata.labels, cached.spec, cached.status, is_started, counted))
        return counted


class SpecSharing:
    """Leaves of a NodeSLO its metadata and its spec; equal specs are one."""

    def __init__(self) -> None:
        self._interner = Interner()

    def __call__(self, stored: Unstructured) -> Unstructured:
        content = {"spec": self._interner.intern(stored.content["spec"])} if "spec" in stored.content else {}
        return Unstructured(stored.metadata, content)


class PackedMetric(msgspec.Struct, frozen=True, gc=False):
    metadata: ObjectMeta
    spec: NodeMetricSpec
    update_time: str | None
    status: bytes
    """As JSON."""

    def unpacked(self) -> NodeMetric:
        return NodeMetric(self.metadata, self.spec, msgspec.json.decode(self.status, type=NodeMetricStatus))


def packed(metric: NodeMetric) -> PackedMetric:
    return PackedMetric(metric.metadata, metric.spec, metric.status.update_time, msgspec.json.encode(metric.status))


class CachedTopology(msgspec.Struct, frozen=True, gc=False):
    """``text``: the annotation ``cpu-basic-info``; None if there is none."""

    metadata: ObjectMeta
    text: str | None


def cached_topology(topology: NodeResourceTopology) -> CachedTopology:
    metadata = topology.metadata
    bare = replace(metadata, labels={}, annotations={})
    return CachedTopology(bare, metadata.annotations.get(CPU_BASIC_INFO))

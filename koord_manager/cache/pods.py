"""What the cache has of each pod of the cluster, and what it counts in its node's offer.

A cluster has tens of thousands of pods, most of them replicas: labels, annotations, containers and owners of one are
those of hundreds, and so is what it counts, which is worked out once for those that do not differ. Invariant: a cached
pod equals the one that came but for its volumes and for what its status has beside phase and QoS class, of which
nothing but its demand depends; that is its own.
"""

from __future__ import annotations

from typing import NamedTuple

from msgspec.structs import replace

from koord.kube.interner import MAX_PARTS, Interner
from koord.kube.recent import Recent
from koord.model.core import Pod, PodSpec, PodStatus
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
        owners = pod.metadata.owner_references
        template = owners[0].uid if owners else pod.metadata.namespace
        spec = replace(pod.spec, node_name="", volumes=())
        status = PodStatus(pod.status.phase, pod.status.qos_class)
        cached = self._interner.intern_like(template, Pod(pod.metadata, spec, status))
        counted = self._demand(template, pod, cached)
        return CountedPod(cached.metadata, self._placed(cached.spec, pod.spec), cached.status, demand=counted)

    def _placed(self, spec: PodSpec, placed: PodSpec) -> PodSpec:
        return replace(spec, node_name=self._interner.intern(placed.node_name)) if placed.node_name else spec

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

"""What is kept of each pod of the cluster, and what it counts in its node's offer.

A cluster has tens of thousands of pods, most of them replicas: labels, annotations, containers and owners of one are
those of hundreds. Invariant: a kept pod equals the one that came but for its volumes and for what its status has beside
phase and QoS class, of which nothing but its demand depends; that is its own.
"""

from __future__ import annotations

from msgspec.structs import replace

from koord.model.core import ObjectMeta, Pod, PodSpec, PodStatus
from koord.overcommit import demand
from koord.overcommit.demand import PodDemand
from koord_manager.kept.parts import Parts


class CountedPod(Pod, frozen=True, gc=False, kw_only=True):
    demand: PodDemand


class PodSharing:
    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    def __call__(self, pod: Pod) -> CountedPod:
        """The pod as it is kept."""
        status = PodStatus(pod.status.phase, pod.status.qos_class)
        kept = Pod(self._metadata(pod.metadata), self._spec(pod.spec), self._parts.one(status))
        return CountedPod(kept.metadata, kept.spec, kept.status, demand=self._demand(pod, kept.metadata))

    def _metadata(self, metadata: ObjectMeta) -> ObjectMeta:
        one = self._parts.one
        return replace(
            metadata,
            namespace=one(metadata.namespace),
            labels=one(metadata.labels),
            annotations=one(metadata.annotations),
            owner_references=one(metadata.owner_references),
        )

    def _spec(self, spec: PodSpec) -> PodSpec:
        """Pods of one template differ by their node and, in volumes, by what admission adds."""
        template = self._parts.one(replace(spec, node_name="", volumes=()))
        return replace(template, node_name=self._parts.one(spec.node_name))

    def _demand(self, pod: Pod, metadata: ObjectMeta) -> PodDemand:
        """Of the pod as it came: whether kubelet has admitted it, its kept status does not say."""
        counted, one = replace(demand.of_pod(pod), namespace=metadata.namespace), self._parts.one
        readings = ("request", "mid_request", "batch_held", "mid_held")
        return replace(counted, **{name: one(getattr(counted, name)) for name in readings})

"""What the manager keeps of each pod of the cluster: as much as it has a use for, and equal parts once.

A cluster has tens of thousands of pods, most of them replicas: labels, annotations, containers and owners of one are
those of hundreds. Invariant: a kept pod equals the one that came but for its volumes and for what its status has beside
phase and QoS class, of which nothing depends here. At most ``MAX_PARTS`` parts are known at a time; beyond that they
are found anew, which costs memory and nothing else.
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from koord.model.core import ObjectMeta, Pod, PodSpec, PodStatus

MAX_PARTS = 20_000
Part = TypeVar("Part")


class SharedPods:
    def __init__(self, max_parts: int = MAX_PARTS) -> None:
        self._max_parts = max_parts
        self._parts: dict[tuple[type, bytes], Any] = {}

    def __call__(self, pod: Pod) -> Pod:
        """The pod as it is kept."""
        status = PodStatus(pod.status.phase, pod.status.qos_class)
        return Pod(self._metadata(pod.metadata), self._spec(pod.spec), self._one(status))

    def _metadata(self, metadata: ObjectMeta) -> ObjectMeta:
        return replace(
            metadata,
            namespace=self._one(metadata.namespace),
            labels=self._one(metadata.labels),
            annotations=self._one(metadata.annotations),
            owner_references=self._one(metadata.owner_references),
        )

    def _spec(self, spec: PodSpec) -> PodSpec:
        """Pods of one template differ by their node and, in volumes, by what admission adds."""
        template = self._one(replace(spec, node_name="", volumes=()))
        return replace(template, node_name=self._one(spec.node_name))

    def _one(self, part: Part) -> Part:
        """The first of all that are equal."""
        key = type(part), msgspec.json.encode(part)
        known = self._parts.get(key)
        if known is None:
            if len(self._parts) >= self._max_parts:
                self._parts.clear()
            known = self._parts[key] = part
        return known

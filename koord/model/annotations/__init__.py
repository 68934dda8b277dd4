"""The labels and annotations of pods that a node reads: one table of keys, and all of a pod's in one call.

``PodAnnotations.read(labels, annotations, pod="namespace/name")`` is the usual way in, and its fields are the table.
``values`` has the structs, ``decode`` the readers of what is no plain struct; ``encode`` writes a struct's JSON form.
"""

from __future__ import annotations

from koord.model.annotations.pod import AnnotationError, PodAnnotations
from koord.model.annotations.values import (
    ContainerResources,
    DeviceAllocation,
    ExtendedResourceSpec,
    NUMANodeResource,
    PodMemoryQOS,
    PodNetworkQOS,
    PodResctrl,
    ResourceStatus,
)
from koord.model.schema import encode

__all__ = [
    "AnnotationError",
    "ContainerResources",
    "DeviceAllocation",
    "ExtendedResourceSpec",
    "NUMANodeResource",
    "PodAnnotations",
    "PodMemoryQOS",
    "PodNetworkQOS",
    "PodResctrl",
    "ResourceStatus",
    "encode",
]

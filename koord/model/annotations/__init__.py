"""The labels and annotations of pods that a node reads: keys, codecs, and all of a pod's in one call.

``PodAnnotations.read(labels, annotations, pod="namespace/name")`` is the usual way in. ``keys`` has the names,
``values`` the structs, ``decode`` one function per key; ``encode`` writes a struct's JSON form.
"""

from __future__ import annotations

from koord.model.annotations import keys
from koord.model.annotations.errors import AnnotationError
from koord.model.annotations.pod import PodAnnotations
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
    "keys",
]

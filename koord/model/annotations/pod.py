"""All that a pod's labels and annotations say to a node, decoded once, with what was wrong.

A value that cannot be understood is reported in ``problems`` and counts as absent; it never stops another, and neither
does a bad leaf the rest of its document. Two keys have stricter rules of Koordinator's, both on the safe side: an
unreadable ``eviction-policy`` forbids to evict the pod, and an unknown ``priority-class`` means no class without
asking ``spec.priority``.

Invariant: ``PodAnnotations.read`` raises nothing, whatever the texts are.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, get_type_hints

import msgspec

from koord.model.annotations import decode
from koord.model.annotations.codecs import AnnotationKey, annotation, document, label
from koord.model.annotations.values import (
    CoreSchedPolicy,
    DeviceAllocation,
    ExtendedResourceSpec,
    PodMemoryQOS,
    PodNetworkQOS,
    PodResctrl,
    ResourceStatus,
)
from koord.model.priority import LABEL_PRIORITY_CLASS, PriorityClass
from koord.model.qos import LABEL_QOS, QoSClass
from koord.model.qos_settings import CPUQOS, BlkIOQOS, CPUBurstConfig
from koord.model.schema import clip

_MAX_WHY = 300


class AnnotationError(ValueError):
    """A label or annotation of ``pod`` cannot be understood. ``value`` and ``why`` are shortened."""

    def __init__(self, pod: str, key: str, value: str, why: str) -> None:
        self.pod, self.key, self.value, self.why = pod, key, clip(value), why[:_MAX_WHY]
        whose = f"pod {pod}: " if pod else ""
        super().__init__(f"{whose}{key}: {self.value}: {self.why}")


class PodAnnotations(msgspec.Struct, frozen=True, kw_only=True):
    """THE table: a field, its type, its key and how that is read. None = absent, or as good as absent because it is
    listed in ``problems``."""

    qos_class: Annotated[QoSClass | None, label(LABEL_QOS, decode.qos_class)] = None
    """The raw class."""
    priority_class: Annotated[PriorityClass | None, label(LABEL_PRIORITY_CLASS, decode.priority_class)] = None
    """From the label only; ``koord.model.priority.raw`` also knows ``spec.priority``."""
    priority: Annotated[int | None, label("koordinator.sh/priority", decode.int32)] = None
    """Sub-priority."""
    eviction_enabled: Annotated[bool, label("koordinator.sh/eviction-enabled", decode.eviction_enabled)] = False
    eviction_policy: Annotated[
        tuple[str, ...] | None, document("koordinator.sh/eviction-policy", decode.eviction_policy)
    ] = None
    """Behind which feature gates a strategy must stand to evict the pod: None = any, () = none may."""
    eviction_priority: Annotated[int, annotation("koordinator.sh/eviction-priority", decode.int32)] = 0
    cpu_burst: Annotated[CPUBurstConfig | None, document("koordinator.sh/cpuBurst", CPUBurstConfig)] = None
    memory_qos: Annotated[PodMemoryQOS | None, document("koordinator.sh/memoryQOS", PodMemoryQOS)] = None
    cpu_qos: Annotated[CPUQOS | None, document("koordinator.sh/cpuQOS", CPUQOS)] = None
    blkio_qos: Annotated[BlkIOQOS | None, document("koordinator.sh/blkioQOS", BlkIOQOS)] = None
    network_qos: Annotated[PodNetworkQOS | None, document("koordinator.sh/networkQOS", decode.network_qos)] = None
    oom_score_adj: Annotated[int | None, annotation("koordinator.sh/oom-score-adj", decode.oom_score_adj)] = None
    oom_score_adj_spec: Annotated[
        Mapping[str, int], document("koordinator.sh/oom-score-adj-spec", decode.oom_score_adj_spec)
    ] = msgspec.field(default_factory=dict)
    core_sched_group_id: Annotated[str | None, label("koordinator.sh/core-sched-group-id", decode.plain)] = None
    core_sched_policy: Annotated[
        CoreSchedPolicy | None, label("koordinator.sh/core-sched-policy", decode.core_sched_policy)
    ] = None
    resctrl: Annotated[PodResctrl | None, document("node.koordinator.sh/resctrl", decode.resctrl)] = None
    extended_resource_spec: Annotated[
        ExtendedResourceSpec | None,
        document("node.koordinator.sh/extended-resource-spec", decode.extended_resource_spec),
    ] = None
    resource_status: Annotated[
        ResourceStatus | None, document("scheduling.koordinator.sh/resource-status", decode.resource_status)
    ] = None
    device_allocated: Annotated[
        Mapping[str, tuple[DeviceAllocation, ...]],
        annotation("scheduling.koordinator.sh/device-allocated", decode.device_allocated),
    ] = msgspec.field(default_factory=dict)
    gpu_isolation_provider: Annotated[str | None, label("koordinator.sh/gpu-isolation-provider", decode.plain)] = None
    problems: tuple[AnnotationError, ...] = ()

    @classmethod
    def read(cls, labels: Mapping[str, str], annotations: Mapping[str, str], pod: str = "") -> PodAnnotations:
        """Decode every key that is there. ``pod`` (namespace/name) is only for the messages."""
        found: dict[str, Any] = {}
        problems: list[AnnotationError] = []
        for texts, table in ((labels, LABELS), (annotations, ANNOTATIONS)):
            for name, (field, key) in table.items():
                if name in texts:
                    text = texts[name]
                    value, wrong = key.decoded(text)
                    problems.extend([AnnotationError(pod, name, text, why) for why in wrong])
                    if value is not None:
                        found[field] = value
        if any(problem.key == KEYS["eviction_policy"].name for problem in problems):
            found.setdefault("eviction_policy", ())
        return cls(**found, problems=tuple(problems))

    def oom_score_adj_of(self, container: str) -> int | None:
        """The container's own score, else the pod's."""
        return self.oom_score_adj_spec.get(container, self.oom_score_adj)

    def may_be_evicted_by(self, gate: str) -> bool:
        return self.eviction_policy is None or gate in self.eviction_policy


KEYS: Mapping[str, AnnotationKey] = {
    field: key
    for field, hint in get_type_hints(PodAnnotations, include_extras=True).items()
    for key in getattr(hint, "__metadata__", ())
}
"""By field."""
LABELS = {key.name: (field, key) for field, key in KEYS.items() if key.is_label}
ANNOTATIONS = {key.name: (field, key) for field, key in KEYS.items() if not key.is_label}
"""By name, with the field that each fills."""

"""All that a pod's labels and annotations say to a node, decoded once, with what was wrong.

A value that cannot be understood is reported in ``problems`` and counts as absent; it never stops another, and neither
does a bad leaf the rest of its document. Two keys have stricter rules of Koordinator's, both on the safe side: an
unreadable ``eviction-policy`` lets nobody evict the pod, and an unknown ``priority-class`` means no class without
asking ``spec.priority``.

Invariant: ``PodAnnotations.read`` raises nothing, whatever the texts are.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from koord.model.annotations import decode, keys
from koord.model.annotations.errors import AnnotationError
from koord.model.annotations.values import (
    CoreSchedPolicy,
    DeviceAllocation,
    ExtendedResourceSpec,
    PodMemoryQOS,
    PodNetworkQOS,
    PodResctrl,
    ResourceStatus,
)
from koord.model.priority import PriorityClass
from koord.model.qos import QoSClass
from koord.model.qos_settings import CPUQOS, BlkIOQOS, CPUBurst


class PodAnnotations(msgspec.Struct, frozen=True, kw_only=True):
    """None = absent, or as good as absent because it is listed in ``problems``."""

    qos_class: QoSClass | None = None
    """The raw class."""
    priority_class: PriorityClass | None = None
    """From the label only; ``koord.model.priority.raw`` also knows ``spec.priority``."""
    priority: int | None = None
    """Sub-priority."""
    eviction_enabled: bool = False
    eviction_policy: tuple[str, ...] | None = None
    """Who may evict the pod: None = anybody, () = nobody."""
    eviction_priority: int = 0
    cpu_burst: CPUBurst | None = None
    memory_qos: PodMemoryQOS | None = None
    cpu_qos: CPUQOS | None = None
    blkio_qos: BlkIOQOS | None = None
    network_qos: PodNetworkQOS | None = None
    oom_score_adj: int | None = None
    oom_score_adj_spec: Mapping[str, int] = msgspec.field(default_factory=dict)
    core_sched_group_id: str | None = None
    core_sched_policy: CoreSchedPolicy | None = None
    resctrl: PodResctrl | None = None
    extended_resource_spec: ExtendedResourceSpec | None = None
    resource_status: ResourceStatus | None = None
    device_allocated: Mapping[str, tuple[DeviceAllocation, ...]] = msgspec.field(default_factory=dict)
    gpu_isolation_provider: str | None = None
    problems: tuple[AnnotationError, ...] = ()

    @classmethod
    def read(cls, labels: Mapping[str, str], annotations: Mapping[str, str], pod: str = "") -> PodAnnotations:
        """Decode every key that is there. ``pod`` (namespace/name) is only for the messages."""
        found: dict[str, Any] = {}
        problems: list[AnnotationError] = []
        for texts, codecs in ((labels, LABEL_CODECS), (annotations, ANNOTATION_CODECS)):
            for key, (field, codec) in codecs.items():
                if key in texts:
                    text = texts[key]
                    value, wrong = _decoded(codec, text) if len(text) <= _KEPT_CHARS else codec(text)
                    problems.extend([AnnotationError(pod, key, text, why) for why in wrong])
                    if value is not None:
                        found[field] = value
        if any(problem.key == keys.EVICTION_POLICY for problem in problems):
            found["eviction_policy"] = ()
        return cls(**found, problems=tuple(problems))

    def oom_score_adj_of(self, container: str) -> int | None:
        """The container's own score, else the pod's."""
        return self.oom_score_adj_spec.get(container, self.oom_score_adj)

    def may_be_evicted_by(self, policy: str) -> bool:
        return self.eviction_policy is None or policy in self.eviction_policy


Decoded = tuple[object, tuple[str, ...]]
"""The value, None if there is none; and what is wrong."""
Codec = Callable[[str], Decoded]

_KEPT_TEXTS = 256
_KEPT_CHARS = 2048
_MOST_PROBLEMS = 8


@functools.lru_cache(_KEPT_TEXTS)
def _decoded(codec: Codec, text: str) -> Decoded:
    """``codec(text)`` of the texts seen last: a pod says the same for each container, a workload for each pod."""
    return codec(text)


def _whole(read: Callable[[str], object]) -> Codec:
    """All of the text counts, or nothing."""

    def codec(text: str) -> Decoded:
        try:
            return read(text), ()
        except decode.BadValue as error:
            return None, (str(error),)

    return codec


def _by_leaf(read: Callable[[str, decode.Bad], object]) -> Codec:
    """What is good counts; a document of which nothing is left does not."""

    def codec(text: str) -> Decoded:
        wrong: list[str] = []
        try:
            value = read(text, wrong.append)
        except decode.BadValue as error:
            return None, (str(error),)
        is_empty = bool(wrong) and value == type(value)()
        return None if is_empty else value, _few(wrong)

    return codec


def _few(wrong: list[str]) -> tuple[str, ...]:
    more = len(wrong) - _MOST_PROBLEMS
    return (*wrong[:_MOST_PROBLEMS], f"and {more} more") if more > 0 else tuple(wrong)


LABEL_CODECS: Mapping[str, tuple[str, Codec]] = {
    keys.QOS_CLASS: ("qos_class", _whole(decode.qos_class)),
    keys.PRIORITY_CLASS: ("priority_class", _whole(decode.priority_class)),
    keys.PRIORITY: ("priority", _whole(decode.int32)),
    keys.EVICTION_ENABLED: ("eviction_enabled", _whole(decode.eviction_enabled)),
    keys.CORE_SCHED_GROUP_ID: ("core_sched_group_id", _whole(decode.plain)),
    keys.CORE_SCHED_POLICY: ("core_sched_policy", _whole(decode.core_sched_policy)),
    keys.GPU_ISOLATION_PROVIDER: ("gpu_isolation_provider", _whole(decode.plain)),
}
"""Each label key with the field it fills and its codec."""

ANNOTATION_CODECS: Mapping[str, tuple[str, Codec]] = {
    keys.EVICTION_POLICY: ("eviction_policy", _whole(decode.eviction_policy)),
    keys.EVICTION_PRIORITY: ("eviction_priority", _whole(decode.int32)),
    keys.CPU_BURST: ("cpu_burst", _by_leaf(decode.cpu_burst)),
    keys.MEMORY_QOS: ("memory_qos", _by_leaf(decode.memory_qos)),
    keys.CPU_QOS: ("cpu_qos", _by_leaf(decode.cpu_qos)),
    keys.BLKIO_QOS: ("blkio_qos", _by_leaf(decode.blkio_qos)),
    keys.NETWORK_QOS: ("network_qos", _by_leaf(decode.network_qos)),
    keys.OOM_SCORE_ADJ: ("oom_score_adj", _whole(decode.oom_score_adj)),
    keys.OOM_SCORE_ADJ_SPEC: ("oom_score_adj_spec", _by_leaf(decode.oom_score_adj_spec)),
    keys.RESCTRL: ("resctrl", _by_leaf(decode.resctrl)),
    keys.EXTENDED_RESOURCE_SPEC: ("extended_resource_spec", _by_leaf(decode.extended_resource_spec)),
    keys.RESOURCE_STATUS: ("resource_status", _by_leaf(decode.resource_status)),
    keys.DEVICE_ALLOCATED: ("device_allocated", _whole(decode.device_allocated)),
}
"""Each annotation key with the field it fills and its codec."""

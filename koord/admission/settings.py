"""What a profile sets on each pod, member by member, as far as the profile alone says it.

For those who compare: profiles with each other, and a pod with the profiles that it should have had. Texts that depend
on the pod (mappings, suffixes, patches) have no value here; ``derived`` are the members that they go to.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from koord.admission import documents
from koord.admission.mutation import LABEL_SUB_PRIORITY
from koord.model.core import Pod
from koord.model.profile import ClusterColocationProfile
from koord.model.qos import LABEL_QOS

LABELS, ANNOTATIONS, SPEC = "metadata.labels", "metadata.annotations", "spec"
SCHEDULER_NAME, PRIORITY_CLASS_NAME = "schedulerName", "priorityClassName"


class ProfileSetting(NamedTuple):
    """A member of a pod that profiles set: a label, an annotation or a field of its spec."""

    parent: str
    key: str

    def __str__(self) -> str:
        kind = {LABELS: "label ", ANNOTATIONS: "annotation "}.get(self.parent, "")
        return f"{kind}{self.key}"

    def value(self, pod: Pod) -> str | None:
        """Returns the pod's value there."""
        if self.parent == SPEC:
            spec = {SCHEDULER_NAME: pod.spec.scheduler_name, PRIORITY_CLASS_NAME: pod.spec.priority_class_name}
            return spec[self.key] or None
        texts = pod.metadata.labels if self.parent == LABELS else pod.metadata.annotations
        return texts.get(self.key)


def values(profile: ClusterColocationProfile) -> dict[ProfileSetting, str]:
    """Returns what the profile sets, whatever the pod is."""
    spec = profile.spec
    found = {ProfileSetting(LABELS, key): text for key, text in spec.labels.items()}
    found |= {ProfileSetting(ANNOTATIONS, key): text for key, text in spec.annotations.items()}
    if spec.qos_class is not None:
        found[ProfileSetting(LABELS, LABEL_QOS)] = spec.qos_class.value
    if spec.koordinator_priority is not None:
        found[ProfileSetting(LABELS, LABEL_SUB_PRIORITY)] = str(spec.koordinator_priority)
    if spec.scheduler_name:
        found[ProfileSetting(SPEC, SCHEDULER_NAME)] = spec.scheduler_name
    if spec.priority_class_name:
        found[ProfileSetting(SPEC, PRIORITY_CLASS_NAME)] = spec.priority_class_name
    unknown = derived(profile)
    return {setting: text for setting, text in found.items() if setting not in unknown}


def derived(profile: ClusterColocationProfile) -> frozenset[ProfileSetting]:
    """The members whose text depends on the pod, or on a patch."""
    spec = profile.spec
    labels = {*spec.label_keys_mapping.values(), *spec.label_suffixes}
    annotations = set(spec.annotation_keys_mapping.values())
    patch: Mapping[str, object] = spec.patch or {}
    labels |= _keys(patch, "metadata", "labels")
    annotations |= _keys(patch, "metadata", "annotations")
    in_spec = _keys(patch, "spec") & {SCHEDULER_NAME, PRIORITY_CLASS_NAME}
    return frozenset(
        ProfileSetting(parent, key)
        for parent, keys in ((LABELS, labels), (ANNOTATIONS, annotations), (SPEC, in_spec))
        for key in keys
    )


def _keys(patch: Mapping[str, object], *path: str) -> set[str]:
    """Returns the keys of the object at ``path``; none where the patch has another thing."""
    try:
        return set(documents.member(patch, *path))
    except (AttributeError, TypeError):
        return set()

"""What a pod that is created gets: the profiles that match it, resources of its priority class, and their annotation.

A profile's members apply in Koordinator's order: labels, annotations, key mappings, suffixes, scheduler, QoS class,
PriorityClass, sub-priority, patch. A mapping copies from what is there when its map begins, so mappings of one map do
not follow each other, and one whose source is absent does nothing; a suffix goes to a label that the pod has. The
priority class then decides on the resources, also where a matching profile's lot left it unapplied.

Invariant: the pod that was sent is not changed, and members that Koord does not know are in the result as they were.
Again applied to its result, nothing changes, but for suffixes, directives of patches, and mappings that feed others.
Fails with AdmissionError.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from koord.admission import (
    documents,
    extendedspec,
    gates,
    podquota,
    priorityclasses,
    profiles,
    strategicmerge,
    translation,
)
from koord.admission.context import AdmissionContext
from koord.admission.documents import Document
from koord.admission.errors import ProfileError, UnreadableError
from koord.admission.priorityclasses import PriorityClassObjects
from koord.admission.strategicmerge import PatchError
from koord.model.annotations.pod import KEYS
from koord.model.core import Pod
from koord.model.profile import ClusterColocationProfile
from koord.model.qos import LABEL_QOS
from koord.model.quantity import QuantityError

LABEL_SUB_PRIORITY = KEYS["priority"].name
_CLASS_NAME = "priorityClassName"


class Mutation(NamedTuple):
    """The pod as it is to be created, and a sentence for each profile that was in doubt and not applied.

    One that cannot be read may have been meant for a pod that no profile matches.
    """

    pod: Document
    problems: tuple[str, ...] = ()


def mutate(pod: Document, sent: Pod, request_uid: str, context: AdmissionContext) -> Mutation:
    """Returns what becomes of a pod that is created: the document ``pod``, which is ``sent`` with its namespace. Raises
    AdmissionError.
    """
    metadata = sent.metadata
    found = profiles.matches(context.profiles, metadata.labels, context.namespaces.get(metadata.namespace))
    key, problems = profiles.sampling_key(metadata, request_uid), list(found.problems)
    if not found.profiles:
        problems += context.unread_profiles
    for profile in found.profiles:
        try:
            chosen = profiles.is_chosen(profile, key)
        except ValueError as error:
            problems.append(f"{profiles.label(profile)} is not applied: probability {error}")
        else:
            pod = apply(profile, pod, context.priority_classes) if chosen else pod
    keeps = context.is_on(gates.SKIP_MUTATING_RESOURCES) or profiles.keeps_resources(found.profiles)
    if found.profiles and not keeps:
        pod = _translated(pod)
    if not context.is_on(gates.DISABLE_EXTENDED_RESOURCE_SPEC):
        pod = extendedspec.annotate(pod)
    if context.is_on(gates.MULTI_QUOTA_TREE):
        pod = podquota.confine(pod, metadata.namespace, context)
    return Mutation(pod, tuple(problems))


def apply(profile: ClusterColocationProfile, pod: Document, classes: PriorityClassObjects) -> Document:
    """The pod with all that one profile sets. Raises ProfileError."""
    spec, changed = profile.spec, documents.copy(pod)
    _set(changed, "labels", spec.labels)
    _set(changed, "annotations", spec.annotations)
    _set(changed, "labels", _mapped(changed, "labels", spec.label_keys_mapping))
    _set(changed, "annotations", _mapped(changed, "annotations", spec.annotation_keys_mapping))
    _set(changed, "labels", _suffixed(changed, spec.label_suffixes))
    if spec.scheduler_name:
        documents.editable(changed, "spec")["schedulerName"] = spec.scheduler_name
    if spec.qos_class is not None:
        _set(changed, "labels", {LABEL_QOS: spec.qos_class.value})
    if spec.priority_class_name:
        _set_priority(changed, spec.priority_class_name, profile, classes, "spec.priorityClassName")
    if spec.koordinator_priority is not None:
        _set(changed, "labels", {LABEL_SUB_PRIORITY: str(spec.koordinator_priority)})
    return changed if spec.patch is None else _patched(changed, profile, classes)


def _set(pod: Document, member: str, texts: Mapping[str, str]) -> None:
    """Labels or annotations, whatever the pod had under these keys."""
    if texts:
        documents.editable(pod, "metadata", member).update(texts)


def _mapped(pod: Document, member: str, keys: Mapping[str, str]) -> dict[str, str]:
    """The values of the pod's keys under their new ones; of several for one key, that of the last source counts."""
    present = documents.member(pod, "metadata", member)
    return {new: present[old] for old, new in sorted(keys.items()) if present.get(old) is not None}


def _suffixed(pod: Document, suffixes: Mapping[str, str]) -> dict[str, str]:
    labels = documents.member(pod, "metadata", "labels")
    return {key: labels[key] + suffix for key, suffix in suffixes.items() if labels.get(key) is not None}


def _set_priority(
    pod: Document, name: str, profile: ClusterColocationProfile, classes: PriorityClassObjects, member: str
) -> None:
    """The name, the value and the policy of a PriorityClass, which must exist. Raises ProfileError.

    ``member``: of the profile, which names the class.
    """
    if name not in classes:
        remedy = f"create it, or name another in {member} of the profile"
        raise ProfileError(profile.metadata.name, f"there is no PriorityClass {name!r}: {remedy}")
    spec = documents.editable(pod, "spec")
    spec[_CLASS_NAME], spec["priority"] = name, classes[name].value
    spec["preemptionPolicy"] = classes[name].preemption_policy


def _patched(pod: Document, profile: ClusterColocationProfile, classes: PriorityClassObjects) -> Document:
    """Merged; where that names another PriorityClass, its value and policy follow. Raises ProfileError."""
    try:
        patched = strategicmerge.merge(pod, profile.spec.patch or {})
        named = documents.typed(patched).spec.priority_class_name
    except (PatchError, UnreadableError) as error:
        raise ProfileError(profile.metadata.name, f"spec.patch: {error}") from error
    if named and named != documents.member(pod, "spec").get(_CLASS_NAME):
        patched = documents.copy(patched)
        _set_priority(patched, named, profile, classes, "spec.patch")
    return patched


def _translated(pod: Document) -> Document:
    """Returns the pod with the resources of its present class. Raises TranslationError, UnreadableError."""
    try:
        return translation.translate(pod, priorityclasses.effective(documents.typed(pod)))
    except QuantityError as error:
        raise UnreadableError("pod", str(error)) from error

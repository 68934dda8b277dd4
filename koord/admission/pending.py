"""What profiles change of a pod that exists already: the labels and annotations of one that has no node yet.

A webhook sees a pod once. A profile that is changed, or made, afterwards reaches pods that still wait for a node by the
manager's controller, if the profile says so (label ``config.koordinator.sh/controller-managed: "true"``), or the
manager's flag does for all.

    applied      labels, annotations, their key mappings, and what ``patch`` says of labels and annotations
    not applied  what Kubernetes makes immutable (scheduler, PriorityClass, resources); the QoS class and the
                 sub-priority, which validation keeps as they were created; suffixes, which each pass would append
                 again; profiles for a share of the pods, since the lots were drawn when the pods were created

All profiles that match are applied together and in their order, so two that set the same do not take turns.
(Koordinator applies them one after the other, and each pass may change the same pod again.) Invariant: applied again,
nothing changes; a profile by which that is not so, such as a mapping that swaps two keys, changes nothing, and a
sentence says so. Nothing here raises.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from msgspec.structs import replace

from koord.admission import gates, mutation, profiles
from koord.admission.context import AdmissionContext
from koord.admission.documents import Document
from koord.admission.errors import AdmissionError
from koord.admission.mutation import LABEL_SUB_PRIORITY
from koord.model import mergepatch
from koord.model.core import Pod
from koord.model.profile import CERTAIN_PERCENT, ClusterColocationProfile
from koord.model.qos import LABEL_QOS

LABEL_MANAGED = "config.koordinator.sh/controller-managed"
_MEMBERS = ("labels", "annotations")


class Update(NamedTuple):
    """``patch``: a merge patch of the pod's metadata, empty if nothing is to change. ``problems``: a sentence each."""

    patch: mergepatch.Patch
    problems: tuple[str, ...] = ()


def is_open(pod: Pod, context: AdmissionContext) -> bool:
    """Returns whether profiles may still change the pod: it has no node, has not ended, and is not being deleted."""
    is_placed = bool(pod.spec.node_name) or pod.status.phase not in ("", "Pending")
    return not is_placed and pod.metadata.deletion_timestamp is None and not context.is_exempt(pod.metadata)


def update(pod: Pod, context: AdmissionContext, all_are_managed: bool = False) -> Update:
    """Returns what the profiles in ``context`` make of an open pod. ``all_are_managed``: also those without label."""
    metadata = pod.metadata
    candidates = [each for each in context.profiles if _is_candidate(each, all_are_managed)]
    found = profiles.matches(candidates, metadata.labels, context.namespaces.get(metadata.namespace))
    before: Document = {"labels": dict(metadata.labels), "annotations": dict(metadata.annotations)}
    try:
        after = _applied(found.profiles, before, context)
        is_settled = _applied(found.profiles, after, context) == after
    except AdmissionError as error:
        return Update({}, (*found.problems, str(error)))
    if not is_settled:
        names = ", ".join(each.metadata.name for each in found.profiles)
        why = f"ClusterColocationProfile {names} would change a pod again and again, so it changes none that exists"
        return Update({}, (*found.problems, why))
    return Update(mergepatch.diff(before, after), found.problems)


def _is_candidate(profile: ClusterColocationProfile, all_are_managed: bool) -> bool:
    """An absent selector, which matches each pod that is created, is no reason to change all that wait."""
    is_managed = all_are_managed or profile.metadata.labels.get(LABEL_MANAGED) == "true"
    try:
        is_certain = profile.spec.probability_percent == CERTAIN_PERCENT
    except ValueError:
        is_certain = False
    return is_managed and is_certain and profile.spec.selector is not None


def _applied(chosen: Iterable[ClusterColocationProfile], metadata: Document, context: AdmissionContext) -> Document:
    """The labels and annotations after all profiles. Raises AdmissionError."""
    pod: Document = {"metadata": metadata}
    for profile in chosen:
        pod = mutation.apply(_reduced(profile), pod, {})
    after: Document = {member: dict(pod["metadata"].get(member) or {}) for member in _MEMBERS}
    fixed = (LABEL_QOS,) if context.is_on(gates.SKIP_VALIDATING_PRIORITY) else (LABEL_QOS, LABEL_SUB_PRIORITY)
    for label in fixed:
        after["labels"].pop(label, None)
        if label in metadata["labels"]:
            after["labels"][label] = metadata["labels"][label]
    return after


def _reduced(profile: ClusterColocationProfile) -> ClusterColocationProfile:
    """Returns the profile with the members alone that can still be applied."""
    patch = _of_metadata(profile.spec.patch or {})
    spec = replace(profile.spec, scheduler_name="", priority_class_name="", label_suffixes={}, patch=patch)
    return replace(profile, spec=spec)


def _of_metadata(patch: Mapping[str, Any]) -> Mapping[str, Any] | None:
    metadata = patch.get("metadata")
    members = {key: metadata[key] for key in _MEMBERS if key in metadata} if isinstance(metadata, Mapping) else {}
    return {"metadata": members} if members else None

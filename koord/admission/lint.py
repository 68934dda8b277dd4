"""Finds what is probably meant otherwise in profiles and pods: object, place and what to write.

A problem found here is no refusal. The webhooks' own rules are among them, so that they can be read before a pod is
created.

Invariant: nothing here raises on what an object says.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import combinations
from typing import NamedTuple

from koord.admission import documents, doubts, profiles, settings, strategicmerge, translation, validation
from koord.admission.errors import UnreadableError
from koord.admission.priorityclasses import PriorityClassObjects
from koord.admission.settings import ANNOTATIONS, LABELS, ProfileSetting
from koord.admission.strategicmerge import PatchError
from koord.model import priority, selector
from koord.model.core import Pod
from koord.model.priority import CombinationVerdict, PriorityClass
from koord.model.problem import Problem
from koord.model.profile import CERTAIN_PERCENT, ClusterColocationProfile
from koord.model.qos import QoSClass
from koord.model.quantity import QuantityError
from koord.model.schema import SchemaError, child
from koord.model.selector import LabelSelector


class ObjectProblem(NamedTuple):
    """A problem of ``object``, such as "Pod default/web"."""

    object: str
    problem: Problem

    def __str__(self) -> str:
        return f"{self.object}: {self.problem.path}: {self.problem.message}"


def lint_profiles(
    items: Iterable[ClusterColocationProfile], classes: PriorityClassObjects
) -> tuple[ObjectProblem, ...]:
    """Returns the problems of each profile, and of those that contradict each other; ``classes`` are the cluster's."""
    ordered = sorted(items, key=profiles.order)
    single = [finding for profile in ordered for finding in _profile(profile, classes)]
    contradictions = [finding for pair in combinations(ordered, 2) for finding in _contradictions(*pair)]
    return (*single, *contradictions)


def lint_pod(pod: Pod) -> tuple[ObjectProblem, ...]:
    """Returns the problems of one pod, created or yet to be."""
    name = f"Pod {'/'.join(filter(None, (pod.metadata.namespace, pod.metadata.name)))}"
    doubtful = [ObjectProblem(name, each) for each in doubts.of_pod(pod)]
    try:
        combined = [ObjectProblem(name, each.problem) for each in validation.combination_errors(pod)]
        native = [_untranslated(name, resource) for resource in translation.untranslated(pod)]
    except QuantityError:  # which is among the doubts
        return tuple(doubtful)
    return (*doubtful, *combined, *native)


def _profile(profile: ClusterColocationProfile, classes: PriorityClassObjects) -> list[ObjectProblem]:
    name = profiles.label(profile)
    found = [*_selectors(profile), *_probability(profile), *_priority(profile, classes), *_patch(profile)]
    if problem := profiles.order(profile).problem:
        found.append(Problem(ANNOTATIONS, problem))
    return [ObjectProblem(name, each) for each in found]


def _selectors(profile: ClusterColocationProfile) -> list[Problem]:
    spec, found = profile.spec, list[Problem]()
    both = (("spec.namespaceSelector", spec.namespace_selector), ("spec.selector", spec.selector))
    for path, labels in both:
        try:
            if labels is not None:
                selector.check(labels, path)
        except SchemaError as error:
            found.append(Problem(path, f"the profile matches no pod: {error}"))
    if all(labels is None or labels.is_empty for _, labels in both):
        why = "without namespaceSelector and selector the profile matches every pod of the cluster"
        found.append(Problem("spec", why))
    return found


def _probability(profile: ClusterColocationProfile) -> list[Problem]:
    path, said = "spec.probability", profile.spec.probability
    try:
        percent = profile.spec.probability_percent
    except ValueError as error:
        return [Problem(path, f"the profile is applied to no pod: {said!r} {error}")]
    if said is not None and str(said).rstrip("%") != str(percent):
        return [Problem(path, f"{said!r} is not in 0..{CERTAIN_PERCENT} and counts as {percent}")]
    if percent == 0:
        why = "the profile is applied to no pod, yet resources of the pods that it matches are translated"
        return [Problem(path, why)]
    return []


def _priority(profile: ClusterColocationProfile, classes: PriorityClassObjects) -> list[Problem]:
    spec, path = profile.spec, "spec.priorityClassName"
    if spec.priority_class_name and spec.priority_class_name not in classes:
        why = f"PriorityClass {spec.priority_class_name!r} does not exist: each pod that the profile matches is refused"
        return [Problem(path, why)]
    if not spec.priority_class_name:
        if spec.qos_class is not QoSClass.BE:
            return []
        return [Problem(path, "missing: a pod that becomes BE and has no PriorityClass of its own is refused")]
    band = priority.band_of(classes[spec.priority_class_name].value)
    if spec.qos_class is None or priority.combination(spec.qos_class, band) is not CombinationVerdict.REJECTED:
        return []
    why = f"{band or 'no band of priorities'} does not go with qosClass {spec.qos_class}: pods are refused"
    return [Problem(path, why)]


def _patch(profile: ClusterColocationProfile) -> list[Problem]:
    try:
        documents.typed(strategicmerge.merge({"metadata": {}, "spec": {}}, profile.spec.patch or {}))
    except (PatchError, UnreadableError) as error:
        return [Problem("spec.patch", f"each pod that the profile matches is refused: {error}")]
    return []


def _contradictions(first: ClusterColocationProfile, last: ClusterColocationProfile) -> list[ObjectProblem]:
    """Returns what both profiles set to different values, if one pod may get both."""
    if _exclude(first.spec.selector, last.spec.selector):
        return []
    if _exclude(first.spec.namespace_selector, last.spec.namespace_selector):
        return []
    ours, theirs = settings.values(first), settings.values(last)
    return [
        ObjectProblem(
            profiles.label(first), Problem(_path(setting), _overwritten(setting, ours[setting], theirs[setting], last))
        )
        for setting in ours
        if setting in theirs and ours[setting] != theirs[setting]
    ]


def _exclude(one: LabelSelector | None, other: LabelSelector | None) -> bool:
    """Returns whether it is certain that nothing matches both."""
    ours = one.match_labels if one is not None else {}
    theirs = other.match_labels if other is not None else {}
    return any(theirs.get(key, value) != value for key, value in ours.items())


def _overwritten(setting: ProfileSetting, ours: str, theirs: str, last: ClusterColocationProfile) -> str:
    return f"sets {setting} to {ours!r}, which {last.metadata.name} overwrites by {theirs!r} on pods that both match"


def _path(setting: ProfileSetting) -> str:
    """Returns where a profile says it, for people."""
    members: Mapping[str, str] = {LABELS: "spec.labels", ANNOTATIONS: "spec.annotations"}
    return child(members.get(setting.parent, "spec"), setting.key)


def _untranslated(name: str, resource: str) -> ObjectProblem:
    classes = " or ".join((PriorityClass.BATCH, PriorityClass.MID))
    why = f"a pod of {classes} has native {resource}, which it takes from production"
    problem = Problem("spec", f"{why}: no profile translated it, or a LimitRange added it afterwards")
    return ObjectProblem(name, problem)

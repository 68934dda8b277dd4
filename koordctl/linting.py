"""Judges manifests for ``koordctl lint``: what Koord would refuse, would read otherwise, or would not read at all.

A kind that Koord does not use is passed over and named: silence about it is no approval.

Invariant: nothing here raises on what a manifest says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

import msgspec
from msgspec.structs import replace

from koord.admission import ObjectProblem, PriorityClassObject, lint_pod, lint_profiles
from koord.admission.priorityclasses import PriorityClassObjects
from koord.model import core, profile
from koord.model.core import Pod
from koord.model.documents import at
from koord.model.priority import BANDS
from koord.model.problem import Problem
from koord.model.profile import ClusterColocationProfile
from koord.model.readable import nearest
from koord.sloconfig import checks
from koord.sloconfig.loading import CONFIG_MAP_NAME, KEYS, load, texts, unknown_message
from koordctl import manifests, quotas, unsupported
from koordctl.manifests import Manifest

_TEMPLATES = {
    **dict.fromkeys(
        ("Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "ReplicationController", "Job"), ("spec", "template")
    ),
    "CronJob": ("spec", "jobTemplate", "spec", "template"),
    "PodTemplate": ("template",),
}
"""Where a kind keeps the pods that it makes."""

_PROFILE, _CONFIG_MAP, _PRIORITY_CLASS = "ClusterColocationProfile", "ConfigMap", "PriorityClass"
_VERSIONS = {
    _PROFILE: f"{profile.GROUP}/v1alpha1",
    **dict.fromkeys((_CONFIG_MAP, "Pod", quotas.KIND, quotas.NAMESPACE), "v1"),
    _PRIORITY_CLASS: "scheduling.k8s.io/v1",
}
"""The ``apiVersion`` of the kinds that no other project has by the same name."""

KINDS = (*_VERSIONS, *_TEMPLATES)
"""The kinds that are examined."""

_CLASSES = {
    **{cls.value: PriorityClassObject(band.object_value) for cls, band in BANDS.items()},
    "system-cluster-critical": PriorityClassObject(2_000_000_000),
    "system-node-critical": PriorityClassObject(2_000_001_000),
}
"""The PriorityClasses that the chart and Kubernetes itself bring."""

_UNKNOWN = "there is no such field: it is ignored"


@dataclass(frozen=True, slots=True)
class LintReport:
    """``examined`` and ``passed_over``: the names of the objects that were, and were not, examined."""

    findings: tuple[ObjectProblem, ...]
    examined: tuple[str, ...] = ()
    passed_over: tuple[str, ...] = ()


def lint(files: Iterable[tuple[str, bytes]]) -> LintReport:
    """Judges all files together: name and content of each."""
    known, unread = manifests.read(files)
    classes = _priority_classes(known)
    profiles, about_profiles = _profiles(known, classes)
    findings = (
        *unread,
        *_of_each(known, _of_kind),
        *about_profiles,
        *_of_each(known, lambda each: _of_one(each, classes)),
        *quotas.findings(known, profiles, _pods(known, classes), classes),
    )
    examined = [each for each in known if _is_examined(each)]
    passed_over = [each for each in known if not _is_examined(each) and not any(_of_kind(each))]
    return LintReport(findings, _labels(examined), _labels(passed_over))


def _of_each(known: Iterable[Manifest], problems: Callable[[Manifest], Iterable[Problem]]) -> Iterator[ObjectProblem]:
    return (ObjectProblem(each.label, problem) for each in known for problem in problems(each))


def _labels(known: Iterable[Manifest]) -> tuple[str, ...]:
    return tuple(each.label for each in known)


def _is_examined(manifest: Manifest) -> bool:
    if unsupported.is_known(manifest):
        return True
    return _is_config(manifest) if manifest.kind == _CONFIG_MAP else manifest.kind in KINDS


def _of_kind(manifest: Manifest) -> Iterator[Problem]:
    """Yields what is not read although it resembles what is: a kind, a version, the name of a ConfigMap."""
    kind, version = manifest.kind, manifest.document.get("apiVersion")
    if unsupported.is_known(manifest):
        return
    if kind not in KINDS:
        if meant := nearest(kind, KINDS):
            yield Problem("kind", f"{kind!r} is no kind that Koord reads: did you mean {meant}?")
    elif version is not None and version != _VERSIONS.get(kind, version):
        yield Problem("apiVersion", f"{version!r} has no {kind}: write {_VERSIONS[kind]}")
    elif kind == _CONFIG_MAP and not _is_config(manifest):
        yield from _of_other_config(manifest)


def _of_other_config(manifest: Manifest) -> Iterator[Problem]:
    data = manifest.document.get("data")
    ours = [key for key in KEYS if isinstance(data, Mapping) and key in data]
    if ours:
        why = f"has {ours[0]}, but only the ConfigMap {CONFIG_MAP_NAME} is read"
        yield Problem("metadata.name", f"{manifest.name!r} {why}")
    elif nearest(manifest.name, [CONFIG_MAP_NAME]):
        yield Problem("metadata.name", f"{manifest.name!r}: did you mean {CONFIG_MAP_NAME}?")


def _priority_classes(known: Iterable[Manifest]) -> PriorityClassObjects:
    """Returns those that each cluster has, and those among the manifests."""
    classes = dict(_CLASSES)
    for manifest in known:
        if manifest.kind == _PRIORITY_CLASS and isinstance(value := manifest.document.get("value"), int):
            classes[manifest.name] = PriorityClassObject(value)
    return classes


def _profiles(
    known: Iterable[Manifest], classes: PriorityClassObjects
) -> tuple[list[ClusterColocationProfile], list[ObjectProblem]]:
    """Returns the profiles that can be read, and the findings of all."""
    read, found = list[ClusterColocationProfile](), list[ObjectProblem]()
    for manifest in known:
        if manifest.kind != _PROFILE:
            continue
        unknown = list[str]()
        made, wrong = profile.read_leniently(manifest.document, unknown.append)
        about = [Problem(each.path, f"the profile matches no pod: {each}") for each in wrong]
        about += [Problem(path, _UNKNOWN) for path in unknown]
        found += [ObjectProblem(manifest.label, each) for each in about]
        if not wrong:
            read.append(made)
        else:
            found += _of_rest(made, {_member(each.path) for each in wrong}, classes)
    return read, [*found, *lint_profiles(read, classes)]


def _of_rest(made: ClusterColocationProfile, wrong: set[str], classes: PriorityClassObjects) -> list[ObjectProblem]:
    """Returns the findings about those members of a profile that are not ``wrong``."""
    found = lint_profiles([made], classes)
    selects = {"spec.selector", "spec.namespaceSelector"} & wrong
    others = [each for each in found if _member(each.problem.path) not in wrong]
    return [each for each in others if not (selects and each.problem.path == "spec")]


def _member(path: str) -> str:
    """Returns the first two steps of a path: ``spec.selector``."""
    return ".".join(path.partition("[")[0].split(".")[:2])


def _of_one(manifest: Manifest, classes: PriorityClassObjects) -> Iterator[Problem]:
    if manifest.kind == _CONFIG_MAP and _is_config(manifest):
        yield from _of_config(manifest)
    elif _has_pod(manifest):
        yield from _of_pod(manifest, classes)
    elif unsupported.is_known(manifest):
        yield from unsupported.of_object(manifest)


def _is_config(manifest: Manifest) -> bool:
    return manifest.name == CONFIG_MAP_NAME


def _of_config(manifest: Manifest) -> Iterator[Problem]:
    data = manifest.document.get("data")
    if not isinstance(data, Mapping):
        yield Problem("data", "has no key, so the defaults apply, which offer nothing")
    for key, value in data.items() if isinstance(data, Mapping) else ():
        if not isinstance(value, str):
            why = "is no string, which the API server refuses: write the JSON in quotes"
            yield Problem(f"data.{key}", why)
    readable = texts(data)
    for violation in checks.check(readable):
        yield Problem(violation.problem.path, str(violation.problem))
    for path in load(readable).unknown:
        yield Problem(path, unknown_message(path).removeprefix(f"{path}: "))


def _has_pod(manifest: Manifest) -> bool:
    return manifest.kind == "Pod" or manifest.kind in _TEMPLATES


def _of_pod(manifest: Manifest, classes: PriorityClassObjects) -> Iterator[Problem]:
    """Yields the problems of a pod template, by their places in the object that has it."""
    pod = _pod(manifest, classes)
    if isinstance(pod, str):
        yield Problem("", f"cannot be read: {pod}")
        return
    prefix = "".join(f"{name}." for name in _TEMPLATES.get(manifest.kind, ()))
    about = [each.problem for each in lint_pod(pod)]
    for path, message in (*about, *unsupported.of_pod(pod)):
        yield Problem(f"{prefix}{_place(path)}", message)


def _pods(known: Iterable[Manifest], classes: PriorityClassObjects) -> list[tuple[str, Pod]]:
    """Returns the pods that can be read, with their namespaces."""
    found = [(each.namespace, _pod(each, classes)) for each in known if _has_pod(each)]
    return [(namespace, pod) for namespace, pod in found if isinstance(pod, Pod)]


def _pod(manifest: Manifest, classes: PriorityClassObjects) -> Pod | str:
    """Returns the pod, or that of the template, as the Priority plugin makes it; or why it cannot be read."""
    document = at(manifest.document, *_TEMPLATES.get(manifest.kind, ())) or {}
    try:
        pod = core.read(Pod, msgspec.json.encode(document))
    except (ValueError, TypeError, RecursionError) as error:
        return str(error)
    known = classes.get(pod.spec.priority_class_name)
    if known is None or pod.spec.priority is not None:
        return pod
    return replace(pod, spec=replace(pod.spec, priority=known.value))


def _place(path: str) -> str:
    """Returns the path in a manifest of what webhooks, as upstream's do, call ``labels.KEY``."""
    return f"metadata.{path}" if path.startswith("labels.") else path

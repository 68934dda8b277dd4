"""Kubernetes manifests as people keep them in files, and what is to be said of those that Koord has a use for.

Invariant: a document that cannot be read, or is none of Kubernetes', is a finding of its own and stops no other.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import msgspec
import yaml
from msgspec.structs import replace

from koord.model import core, profile
from koord.model.admission import Finding, PriorityClassObject, lint_pod, lint_profiles
from koord.model.admission.priorityclasses import PriorityClassObjects
from koord.model.core import Pod
from koord.model.priority import BANDS
from koord.model.profile import ClusterColocationProfile
from koord.model.schema import SchemaError
from koord.model.sloconfig import checks
from koord.model.sloconfig.loading import CONFIG_MAP_NAME, load, texts

Document = Mapping[str, Any]
_TEMPLATES = {
    **dict.fromkeys(
        ("Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "ReplicationController", "Job"), ("spec", "template")
    ),
    "CronJob": ("spec", "jobTemplate", "spec", "template"),
    "PodTemplate": ("template",),
}
"""Where a kind keeps the pods that it makes."""

_CLASSES = {
    **{cls.value: PriorityClassObject(band.object_value) for cls, band in BANDS.items()},
    "system-cluster-critical": PriorityClassObject(2_000_000_000),
    "system-node-critical": PriorityClassObject(2_000_001_000),
}
"""The PriorityClasses that the chart and Kubernetes itself bring."""

_MARKER = re.compile(r"^---(?=\s|$)", re.MULTILINE)
"""At the begin of a line it is a document's, wherever it stands."""
_NOT_YAML = (yaml.YAMLError, RecursionError, ValueError, LookupError, AttributeError)
"""What PyYAML raises; the last three for a value that does not fit its tag, such as ``!!int``."""
_UNKNOWN_FIELD = "there is no such field: it is ignored"


@dataclass(frozen=True, slots=True)
class Manifest:
    """``place``: the file, and which of its documents."""

    place: str
    document: Document

    @property
    def kind(self) -> str:
        return str(self.document.get("kind", ""))

    @property
    def label(self) -> str:
        metadata = self.document.get("metadata")
        names = [metadata.get(key) for key in ("namespace", "name")] if isinstance(metadata, Mapping) else []
        return f"{self.kind} {'/'.join(str(name) for name in names if name) or self.place}"


def findings(files: Iterable[tuple[str, bytes]]) -> list[Finding]:
    """Of all files together: name and content of each."""
    manifests, found = list[Manifest](), list[Finding]()
    for name, content in files:
        for each in _documents(name, content):
            if isinstance(each, Finding):
                found.append(each)
            else:
                manifests.append(each)
    classes = _priority_classes(manifests)
    pods_and_configs = (finding for each in manifests for finding in _of_one(each, classes))
    return [*found, *_of_profiles(manifests, classes), *pods_and_configs]


def _documents(name: str, content: bytes) -> Iterator[Manifest | Finding]:
    try:
        parts = _parts(content.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        yield _not_yaml(name, error)
        return
    for number, part in enumerate(parts, 1):
        place = f"{name}#{number}" if len(parts) > 1 else name
        try:
            documents = list(yaml.safe_load_all(part))
        except _NOT_YAML as error:
            yield _not_yaml(place, error)
            continue
        for document in documents:
            if document is not None:
                yield from _items(place, document)


def _parts(text: str) -> list[str]:
    """Its documents, each behind as many empty lines as come before it, so that errors name the file's lines."""
    parts = _MARKER.split(text)
    lines_before = [0, *accumulate(part.count("\n") for part in parts)]
    padded = ["\n" * lines + part for lines, part in zip(lines_before, parts, strict=False)]
    is_preamble = all(line.startswith(("#", "%")) or not line.strip() for line in parts[0].splitlines())
    return padded[1:] if is_preamble and len(padded) > 1 else padded


def _not_yaml(place: str, error: Exception) -> Finding:
    return Finding(place, "", f"is not YAML: {' '.join(str(error).split())[:200]}")


def _items(place: str, document: object) -> Iterator[Manifest | Finding]:
    """The document, or the items of a list."""
    if not isinstance(document, Mapping) or not isinstance(document.get("kind"), str):
        yield Finding(place, "", "is no object of Kubernetes: it has no kind")
    elif document["kind"].endswith("List") and isinstance(document.get("items"), list):
        for number, item in enumerate(document["items"]):
            yield from _items(f"{place}.items[{number}]", item)
    else:
        yield Manifest(place, document)


def _priority_classes(manifests: Iterable[Manifest]) -> PriorityClassObjects:
    """The known ones, and those among the manifests."""
    classes = dict(_CLASSES)
    for manifest in manifests:
        if manifest.kind == "PriorityClass" and isinstance(value := manifest.document.get("value"), int):
            classes[manifest.label.partition(" ")[2]] = PriorityClassObject(value)
    return classes


def _of_profiles(manifests: Iterable[Manifest], classes: PriorityClassObjects) -> list[Finding]:
    read, found = list[ClusterColocationProfile](), list[Finding]()
    for manifest in manifests:
        if manifest.kind == "ClusterColocationProfile":
            unknown = list[str]()
            try:
                read.append(profile.read(manifest.document, unknown.append))
            except SchemaError as error:
                found.append(Finding(manifest.label, error.path, f"the profile matches no pod: {error}"))
            found += [Finding(manifest.label, path, _UNKNOWN_FIELD) for path in unknown]
    return [*found, *lint_profiles(read, classes)]


def _of_one(manifest: Manifest, classes: PriorityClassObjects) -> Iterator[Finding]:
    if manifest.kind == "ConfigMap" and _is_config(manifest.document):
        yield from _of_config(manifest)
    elif manifest.kind == "Pod" or manifest.kind in _TEMPLATES:
        yield from _of_pod(manifest, classes)


def _is_config(document: Document) -> bool:
    metadata = document.get("metadata")
    return isinstance(metadata, Mapping) and metadata.get("name") == CONFIG_MAP_NAME


def _of_config(manifest: Manifest) -> Iterator[Finding]:
    data = texts(manifest.document.get("data"))
    for violation in checks.check(data):
        yield Finding(manifest.label, violation.path, violation.message)
    for path in load(data).unknown:
        yield Finding(manifest.label, path, _UNKNOWN_FIELD)


def _of_pod(manifest: Manifest, classes: PriorityClassObjects) -> Iterator[Finding]:
    """What is to be said of a pod template is said of the object that has it."""
    try:
        pod = core.read(Pod, msgspec.json.encode(_member(manifest.document, _TEMPLATES.get(manifest.kind, ()))))
    except (ValueError, TypeError, RecursionError) as error:
        yield Finding(manifest.label, "", f"cannot be read: {error}")
        return
    prefix = "".join(f"{name}." for name in _TEMPLATES.get(manifest.kind, ()))
    for each in lint_pod(_with_priority(pod, classes)):
        yield Finding(manifest.label, f"{prefix}{_place(each.path)}", each.sentence)


def _with_priority(pod: Pod, classes: PriorityClassObjects) -> Pod:
    """The pod as the API server's Priority plugin makes it: with the number of its PriorityClass."""
    known = classes.get(pod.spec.priority_class_name)
    if known is None or pod.spec.priority is not None:
        return pod
    return replace(pod, spec=replace(pod.spec, priority=known.value))


def _place(path: str) -> str:
    """Where a manifest has what webhooks, as upstream's, call ``labels.KEY``."""
    return f"metadata.{path}" if path.startswith("labels.") else path


def _member(document: Document, path: tuple[str, ...]) -> object:
    value: object = document
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value or {}

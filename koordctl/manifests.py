"""Reads Kubernetes manifests as people keep them in files.

Invariant: a document that cannot be read, or is no Kubernetes object, is a finding and does not stop the others.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import yaml

from koord.admission import ObjectProblem
from koord.model.documents import mapping
from koord.model.problem import Problem

Document = Mapping[str, Any]
_MARKER = re.compile(r"^---(?=\s|$)", re.MULTILINE)
"""Begins a document wherever it stands at the start of a line."""
_NOT_YAML = (yaml.YAMLError, RecursionError, ValueError, LookupError, AttributeError)
"""What PyYAML raises; the last three for a value that does not fit its tag, such as ``!!int``."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """``place``: the file, and which of its documents."""

    place: str
    document: Document

    @property
    def kind(self) -> str:
        return str(self.document.get("kind", ""))

    @property
    def name(self) -> str:
        return str(self._metadata.get("name") or "")

    @property
    def namespace(self) -> str:
        """Returns the manifest's namespace, else the one that kubectl takes by default."""
        return str(self._metadata.get("namespace") or "default")

    @property
    def labels(self) -> Mapping[str, str]:
        return {str(key): str(value) for key, value in mapping(self._metadata, "labels").items()}

    @property
    def label(self) -> str:
        """Returns its name in findings: kind, namespace if it says one, and name, or else the place."""
        names = [self._metadata.get(key) for key in ("namespace", "name")]
        return f"{self.kind} {'/'.join(str(name) for name in names if name) or self.place}"

    @property
    def _metadata(self) -> Document:
        return mapping(self.document, "metadata")


def read(files: Iterable[tuple[str, bytes]]) -> tuple[list[Manifest], list[ObjectProblem]]:
    """Returns the objects in all files, name and content of each, and what is no object."""
    manifests, found = list[Manifest](), list[ObjectProblem]()
    for name, content in files:
        documents = list(_documents(name, content))
        if not documents:
            found.append(ObjectProblem(name, Problem("", "is empty: there is no object in it")))
        for each in documents:
            if isinstance(each, ObjectProblem):
                found.append(each)
            else:
                manifests.append(each)
    return manifests, found


def _documents(name: str, content: bytes) -> Iterator[Manifest | ObjectProblem]:
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
    """Returns the documents, each behind as many empty lines as it follows, so that errors name the file's lines."""
    parts = _MARKER.split(text)
    lines_before = [0, *accumulate(part.count("\n") for part in parts)]
    padded = ["\n" * lines + part for lines, part in zip(lines_before, parts, strict=False)]
    is_preamble = all(line.startswith(("#", "%")) or not line.strip() for line in parts[0].splitlines())
    return padded[1:] if is_preamble and len(padded) > 1 else padded


def _not_yaml(place: str, error: Exception) -> ObjectProblem:
    return ObjectProblem(place, Problem("", f"is not YAML: {' '.join(str(error).split())[:200]}"))


def _items(place: str, document: object) -> Iterator[Manifest | ObjectProblem]:
    """Yields the document, or the items of a list."""
    if not isinstance(document, Mapping) or not isinstance(document.get("kind"), str):
        yield ObjectProblem(place, Problem("", "is no Kubernetes object: it has no kind"))
    elif document["kind"].endswith("List") and isinstance(document.get("items"), list):
        for number, item in enumerate(document["items"]):
            yield from _items(f"{place}.items[{number}]", item)
    else:
        yield Manifest(place, document)

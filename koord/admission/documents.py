"""A pod as the plain JSON document that the API server sent, so that what Koord knows nothing of stays in it.

Members that are null count as absent, as for Go. ``typed`` is the same pod in the slim structs of ``koord.model.core``,
and it is what finds out whether the document is a pod at all: whoever edits one has called it before.

Invariant: nothing here changes a document that its caller did not get from ``copy``.
Fails with UnreadableError.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from koord.admission.errors import UnreadableError
from koord.model import core
from koord.model.core import Pod

Document = dict[str, Any]

_LISTS = ("initContainers", "containers")
"""Of a pod's spec, in the order in which they run. Ephemeral containers have no resources."""


class ContainerMember(NamedTuple):
    """One container of a pod, the list that it is in, and its path, such as ``spec.containers[0]``."""

    list_name: str
    path: str
    document: Document


def typed(pod: Mapping[str, Any]) -> Pod:
    """The pod that the document describes. Raises UnreadableError, which says where it is none."""
    try:
        return core.read(Pod, msgspec.json.encode(pod))
    except RecursionError as error:
        raise UnreadableError("pod", "is nested too deeply") from error
    except ValueError as error:
        raise UnreadableError("pod", str(error)) from error


def copy(document: Mapping[str, Any]) -> Document:
    """A document of its own with the same content."""
    result = msgspec.json.decode(msgspec.json.encode(document))
    assert isinstance(result, dict)
    return result


def member(document: Mapping[str, Any], *keys: str) -> Mapping[str, Any]:
    """The object at ``keys``; an empty one if it is absent or null."""
    for key in keys:
        document = document.get(key) or {}
    return document


def editable(document: Document, *keys: str) -> Document:
    """The object at ``keys``, put there if it is absent or null."""
    for key in keys:
        if document.get(key) is None:
            document[key] = {}
        document = document[key]
    return document


def container_count(pod: Mapping[str, Any]) -> int:
    """How many `containers` there are; of what is no list, none."""
    spec = pod.get("spec")
    lists = [spec.get(name) for name in _LISTS] if isinstance(spec, Mapping) else []
    return sum(len(each) for each in lists if isinstance(each, list))


def without_containers(pod: Mapping[str, Any]) -> Document:
    return {**pod, "spec": {key: value for key, value in pod["spec"].items() if key not in _LISTS}}


def containers(pod: Mapping[str, Any]) -> Iterator[ContainerMember]:
    """Each init container and container."""
    for name in _LISTS:
        for index, container in enumerate(member(pod, "spec").get(name) or ()):
            yield ContainerMember(name, f"spec.{name}[{index}]", container)

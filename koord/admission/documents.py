"""A pod as the plain JSON document that the API server sent, so that what Koord knows nothing of stays in it.

Members that are null count as absent, as for Go. ``read`` makes of what was sent the same pod in the slim structs of
``koord.model.core``, ``typed`` of a document; they find out whether it is a pod at all, and are called before one
is edited.

Invariant: nothing here changes a document that its caller did not get from ``copy``.
Fails with UnreadableError.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, TypeVar

import msgspec

from koord.admission.errors import UnreadableError
from koord.model import core
from koord.model.core import ObjectMeta, Pod

Document = dict[str, Any]
T = TypeVar("T", bound=msgspec.Struct)

_LISTS = ("initContainers", "containers")
"""Of a pod's spec, in the order in which they run. Ephemeral containers have no resources."""


class _Named(msgspec.Struct):
    metadata: ObjectMeta = ObjectMeta()


class ContainerMember(NamedTuple):
    """One container of a pod, the list that it is in, and its path, such as ``spec.containers[0]``."""

    list_name: str
    path: str
    document: Document


def read(sent: bytes | msgspec.Raw) -> Pod:
    """The pod in the JSON that was sent. Raises UnreadableError, which says where it is none."""
    return _read(Pod, sent)


def read_metadata(sent: msgspec.Raw) -> ObjectMeta:
    """Reads the metadata of a pod whatever its spec. Raises UnreadableError."""
    return _read(_Named, sent).metadata


def typed(pod: Mapping[str, Any]) -> Pod:
    """The pod that the document describes. Raises as ``read`` does."""
    try:
        return read(msgspec.json.encode(pod))
    except RecursionError as error:
        raise UnreadableError("pod", "is nested too deeply") from error


def parse(sent: msgspec.Raw, kind: str) -> Document:
    """Returns what was sent as a document of its own, an empty one of nothing. Raises UnreadableError.

    ``kind``: of the object, for people.
    """
    try:
        return msgspec.json.decode(sent, type=Document) if sent else {}
    except RecursionError as error:
        raise UnreadableError(kind, "is nested too deeply") from error
    except ValueError as error:
        raise UnreadableError(kind, str(error)) from error


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


def containers(pod: Mapping[str, Any]) -> Iterator[ContainerMember]:
    """Yields each init container and container."""
    for name in _LISTS:
        for index, container in enumerate(member(pod, "spec").get(name) or ()):
            yield ContainerMember(name, f"spec.{name}[{index}]", container)


def _read(cls: type[T], sent: bytes | msgspec.Raw) -> T:
    try:
        return core.read(cls, sent)
    except ValueError as error:
        raise UnreadableError("pod", str(error)) from error

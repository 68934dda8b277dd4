"""The nodes as the API server has them, whole, for extenders that know no nodes themselves.

What the state reads of a node is a part of it, and which part an extender goes by, nobody else knows. They are followed
only where an extender needs them. As kube-scheduler sends them they lack ``managedFields``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from koord.kube.client import Client
from koord.kube.informer import Informer
from koord.kube.kind import NODE, Unstructured
from koord.model.core import ObjectMeta


class NodeDocument(msgspec.Struct, frozen=True):
    """``json``: the node."""

    metadata: ObjectMeta
    json: msgspec.Raw


NodeDocuments = Informer[Unstructured, NodeDocument]


def follow(client: Client, monotonic_s: Callable[[], float]) -> NodeDocuments:
    """Returns what follows them, to be run."""
    return Informer(client, NODE.decoded_as(Unstructured), monotonic_s, transform=_document)


def json_of(content: dict[str, Any]) -> msgspec.Raw:
    """Returns an object without its ``managedFields``."""
    metadata = {name: value for name, value in content["metadata"].items() if name != "managedFields"}
    return msgspec.Raw(msgspec.json.encode(content | {"metadata": metadata}))


def _document(node: Unstructured) -> NodeDocument:
    return NodeDocument(ObjectMeta(name=node.metadata.name), json_of(node.content))

"""The annotation ``node.koordinator.sh/extended-resource-spec``: a pod's batch and mid amounts, for its node's agent.

kubelet tells the runtime nothing of them; the agent makes CPU shares, quota and memory limit of the annotation.
Its text is compact JSON with sorted keys and canonical amounts,
``{"containers":{"<name>":{"limits":{…},"requests":{…}}}}``, byte for byte as Koordinator writes it, which lists
regular containers only, and sums all that it finds there for the pod. So init containers, sidecars among them, are
under ``initContainers`` beside it, where Koordinator's agent does not look; and amounts of mid resources, which it
does not look for, stand beside those of batch.

Invariant: the annotation is what the spec says, whatever the pod came with, and absent if it says nothing.
Fails with TranslationError for an amount that is none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import msgspec
from msgspec import structs

from koord.admission import documents
from koord.admission.documents import Document
from koord.admission.errors import TranslationError
from koord.model import quantity
from koord.model.annotations.pod import KEYS
from koord.model.core import PodSpec
from koord.model.priority import EXTENDED_RESOURCES
from koord.model.quantity import QuantityError

ANNOTATION = KEYS["extended_resource_spec"].name
_KINDS = ("limits", "requests")


class _Container(NamedTuple):
    """Its list in the pod, its path, its name, and its amounts by their kind."""

    list_name: str
    path: str
    name: str
    amounts: Mapping[str, Mapping[str, Any]]


def annotate(pod: Document) -> Document:
    """The pod with the annotation that its spec calls for. Raises TranslationError."""
    wanted = _text_of(_of_document(*each) for each in documents.containers(pod))
    present = documents.member(pod, "metadata", "annotations").get(ANNOTATION)
    if wanted == present:
        return pod
    annotated = documents.copy(pod)
    annotations = documents.editable(annotated, "metadata", "annotations")
    if wanted is None:
        del annotations[ANNOTATION]
    else:
        annotations[ANNOTATION] = wanted
    return annotated


def text(spec: PodSpec) -> str | None:
    """The annotation's text; None if no container has batch or mid resources. Raises TranslationError."""
    lists = (("initContainers", spec.init_containers), ("containers", spec.containers))
    return _text_of(
        _Container(name, f"spec.{name}[{index}]", each.name, structs.asdict(each.resources))
        for name, containers in lists
        for index, each in enumerate(containers)
    )


def _of_document(list_name: str, path: str, container: Mapping[str, Any]) -> _Container:
    amounts = {kind: documents.member(container, "resources", kind) for kind in _KINDS}
    return _Container(list_name, path, container.get("name") or "", amounts)


def _text_of(containers: Iterable[_Container]) -> str | None:
    lists: dict[str, dict[str, Any]] = {}
    for each in containers:
        kinds = {kind: _amounts(each.amounts[kind], f"{each.path}.resources.{kind}") for kind in _KINDS}
        if resources := {kind: amounts for kind, amounts in kinds.items() if amounts}:
            lists.setdefault(each.list_name, {})[each.name] = resources
    return msgspec.json.encode(lists, order="sorted").decode() if lists else None


def _amounts(amounts: Mapping[str, Any], path: str) -> dict[str, str]:
    named = [name for name in EXTENDED_RESOURCES if amounts.get(name) is not None]
    return {name: _text(amounts[name], f"{path}.{name}") for name in named}


def _text(amount: Any, path: str) -> str:
    try:
        return str(quantity.from_json(amount))
    except QuantityError as error:
        raise TranslationError(path, str(error)) from error

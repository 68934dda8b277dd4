"""Amplified allocatable: a Node offers its CPU and memory times a ratio, and remembers what kubelet offers.

The annotation ``resource-amplification-ratio`` has the ratios, ``raw-allocatable`` what kubelet wrote last. kubelet
writes its own value with each status; others repeat the one that they read, which is amplified already. So a value that
differs from the Node's old one is kubelet's, for CPU and memory both. Two more are, which Koordinator misses: one that
is as before, while the capacity is not (kubelet's new value happens to be the amplified one); and one below what is
remembered, which no amplification makes (kubelet wrote it while no webhook answered). What exceeds the capacity never
is: kubelet offers part of that.

What cannot be told, and stays: kubelet's new value is the amplified one, but for another reason than capacity;
kubelet offers more than remembered since no webhook answered. Both offer less than there is, until kubelet's next
change.

A ratio that goes takes along what is remembered, and kubelet's own amounts are put back.

Invariant: a status is never refused, or the node would count as dead; an annotation that cannot be read changes
nothing, and a warning says so. Milli-cores and bytes are rounded down.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress
from fractions import Fraction
from typing import Any

import msgspec

from koord.admission import documents, jsonpatch
from koord.admission.answering import answers
from koord.admission.documents import Document
from koord.model import quantity, schema
from koord.model.admissionreview import UPDATE, AdmissionRequest, AdmissionResponse
from koord.model.priority import CPU, MEMORY
from koord.model.quantity import Quantity, QuantityError
from koord.model.schema import SchemaError
from koord.overcommit import nodeamounts, ratios

ANNOTATION_RATIO = ratios.AMPLIFICATION
ANNOTATION_RAW = nodeamounts.RAW_ALLOCATABLE
RESOURCES = (CPU, MEMORY)
"""What is amplified."""

Amounts = Mapping[str, Quantity]


@answers("nodes", "status")
def mutate_node_status(request: AdmissionRequest) -> AdmissionResponse:
    """The amplified allocatable of an update."""
    if request.operation != UPDATE:
        return AdmissionResponse()
    node = documents.parse(request.object, "node")
    try:
        amplified = amplify(node, documents.parse(request.old_object, "node"))
    except (SchemaError, QuantityError) as error:
        return AdmissionResponse(warnings=[f"allocatable is not amplified: {error}"])
    return AdmissionResponse(jsonpatch.diff(node, amplified))


def amplify(node: Document, old: Mapping[str, Any]) -> Document:
    """The Node as it is to be stored, of what was sent and what is stored. Raises SchemaError, QuantityError."""
    result = documents.copy(node)
    annotations = _object(result, "metadata", "annotations")
    if ANNOTATION_RATIO not in annotations:
        if ANNOTATION_RAW in annotations:
            _put_back(result, old, result["metadata"]["annotations"].pop(ANNOTATION_RAW))
        return result
    ratios = _ratios(annotations[ANNOTATION_RATIO])
    remembered = _remembered(annotations.get(ANNOTATION_RAW))
    raw = _raw(result, old, remembered)
    if raw != remembered:
        documents.editable(result, "metadata", "annotations")[ANNOTATION_RAW] = _text(raw)
    allocatable = documents.editable(result, "status", "allocatable")
    for resource in RESOURCES:
        ratio = ratios.get(resource, Fraction(1))
        if ratio > 1 and resource in raw:
            allocatable[resource] = str(_times(resource, raw[resource], ratio))
    return result


def _put_back(node: Document, old: Mapping[str, Any], remembered: object) -> None:
    """kubelet's amounts in the place of amplified ones, as far as they can be read."""
    with suppress(SchemaError, QuantityError):
        sent = _amounts(node, "allocatable")
        for resource, amount in _raw(node, old, _remembered(remembered)).items():
            if resource in sent and sent[resource].nano != amount.nano:
                documents.editable(node, "status", "allocatable")[resource] = str(amount)


def _raw(node: Mapping[str, Any], old: Mapping[str, Any], remembered: Amounts) -> Amounts:
    """Returns what kubelet offers: the amounts that are sent if kubelet sent them, else the remembered ones."""
    noted = _object(node, "metadata", "annotations").get(ANNOTATION_RAW)
    if noted is not None and noted != _object(old, "metadata", "annotations").get(ANNOTATION_RAW):
        return remembered
    sent, stored = _amounts(node, "allocatable"), _amounts(old, "allocatable")
    capacity, stored_capacity = _amounts(node, "capacity"), _amounts(old, "capacity")
    if any(resource in capacity and amount.nano > capacity[resource].nano for resource, amount in sent.items()):
        return remembered
    is_kubelets = (
        not remembered
        or not _same(sent, stored)
        or not _same(capacity, stored_capacity)
        or any(resource in sent and sent[resource].nano < amount.nano for resource, amount in remembered.items())
    )
    return sent if is_kubelets else remembered


def _same(amounts: Amounts, others: Amounts) -> bool:
    return {name: each.nano for name, each in amounts.items()} == {name: each.nano for name, each in others.items()}


def _times(resource: str, amount: Quantity, ratio: Fraction) -> Quantity:
    if resource == CPU:
        return quantity.of_milli(math.floor(amount.milli_value() * ratio))
    return quantity.of(math.floor(amount.value() * ratio), amount.format)


def _amounts(node: Mapping[str, Any], member: str) -> Amounts:
    """Reads CPU and memory in ``member`` of ``status``. Raises SchemaError, QuantityError."""
    amounts = _object(node, "status", member)
    return {name: quantity.from_json(amounts[name]) for name in RESOURCES if amounts.get(name) is not None}


def _object(document: Mapping[str, Any], *keys: str) -> Mapping[str, Any]:
    """The object at ``keys``; an empty one if it is absent or null. Raises SchemaError."""
    path = ""
    for key in keys:
        path, value = schema.child(path, key), document.get(key)
        if value is not None and not isinstance(value, Mapping):
            raise SchemaError(path, value, "is not an object")
        document = value or {}
    return document


def _ratios(text: object) -> Mapping[str, Fraction]:
    """Reads the ratios by resource. Raises SchemaError."""
    ratios = {}
    for name, ratio in _annotation(ANNOTATION_RATIO, text).items():
        if isinstance(ratio, bool) or not isinstance(ratio, int | float):
            raise SchemaError(f"{ANNOTATION_RATIO}.{name}", ratio, "is not a number")
        ratios[name] = Fraction(str(ratio))
    return ratios


def _remembered(text: object | None) -> Amounts:
    """Empty if nothing is. Raises SchemaError, QuantityError."""
    amounts = {} if text is None else _annotation(ANNOTATION_RAW, text)
    return {name: quantity.from_json(amounts[name]) for name in RESOURCES if amounts.get(name) is not None}


def _annotation(name: str, text: object) -> Mapping[str, Any]:
    if not isinstance(text, str):
        raise SchemaError(name, text, "is not a text")
    parsed = schema.parse_json(text)
    if not isinstance(parsed, Mapping):
        raise SchemaError(name, text, "is not an object")
    return parsed


def _text(amounts: Amounts) -> str:
    """Writes the amounts as the annotation has them."""
    return msgspec.json.encode({name: str(amount) for name, amount in amounts.items()}, order="sorted").decode()

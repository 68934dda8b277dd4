"""Pods, profiles and AdmissionReviews as the tests need them, and a JSON Patch applier of its own."""

from __future__ import annotations

import base64
import copy
import functools
import json
from collections.abc import Callable, Mapping
from typing import Any

from msgspec.structs import replace

from koord import admission
from koord.admission import AdmissionContext, PriorityClassObject, documents
from koord.admission.mutation import Mutation, mutate
from koord.model import profile as profiles
from koord.model.admissionreview import AdmissionResponse
from koord.model.profile import ClusterColocationProfile
from koord.webhook import reviews
from tests.support import kubernetes

BATCH_CPU, BATCH_MEMORY = "kubernetes.io/batch-cpu", "kubernetes.io/batch-memory"
MID_CPU, MID_MEMORY = "kubernetes.io/mid-cpu", "kubernetes.io/mid-memory"
QOS, SUB_PRIORITY, CLASS = "koordinator.sh/qosClass", "koordinator.sh/priority", "koordinator.sh/priority-class"
EXTENDED_SPEC = "node.koordinator.sh/extended-resource-spec"
SKIP = "config.koordinator.sh/skip-update-resources"

CLASSES = {
    "koord-prod": PriorityClassObject(9000),
    "koord-mid": PriorityClassObject(7000),
    "koord-batch": PriorityClassObject(5000),
    "koord-free": PriorityClassObject(3000),
    "polite": PriorityClassObject(5100, "Never"),
}
PRIORITIES = {"koord-prod": 9000, "koord-mid": 7000, "koord-batch": 5000, "koord-free": 3000, None: None}


def profile(name: str = "p", own_annotations: Mapping[str, str] | None = None, **spec: Any) -> ClusterColocationProfile:
    return profiles.read({"metadata": {"name": name, "annotations": dict(own_annotations or {})}, "spec": spec})


def context(*items: ClusterColocationProfile, **facts: Any) -> AdmissionContext:
    named = {"batch-demo": {"koordinator.sh/enable-colocation": "true"}, "default": {}}
    return AdmissionContext(**{"profiles": items, "namespaces": named, "priority_classes": CLASSES, **facts})


pod = functools.partial(kubernetes.pod, name="job-x7", namespace="batch-demo")


def review(
    obj: Any, operation: Any = "CREATE", old: Any = None, api_version: str = "admission.k8s.io/v1", **request: Any
) -> dict[str, Any]:
    return {
        "apiVersion": api_version,
        "kind": "AdmissionReview",
        "request": {
            "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
            "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "resource": {"group": "", "version": "v1", "resource": "pods"},
            "namespace": "batch-demo",
            "operation": operation,
            "userInfo": {"username": "admin"},
            "object": obj,
            "oldObject": old,
            "dryRun": False,
            **request,
        },
    }


def over_the_wire(webhook: Callable[..., AdmissionResponse]) -> Callable[..., Any]:
    """``webhook`` as an API server meets it: from a review to the answer, as JSON documents both."""

    def answer(review: object, *grounds: Any) -> Any:
        asked = reviews.decode(json.dumps(review).encode())
        return json.loads(reviews.answered("/", asked, webhook(asked.request, *grounds)).body)

    return answer


mutate_pod, validate_pod = over_the_wire(admission.mutate_pod), over_the_wire(admission.validate_pod)


def mutation_of(document: dict[str, Any], cluster: AdmissionContext, namespace: str = "batch-demo") -> Mutation:
    """What becomes of a pod that is created there."""
    sent = documents.typed(document)
    placed = replace(sent, metadata=replace(sent.metadata, namespace=namespace))
    return mutate(document, placed, "request-1", cluster)


def patch_of(answer: Mapping[str, Any]) -> list[dict[str, Any]]:
    text = answer["response"].get("patch")
    if text is None:
        assert "patchType" not in answer["response"]
        return []
    assert answer["response"]["patchType"] == "JSONPatch"
    operations = json.loads(base64.b64decode(text, validate=True))
    assert isinstance(operations, list) and operations
    return operations


def patched(document: Any, operations: list[dict[str, Any]]) -> Any:
    """RFC 6902, ``add``, ``remove`` and ``replace``, with its errors."""
    result = {"": copy.deepcopy(document)}
    for operation in operations:
        steps = ["", *[step.replace("~1", "/").replace("~0", "~") for step in operation["path"].split("/")[1:]]]
        parent: Any = result
        for step in steps[:-1]:
            parent = parent[int(step) if isinstance(parent, list) else step]
        _edit(parent, steps[-1], operation)
    return result[""]


def _edit(parent: Any, step: str, operation: Mapping[str, Any]) -> None:
    key: Any = int(step) if isinstance(parent, list) else step
    kind, value = operation["op"], copy.deepcopy(operation.get("value"))
    if kind == "add" and isinstance(parent, list):
        assert 0 <= key <= len(parent)
        parent.insert(key, value)
        return
    exists = key < len(parent) if isinstance(parent, list) else key in parent
    assert exists is (kind != "add"), f"{operation} of what is {'there' if exists else 'not there'}"
    if kind == "remove":
        assert "value" not in operation
        del parent[key]
    else:
        assert kind in ("add", "replace")
        parent[key] = value

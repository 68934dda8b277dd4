"""Which labels a Node may get, by the entries of ``slo-controller-config``."""

from __future__ import annotations

import json
from typing import Any

import pytest

from koord.admission import validate_node
from koord.sloconfig.loading import load
from tests.admission.objects import over_the_wire

Labels = dict[str, str]
A, B, BOTH = {"a": "1"}, {"b": "1"}, {"a": "1", "b": "1"}


def entry(label: str) -> dict[str, Any]:
    return {"name": f"with-{label}", "nodeSelector": {"matchLabels": {label: "1"}}}


CONFIG = load(
    {
        "colocation-config": json.dumps({"nodeConfigs": [entry("a"), entry("b")]}),
        "resource-threshold-config": json.dumps({"nodeStrategies": [entry("a"), entry("c")]}),
    }
).config
CONFLICT = (
    '___{"reason":"ExistNodeConfict","message":{"config":"colocation-config",'
    '"strategies":["with-a","with-b"],"exampleNodes":["n1"]}}___'
)
OTHER_KEY = CONFLICT.replace("colocation-config", "resource-threshold-config").replace("with-b", "with-c")


def asked(
    new: Any, old: Any = None, operation: str = "", subresource: str = "", resource: str = "nodes"
) -> dict[str, Any]:
    request = {
        "uid": "u1",
        "operation": operation or ("CREATE" if old is None else "UPDATE"),
        "resource": {"group": "", "version": "v1", "resource": resource},
        "subResource": subresource,
        "object": {"metadata": {"name": "n1", "labels": new}},
        "oldObject": {"metadata": {"name": "n1", "labels": old}},
    }
    review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    response: dict[str, Any] = over_the_wire(validate_node)(review, CONFIG)["response"]
    return response


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ({}, A, ""),
        (A, B, ""),
        (A, BOTH, CONFLICT),
        ({}, BOTH, CONFLICT),
        (None, BOTH, CONFLICT),
        (BOTH, {**BOTH, "zone": "z"}, ""),  # was so before
        (BOTH, {**BOTH, "c": "1"}, OTHER_KEY),
        (A, {**BOTH, "c": "1"}, f"{CONFLICT}\n{OTHER_KEY}"),
        (BOTH, A, ""),
        (A, None, ""),
        (A, {"a": 1, "b": "1"}, ""),
        (A, ["a", "b"], ""),
    ],
)
def test_a_change_of_labels(old: Any, new: Any, message: str) -> None:
    response = asked(new, old or {})
    assert response["allowed"] is not bool(message)
    if message:
        assert (response["status"]["code"], response["status"]["message"]) == (400, message)


def test_a_node_that_is_created_passes_with_a_warning() -> None:
    response = asked(BOTH)
    assert response["allowed"] is True
    assert response["warnings"] == [
        "colocation-config.nodeConfigs[1].nodeSelector: matches n1, as does colocation-config.nodeConfigs[0]"
    ]
    assert "warnings" not in asked(A)


@pytest.mark.parametrize(
    ("operation", "subresource", "resource"),
    [("DELETE", "", "nodes"), ("UPDATE", "status", "nodes"), ("UPDATE", "", "pods")],
)
def test_what_is_not_looked_at(operation: str, subresource: str, resource: str) -> None:
    assert asked(BOTH, A, operation, subresource, resource)["allowed"] is True

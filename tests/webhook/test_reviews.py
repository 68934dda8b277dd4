"""AdmissionReviews on the wire: what is read of a request, what is none, and what an answer says."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from koord.model.admissionreview import NO_OBJECT, AdmissionRequest, AdmissionResponse
from koord.webhook import reviews
from koord.webhook.reviews import Review, ReviewResult, UndecodableError
from tests.webhook.rig import review

V1 = "admission.k8s.io/v1"
ASKED = Review(V1, AdmissionRequest("u1"))


def decoded(**request: Any) -> AdmissionRequest:
    return reviews.decode(json.dumps(review(**request)).encode()).request


@pytest.mark.parametrize(
    ("sent", "member", "value"),
    [
        ({"operation": "CREATE"}, "operation", "CREATE"),
        ({"resource": {"group": "", "version": "v1", "resource": "pods"}}, "resource", "pods"),
        ({"resource": {"group": "apps", "version": "v1", "resource": "deployments"}}, "resource", "apps/deployments"),
        ({"subResource": "status"}, "subresource", "status"),
        ({"namespace": "shop"}, "namespace", "shop"),
        ({"userInfo": {"username": "alice", "groups": ["a"]}}, "user", "alice"),
        ({"userInfo": {"username": "alice", "groups": ["a", "b"]}}, "groups", ["a", "b"]),
        *[({each: None}, each, "") for each in ("operation", "resource", "namespace")],
        ({"userInfo": None}, "user", ""),
    ],
)
def test_what_is_read_of_a_request(sent: dict[str, Any], member: str, value: object) -> None:
    assert getattr(decoded(**sent), member) == value


@pytest.mark.parametrize("obj", [{"metadata": {"name": "p"}}, [1], "text", 7])
def test_objects_are_the_judges_to_read(obj: object) -> None:
    request = decoded(object=obj, oldObject=None)
    assert json.loads(bytes(request.object)) == obj
    assert (request.old_object, decoded().object) == (NO_OBJECT, NO_OBJECT)


def test_bytes_that_are_no_text_are_found_by_who_reads_the_object() -> None:
    body = json.dumps(review(object={"a": "?"})).encode().replace(b"?", b"\xff")
    assert b"\xff" in bytes(reviews.decode(body).request.object)


@pytest.mark.parametrize(
    ("document", "why"),
    [
        (None, "Expected `object`, got `null`"),
        ([], "Expected `object`, got `array`"),
        ({}, "missing required field"),
        ({"request": "x"}, "Expected `object`, got `str` - at `$.request`"),
        ({"request": {"uid": 7}}, "Expected `str`, got `int` - at `$.request.uid`"),
        ({"apiVersion": V1, "kind": "AdmissionReview"}, "missing required field `request`"),
        ({"kind": "AdmissionReview", "request": {"uid": "a"}}, "missing required field `apiVersion`"),
        ({"apiVersion": V1, "kind": "Pod", "request": {"uid": "a"}}, "is no AdmissionReview: Pod"),
        ({"apiVersion": V1, "kind": "AdmissionReview", "request": {}}, "missing required field `uid`"),
        (review(uid=""), "request.uid is empty"),
        (review(operation=7), "at `$.request.operation`"),
        (review(resource="pods"), "at `$.request.resource`"),
        (review(userInfo={"groups": [7]}), "at `$.request.userInfo.groups[0]`"),
        (review(userInfo={"username": "x", "groups": "system:masters"}), "at `$.request.userInfo.groups`"),
    ],
)
def test_what_is_no_review(document: object, why: str) -> None:
    with pytest.raises(UndecodableError) as undecodable:
        reviews.decode(json.dumps(document).encode())
    assert str(undecodable.value).startswith("the body is no AdmissionReview: ")
    assert why in str(undecodable.value)


def test_an_object_that_is_nested_too_deeply_is_no_review() -> None:
    body = json.dumps(review(object="?")).encode().replace(b'"?"', b"[" * 100_000 + b"]" * 100_000)
    with pytest.raises(UndecodableError):
        reviews.decode(body)


@pytest.mark.parametrize(
    ("response", "result", "members"),
    [
        (AdmissionResponse(), ReviewResult.ALLOWED, {"allowed": True}),
        (AdmissionResponse(warnings=("a", "b")), ReviewResult.ALLOWED, {"allowed": True, "warnings": ["a", "b"]}),
        (
            AdmissionResponse(code=403, message="no"),
            ReviewResult.REJECTED,
            {
                "allowed": False,
                "status": {"status": "Failure", "code": 403, "reason": "Forbidden", "message": "no"},
            },
        ),
    ],
)
@pytest.mark.parametrize("version", [V1, "admission.k8s.io/v1beta1"])
def test_what_an_answer_says(
    response: AdmissionResponse, result: ReviewResult, members: dict[str, Any], version: str
) -> None:
    answer = reviews.answered("/a", ASKED._replace(api_version=version), response)
    assert answer.result is result
    assert json.loads(answer.body) == {
        "apiVersion": version,
        "kind": "AdmissionReview",
        "response": {"uid": "u1", **members},
    }


def test_a_patch_goes_in_base64() -> None:
    patch = [{"op": "remove", "path": "/spec/a~1b"}]
    response = json.loads(reviews.answered("/a", ASKED, AdmissionResponse(patch)).body)["response"]
    assert response["patchType"] == "JSONPatch"
    assert json.loads(base64.b64decode(response["patch"], validate=True)) == patch

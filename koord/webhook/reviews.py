"""AdmissionReviews as they come and go: bytes to a document, what a handler says of it back to bytes.

Invariant: whatever a handler does, there is an answer: one that raises, or returns what is no response, refuses with
status 500 and names the webhook, since an object that cannot be judged must not pass for one that was. Fails with
UndecodableError for what is no AdmissionReview. Pure but for the log.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, NamedTuple

import msgspec

log = logging.getLogger("koord.webhook.reviews")

Review = Mapping[str, Any]
Response = Mapping[str, Any]
"""The ``response`` in the answer to a review, without ``uid``."""
_MAX_MESSAGE = 1000


class Result(StrEnum):
    """What became of a request."""

    ALLOWED = "allowed"
    REJECTED = "rejected"
    FAILED = "failed"
    TIMED_OUT = "timed_out"
    UNDECODABLE = "undecodable"
    TOO_LARGE = "too_large"
    TOO_SLOW = "too_slow"
    OVERLOADED = "overloaded"
    DISCONNECTED = "disconnected"
    REFUSED = "refused"
    """Clients are to show a certificate, and this one shows none, or another's."""


class Answer(NamedTuple):
    result: Result
    body: bytes


class UndecodableError(ValueError):
    """The body is no AdmissionReview."""

    @property
    def answer(self) -> Answer:
        return Answer(Result.UNDECODABLE, f"{self}\n".encode())


class OverloadedError(Exception):
    """There is no verdict now, for want of what others use: the client is to come again."""

    @property
    def answer(self) -> Answer:
        return Answer(Result.OVERLOADED, f"{self}\n".encode())


class _Request(msgspec.Struct):
    uid: str


class _Envelope(msgspec.Struct, rename="camel"):
    """What an answer repeats; the objects are passed over, which costs little however large they are."""

    api_version: str
    kind: str
    request: _Request


def decoded(body: bytes) -> Review:
    """Raises UndecodableError."""
    try:
        review = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise UndecodableError(f"the body is no JSON: {error}") from error
    if not isinstance(review, dict) or review.get("kind") != "AdmissionReview":
        raise UndecodableError("the body is no AdmissionReview")
    request = review.get("request")
    if not isinstance(review.get("apiVersion"), str) or not isinstance(request, dict):
        raise UndecodableError("the AdmissionReview lacks apiVersion or request")
    if not isinstance(request.get("uid"), str):
        raise UndecodableError("the AdmissionReview's request lacks its uid")
    return review


def envelope(body: bytes) -> Review:
    """A review without what it is about. Raises UndecodableError."""
    try:
        review: Review = msgspec.to_builtins(msgspec.json.decode(body, type=_Envelope))
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise UndecodableError(f"the body is no AdmissionReview: {error}") from error
    return review


def answered(path: str, review: Review, response: Any) -> Answer:
    """``response``: what the handler of ``path`` returned."""
    try:
        if not isinstance(response, Mapping) or not isinstance(response.get("allowed"), bool):
            raise TypeError("its response does not say whether the object is allowed")
        return Answer(Result.ALLOWED if response["allowed"] else Result.REJECTED, _encoded(review, response))
    except Exception as error:  # noqa: BLE001 - whatever JSON cannot hold
        return failed(path, review, error)


def failed(path: str, review: Review, error: Exception, is_defect: bool = True) -> Answer:
    """For an ``except``: the handler of ``path`` raised ``error``; where it did, the log says only of a defect."""
    message = f"the webhook {path} failed: {type(error).__name__}: {error}"[:_MAX_MESSAGE]
    log.error("%s", message, exc_info=error if is_defect else None)
    message = message.encode(errors="replace").decode()  # without half characters, which JSON cannot hold
    status = {"status": "Failure", "reason": "InternalError", "code": 500, "message": message}
    return Answer(Result.FAILED, _encoded(review, {"allowed": False, "status": status}))


def _encoded(review: Review, response: Response) -> bytes:
    answer = {
        "apiVersion": review["apiVersion"],
        "kind": review["kind"],
        "response": {**response, "uid": review["request"]["uid"]},
    }
    return msgspec.json.encode(answer)

"""AdmissionReviews on the wire: bytes to a request, what a handler says of it back to bytes.

The envelope is read and written here and nowhere else. Invariant: whatever a handler does, there is an answer: one that
raises, or returns what is no response, refuses with status 500 and names the webhook, since an object that cannot be
judged must not pass for one that was. Fails with UndecodableError for what is no AdmissionReview. Pure but for the log.
"""

from __future__ import annotations

import base64
import logging
from enum import StrEnum
from typing import Any, NamedTuple

import msgspec

from koord.model.admissionreview import NO_OBJECT, AdmissionRequest, AdmissionResponse

log = logging.getLogger("koord.webhook.reviews")

_KIND = "AdmissionReview"
_REASONS = {400: "BadRequest", 403: "Forbidden", 500: "InternalError"}
_NULL = msgspec.Raw(b"null")
_MAX_MESSAGE = 1000


class ReviewResult(StrEnum):
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


class ReviewAnswer(NamedTuple):
    result: ReviewResult
    body: bytes


class UndecodableError(ValueError):
    """The body is no AdmissionReview."""

    @property
    def answer(self) -> ReviewAnswer:
        return ReviewAnswer(ReviewResult.UNDECODABLE, f"{self}\n".encode())


class OverloadedError(Exception):
    """There is no verdict now, for want of what others use: the client is to come again."""

    @property
    def answer(self) -> ReviewAnswer:
        return ReviewAnswer(ReviewResult.OVERLOADED, f"{self}\n".encode())


class _Resource(msgspec.Struct):
    group: str | None = None
    resource: str | None = None


class _User(msgspec.Struct):
    username: str | None = None
    groups: list[str] | None = None


class _Request(msgspec.Struct, rename="camel"):
    uid: str
    operation: str | None = None
    resource: _Resource | None = None
    sub_resource: str | None = None
    namespace: str | None = None
    user_info: _User | None = None
    dry_run: bool | None = None
    object: msgspec.Raw = NO_OBJECT
    old_object: msgspec.Raw = NO_OBJECT


class _Envelope(msgspec.Struct, rename="camel"):
    api_version: str
    kind: str
    request: _Request


class Review(NamedTuple):
    """``api_version``: that of the answer, too."""

    api_version: str
    request: AdmissionRequest


def decode(body: bytes) -> Review:
    """Passes over the objects, which costs little however large they are. Raises UndecodableError."""
    try:
        envelope = msgspec.json.decode(body, type=_Envelope)
    except msgspec.ValidationError as error:
        raise UndecodableError(f"the body is no {_KIND}: {error}") from error
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise UndecodableError(f"the body is no JSON: {error}") from error
    sent = envelope.request
    if envelope.kind != _KIND or not sent.uid:
        raise UndecodableError(f"the body is no {_KIND}: {'request.uid is empty' if not sent.uid else envelope.kind}")
    resource, user = sent.resource or _Resource(), sent.user_info or _User()
    return Review(
        envelope.api_version,
        AdmissionRequest(
            sent.uid,
            sent.operation or "",
            "/".join(filter(None, (resource.group, resource.resource))),
            sent.sub_resource or "",
            sent.namespace or "",
            NO_OBJECT if sent.object == _NULL else sent.object,
            NO_OBJECT if sent.old_object == _NULL else sent.old_object,
            user.username or "",
            user.groups or (),
            bool(sent.dry_run),
        ),
    )


def answered(path: str, review: Review, response: object) -> ReviewAnswer:
    """Encodes the answer. ``response``: what the handler of ``path`` returned."""
    try:
        if not isinstance(response, AdmissionResponse):
            raise TypeError(f"it returned {type(response).__name__}, which is no response")
        return ReviewAnswer(
            ReviewResult.ALLOWED if response.is_allowed else ReviewResult.REJECTED, _encoded(review, response)
        )
    except Exception as error:  # noqa: BLE001 - whatever JSON cannot hold
        return failed(path, review, error)


def failed(path: str, review: Review, error: Exception, is_defect: bool = True) -> ReviewAnswer:
    """Encodes a refusal, in an ``except``: the handler of ``path`` raised ``error``. The log has the traceback of a
    defect alone.
    """
    message = f"the webhook {path} failed: {type(error).__name__}: {error}"[:_MAX_MESSAGE]
    log.error("%s", message, exc_info=error if is_defect else None)
    message = message.encode(errors="replace").decode()  # without half characters, which JSON cannot hold
    return ReviewAnswer(ReviewResult.FAILED, _encoded(review, AdmissionResponse(code=500, message=message)))


def _encoded(review: Review, response: AdmissionResponse) -> bytes:
    written: dict[str, Any] = {"uid": review.request.uid, "allowed": response.is_allowed}
    if not response.is_allowed:
        reason, message = _REASONS.get(response.code, ""), response.message
        written["status"] = {"status": "Failure", "code": response.code, "reason": reason, "message": message}
    if response.patch:
        written["patchType"] = "JSONPatch"
        written["patch"] = base64.b64encode(msgspec.json.encode(response.patch)).decode()
    if response.warnings:
        written["warnings"] = response.warnings
    return msgspec.json.encode({"apiVersion": review.api_version, "kind": _KIND, "response": written})

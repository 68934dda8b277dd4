"""What can go wrong with a call to an API server, and what of it is worth another try.

``APIError``: the server answered, with an error. ``Unreachable``: it did not, or not to the end. ``BadAnswer``: what
it said is not what Kubernetes says. All are ``KubeError``, and nothing else leaves ``koord.kube.client``.
"""

from __future__ import annotations

from http import HTTPStatus

from koord.kube.reading import Status, StatusCause
from koord.model import core

DISRUPTION_BUDGET = "DisruptionBudget"
"""The cause that the server names when a PodDisruptionBudget forbids an eviction."""

_MESSAGE_CHARACTERS = 500
_REASONS = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    405: "MethodNotAllowed",
    409: "Conflict",
    410: "Gone",
    413: "RequestEntityTooLarge",
    415: "UnsupportedMediaType",
    422: "Invalid",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}
_REFUSALS = (
    HTTPStatus.BAD_REQUEST,
    HTTPStatus.FORBIDDEN,
    HTTPStatus.NOT_FOUND,
    HTTPStatus.METHOD_NOT_ALLOWED,
    HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
    HTTPStatus.UNPROCESSABLE_ENTITY,
)
_UNKNOWN_REQUESTS = (
    HTTPStatus.BAD_REQUEST,
    HTTPStatus.METHOD_NOT_ALLOWED,
    HTTPStatus.NOT_ACCEPTABLE,
    HTTPStatus.UNPROCESSABLE_ENTITY,
)
_OVERLOADED = (HTTPStatus.BAD_GATEWAY, HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.GATEWAY_TIMEOUT)


class KubeError(Exception):
    """A call to the API server failed."""

    @property
    def is_refusal(self) -> bool:
        """The same request will meet with it again until somebody changes the cluster."""
        return False


class NotLeader(KubeError):
    """A write was not sent, since another replica may lead."""


class APIError(KubeError):
    """The server's answer is an error. ``reason`` is the API's own word: "Conflict", "AlreadyExists", "Expired"…"""

    def __init__(
        self,
        status: int,
        reason: str,
        message: str,
        retry_after_s: float | None = None,
        causes: tuple[StatusCause, ...] = (),
    ) -> None:
        self.status, self.reason, self.message = status, reason, message
        self.retry_after_s, self.causes = retry_after_s, causes
        super().__init__(f"{status} {reason}: {message}")

    @property
    def is_refusal(self) -> bool:
        return self.status in _REFUSALS

    @property
    def is_not_found(self) -> bool:
        return self.status == HTTPStatus.NOT_FOUND

    @property
    def is_forbidden(self) -> bool:
        return self.status == HTTPStatus.FORBIDDEN

    @property
    def is_conflict(self) -> bool:
        """The object is not as the caller saw it; read it from the server before the next try."""
        return self.status == HTTPStatus.CONFLICT and self.reason == "Conflict"

    @property
    def is_already_exists(self) -> bool:
        return self.status == HTTPStatus.CONFLICT and self.reason == "AlreadyExists"

    @property
    def is_expired(self) -> bool:
        """The server no longer has what came after the resource version."""
        return self.status == HTTPStatus.GONE

    @property
    def is_unknown_request(self) -> bool:
        """The server does not know what was requested of it, or has it switched off."""
        return self.status in _UNKNOWN_REQUESTS

    @property
    def blocked_by_pdb(self) -> bool:
        """A PodDisruptionBudget forbids the eviction."""
        return any(cause.reason == DISRUPTION_BUDGET for cause in self.causes)


class Unreachable(KubeError):
    """No whole answer came. ``may_have_arrived``: the request may have been carried out all the same."""

    def __init__(self, message: str, may_have_arrived: bool) -> None:
        self.may_have_arrived = may_have_arrived
        super().__init__(message)


class Stalled(Unreachable):
    """A watch on which nothing came for so long, not even a bookmark, that its connection may be dead."""

    def __init__(self, silent_s: float) -> None:
        super().__init__(f"nothing came for {silent_s:g} s", may_have_arrived=True)


class BadAnswer(KubeError):
    """The answer cannot be read as what was requested."""


def may_retry(error: KubeError, idempotent: bool) -> bool:
    """Whether the same request may be sent again: it did nothing so far, or does no more if it comes twice.

    A forbidden eviction is an answer, though it comes with the status of an overload.
    """
    if isinstance(error, Unreachable):
        return idempotent or not error.may_have_arrived
    if not isinstance(error, APIError):
        return False
    if error.status == HTTPStatus.TOO_MANY_REQUESTS:
        return not error.blocked_by_pdb
    return idempotent and error.status in _OVERLOADED


def from_status(status: Status, http_status: int = 0, retry_after_s: float | None = None) -> APIError:
    """``http_status``: of the answer, for a body that does not say."""
    code = status.code or http_status or HTTPStatus.INTERNAL_SERVER_ERROR
    seconds = status.details.retry_after_seconds
    if retry_after_s is None and seconds > 0:
        retry_after_s = float(seconds)
    reason = status.reason or _REASONS.get(code, "Unknown")
    return APIError(code, reason, status.message, retry_after_s, status.details.causes)


def from_answer(http_status: int, body: bytes, retry_after: str = "") -> APIError:
    """The error of an answer; of a proxy's, too, which is no JSON. ``retry_after``: the header."""
    retry_after_s = float(retry_after) if retry_after.isdecimal() and len(retry_after) < 6 else None
    try:
        status = core.read(Status, body)
    except ValueError:
        status = Status(message=body[:_MESSAGE_CHARACTERS].decode(errors="replace").strip())
    return from_status(status, http_status, retry_after_s)

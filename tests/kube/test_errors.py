"""What an error answer says, and what may be sent again."""

from __future__ import annotations

import json

import pytest

from koord.kube.backoff import Backoff
from koord.kube.errors import APIError, BadAnswer, KubeError, Stalled, Unreachable, from_answer, may_retry
from koord.kube.reading import StatusCause

BUDGET = (StatusCause(reason="DisruptionBudget"),)


@pytest.mark.parametrize(
    ("error", "if_idempotent", "otherwise"),
    [
        (APIError(429, "TooManyRequests", ""), True, True),
        (APIError(429, "TooManyRequests", "", causes=BUDGET), False, False),
        (APIError(503, "ServiceUnavailable", ""), True, False),
        (APIError(504, "Timeout", ""), True, False),
        (APIError(502, "Unknown", ""), True, False),
        (APIError(500, "InternalError", ""), False, False),
        (APIError(404, "NotFound", ""), False, False),
        (APIError(409, "Conflict", ""), False, False),
        (APIError(410, "Expired", ""), False, False),
        (APIError(403, "Forbidden", ""), False, False),
        (Unreachable("", may_have_arrived=False), True, True),
        (Unreachable("", may_have_arrived=True), True, False),
        (Stalled(1), True, False),
        (BadAnswer(""), False, False),
        (KubeError(""), False, False),
    ],
    ids=repr,
)
def test_what_may_be_sent_again(error: KubeError, if_idempotent: bool, otherwise: bool) -> None:
    assert may_retry(error, idempotent=True) is if_idempotent
    assert may_retry(error, idempotent=False) is otherwise


@pytest.mark.parametrize(
    ("status", "body", "retry_after", "text", "retry_after_s"),
    [
        (404, b"", "", "404 NotFound: ", None),
        (502, b"<html>bad gateway</html>", "", "502 Unknown: <html>bad gateway</html>", None),
        (429, b"slow down\n", "3", "429 TooManyRequests: slow down", 3.0),
        (429, b"", "Wed, 21 Oct 2026 07:28:00 GMT", "429 TooManyRequests: ", None),
        (429, b"", "-1", "429 TooManyRequests: ", None),
        (429, b"", "9" * 400, "429 TooManyRequests: ", None),
        (409, b'{"reason": "AlreadyExists", "message": "x", "code": 409}', "", "409 AlreadyExists: x", None),
        (500, b'{"code": 504, "reason": "Timeout", "details": {"retryAfterSeconds": 2}}', "", "504 Timeout: ", 2.0),
        (500, b'{"code": "x"}', "", '500 InternalError: {"code": "x"}', None),
        (403, b'{"details": null, "message": null}', "", "403 Forbidden: ", None),
        (400, b"\xff" * 1000, "", "400 BadRequest: " + "\ufffd" * 500, None),
    ],
    ids=range(11),
)
def test_error_answers(status: int, body: bytes, retry_after: str, text: str, retry_after_s: float | None) -> None:
    error = from_answer(status, body, retry_after)
    assert (str(error), error.retry_after_s) == (text, retry_after_s)


def test_a_forbidden_eviction() -> None:
    status = {"code": 429, "details": {"causes": [{"reason": "DisruptionBudget", "message": "needs 2"}]}}
    error = from_answer(429, json.dumps(status).encode())
    assert error.blocked_by_pdb
    assert not from_answer(429, b"{}").blocked_by_pdb


@pytest.mark.parametrize(
    ("status", "reason", "words"),
    [
        (404, "NotFound", {"is_not_found"}),
        (409, "Conflict", {"is_conflict"}),
        (409, "AlreadyExists", {"is_already_exists"}),
        (410, "Gone", {"is_expired"}),
        (410, "Expired", {"is_expired"}),
        (400, "BadRequest", set()),
    ],
)
def test_words_for_errors(status: int, reason: str, words: set[str]) -> None:
    error = APIError(status, reason, "")
    named = {"is_not_found", "is_conflict", "is_already_exists", "is_expired", "blocked_by_pdb"}
    assert {name for name in named if getattr(error, name)} == words


@pytest.mark.parametrize(
    ("failures", "least_s", "most_s"), [(0, 0.5, 1), (1, 0.5, 1), (2, 1, 2), (4, 4, 8), (5, 5, 10), (10**6, 5, 10)]
)
def test_backoff(failures: int, least_s: float, most_s: float) -> None:
    backoff = Backoff(base_s=1.0, max_s=10.0)
    assert backoff.delay_s(failures, lambda: 0.0) == least_s
    assert backoff.delay_s(failures, lambda: 1.0) == most_s

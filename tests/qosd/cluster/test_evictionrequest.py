"""What each answer of an API server means to an eviction, on a clock of its own: how it ends, and when it is tried."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from koord.kube.credentials import CredentialsError
from koord.kube.errors import APIError, BadAnswer, KubeError, Unreachable
from koord.kube.kind import POD, Key, Kind
from koord.kube.reading import StatusCause
from koord.model.core import ObjectMeta, Pod
from qosd.act.evictor import EvictionRefused
from qosd.cluster.evictionrequest import EvictionBounds, EvictionRequest, NotByAPI
from qosd.decide.decision import Eviction
from tests.kube import virtualtime

KEY = Key("default", "web")
ORDER = Eviction("uid-web", "default/web", "beMemoryEvict: memory is short")
NEEDS = "The disruption budget web-pdb needs 1 healthy pods and has 1 currently"
BY_BUDGET = f"api eviction refused by PodDisruptionBudget web-pdb: {NEEDS}"


def _error(
    status: int, message: str = "", retry_after_s: float | None = None, reason: str = "", cause: str = ""
) -> APIError:
    causes = (StatusCause("DisruptionBudget", cause),) if cause else ()
    return APIError(status, reason, message, retry_after_s, causes)


BUDGET = _error(429, "Cannot evict pod as it would violate the pod's disruption budget.", cause=NEEDS)
BUDGET_IN_WORK = _error(429, "", 10.0, cause="The disruption budget web-pdb is still being processed by the server.")
BUDGET_IN_DISORDER = _error(
    403, 'poddisruptionbudgets.policy "web-pdb" is forbidden: pdb disruptions allowed is negative'
)
TWO_BUDGETS = _error(
    500, "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
)
WEBHOOK = _error(403, 'admission webhook "guard.example.com" denied the request: not today')
POLICY = _error(422, "pods \"web\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no")
BUSY, OVERLOADED, BROKEN_WEBHOOK = _error(429, "slow down", 4.0), _error(503), _error(500, "failed calling webhook")
CONFLICT, NOT_FOUND = _error(409, reason="Conflict"), _error(404, "the manager knows no pod")
NO_POD_OF_THE_NODE = _error(403, "no relationship found between node 'n1' and this object", reason="Forbidden")
FORBIDDEN = _error(403, "not your pod")
STARTING = _error(500, "[-]informer-sync failed: reason withheld")
AWAY = Unreachable("no connection", may_have_arrived=False)


class Answers:
    """An API server that answers as listed, the last again and again. ``there``: the UID of the pod of that name;
    ``ready``: what it says when it is asked whether it is, in the same way."""

    def __init__(
        self,
        *answers: KubeError | None,
        there: str | KubeError = "uid-web",
        ready: Sequence[KubeError | None] = (None,),
    ) -> None:
        self._answers, self._there, self._ready = list(answers), there, list(ready)
        self.calls_s: list[float] = []

    async def evict(self, key: Key, uid: str) -> None:
        assert (key, uid) == (KEY, "uid-web")
        self.calls_s.append(asyncio.get_running_loop().time())
        _answer(self._answers)

    async def get_path(self, path: str) -> bytes:
        assert path == "/readyz"
        _answer(self._ready)
        return b"ok"

    async def get(self, kind: Kind[Any], key: Key) -> Any:
        assert (kind, key) == (POD, KEY)
        if isinstance(self._there, KubeError):
            raise self._there
        return Pod(metadata=ObjectMeta(name="web", uid=self._there))


def _answer(answers: list[KubeError | None]) -> None:
    answer = answers.pop(0) if len(answers) > 1 else answers[0]
    if answer is not None:
        raise answer


def requested(api: Answers) -> tuple[str, list[tuple[str, str]]]:
    """How it ends, and the steps that were told."""
    steps: list[tuple[str, str]] = []

    async def request() -> str:
        made = EvictionRequest(
            api, ORDER, KEY, EvictionBounds(), lambda _, result, why: steps.append((str(result), why))
        )
        try:
            return await made.made()
        except (NotByAPI, EvictionRefused) as error:
            return f"{type(error).__name__}: {error}"

    return virtualtime.run(request()), steps


AGREED, ABSENT = "the API server has agreed", "the API server no longer has the pod"
OTHER = "the API server has another pod of that name"
NOT_DONE = "NotByAPI: the API server has not done it in 10 s: "
NOT_TO_DO = "NotByAPI: the API server does not do it: "
UNREADY = "it does not say that it is ready, and says "


@pytest.mark.parametrize(
    ("api", "end", "calls_s"),
    [
        (Answers(None), AGREED, [0]),
        (Answers(BUDGET), f"EvictionRefused: {BY_BUDGET}, for 30 s", [0, 5, 10, 15, 20, 25, 30]),
        (Answers(BUDGET, None), AGREED, [0, 5]),
        (Answers(BUDGET_IN_WORK), f"EvictionRefused: {BY_BUDGET[:53]}", [0, 10, 20, 30]),
        (Answers(_error(429, "no", cause="")), NOT_DONE, None),
        (Answers(_error(429, "no more", cause="a cause")), "EvictionRefused: api eviction refused by a Pod", None),
        (Answers(BUDGET_IN_DISORDER), "EvictionRefused: api eviction refused: poddisruptionbudgets.policy", None),
        (Answers(TWO_BUDGETS), "EvictionRefused: api eviction refused: This pod has more than one", None),
        (Answers(WEBHOOK, None), AGREED, [0, 5]),
        (Answers(POLICY), "EvictionRefused: api eviction refused: pods", None),
        (Answers(NOT_FOUND, there=NOT_FOUND), ABSENT, [0, 0]),
        (Answers(NOT_FOUND, there="uid-new"), OTHER, [0, 0]),
        (Answers(NOT_FOUND, there=NO_POD_OF_THE_NODE), ABSENT, [0, 0]),
        (Answers(CONFLICT, None, there=NO_POD_OF_THE_NODE), AGREED, None),
        (Answers(NOT_FOUND), f"{NOT_DONE}404 : the manager knows no pod", None),
        (Answers(NOT_FOUND, None), AGREED, None),
        (Answers(NOT_FOUND, None, there=AWAY), AGREED, None),
        (Answers(NOT_FOUND, there=AWAY), NOT_DONE, None),
        (Answers(NOT_FOUND, BUDGET), f"EvictionRefused: {BY_BUDGET}, for 30 s", None),
        (Answers(CONFLICT, there="uid-new"), OTHER, [0]),
        (Answers(CONFLICT, there=NOT_FOUND), ABSENT, [0]),
        (Answers(CONFLICT, None), AGREED, None),
        (Answers(CONFLICT, None, there=AWAY), AGREED, None),
        (Answers(CONFLICT, None, there=OVERLOADED), AGREED, None),
        (Answers(_error(401, "Unauthorized")), f"{NOT_TO_DO}401 : Unauthorized", [0]),
        (Answers(FORBIDDEN), f"{NOT_TO_DO}403 : not your pod", [0, 0]),
        (Answers(_error(400, "what?")), NOT_TO_DO, [0]),
        (Answers(CredentialsError("no kubeconfig")), f"{NOT_TO_DO}no kubeconfig", [0]),
        (Answers(BadAnswer("<html>")), f"{NOT_TO_DO}<html>", [0]),
        (Answers(AWAY), f"{NOT_DONE}no connection", None),
        (Answers(OVERLOADED), NOT_DONE, None),
        (Answers(BROKEN_WEBHOOK), NOT_DONE, None),
        (Answers(BUSY), NOT_DONE, [0, 4, 8, 10]),
        (Answers(BUSY, BUSY, None), AGREED, [0, 4, 8]),
        (Answers(AWAY, AWAY, AWAY, None), AGREED, None),
        (Answers(BUSY, BUSY, BUDGET, BUSY, BUSY, None), AGREED, [0, 4, 8, 13, 17, 21]),
        (Answers(BUSY, BUDGET, BUSY), NOT_DONE, [0, 4, 9, 13, 17, 19]),
        (Answers(BUDGET_IN_WORK, AWAY, None), AGREED, None),
        (Answers(BUDGET_IN_WORK, BUDGET_IN_WORK, BUDGET_IN_WORK, AWAY, None), AGREED, None),
        (Answers(*[BUDGET] * 6, BUSY), NOT_DONE, [0, 5, 10, 15, 20, 25, 30, 34, 38, 40]),
    ],
)  # fmt: skip
def test_what_an_answer_comes_to(api: Answers, end: str, calls_s: list[float] | None) -> None:
    said, _ = requested(api)
    assert said.startswith(end)
    assert calls_s is None or api.calls_s == pytest.approx(calls_s)
    assert api.calls_s[-1] <= 30 + 10, "the last refusal's pause ends at 30 s, and then nobody may answer"


@pytest.mark.parametrize(
    ("api", "end", "calls"),
    [
        (Answers(NOT_FOUND, None, there=NO_POD_OF_THE_NODE), AGREED, 2),
        (Answers(NOT_FOUND, None, there=NO_POD_OF_THE_NODE, ready=[STARTING]), AGREED, 2),
        (Answers(NOT_FOUND, NOT_FOUND, None, there=NO_POD_OF_THE_NODE, ready=[STARTING]), AGREED, 3),
        (Answers(NOT_FOUND, there=NO_POD_OF_THE_NODE, ready=[STARTING, None]), ABSENT, 3),
        (Answers(NOT_FOUND, there=NO_POD_OF_THE_NODE, ready=[AWAY, STARTING, None]), ABSENT, 4),
        (Answers(NOT_FOUND, AWAY, NOT_FOUND, None, there=NO_POD_OF_THE_NODE), AGREED, 4),
        (Answers(NOT_FOUND, BUDGET, NOT_FOUND, None, there=NO_POD_OF_THE_NODE), AGREED, 4),
        (Answers(NOT_FOUND, there=NO_POD_OF_THE_NODE, ready=[FORBIDDEN, STARTING, None]), ABSENT, 4),
        (Answers(NOT_FOUND, there=NO_POD_OF_THE_NODE, ready=[FORBIDDEN]), f"{NOT_DONE}{UNREADY}404", None),
        (Answers(FORBIDDEN, None), AGREED, 2),
        (Answers(FORBIDDEN, None, ready=[STARTING]), AGREED, 2),
        (Answers(FORBIDDEN, ready=[STARTING, None]), f"{NOT_TO_DO}403 : not your pod", 3),
        (Answers(FORBIDDEN, ready=[FORBIDDEN, None]), f"{NOT_TO_DO}403 : not your pod", 3),
        (Answers(FORBIDDEN, ready=[STARTING]), f"{NOT_DONE}{UNREADY}403 : not your pod", None),
        (Answers(WEBHOOK, None, ready=[STARTING]), AGREED, 2),
    ],
)
def test_a_server_that_starts_is_not_believed_what_it_does_not_know(api: Answers, end: str, calls: int | None) -> None:
    """It finds no pod that it has not read, and forbids what a role allows that it has not read."""
    assert requested(api)[0].startswith(end)
    assert calls is None or len(api.calls_s) == calls


def test_each_refusal_is_told_once() -> None:
    _, steps = requested(Answers(BUDGET, BUDGET_IN_WORK, BUDGET))
    in_work = "api eviction refused by PodDisruptionBudget web-pdb: The disruption budget web-pdb is still being"
    assert [(result, why[: len(in_work)]) for result, why in steps] == [
        ("refused", BY_BUDGET[: len(in_work)]),
        ("refused", in_work),
        ("refused", BY_BUDGET[: len(in_work)]),
    ]

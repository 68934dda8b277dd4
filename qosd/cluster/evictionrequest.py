"""The request of an eviction, made as often as it may be, and the meaning of each answer of an API server.

Invariants: every wait is bounded by ``EvictionBounds``; the last try is at the bound, never after it; a refusal counts
as one only if it comes from a party that may forbid the eviction: a PodDisruptionBudget, or an admission webhook or
policy. A credential that may not evict is no refusal. A pod that is not found counts as absent only if reading it says
so too: a manager that evicts may know less than the API server. Where a pod is not there, the node authorizer (since
Kubernetes 1.32) forbids a node's credential to read it, which says the same. A server that starts knows no pod that it
has not read yet, and allows nothing: such an answer counts only once the server is ready. Fails with NotByAPI or
EvictionRefused.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from random import random as uniform
from typing import Protocol

from koord.host.reconcile.plan import REFUSED
from koord.kube.backoff import Backoff
from koord.kube.errors import DISRUPTION_BUDGET, APIError, KubeError, Unreachable
from koord.kube.kind import POD, Key, Kind, T
from qosd.act.evictor import EvictionRefused
from qosd.decide.decision import Eviction

_BUDGET = re.compile(r"disruption budget (\S+)")
_DENIAL = re.compile(
    r'^admission webhook ".*" denied|ValidatingAdmissionPolicy .* denied request'
    r"|^poddisruptionbudgets\.policy|more than one PodDisruptionBudget"
)
"""Denials without a cause, of any status: a budget in disorder is a 403, a pod with two of them a 500."""
_PASSING = (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.CONFLICT, HTTPStatus.NOT_FOUND)
""""Not found" passes: the pod is there, and the manager that was asked does not know it yet."""
_READY = "/readyz"
"""Every credential may read it (ClusterRole ``system:public-info-viewer``), once the server has read its roles."""
_REFUSED_PAUSE_S = 5.0
_PAUSE = Backoff(base_s=0.2, max_s=2.0)


@dataclass(frozen=True, slots=True)
class EvictionBounds:
    """``pause_s``: between two looks at the pod's containers, and at whether there is an emergency."""

    refused_s: float = 30.0
    unanswered_s: float = 10.0
    gone_s: float = 60.0
    pause_s: float = 0.25


BOUNDS = EvictionBounds()


class EvictionClient(Protocol):
    """The part of ``koord.kube.client.Client`` that evicts. All raise KubeError."""

    async def evict(self, key: Key, uid: str) -> None: ...
    async def get(self, kind: Kind[T], key: Key) -> T: ...
    async def get_path(self, path: str) -> bytes: ...


class NotByAPI(Exception):
    """The API server does not carry out the eviction; the message says why."""


class EvictionRequest:
    """The request of one eviction, made as often as needed."""

    def __init__(
        self,
        api: EvictionClient,
        eviction: Eviction,
        key: Key,
        bounds: EvictionBounds,
        tell_step: Callable[[Eviction, str, str], None],
    ) -> None:
        self._api, self._eviction, self._key, self._bounds = api, eviction, key, bounds
        self._tell_step = tell_step
        now_s = asyncio.get_running_loop().time()
        self._refused_end_s, self._unanswered_end_s = now_s + bounds.refused_s, now_s + bounds.unanswered_s
        self._failures = 0
        self._refusal = ""

    async def made(self) -> str:
        """Returns the answer of the API server that means yes. Raises NotByAPI or EvictionRefused."""
        while True:
            error = await self._try()
            if error is not None and _may_be_ignorance(error):
                error = await self._try_ready(error)
            if error is None:
                return "the API server has agreed"
            if absence := await self._absence(error):
                return absence
            await asyncio.sleep(self._pause_s(error))

    async def _try(self) -> KubeError | None:
        try:
            await self._api.evict(self._key, self._eviction.uid)
        except KubeError as error:
            return error
        return None

    async def _try_ready(self, before: KubeError) -> KubeError | None:
        """Tries again if the server says that it is ready."""
        try:
            await self._api.get_path(_READY)
        except KubeError:
            return Unreachable(f"it does not say that it is ready, and says {before}", may_have_arrived=False)
        return await self._try()

    async def _absence(self, error: KubeError) -> str:
        """Returns that the API server lacks this pod, if ``error`` and reading the pod both say so; else ""."""
        if not isinstance(error, APIError) or not (error.is_not_found or error.is_conflict):
            return ""
        try:
            other = await self._api.get(POD, self._key)
        except APIError as at_get:
            is_absent = at_get.is_not_found or (error.is_not_found and at_get.status == HTTPStatus.FORBIDDEN)
            return "the API server no longer has the pod" if is_absent else ""
        except KubeError:
            return ""
        return "" if other.metadata.uid == self._eviction.uid else "the API server has another pod of that name"

    def _pause_s(self, error: KubeError) -> float:
        """Returns how long to wait before the next try. Raises NotByAPI or EvictionRefused."""
        now_s = asyncio.get_running_loop().time()
        if refusal := _refusal(error):
            return self._after_refusal(refusal, _retry_after_s(error) or _REFUSED_PAUSE_S, now_s)
        if not _is_passing(error):
            raise NotByAPI(f"the API server does not do it: {error}")
        if now_s >= self._unanswered_end_s:
            raise NotByAPI(f"the API server has not done it in {self._bounds.unanswered_s:g} s: {error}")
        self._failures += 1
        pause_s = max(_PAUSE.delay_s(self._failures, uniform), _retry_after_s(error))
        return min(pause_s, self._unanswered_end_s - now_s)

    def _after_refusal(self, refusal: str, pause_s: float, now_s: float) -> float:
        """Tells each refusal once. A refusal is an answer, so the server is there, and may be asked after the pause."""
        if now_s >= self._refused_end_s:
            raise EvictionRefused(f"{refusal}, for {self._bounds.refused_s:g} s")
        if refusal != self._refusal:
            self._refusal = refusal
            self._tell_step(self._eviction, REFUSED, refusal)
        pause_s = min(pause_s, self._refused_end_s - now_s)
        self._failures, self._unanswered_end_s = 0, now_s + pause_s + self._bounds.unanswered_s
        return pause_s


def _refusal(error: KubeError) -> str:
    """Returns which party forbids the eviction, and why; "" if ``error`` is no such refusal."""
    if not isinstance(error, APIError):
        return ""
    if error.blocked_by_pdb:
        return _by_budget([cause.message for cause in error.causes if cause.reason == DISRUPTION_BUDGET], error.message)
    return f"api eviction refused: {error.message}" if _DENIAL.search(error.message) else ""


def _by_budget(causes: list[str], message: str) -> str:
    text = "; ".join(cause for cause in causes if cause) or message
    name = _BUDGET.search(text)
    return f"api eviction refused by {f'PodDisruptionBudget {name[1]}' if name else 'a PodDisruptionBudget'}: {text}"


def _retry_after_s(error: KubeError) -> float:
    """Returns the pause that the server asks for; 0 if it asks for none."""
    return error.retry_after_s or 0.0 if isinstance(error, APIError) else 0.0


def _may_be_ignorance(error: KubeError) -> bool:
    """Returns whether a server that has not read all its objects yet may answer ``error`` too."""
    if not isinstance(error, APIError) or _refusal(error):
        return False
    return error.is_not_found or error.status == HTTPStatus.FORBIDDEN


def _is_passing(error: KubeError) -> bool:
    """Returns whether the same request may succeed in a moment."""
    if not isinstance(error, APIError):
        return isinstance(error, Unreachable)
    return error.status in _PASSING or error.status >= HTTPStatus.INTERNAL_SERVER_ERROR

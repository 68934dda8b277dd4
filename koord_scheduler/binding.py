"""From a decision to a pod that is bound, however the API server answers.

A binding names the pod's UID, so the same one may be sent again: a server that has carried it out says where the pod
is. Where no answer comes, or one that says nothing of the pod, it is sent again until there is one. Until then the
assumption stays, and the room is not given away twice. A node that goes in between ends that: the pod is read, and is
free unless it was bound after all. Nothing is sent once this replica leads no longer (``Client.guarded``).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from enum import Enum, auto
from http import HTTPStatus
from random import random as uniform
from typing import NamedTuple

from koord.kube.backoff import Backoff, Random
from koord.kube.client import Client
from koord.kube.errors import AlreadyBound, APIError, KubeError, NotLeader
from koord.kube.kind import Key
from koord.kube.schedulingkinds import POD
from koord.scheduling.podinfo import PodInfo
from koord_scheduler.window import RequestWindow

_log = logging.getLogger(__name__)
_BACKOFF = Backoff(base_s=0.2, max_s=10.0)


class Outcome(Enum):
    """What became of a pod."""

    BOUND = auto()
    """It is on the node; its object will say so."""
    ELSEWHERE = auto()
    """Another scheduler has placed it: its object says where."""
    GONE = auto()
    """There is no such pod any more."""
    REFUSED = auto()
    """It is on no node, and may be tried again."""


class Bound(NamedTuple):
    outcome: Outcome
    error: str = ""


class Binder:
    """``client``: the leader's; it sends each request once, without a rate of its own."""

    def __init__(
        self,
        client: Client,
        window: RequestWindow,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        random: Random = uniform,
    ) -> None:
        self._client, self._window, self._sleep, self._random = client, window, sleep, random

    async def bind(self, pod: PodInfo, node: str, is_wanted: Callable[[], bool]) -> Bound:
        """Binds, and says what came of it. ``is_wanted``: False once the node is gone. Raises NotLeader."""
        key, failures, error = Key(pod.namespace, pod.name), 0, ""
        while is_wanted():
            try:
                async with self._window.place():
                    await self._client.bind(key, pod.uid, node)
                return Bound(Outcome.BOUND)
            except NotLeader:
                raise
            except AlreadyBound as refusal:
                return Bound(Outcome.ELSEWHERE, str(refusal))
            except KubeError as refusal:
                if isinstance(refusal, APIError) and not _says_nothing(refusal):
                    return Bound(Outcome.GONE if refusal.is_not_found else Outcome.REFUSED, str(refusal))
                error = str(refusal)
                _log.info("pod %s is bound to %s again, as the server did not answer: %s", key, node, error)
            failures += 1
            await self._sleep(_BACKOFF.delay_s(failures, self._random))
        return await self._read(key, pod.uid, node) if failures else Bound(Outcome.REFUSED, f"node {node} is gone")

    async def _read(self, key: Key, uid: str, node: str) -> Bound:
        """Asks until the API server says what became of the pod."""
        failures = 0
        while True:
            try:
                found = await self._client.get(POD, key)
            except KubeError as error:
                if isinstance(error, APIError) and error.is_not_found:
                    return Bound(Outcome.GONE, str(error))
                _log.info("pod %s cannot be read: %s", key, error)
            else:
                if found.metadata.uid != uid:
                    return Bound(Outcome.GONE, "another pod has its name")
                if found.spec.node_name:
                    return Bound(Outcome.BOUND if found.spec.node_name == node else Outcome.ELSEWHERE)
                return Bound(Outcome.REFUSED, f"node {node} is gone")
            failures += 1
            await self._sleep(_BACKOFF.delay_s(failures, self._random))


def _says_nothing(error: APIError) -> bool:
    """Returns whether the server has not said what became of the pod."""
    return error.status == HTTPStatus.TOO_MANY_REQUESTS or error.status >= HTTPStatus.INTERNAL_SERVER_ERROR

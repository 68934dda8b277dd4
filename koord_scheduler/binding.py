"""From a decision to a pod that is bound, however the API server answers.

Where a binding is not answered by a success or by "not now", the pod itself is looked up before anything else: its
object says whether it is bound, and where; the words of an answer do not, and a proxy may have written them. Until the
server has said what became of the pod, the assumption stays, so the room is not given away twice. A pod that still
waits is sent again, unless its node is gone or the server refused it. A binding names the pod's UID, so one that
arrives late binds no other pod of that name, and none twice. Nothing is sent once this replica leads no longer
(``Client.guarded``).
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
from koord.kube.client import Client, pause_s
from koord.kube.errors import APIError, KubeError, NotLeader, Unreachable
from koord.kube.kind import Key
from koord.kube.schedulingkinds import POD
from koord.model.scheduling.pods import Pod
from koord.scheduling.podinfo import PodInfo
from koord_scheduler.window import RequestWindow

_log = logging.getLogger(__name__)
_BACKOFF = Backoff(base_s=0.2, max_s=10.0)


class Outcome(Enum):
    """What became of a pod."""

    BOUND = auto()
    """It is on the node; its object will say so."""
    BY_ANOTHER = auto()
    """It is on the node, and another scheduler has bound it, which says so."""
    ELSEWHERE = auto()
    """Another scheduler has placed it: its object says where."""
    GONE = auto()
    """There is no such pod any more, or it is being deleted without a node."""
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
        key, failures, may_be_ours = Key(pod.namespace, pod.name), 0, False
        while is_wanted():
            try:
                async with self._window.place():
                    if not is_wanted():
                        break
                    await self._client.bind(key, pod.uid, node)
                return Bound(Outcome.BOUND)
            except NotLeader:
                raise
            except KubeError as error:
                if not _is_undone(error):
                    may_be_ours = may_be_ours or not _is_refusal(error)
                    outcome = _outcome(await self._look_up(key), pod.uid, node)
                    if outcome is Outcome.BOUND and not may_be_ours:
                        return Bound(Outcome.BY_ANOTHER)
                    if outcome is not Outcome.REFUSED or _is_refusal(error):
                        return Bound(outcome, str(error))
                failures += 1
                _log.info("pod %s is to be bound to %s again: %s", key, node, error)
                await self._sleep(pause_s(error, failures, self._random, _BACKOFF))
        return Bound(Outcome.REFUSED, f"node {node} is gone")

    async def _look_up(self, key: Key) -> Pod | None:
        """Returns the pod as the API server has it now; asks until it answers."""
        failures = 0
        while True:
            try:
                async with self._window.place():
                    return await self._client.get(POD, key)
            except KubeError as error:
                if isinstance(error, APIError) and error.is_not_found:
                    return None
                failures += 1
                _log.info("pod %s, which may be bound, cannot be read: %s", key, error)
                await self._sleep(pause_s(error, failures, self._random, _BACKOFF))


def _outcome(found: Pod | None, uid: str, node: str) -> Outcome:
    """Returns what became of the pod with this ``uid`` that was to be on ``node``."""
    if found is None or found.metadata.uid != uid:
        return Outcome.GONE
    if found.spec.node_name:
        return Outcome.BOUND if found.spec.node_name == node else Outcome.ELSEWHERE
    return Outcome.GONE if found.metadata.deletion_timestamp else Outcome.REFUSED


def _is_undone(error: KubeError) -> bool:
    """Returns whether the request was certainly not carried out, and may be sent again."""
    if isinstance(error, Unreachable):
        return not error.may_have_arrived
    return isinstance(error, APIError) and error.status == HTTPStatus.TOO_MANY_REQUESTS


def _is_refusal(error: KubeError) -> bool:
    """Returns whether the server has answered that it will not bind the pod."""
    return isinstance(error, APIError) and error.status < HTTPStatus.INTERNAL_SERVER_ERROR

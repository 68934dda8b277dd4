"""From a decision to a pod that is bound, however the API server answers.

Where a binding is not answered by a success or by "not now", the pod itself is looked up before anything else: its
object says whether it is bound, and where; the words of an answer do not, and a proxy may have written them. Until the
server has said what became of the pod, the assumption stays, so the room is not given away twice. A pod that still
waits is sent again, unless its node is gone or the server refused it; then it is looked up once more when what was sent
before is over: carried out by then, or never. A binding names the pod's UID, so one that arrives late binds no other
pod of that name, and none twice. Nothing is sent once this replica leads no longer
(``Client.guarded``), and leadership ends after what was sent: with its answer, or its time.
An extender that binds is asked once, since nobody knows what it does the second time, and whatever it says, or does
not, the pod is looked up.

What plugins want on the pod is there before the binding is sent, so that whoever sees the pod on a node sees that, too.
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
from koord.kube.client import CallLimits, Client, pause_s
from koord.kube.errors import APIError, KubeError, NotLeader, Unreachable
from koord.kube.kind import Key
from koord.kube.lease import to_its_end
from koord.kube.schedulingkinds import POD
from koord.model.scheduling.pods import Pod
from koord.scheduling.plugin import PodPatch
from koord.scheduling.podinfo import PodInfo
from koord_scheduler.extenders import NO_EXTENDERS, Extender, ExtenderError, Extenders, Refusal
from koord_scheduler.window import RequestWindow

_log = logging.getLogger(__name__)
_BACKOFF = Backoff(base_s=0.2, max_s=10.0)
_READS = 4
"""Of a pod that an extender may just be binding: about a second and a half."""


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
    """``client``: the leader's. ``timeout_s``: of each request, which is sent once and waits for no rate."""

    def __init__(
        self,
        client: Client,
        window: RequestWindow,
        timeout_s: float,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        random: Random = uniform,
        extenders: Extenders = NO_EXTENDERS,
    ) -> None:
        self._client = client.with_limits(CallLimits(tries=1, timeout_s=timeout_s))
        self._window, self._timeout_s, self._extenders = window, timeout_s, extenders
        self._over_s = float("-inf")
        self._sleep, self._random = sleep, random

    async def bind(self, pod: PodInfo, node: str, is_wanted: Callable[[], bool]) -> Bound:
        """Binds, and says what came of it. ``is_wanted``: False once the node is gone. Raises NotLeader."""
        extender = self._extenders.binder_of(pod)
        if extender is not None and is_wanted():
            bound = await self._bind_by(extender, pod, node)
            if bound.outcome is not Outcome.REFUSED or not extender.settings.is_ignorable:
                return bound
            _log.info("pod %s/%s is bound without the extender: %s", pod.namespace, pod.name, bound.error)
        return await self._bind(pod, node, is_wanted, extender is not None)

    async def over(self) -> None:
        """Returns once nothing whose answer was lost can be carried out any more, if nothing more is sent."""
        left_s = self._over_s - asyncio.get_running_loop().time()
        if left_s > 0:
            await self._sleep(left_s)

    async def _bind_by(self, extender: Extender, pod: PodInfo, node: str) -> Bound:
        """Has the extender bind the pod."""
        reads, error = _READS, f"extender {extender.name} says that it has bound the pod, which is on no node"
        try:
            await self._extenders.bind(extender, pod, node, self._client.check_write)
        except ExtenderError as refusal:
            reads, error = 1 if isinstance(refusal, Refusal) else _READS, str(refusal)
        for failures in range(1, reads + 1):
            outcome = _outcome(await self._look_up(Key(pod.namespace, pod.name)), pod.uid, node)
            if outcome is not Outcome.REFUSED:
                return Bound(outcome, error)
            if failures < reads:
                await self._sleep(_BACKOFF.delay_s(failures, self._random))
        return Bound(Outcome.REFUSED, error)

    async def _bind(self, pod: PodInfo, node: str, is_wanted: Callable[[], bool], may_be_ours: bool) -> Bound:
        """``may_be_ours``: an earlier request of ours may yet bind the pod."""
        key, failures, reason = Key(pod.namespace, pod.name), 0, f"node {node} is gone"
        now_s = asyncio.get_running_loop().time
        sent_s = over_s = now_s()
        while is_wanted():
            try:
                async with self._window.place():
                    sent_s = now_s()
                    if not await to_its_end(self._send(key, pod.uid, node, is_wanted)):
                        break
                return Bound(Outcome.BOUND)
            except NotLeader:
                raise
            except KubeError as error:
                if not _is_undone(error):
                    if not _is_refusal(error):
                        may_be_ours = True
                        over_s = sent_s + self._timeout_s
                    outcome = _outcome(await self._look_up(key), pod.uid, node)
                    if outcome is Outcome.BOUND and not may_be_ours:
                        return Bound(Outcome.BY_ANOTHER)
                    if outcome is not Outcome.REFUSED:
                        return Bound(outcome, str(error))
                    if _is_refusal(error):
                        reason = str(error)
                        break
                failures += 1
                _log.info("pod %s is to be bound to %s again: %s", key, node, error)
                await self._sleep(pause_s(error, failures, self._random, _BACKOFF))
        if over_s <= now_s():
            return Bound(Outcome.REFUSED, reason)
        await self._sleep(over_s - now_s())
        return Bound(_outcome(await self._look_up(key), pod.uid, node), reason)

    async def patch(self, pod: PodInfo, patch: PodPatch, node: str, is_wanted: Callable[[], bool]) -> Bound | None:
        """Writes annotations and labels on the pod, which is to be bound to ``node`` then; None: they are written.

        Otherwise the pod must not be bound. The patch names the UID, and one that has arrived before changes nothing,
        so it is sent again where no answer comes, or another client's write came between. Raises NotLeader.
        """
        key, failures = Key(pod.namespace, pod.name), 0
        body = {"metadata": {"uid": pod.uid, **{what: each for what, each in patch._asdict().items() if each}}}
        while is_wanted():
            try:
                async with self._window.place():
                    if not is_wanted():
                        break
                    written = await self._client.patch(POD, key, body)
            except NotLeader:
                raise
            except KubeError as error:
                if _is_refusal(error) and not _is_undone(error):
                    outcome = _outcome(await self._look_up(key), pod.uid, node)
                    if outcome is not Outcome.REFUSED:
                        return Bound(Outcome.BY_ANOTHER if outcome is Outcome.BOUND else outcome, str(error))
                    if not (isinstance(error, APIError) and error.is_conflict):
                        return Bound(Outcome.REFUSED, str(error))
                failures += 1
                _log.info("pod %s is to be patched again: %s", key, error)
                await self._sleep(pause_s(error, failures, self._random, _BACKOFF))
            else:
                is_going = written.metadata.deletion_timestamp is not None
                return Bound(Outcome.GONE, "the pod is being deleted") if is_going else None
        return Bound(Outcome.REFUSED, f"node {node} is gone")

    async def _send(self, key: Key, uid: str, node: str, is_wanted: Callable[[], bool]) -> bool:
        """Returns False where nothing is sent."""
        if not is_wanted():
            return False
        sent_s = asyncio.get_running_loop().time()
        try:
            await self._client.bind(key, uid, node)
        except NotLeader:
            raise
        except KubeError as error:
            if not _is_undone(error) and not _is_refusal(error):
                self._over_s = max(self._over_s, sent_s + self._timeout_s)
            raise
        return True

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

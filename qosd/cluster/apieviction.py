"""Evictions through the API server: PodDisruptionBudgets are asked, kubelet ends the pod and does not start it again.

    agreed       kubelet has ``gone_s`` to end the pod, or the pod's own grace period and LATE_S if that is longer; then
                 the container runtime ends what is left
    not there    the API server no longer has the pod, or has another of that name: kubelet is ending it, likewise
    refused      by a PodDisruptionBudget or in admission: tried again for ``refused_s``, as the server says, then
                 EvictionRefused with its message: it is no failure of the node, and nothing was done to the pod
    no answer    the server does not answer, is too busy or not ready yet: tried again for ``unanswered_s``, then by the
                 container runtime
    not allowed  and any other answer: by the container runtime at once

In an emergency, before or in the midst of all that, the runtime stops the containers at once: the kernel would not wait
and would ask for no budget. Invariants: an eviction has come about when the containers have exited and their cgroups
are gone, be it by kubelet or the runtime (``qosd.act.cristop``); every wait is bounded
(``qosd.cluster.evictionrequest``); it may be cancelled anywhere and done again. An Event on the pod tells the result;
if it cannot be written, that costs no eviction. Where the runtime fails too, the Event has both reasons.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, Protocol

from koord.kube.client import CallLimits, Client
from koord.kube.kind import POD, Key
from koord.kube.ratelimit import RateLimit
from koord.kube.recorder import EventRecorder, EventType, Subject
from koord.model.eventreasons import EVICTED, NOT_EVICTED
from qosd.act.cristop import CRIStop, EvictedPod
from qosd.act.evictor import EvictionFailed, Evictor
from qosd.cluster.evictionrequest import BOUNDS, EvictionBounds, EvictionClient, EvictionRequest, NotByAPI
from qosd.decide.decision import Eviction
from qosd.model.snapshot import EvictionPhase

CALL_S = 15.0
"""A server may take ten seconds to say that a pod has another UID."""
_QPS, _BURST = 5.0, 20
"""The rate of evictions alone: an eviction waits for no report."""
_log = logging.getLogger(__name__)


class Events(Protocol):
    def record(self, subject: Subject, type: EventType, reason: str, message: str) -> None: ...


class APIEviction:
    """An executor. ``stop``: the executor that it falls back to, and that looks at the pod. ``emergency``: why there is
    no time to wait, "" = there is. ``left_s``: by UID, the rest of the pod's own grace period; 0 = none, or not known.
    ``tell_step``: takes a step's eviction, result and reason for the journal."""

    def __init__(
        self,
        api: EvictionClient,
        stop: CRIStop,
        events: Events,
        emergency: Callable[[], str],
        left_s: Callable[[str], float],
        tell_step: Callable[[Eviction, str, str], None],
        bounds: EvictionBounds = BOUNDS,
    ) -> None:
        self._api, self._stop, self._events = api, stop, events
        self._emergency, self._left_s, self._tell_step, self._bounds = emergency, left_s, tell_step, bounds

    async def evict(self, eviction: Eviction) -> None:
        """Returns when all containers have exited and their cgroups are gone. Raises EvictionFailed."""
        key = _key(eviction)
        try:
            how = await self._evict(eviction, key)
        except EvictionFailed as error:
            self._say(eviction, key, NOT_EVICTED, str(error))
            raise
        self._say(eviction, key, EVICTED, how)

    async def _evict(self, eviction: Eviction, key: Key) -> str:
        """Returns how the eviction came about, beyond the usual way."""
        pod = self._stop.pod(eviction)
        try:
            await self._unless_urgent(self._by_api(eviction, key, pod))
        except NotByAPI as reason:
            how = f"fell back to CRI because {reason}"
            self._tell_step(eviction, EvictionPhase.STOPPING, how)
            try:
                await self._stop.end(pod)
            except EvictionFailed as error:
                raise EvictionFailed(f"{how}; {error}") from error
            return how
        return ""

    async def _unless_urgent(self, course: Coroutine[Any, Any, None]) -> None:
        """Follows ``course`` as long as there is no emergency. Raises NotByAPI."""
        task = asyncio.create_task(course)
        try:
            while not task.done():
                if emergency := self._emergency():
                    raise NotByAPI(emergency)
                await asyncio.wait((task,), timeout=self._bounds.pause_s)
            await task
        finally:
            if not task.done():
                task.cancel()
                await asyncio.wait((task,))

    async def _by_api(self, eviction: Eviction, key: Key, pod: EvictedPod) -> None:
        """Raises NotByAPI or EvictionRefused."""
        await pod.look()
        await pod.learn_cgroups()
        agreement = await EvictionRequest(self._api, eviction, key, self._bounds, self._tell_step).made()
        self._tell_step(eviction, EvictionPhase.STOPPING, f"{agreement}, and kubelet ends the pod")
        await self._gone(eviction.uid, pod)

    async def _gone(self, uid: str, pod: EvictedPod) -> None:
        """Raises NotByAPI, not before the pod's own grace period is over."""
        loop = asyncio.get_running_loop()
        begin_s = loop.time()
        while problems := await pod.look():
            waited_s = loop.time() - begin_s
            if waited_s >= self._bounds.gone_s and self._left_s(uid) <= 0:
                raise NotByAPI(f"kubelet has not ended it in {waited_s:.1f} s: {'; '.join(problems)}")
            await asyncio.sleep(self._bounds.pause_s)

    def _say(self, eviction: Eviction, key: Key, reason: str, remark: str) -> None:
        message = f"{eviction.why}; {remark}" if remark else eviction.why
        self._events.record(Subject(POD, key, eviction.uid), EventType.WARNING, reason, message)


@contextlib.contextmanager
def evicting_by_api(
    evictor: Evictor, api: Client | EvictionClient, recorder: EventRecorder, bounds: EvictionBounds = BOUNDS
) -> Iterator[None]:
    """``evictor`` evicts by ``api`` for as long as the block lasts.

    Without a container runtime, the end of an eviction cannot be seen: then no pod is evicted, as without a cluster.
    """
    stop = evictor.executor
    if not isinstance(stop, CRIStop):
        _log.warning("no pod is evicted through the API server: without a runtime endpoint nobody sees its end")
        yield
        return
    if isinstance(api, Client):
        rate = RateLimit(_QPS, _BURST, asyncio.get_running_loop().time)
        api = api.with_limits(CallLimits(rate, tries=1, timeout_s=CALL_S))
    evictor.executor = APIEviction(
        api, stop, recorder, lambda: evictor.emergency, evictor.left_s, evictor.tell_step, bounds
    )
    try:
        yield
    finally:
        evictor.executor = stop


def _key(eviction: Eviction) -> Key:
    """Raises EvictionFailed."""
    if not eviction.uid:
        raise EvictionFailed(f"pod {eviction.pod} has no UID by which it is this one")
    namespace, slash, name = eviction.pod.partition("/")
    if not (namespace and name and slash):
        raise EvictionFailed(f"pod {eviction.pod!r} is not namespace/name")
    return Key(namespace, name)

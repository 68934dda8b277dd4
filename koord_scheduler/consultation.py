"""A decision about a pod in which extenders have a say: the state's answers, theirs, and the state's again.

While they are asked, events come in and other pods are placed. So what extenders say is looked at with the state as it
is then: a node that will not do any more is not taken, nodes that nobody was asked about are asked about, and scores
are those of the moment. Invariant: between the last look and the return nothing else runs.
The questions carry the pod as the API server has it, of which the state reads a part. Fails with ExtenderError or
KubeError, after which the pod is to be tried again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec
import numpy as np

from koord.kube import kind
from koord.kube.client import Client
from koord.kube.errors import APIError
from koord.kube.kind import Key, Unstructured
from koord.scheduling.framework import Diagnosis, Placement
from koord.scheduling.plugin import Rejection
from koord.scheduling.podinfo import PodInfo
from koord.scheduling.preemption import Preemption, best, by_importance
from koord.scheduling.queuedpod import QueuedPod
from koord.scheduling.state import ClusterState
from koord.scheduling.table import Bools, Int64s
from koord_scheduler.extenders import ExtenderError, Extenders, FailedNode, NodeObjects, Victims
from koord_scheduler.nodedocuments import json_of
from koord_scheduler.view import ClusterView

_POD = kind.POD.decoded_as(Unstructured)
_TRIES = 3
_MOST_REASONS = 50
_MOST_READS = 16
_OTHER_REASONS = "node(s) were rejected by extenders for other reasons"
_NO_CANDIDATE = "no candidate node for preemption"
_ROOM_CAME = "a node has room now"


class Unplaced(NamedTuple):
    """No node will do. ``preemption``: what makes room. ``why_not``: why nothing does, if that needs to be said.
    ``event_count``: the queue's, when extenders were asked. ``is_failure``: an extender failed, and may not next time.
    """

    diagnosis: Diagnosis
    preemption: Preemption | None = None
    why_not: str = ""
    event_count: int | None = None
    is_failure: bool = False


class Consultation:
    """``client``: reads the pods that questions are about."""

    def __init__(self, client: Client, view: ClusterView, extenders: Extenders) -> None:
        self._client, self._view, self._extenders = client, view, extenders

    async def decide(self, queued: QueuedPod) -> Placement | Unplaced | None:
        """Returns where a pod of the queue that ``is_asked`` goes, or why nowhere; None: it is not the same any more.
        It stays in the queue.
        """
        queue, state = self._view.queue, self._view.state
        framework, document = self._view.framework_of(queued.pod), msgspec.Raw()
        for _ in range(_TRIES):
            event_count = queue.event_count
            names = self._names(framework.feasible(queued.pod))
            if not names:
                return await self._unplaced(queued, framework.diagnose(queued.pod), event_count, document)
            document = document if len(document) else await self._document(queued.pod)
            nodes = self._nodes(names)
            filtered = await self._extenders.filter(queued.pod, document, nodes)
            if not queue.is_asked(queued):
                return None
            feasible = framework.feasible(queued.pod)
            left = self._names(feasible & _rows(state, filtered.left))
            scores: Mapping[str, int] = {}
            if len(left) > 1:
                scores = await self._extenders.prioritize(queued.pod, document, nodes.only(left))
                if not queue.is_asked(queued):
                    return None
            placement = framework.place(queued.pod, _rows(state, filtered.left), _column(state, scores))
            if placement is not None:
                return placement
            if not np.any(framework.feasible(queued.pod) & ~_rows(state, nodes.names)):
                diagnosis = framework.diagnose(queued.pod, _rejections(state, filtered.failed))
                return await self._unplaced(queued, diagnosis, event_count, document)
        raise ExtenderError("nodes change faster than extenders answer")

    async def _unplaced(
        self, queued: QueuedPod, diagnosis: Diagnosis, event_count: int, document: msgspec.Raw
    ) -> Unplaced | None:
        """Looks for a preemption, and has extenders choose among the candidates."""
        pod, preemptors = queued.pod, self._view.preemptors(queued.pod)
        if not preemptors:
            return Unplaced(diagnosis, event_count=event_count)
        for preemptor in preemptors:
            if why_not := preemptor.why_not(pod, diagnosis):
                return Unplaced(diagnosis, None, why_not, event_count)
            candidates = preemptor.candidates_for(pod, diagnosis)
            if candidates:
                break
        if not candidates or not self._extenders.preempting_for(pod):
            return Unplaced(diagnosis, best(candidates), event_count=event_count)
        pods = _VictimPods(self._client, self._view.state, pod)
        rejected = frozenset(self._names(preemptor.framework.feasible(pod)))
        victims = {each.node: Victims(_uids(each.victims), each.violations) for each in candidates}
        try:
            document = document if len(document) else await self._document(pod)
            left = await self._extenders.preempt(pod, document, victims, pods)
        except ExtenderError as error:
            return Unplaced(diagnosis, None, str(error), event_count, True) if self._is_same(queued) else None
        if not self._is_same(queued):
            return None
        if not rejected.issuperset(self._names(preemptor.framework.feasible(pod))):
            return Unplaced(diagnosis, None, _ROOM_CAME, event_count)
        found = [each for node, said in left.items() if preemptor.helps(pod, each := pods.preemption(node, said))]
        preemption = best([each for each in found if each.victims])
        return Unplaced(diagnosis, preemption, "" if preemption else _NO_CANDIDATE, event_count)

    def _is_same(self, queued: QueuedPod) -> bool:
        return self._view.queue.is_asked(queued)

    async def _document(self, pod: PodInfo) -> msgspec.Raw:
        found = await self._client.get(_POD, Key(pod.namespace, pod.name))
        if found.metadata.uid != pod.uid:
            raise ExtenderError(f"another pod is called {pod.namespace}/{pod.name} now")
        return json_of(found.content)

    def _names(self, rows: Bools) -> list[str]:
        return [self._view.state.table.name(int(row)) for row in np.flatnonzero(rows)]

    def _nodes(self, names: list[str]) -> NodeObjects:
        """Of nodes that are sent whole, those that are known whole."""
        documents = self._view.node_documents
        if documents is None:
            return NodeObjects(names, {})
        found = {name: each.json for name in names if (each := documents.objects.get(Key("", name))) is not None}
        if not found:
            raise ExtenderError("nodes that are to be shown to extenders are not known yet")
        return NodeObjects(list(found), found)


@dataclass(frozen=True)
class _VictimPods:
    """Of ``preemptor``."""

    client: Client
    state: ClusterState
    preemptor: PodInfo

    def may_leave(self, node: str, uid: str) -> bool:
        pod = self.state.pod(uid)
        return pod is not None and self.state.node_of(uid) == node and pod.priority < self.preemptor.priority

    def preemption(self, node: str, victims: Victims) -> Preemption:
        """Without the victims that have left by now."""
        pods = [pod for uid in victims.uids if self.may_leave(node, uid) and (pod := self.state.pod(uid)) is not None]
        return Preemption(node, tuple(sorted(pods, key=by_importance)), victims.violations)

    async def documents(self, uids: Iterable[str]) -> Mapping[str, Any]:
        places = asyncio.Semaphore(_MOST_READS)

        async def read(pod: PodInfo) -> Unstructured | None:
            try:
                async with places:
                    return await self.client.get(_POD, Key(pod.namespace, pod.name))
            except APIError as error:
                if error.is_not_found:
                    return None
                raise

        found = await asyncio.gather(*[read(pod) for uid in uids if (pod := self.state.pod(uid)) is not None])
        return {each.metadata.uid: json_of(each.content) for each in found if each is not None}


def _uids(pods: Iterable[PodInfo]) -> tuple[str, ...]:
    return tuple([each.uid for each in pods])


def _rows(state: ClusterState, names: Iterable[str]) -> Bools:
    """bool[N]: the rows of these nodes, as far as there are any."""
    found = np.zeros(state.length, np.bool_)
    for name in names:
        row = state.table.row(name)
        if row is not None:
            found[row] = True
    return found


def _column(state: ClusterState, scores: Mapping[str, int]) -> Int64s | None:
    if not scores:
        return None
    found = np.zeros(state.length, np.int64)
    for name, score in scores.items():
        row = state.table.row(name)
        if row is not None:
            found[row] = score
    return found


def _rejections(state: ClusterState, failed: Mapping[str, FailedNode]) -> list[Rejection]:
    """By reasons. Of very many different ones the rest is one, since all are a part of the pod's condition."""
    found: dict[FailedNode, list[str]] = {}
    for name, why in failed.items():
        is_kept = why in found or len(found) < _MOST_REASONS
        found.setdefault(why if is_kept else FailedNode(_OTHER_REASONS, why.is_resolvable), []).append(name)
    return [Rejection(why.reason, _rows(state, names), why.is_resolvable) for why, names in found.items()]

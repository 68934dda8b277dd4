"""This node's pods as the API server has them, for nodes whose kubelet does not give its list.

It is one watch with the field selector ``spec.nodeName``, which kubelet itself uses and the Node authorizer allows each
node. It begins when it is first needed; the first caller waits for the first answer, ``FIRST_S`` at most. A static pod
is here under the UID of its mirror; its cgroup has the one that kubelet gave it, which an annotation says. Invariant: a
list is whole and followed, or a FetchError says why there is none: while a server is away, or silent for ``SILENT_S``,
the list that it gave before grows old where it is used.
"""

from __future__ import annotations

import asyncio

from msgspec import structs

from koord.kube.client import STALL_S, Selection
from koord.kube.informer import Informer, Lister, as_read
from koord.kube.kind import POD
from koord.model.core import ANNOTATION_MIRROR, ANNOTATION_SOURCE, SOURCE_API, ObjectList, Pod, is_of_api
from qosd.cluster.ticks import set_within
from qosd.pods.http import FetchError
from qosd.pods.kubelet import KubeletPod, of_pod

FIRST_S = 3.0
SILENT_S = STALL_S + 10.0
"""A silent watch ends after STALL_S, and the next one that opens counts as an answer; a half-open connection gives
none."""


class APIPods:
    """``run`` follows the server once ``pods`` has been called."""

    address = "the API server"

    def __init__(self, client: Lister, node_name: str) -> None:
        self._node_name = node_name
        self._wanted, self._has_answered = asyncio.Event(), asyncio.Event()
        self._time = asyncio.get_running_loop().time
        self._informer: Informer[Pod, Pod] = Informer(
            client, POD, self._time, Selection(fields=f"spec.nodeName={node_name}"),
            observe=lambda problem: self._has_answered.set(), transform=as_read,
        )  # fmt: skip

    async def run(self) -> None:
        """Runs until it is cancelled."""
        await self._wanted.wait()
        await self._informer.run()

    async def pods(self) -> ObjectList[KubeletPod]:
        self._wanted.set()
        informer = self._informer
        await set_within(self._has_answered, FIRST_S)
        if problem := self._problem():
            raise FetchError(f"the API server's pods of node {self._node_name}", problem)
        found = tuple([of_pod(_as_kubelet_has_it(pod)) for pod in informer.objects.values() if pod.metadata.uid])
        return ObjectList(found, tuple(informer.unreadable.values()))

    def _problem(self) -> str:
        """Returns why the known pods may not be the present ones; "" if they are."""
        informer = self._informer
        if informer.failure is not None:
            return informer.error
        if not informer.synced.is_set() or informer.last_contact_s is None:
            return "are not known yet"
        silent_s = self._time() - informer.last_contact_s
        return f"have not been told of for {silent_s:.0f} s" if silent_s > SILENT_S else ""


def _as_kubelet_has_it(pod: Pod) -> Pod:
    """Returns ``pod`` under the UID that kubelet knows, with the API as its source: any other source is only its
    author's claim.
    """
    meta = pod.metadata
    if (uid := meta.annotations.get(ANNOTATION_MIRROR)) is not None:
        meta = structs.replace(meta, uid=uid)
    elif not is_of_api(meta.annotations):
        meta = structs.replace(meta, annotations={**meta.annotations, ANNOTATION_SOURCE: SOURCE_API})
    return pod if meta is pod.metadata else structs.replace(pod, metadata=meta)

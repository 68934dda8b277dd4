"""Lists the node's pods with their specs: by kubelet, or by a substitute where kubelet is not asked, refuses us, or
shows a certificate that we refuse.

Before Kubernetes 1.33 kubelet knows no right to its pod list alone: it wants ``nodes/proxy``, which is a shell in every
pod and should not be given. A node's own credential may not read kubelet's list at all. And kubelet signs its serving
certificate itself where the cluster does not. Then the connection to the cluster asks the API server for the pods of
this node. A kubelet that is asked decides, by its answer to each question. Fails with FetchError.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Protocol

from koord.model.core import ObjectList
from qosd.pods.http import FetchError
from qosd.pods.kubelet import KubeletPod

_REFUSALS = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)


class PodLister(Protocol):
    """``address``: the address of the server that it asks, for people."""

    @property
    def address(self) -> str: ...
    async def pods(self) -> ObjectList[KubeletPod]: ...


class PodLists:
    """``kubelet`` first; None: it is not asked. ``substitute``: None = there is none."""

    def __init__(self, kubelet: PodLister | None) -> None:
        self._kubelet = kubelet
        self.substitute: PodLister | None = None
        self.problem = ""
        """Why the substitute lists the pods; "" if kubelet does, or is not asked."""

    @property
    def address(self) -> str:
        lister = self._kubelet or self.substitute
        return "" if lister is None else lister.address

    async def pods(self) -> ObjectList[KubeletPod]:
        if self._kubelet is None:
            if self.substitute is None:
                raise FetchError("the node's pods", "nobody is asked for them yet")
            return await self.substitute.pods()
        try:
            listed = await self._kubelet.pods()
        except FetchError as refusal:
            if self.substitute is None or not (refusal.is_untrusted or refusal.status in _REFUSALS):
                raise
            return await self._substituted(self.substitute, refusal)
        self.problem = ""
        return listed

    async def _substituted(self, substitute: PodLister, refusal: FetchError) -> ObjectList[KubeletPod]:
        try:
            listed = await substitute.pods()
        except FetchError as error:
            why = refusal.why if refusal.is_untrusted else f"HTTP {refusal.status}"
            raise FetchError(refusal.url, f"{why}, and {error}", refusal.status, refusal.is_untrusted) from refusal
        self.problem = _problem(refusal, substitute.address)
        return listed


def _problem(refusal: FetchError, instead: str) -> str:
    if refusal.is_untrusted:
        return (
            f"kubelet's serving certificate is not trusted ({refusal.why}), so {instead} lists the pods: give the "
            f"authority that signed it (--kubelet-ca-file), or go by kubelet's own files (--kubelet-insecure-tls)"
        )
    return (
        f"kubelet refuses its pod list (HTTP {refusal.status}), so {instead} lists the pods: "
        f"leave --kubelet-endpoint out, or allow get on nodes/pods, for which kubelet asks from Kubernetes 1.33 on"
    )

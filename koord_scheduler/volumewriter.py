"""What a pod's volumes need before the pod can be bound: volumes that are kept for its claims, and a selected node.

A volume that exists already is given the claim (``spec.claimRef``), a claim for which one is to be made the node; the
cluster's controllers do the rest, and the pod waits until all its claims are bound. Each write names the version of the
object that the decision was made of: what another client changed meanwhile is a conflict, and the pod is decided anew.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from koord.kube.client import Client
from koord.kube.errors import KubeError, NotLeader
from koord.kube.kind import Key
from koord.kube.schedulingkinds import PERSISTENT_VOLUME, PERSISTENT_VOLUME_CLAIM
from koord.scheduling.podinfo import ClaimKey
from koord.scheduling.volumes import SELECTED_NODE, VolumeDecision, Volumes

_BOUND_BY_CONTROLLER = "pv.kubernetes.io/bound-by-controller"


class VolumeWriter:
    """``client``: the leader's. ``volumes``: as they are followed."""

    def __init__(self, client: Client, volumes: Volumes) -> None:
        self._client, self._volumes = client, volumes
        self._changed = asyncio.Event()

    def changed(self) -> None:
        """A claim may be bound now."""
        self._changed.set()

    async def prepare(self, decision: VolumeDecision, timeout_s: float) -> str:
        """Returns "" once all claims of the decision are bound, or why they will not be. Raises NotLeader."""
        try:
            for key, name in decision.bindings:
                await self._keep(name, key)
            selected = {key: await self._select(key, decision.node) for key in decision.provisions}
            async with asyncio.timeout(timeout_s):
                return await self._bound(decision, selected)
        except NotLeader:
            raise
        except KubeError as error:
            return str(error)
        except TimeoutError:
            return f"claims are not bound after {timeout_s:g} s: {self._unbound(decision)}"

    async def _keep(self, name: str, key: ClaimKey) -> None:
        """Keeps the volume for the claim."""
        volume, claim = self._volumes.volume(name), self._volumes.claim(key)
        if volume is None or claim is None or volume.object.spec.claim_ref is not None:
            return
        reference = {
            "apiVersion": PERSISTENT_VOLUME_CLAIM.api_version,
            "kind": PERSISTENT_VOLUME_CLAIM.name,
            "namespace": key.namespace,
            "name": key.name,
            "uid": claim.object.metadata.uid,
            "resourceVersion": claim.object.metadata.resource_version,
        }
        metadata = {
            "resourceVersion": volume.object.metadata.resource_version,
            "annotations": {_BOUND_BY_CONTROLLER: "yes"},
        }
        await self._client.patch(
            PERSISTENT_VOLUME, Key("", name), {"metadata": metadata, "spec": {"claimRef": reference}}
        )

    async def _select(self, key: ClaimKey, node: str) -> str:
        """Has a volume made for the claim where the node can use it. Returns the claim's last version that does not
        say so; "" where it says so already.
        """
        claim = self._volumes.claim(key)
        if claim is None or claim.object.metadata.annotations.get(SELECTED_NODE) == node:
            return ""
        metadata = {
            "resourceVersion": claim.object.metadata.resource_version,
            "annotations": {SELECTED_NODE: node},
        }
        await self._client.patch(PERSISTENT_VOLUME_CLAIM, Key(key.namespace, key.name), {"metadata": metadata})
        return claim.object.metadata.resource_version

    async def _bound(self, decision: VolumeDecision, unselected: Mapping[ClaimKey, str]) -> str:
        """Waits until each claim is bound, or one cannot be any more: its volume is not kept for it, or its node is
        selected no longer. ``unselected``: the versions of claims that are older than the selection.
        """
        while True:
            self._changed.clear()
            for key, name in decision.bindings:
                if not self._may_be_bound(key, name):
                    return f"volume {name} is not for claim {key.namespace}/{key.name} any more"
            for key, before in unselected.items():
                claim = self._volumes.claim(key)
                if claim is None or not (
                    claim.is_bound
                    or claim.object.metadata.resource_version == before
                    or claim.object.metadata.annotations.get(SELECTED_NODE) == decision.node
                ):
                    return f"no volume could be made for claim {key.namespace}/{key.name} on node {decision.node}"
            if not self._unbound(decision):
                return ""
            await self._changed.wait()

    def _may_be_bound(self, key: ClaimKey, name: str) -> bool:
        """Returns whether the claim is bound, or the volume is kept for it or for nobody yet."""
        claim, volume = self._volumes.claim(key), self._volumes.volume(name)
        if claim is None or claim.is_bound:
            return claim is not None
        reference = None if volume is None else self._volumes.claim_ref(volume)
        return volume is not None and (reference is None or reference.is_of(claim))

    def _unbound(self, decision: VolumeDecision) -> str:
        claims = [key for key in decision.claims if not ((claim := self._volumes.claim(key)) and claim.is_bound)]
        return ", ".join(f"{key.namespace}/{key.name}" for key in claims)

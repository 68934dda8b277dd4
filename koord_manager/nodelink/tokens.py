"""The node of a pod's token: what the API server says of it, remembered for a while.

The token must be for ``AUDIENCE`` and of the node agent's service account. Its node is a claim that API servers since
1.30 put into it; before that the token names its pod, and the manager's own cache knows that pod's node.

Invariants: a token is sent to the API server at most once in ``GOOD_S``, so one that is revoked counts no longer than
that; what is remembered is bounded; many unknown tokens cost the API server ``QPS`` reviews a second and no more.
Fails with Refusal: UNAUTHENTICATED for a token that is none, PERMISSION_DENIED for somebody else's, UNAVAILABLE.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import NamedTuple

import msgspec

from koord.http2.grpc import PERMISSION_DENIED, RESOURCE_EXHAUSTED, UNAUTHENTICATED, UNAVAILABLE
from koord.http2.server import Refusal
from koord.kube.client import Client, Limits
from koord.kube.errors import APIError, KubeError
from koord.kube.kind import TOKEN_REVIEW, Key
from koord.kube.ratelimit import RateLimit
from koord.model.core import Pod
from koord.model.nodelink import AUDIENCE

GOOD_S, BAD_S = 300.0, 30.0
QPS, BURST = 20.0, 40
MAX_KEPT = 20_000
MAX_REVIEWS = 256
"""At once, those that wait for their turn included."""

_CLAIM = "authentication.kubernetes.io/"


class _User(msgspec.Struct, frozen=True):
    username: str = ""
    extra: Mapping[str, tuple[str, ...]] = {}

    def claim(self, name: str) -> str:
        return next(iter(self.extra.get(_CLAIM + name, ())), "")


class _Status(msgspec.Struct, frozen=True):
    authenticated: bool = False
    audiences: tuple[str, ...] = ()
    user: _User = _User()
    error: str = ""


class _Kept(NamedTuple):
    until_s: float
    node: str
    refusal: Refusal | None


class TokenReviewer:
    """``user``: the agent's, ``system:serviceaccount:<namespace>:<name>``. ``pod``: from the manager's cache."""

    def __init__(self, client: Client, user: str, pod: Callable[[Key], Pod | None], clock: Callable[[], float]) -> None:
        self._client = client.with_limits(Limits(RateLimit(QPS, BURST, clock), tries=2, timeout_s=5.0))
        self._user, self._pod, self._clock = user, pod, clock
        self._kept: OrderedDict[bytes, _Kept] = OrderedDict()
        self._reviews: dict[bytes, asyncio.Task[str]] = {}

    def known(self, token: str) -> str | None:
        """The token's node, if that is known without asking. Raises Refusal."""
        kept = self._kept.get(_digest(token))
        if kept is None or self._clock() >= kept.until_s:
            return None
        if kept.refusal is not None:
            raise kept.refusal
        return kept.node

    async def node(self, token: str) -> str:
        """The token's node. Raises Refusal."""
        digest = _digest(token)
        review = self._reviews.get(digest)
        if review is None:
            if len(self._reviews) >= MAX_REVIEWS:
                raise Refusal(RESOURCE_EXHAUSTED, f"{MAX_REVIEWS} tokens are under review")
            review = self._reviews[digest] = asyncio.ensure_future(self._review(token, digest))
            review.add_done_callback(lambda done: self._reviews.pop(digest, None))
        return await asyncio.shield(review)

    async def _review(self, token: str, digest: bytes) -> str:
        try:
            node = self._node_of(await self._ask(token))
        except Refusal as refusal:
            if refusal.code != UNAVAILABLE:
                self._keep(digest, _Kept(self._clock() + BAD_S, "", refusal))
            raise
        self._keep(digest, _Kept(self._clock() + GOOD_S, node, None))
        return node

    async def _ask(self, token: str) -> _Status:
        body = {
            "apiVersion": TOKEN_REVIEW.api_version,
            "kind": TOKEN_REVIEW.name,
            "spec": {"token": token, "audiences": [AUDIENCE]},
        }
        try:
            answer = await self._client.create(TOKEN_REVIEW, body)
            return msgspec.convert(answer.content.get("status", {}), _Status)
        except APIError as error:
            raise Refusal(UNAVAILABLE, f"the API server does not review the token: {error}") from error
        except (KubeError, msgspec.ValidationError) as error:
            raise Refusal(UNAVAILABLE, f"nobody reviews the token: {error}") from error

    def _node_of(self, status: _Status) -> str:
        if not status.authenticated or AUDIENCE not in status.audiences:
            why = status.error or "it is not authenticated"
            raise Refusal(UNAUTHENTICATED, f"the token is not one for {AUDIENCE}: {why}")
        if status.user.username != self._user:
            raise Refusal(PERMISSION_DENIED, f"{status.user.username} is not {self._user}")
        if node := status.user.claim("node-name") or self._node_of_pod(status.user):
            return node
        raise Refusal(PERMISSION_DENIED, "the token names neither a node nor a pod that is known")

    def _node_of_pod(self, user: _User) -> str:
        """What clusters before 1.30 get; "" of a pod that the manager does not know."""
        namespace = self._user.split(":")[2]
        name, uid = user.claim("pod-name"), user.claim("pod-uid")
        pod = self._pod(Key(namespace, name)) if name and uid else None
        return pod.spec.node_name or "" if pod is not None and pod.metadata.uid == uid else ""

    def _keep(self, digest: bytes, kept: _Kept) -> None:
        self._kept[digest] = kept
        self._kept.move_to_end(digest)
        while len(self._kept) > MAX_KEPT:
            self._kept.popitem(last=False)


def _digest(token: str) -> bytes:
    """Tokens themselves are not kept."""
    return hashlib.sha256(token.encode("latin-1", "replace")).digest()

"""The node of a pod's token: what the API server says of it, remembered for a while.

The token must be for ``AUDIENCE`` and of the node agent's service account. Its node is a claim that API servers since
1.30 put into it; before that the token names its pod, and the manager's own cache knows that pod's node.

Invariants: a token is sent to the API server at most once in ``GOOD_S``, so one that is revoked counts no longer than
that; what is remembered is bounded, refers to no token, and goes with the first call after its time; many unknown
tokens cost the API server ``QPS`` reviews a second and no more.
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


class _Verdict(NamedTuple):
    """``node`` "": it is refused with ``code`` and ``message``.

    An exception that is raised again and again would grow by its tracebacks, whose frames hold the token.
    """

    node: str
    code: int = 0
    message: str = ""


class _Verdicts:
    """Those of one kind, by the digests of their tokens, each for ``lifetime_s`` and no more than ``MAX_KEPT``."""

    def __init__(self, lifetime_s: float, clock: Callable[[], float]) -> None:
        self._lifetime_s, self._clock = lifetime_s, clock
        self._kept: OrderedDict[bytes, tuple[float, _Verdict]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, digest: bytes) -> _Verdict | None:
        self._drop_expired()
        _, verdict = self._kept.get(digest, (0.0, None))
        return verdict

    def keep(self, digest: bytes, verdict: _Verdict) -> None:
        self._drop_expired()
        self._kept[digest] = self._clock() + self._lifetime_s, verdict
        self._kept.move_to_end(digest)
        while len(self._kept) > MAX_KEPT:
            self._kept.popitem(last=False)

    def _drop_expired(self) -> None:
        """They expire in the order in which they came."""
        now_s = self._clock()
        while self._kept and now_s >= next(iter(self._kept.values()))[0]:
            self._kept.popitem(last=False)


class TokenReviewer:
    """``user``: the agent's, ``system:serviceaccount:<namespace>:<name>``. ``pod``: from the manager's cache."""

    def __init__(self, client: Client, user: str, pod: Callable[[Key], Pod | None], clock: Callable[[], float]) -> None:
        self._client = client.with_limits(Limits(RateLimit(QPS, BURST, clock), tries=2, timeout_s=5.0))
        self._user, self._pod = user, pod
        self._good, self._bad = _Verdicts(GOOD_S, clock), _Verdicts(BAD_S, clock)
        self._reviews: dict[bytes, asyncio.Task[str]] = {}

    @property
    def kept(self) -> int:
        """How many verdicts are remembered."""
        return len(self._good) + len(self._bad)

    def known(self, token: str) -> str | None:
        """The token's node, if that is known without asking. Raises Refusal."""
        digest = _digest(token)
        bad, good = self._bad.get(digest), self._good.get(digest)
        if bad is not None:
            raise Refusal(bad.code, bad.message)
        return None if good is None else good.node

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
                self._bad.keep(digest, _Verdict("", refusal.code, refusal.message))
            raise
        self._good.keep(digest, _Verdict(node))
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


def _digest(token: str) -> bytes:
    """Tokens themselves are not kept."""
    return hashlib.sha256(token.encode("latin-1", "replace")).digest()

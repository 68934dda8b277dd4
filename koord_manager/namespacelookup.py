"""Labels of namespaces that no event has told of yet, from the API server.

A pod may be created a moment after its namespace, and the profile that selects the namespace has to find it. Whoever
reaches the webhooks can ask for any name, so what that costs is bounded: requests have a rate of their own, which takes
nothing from the controllers; a name is looked up once at a time for each network of clients, and one that does not
exist not again for ``ABSENT_S``; ``MAX_LOOKUPS`` are under way, of which each client has its `FairShare`, and their
requests are sent in `Turns`, so that a client's names delay another's by one of them at most.

Fails with OverloadedError alone: an object that cannot be judged yet has no verdict, and so the API server
comes again, and does then what ``failurePolicy`` says.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from koord.kube.client import CallLimits, Client
from koord.kube.errors import APIError, KubeError
from koord.kube.kind import NAMESPACE, Key
from koord.kube.ratelimit import RateLimit
from koord.model.clientnetwork import network_of
from koord.webhook.fairshare import FairShare
from koord.webhook.reviews import OverloadedError
from koord.webhook.turns import Turns

QPS, BURST = 10.0, 20
MAX_LOOKUPS = 32
TIMEOUT_S = 2.0
WAIT_S = 4.0
"""For the turn, and for the answer; webhooks' configurations give reviews twice that and more."""
ABSENT_S = 2.0
MAX_ABSENT = 1000
Labels = Mapping[str, str]


class NamespaceLookup:
    """``clock``: seconds."""

    def __init__(self, client: Client, clock: Callable[[], float]) -> None:
        self._client = client.with_limits(CallLimits(tries=1, timeout_s=TIMEOUT_S))
        self._rate, self._turns, self._share = RateLimit(QPS, BURST, clock), Turns(), FairShare(MAX_LOOKUPS)
        self._clock = clock
        self._lookups: dict[tuple[str, str], asyncio.Task[Labels | None]] = {}
        """By network and name."""
        self._absent: dict[str, float] = {}
        """By name until when, in the order in which that ends."""

    async def labels(self, name: str, source: str) -> Labels | None:
        """Returns the labels for the client's address ``source``. None: there is no such namespace. Raises
        OverloadedError.
        """
        self._drop_expired()
        if name in self._absent:
            return None
        key = network_of(source), name
        lookup = self._lookups.get(key)
        if lookup is None:
            if not self._share.has_room(source):
                raise OverloadedError(f"namespace {name} is not known yet, and too many others are looked up")
            self._share.hold(source)
            lookup = self._lookups[key] = asyncio.create_task(self._look_up(name, source))
            lookup.add_done_callback(lambda task: self._forget(key, source, task))
        try:
            return await asyncio.shield(lookup)
        except (KubeError, TimeoutError) as error:
            raise OverloadedError(
                f"namespace {name} is not known yet: {str(error) or 'too many others are looked up'}"
            ) from error

    def _forget(self, key: tuple[str, str], source: str, lookup: asyncio.Task[Labels | None]) -> None:
        del self._lookups[key]
        self._share.hold(source, -1)
        if not lookup.cancelled():
            lookup.exception()  # who asked may have gone

    async def _look_up(self, name: str, source: str) -> Labels | None:
        """Raises KubeError and TimeoutError."""
        async with asyncio.timeout(WAIT_S):
            async with self._turns.turn(source):
                await self._rate.take()
            try:
                namespace = await self._client.get(NAMESPACE, Key("", name))
            except APIError as error:
                if not error.is_not_found:
                    raise
                self._absent.pop(name, None)
                self._absent[name] = self._clock() + ABSENT_S
                while len(self._absent) > MAX_ABSENT:
                    del self._absent[next(iter(self._absent))]
                return None
            return namespace.metadata.labels

    def _drop_expired(self) -> None:
        now_s = self._clock()
        while self._absent and next(iter(self._absent.values())) <= now_s:
            del self._absent[next(iter(self._absent))]

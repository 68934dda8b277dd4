"""Labels of namespaces that no event has told of yet, from the API server.

A pod may be created a moment after its namespace, and the profile that selects the namespace has to find it. Whoever
reaches the webhooks can ask for any name, so what that costs is bounded: requests have a rate of their own, which takes
nothing from the controllers; a name is looked up once at a time, and one that does not exist not again for
``ABSENT_S``; ``MAX_LOOKUPS`` names are looked up at a time. Fails with KubeError.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from koord.kube.client import Client, Limits
from koord.kube.errors import APIError, KubeError
from koord.kube.kind import NAMESPACE, Key
from koord.kube.ratelimit import RateLimit

QPS, BURST = 10.0, 20
MAX_LOOKUPS = 32
ABSENT_S = 2.0
MAX_ABSENT = 1000
Labels = Mapping[str, str]


class NamespaceLookup:
    """``clock``: seconds."""

    def __init__(self, client: Client, clock: Callable[[], float]) -> None:
        self._client = client.with_limits(Limits(RateLimit(QPS, BURST, clock), tries=1, timeout_s=2.0))
        self._clock = clock
        self._lookups: dict[str, asyncio.Task[Labels | None]] = {}
        self._absent: dict[str, float] = {}
        """By name until when, in the order in which that ends."""

    async def labels(self, name: str) -> Labels | None:
        """None: there is no such namespace. Raises KubeError."""
        self._drop_expired()
        if name in self._absent:
            return None
        lookup = self._lookups.get(name)
        if lookup is None:
            if len(self._lookups) >= MAX_LOOKUPS:
                raise KubeError(f"namespace {name} is not known yet, and {MAX_LOOKUPS} others are looked up")
            lookup = self._lookups[name] = asyncio.create_task(self._look_up(name))
            lookup.add_done_callback(lambda _: self._lookups.pop(name, None))
        return await asyncio.shield(lookup)

    async def _look_up(self, name: str) -> Labels | None:
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

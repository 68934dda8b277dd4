"""Writes to one object of the API server: its status as a whole, or one of its annotations; never often.

Invariant: a caller that has a turn makes at most one request, and there are no more turns than the rate allows. One try
per request: the caller makes the next one, with newer content. Fails with KubeError.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from koord.kube.client import CallLimits, Client, PatchType
from koord.kube.kind import Key, Kind
from koord.kube.ratelimit import RateLimit

WRITE_EVERY_S, WRITES_AT_ONCE = 10.0, 2
_TRY_S = 10.0


class ObjectWriter:
    def __init__(self, client: Client, kind: Kind[Any], key: Key, clock: Callable[[], float]) -> None:
        self._client = client.with_limits(CallLimits(tries=1, timeout_s=_TRY_S))
        self._kind, self._key = kind, key
        self._rate = RateLimit(1 / WRITE_EVERY_S, WRITES_AT_ONCE, clock)

    async def turn(self) -> None:
        """Returns when one request may be sent."""
        await self._rate.take()

    async def replace_status(self, status: msgspec.Struct) -> None:
        """Replaces the status as a whole: no member of the one before stays."""
        replaced = [{"op": "add", "path": "/status", "value": msgspec.to_builtins(status)}]
        await self._client.patch(self._kind, self._key, replaced, PatchType.JSON, "status")

    async def annotate(self, name: str, text: str) -> None:
        await self._client.patch(self._kind, self._key, {"metadata": {"annotations": {name: text}}})

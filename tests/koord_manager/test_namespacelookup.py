"""What a stranger's names cost: lookups are counted on a server in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from koord.kube.errors import KubeError
from koord_manager import namespacelookup
from koord_manager.namespacelookup import ABSENT_S, MAX_LOOKUPS, NamespaceLookup
from tests.kube.server import Fault, Server
from tests.kube.support import client

NAMESPACES = "/api/v1/namespaces"


class Rig:
    def __init__(self, server: Server) -> None:
        self.server, self.now_s = server, 100.0

    @property
    def asked(self) -> int:
        return sum(f"{NAMESPACES}/" in path for _, path, *_ in self.server.requests)


@asynccontextmanager
async def looking() -> AsyncIterator[tuple[NamespaceLookup, Rig]]:
    server = Server()
    server.put(NAMESPACES, "", "jobs", metadata={"labels": {"team": "a"}})
    rig = Rig(server)
    async with server.serving() as url, client(url) as api:
        yield NamespaceLookup(api, lambda: rig.now_s), rig


async def test_one_that_exists() -> None:
    async with looking() as (lookup, rig):
        found = await asyncio.gather(*[lookup.labels("jobs") for _ in range(5)])
        assert found == [{"team": "a"}] * 5
        assert rig.asked == 1, "once for all who wait"


async def test_one_that_does_not_exist_is_looked_up_again_later() -> None:
    async with looking() as (lookup, rig):
        for passed_s, asked in ((0.0, 1), (ABSENT_S - 0.1, 1), (0.2, 2)):
            rig.now_s += passed_s
            assert await lookup.labels("nowhere") is None
            assert rig.asked == asked
        rig.server.put(NAMESPACES, "", "nowhere")
        rig.now_s += ABSENT_S
        assert await lookup.labels("nowhere") == {}


async def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(namespacelookup, "MAX_ABSENT", 3)
    async with looking() as (lookup, rig):
        for number in range(5):
            rig.now_s += 0.1
            await lookup.labels(f"nowhere-{number}")
        await lookup.labels("nowhere-4")
        assert rig.asked == 5
        await lookup.labels("nowhere-0")
        assert rig.asked == 6


async def test_many_names_at_once_are_refused() -> None:
    """Who waits for a name already goes on waiting."""
    async with looking() as (lookup, rig):
        rig.server.faults += [Fault("get", hang=True)] * MAX_LOOKUPS
        waiting = [asyncio.create_task(lookup.labels(f"n-{number}")) for number in range(MAX_LOOKUPS)]
        await asyncio.sleep(0)
        with pytest.raises(KubeError, match=f"namespace one-more is not known yet, and {MAX_LOOKUPS} others"):
            await lookup.labels("one-more")
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)


async def test_an_error_is_not_remembered() -> None:
    async with looking() as (lookup, rig):
        rig.server.faults.append(Fault("get", status=500, reason="InternalError"))
        with pytest.raises(KubeError):
            await lookup.labels("jobs")
        assert await lookup.labels("jobs") == {"team": "a"}

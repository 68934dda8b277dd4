"""What a stranger's names cost: lookups are counted on a server in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from koord.kube.ratelimit import RateLimit
from koord.webhook.reviews import OverloadedError
from koord_manager import namespacelookup
from koord_manager.namespacelookup import ABSENT_S, MAX_LOOKUPS, NamespaceLookup
from tests.kube.server import Fault, Server
from tests.kube.support import client
from tests.support.waiting import until

NAMESPACES = "/api/v1/namespaces"
ONE, OTHER = "10.0.0.1", "10.1.0.1"


class Rig:
    def __init__(self, server: Server) -> None:
        self.server, self.now_s = server, 100.0

    @property
    def asked(self) -> int:
        return sum(f"{NAMESPACES}/" in path for _, path, *_ in self.server.requests)


@asynccontextmanager
async def looking(rate: RateLimit | None = None) -> AsyncIterator[tuple[NamespaceLookup, Rig]]:
    """``rate``: of the client that the lookup is given, and shares with the controllers."""
    server = Server()
    server.put(NAMESPACES, "", "jobs", metadata={"labels": {"team": "a"}})
    rig = Rig(server)
    async with server.serving() as url, client(url, rate=rate) as api:
        yield NamespaceLookup(api, lambda: rig.now_s), rig


async def test_one_that_exists() -> None:
    async with looking() as (lookup, rig):
        found = await asyncio.gather(*[lookup.labels("jobs", ONE) for _ in range(5)])
        assert found == [{"team": "a"}] * 5
        assert rig.asked == 1, "once for all who wait"


async def test_one_that_does_not_exist_is_looked_up_again_later() -> None:
    async with looking() as (lookup, rig):
        for passed_s, asked in ((0.0, 1), (ABSENT_S - 0.1, 1), (0.2, 2)):
            rig.now_s += passed_s
            assert await lookup.labels("nowhere", ONE) is None
            assert rig.asked == asked
        rig.server.put(NAMESPACES, "", "nowhere")
        rig.now_s += ABSENT_S
        assert await lookup.labels("nowhere", ONE) == {}


async def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(namespacelookup, "MAX_ABSENT", 3)
    async with looking() as (lookup, rig):
        for number in range(5):
            rig.now_s += 0.1
            await lookup.labels(f"nowhere-{number}", ONE)
        await lookup.labels("nowhere-4", ONE)
        assert rig.asked == 5
        await lookup.labels("nowhere-0", ONE)
        assert rig.asked == 6


async def test_many_names_at_once_are_refused_and_leave_room_for_others() -> None:
    """Who waits for a name already goes on waiting."""
    async with looking() as (lookup, rig):
        rig.server.faults += [Fault("get", hang=True)] * MAX_LOOKUPS
        waiting = [asyncio.create_task(lookup.labels(f"n-{number}", ONE)) for number in range(MAX_LOOKUPS // 2)]
        await asyncio.sleep(0)
        with pytest.raises(OverloadedError, match="namespace one-more is not known yet, and too many others"):
            await lookup.labels("one-more", ONE)
        waiting += [asyncio.create_task(lookup.labels("n-0", source)) for source in (ONE, OTHER)]
        await until(lambda: rig.asked == MAX_LOOKUPS // 2 + 1)
        assert not any(task.done() for task in waiting)
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)


async def test_nobodys_names_keep_anothers_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """However low the rate is: the other's is the next that is sent."""
    monkeypatch.setattr(namespacelookup, "QPS", 20.0)
    monkeypatch.setattr(namespacelookup, "BURST", 1)
    async with looking() as (lookup, rig):
        many = [asyncio.create_task(lookup.labels(f"nowhere-{number}", ONE)) for number in range(10)]
        await asyncio.sleep(0)
        rig.now_s += 0.05
        assert await lookup.labels("jobs", OTHER) == {"team": "a"}
        assert sum(task.done() for task in many) < 5
        for task in many:
            task.cancel()
        await asyncio.gather(*many, return_exceptions=True)


async def test_strangers_names_take_nothing_of_the_controllers_rate() -> None:
    """One request is all that the controllers have, and they have it still."""

    async def at_once(_: float) -> None:
        pass

    rate = RateLimit(1.0, 1, lambda: 0.0, at_once)
    async with looking(rate) as (lookup, rig):
        await asyncio.gather(*[lookup.labels(f"nowhere-{number}", ONE) for number in range(5)])
        assert rig.asked == 5
    await rate.take()
    assert rate.waited_s == 0.0


async def test_a_name_that_waits_too_long_has_no_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    async with looking() as (lookup, rig):
        rig.server.faults.append(Fault("get", hang=True))
        with monkeypatch.context() as patched:
            patched.setattr(namespacelookup, "WAIT_S", 0.05)
            with pytest.raises(OverloadedError, match="namespace jobs is not known yet: too many others are looked up"):
                await lookup.labels("jobs", ONE)
        assert await lookup.labels("jobs", ONE) == {"team": "a"}


async def test_an_error_is_not_remembered() -> None:
    async with looking() as (lookup, rig):
        rig.server.faults.append(Fault("get", status=500, reason="InternalError"))
        with pytest.raises(OverloadedError):
            await lookup.labels("jobs", ONE)
        assert await lookup.labels("jobs", ONE) == {"team": "a"}

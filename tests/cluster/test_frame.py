"""A replica's life in the frame: what its pages say, who leads, and the order in which it ends."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import aiohttp
import pytest

from koord.cluster.frame import Component, Frame
from koord.cluster.options import ComponentOptions
from koord.kube.client import Client
from koord.kube.errors import NotLeader
from koord.kube.informer import Informer, as_read
from koord.kube.kind import POD, Key
from koord.service import failures
from koord.service.options import Program, Style
from tests.kube.server import Fault, Server
from tests.kube.support import LEASES, PODS, client
from tests.support.waiting import until

NAME, LEASE = "koord-x", "koord-x-lease"
PROGRAM = Program(NAME, "", ComponentOptions, Style.GO)
ALONE = "--enable-leader-election=false"
PARTS = ("follow", "serve", "lead")


class Story(Component):
    """``told``: what it did, in order. ``fails``: the part that ends by an error as soon as ``broken`` is set."""

    def __init__(self, frame: Frame, server: Server, fails: str = "") -> None:
        super().__init__([Informer(frame.client, POD, time.monotonic, transform=as_read)])
        self._server, self._fails = server, fails
        self.broken, self.may_end = asyncio.Event(), asyncio.Event()
        self.told: list[str] = []

    async def follow(self) -> None:
        async with self._told("follow"), asyncio.TaskGroup() as group:
            group.create_task(super().follow())
            await self._lasting("follow")

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        async with self._told("serve"), asyncio.TaskGroup() as group:
            lasting = group.create_task(self._lasting("serve"))
            try:
                yield
            finally:
                self.told.append(f"Lease of {holder(self._server) or 'nobody'}")
                await self.may_end.wait()
                lasting.cancel()

    async def lead(self) -> None:
        async with self._told("lead"):
            await self._lasting("lead")

    async def _lasting(self, part: str) -> None:
        await (self.broken if part == self._fails else asyncio.Event()).wait()
        raise OSError(f"{part} failed")

    @contextlib.asynccontextmanager
    async def _told(self, part: str) -> AsyncIterator[None]:
        self.told.append(part)
        try:
            yield
        finally:
            self.told.append(f"{part} ends")


@dataclass
class Replica:
    frame: Frame
    story: Story
    port: int
    stop: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self) -> None:
        await self.frame.run(self.story, self.stop)

    async def page(self, path: str) -> tuple[int, str]:
        async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{self.port}{path}") as answer:
            return answer.status, await answer.text()


def made(api: Client, server: Server, *argv: str, host: str = "a", fails: str = "") -> Replica:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    options = PROGRAM.load(PROGRAM.parse([f"--metrics-addr=127.0.0.1:{port}", *argv]))
    frame = Frame(api, NAME, LEASE, options, {"HOSTNAME": host}, "10.0.0.1:1")
    return Replica(frame, Story(frame, server, fails), port)


def holder(server: Server) -> str:
    """The host that the Lease names; "" for nobody."""
    root, _, plural = LEASES.rpartition("/")
    leases = server.objects.get((root, plural), {}).values()
    return next((str(lease["spec"]["holderIdentity"]).partition("_")[0] for lease in leases), "")


@contextlib.asynccontextmanager
async def serving() -> AsyncIterator[tuple[Server, Client]]:
    server = Server()
    server.put(PODS, "shop", "web")
    async with server.serving() as url, client(url) as api:
        yield server, api


async def test_the_order_in_which_a_replica_starts_and_ends() -> None:
    """While it drains, another may lead already, and no probe sends anybody to it."""
    async with serving() as (server, api), asyncio.TaskGroup() as group:
        replica = made(api, server)
        group.create_task(replica.run())
        await until(lambda: "lead" in replica.story.told)
        assert (holder(server), replica.frame.leads, replica.frame.leader_address) == ("a", True, "10.0.0.1:1")
        assert await replica.page("/readyz") == (200, "ok\n")
        replica.stop.set()
        await until(lambda: replica.story.told[-1].startswith("Lease"))
        assert await replica.page("/readyz") == (503, "koord-x is stopping\n")
        assert await replica.page("/healthz") == (200, "ok\n")
        replica.story.may_end.set()
    ends = ["lead ends", "Lease of nobody", "serve ends", "follow ends"]
    assert replica.story.told == [*PARTS, *ends]


@pytest.mark.parametrize("fails", PARTS)
async def test_whatever_part_fails_all_end_in_that_order(fails: str) -> None:
    async with serving() as (server, api):
        replica = made(api, server, fails=fails)
        replica.story.may_end.set()
        running = asyncio.create_task(replica.run())
        await until(lambda: "lead" in replica.story.told)
        replica.story.broken.set()
        with pytest.raises(ExceptionGroup) as failed:
            await running
    assert [str(error) for error in failures.each(failed.value)] == [f"{fails} failed"]
    told = replica.story.told
    assert told.index("lead ends") < told.index("Lease of nobody") < told.index("serve ends")
    assert "follow ends" in told


async def test_a_replica_whose_caches_are_not_complete_says_why_and_stops_at_once() -> None:
    async with serving() as (server, api), asyncio.TaskGroup() as group:
        server.faults = [Fault("list", 403, "Forbidden")] * 1000
        replica = made(api, server)
        group.create_task(replica.run())
        await until(lambda: bool(replica.story.informers[0].error))
        status, sentence = await replica.page("/readyz")
        assert status == 503
        assert sentence.startswith("pods are not known yet: ")
        replica.stop.set()
    assert replica.story.told == ["follow", "follow ends"]


async def test_a_standby_writes_nothing_and_takes_over() -> None:
    async with serving() as (server, api), asyncio.TaskGroup() as group:
        first, second = (made(api, server, host=host) for host in "ab")
        leading = group.create_task(first.run())
        await until(lambda: first.frame.leads)
        group.create_task(second.run())
        await until(lambda: "serve" in second.story.told)
        assert await second.page("/readyz") == (200, "ok\n")
        assert (second.frame.leads, "lead" in second.story.told) == (False, False)
        with pytest.raises(NotLeader):
            await second.frame.leaders_client.patch(POD, Key("shop", "web"), {})
        await first.frame.leaders_client.patch(POD, Key("shop", "web"), {})
        first.stop.set()
        await until(lambda: "lead" in second.story.told)
        assert (holder(server), leading.done()) == ("b", False)
        for replica in (first, second):
            replica.stop.set()
            replica.story.may_end.set()


@pytest.mark.parametrize(("argv", "leads"), [((), False), ((ALONE,), True)], ids=["a candidate", "alone"])
async def test_who_is_alone_leads(argv: tuple[str, ...], leads: bool) -> None:
    async with serving() as (server, api):
        assert made(api, server, *argv).frame.leads is leads


async def test_what_every_component_counts() -> None:
    async with serving() as (server, api), asyncio.TaskGroup() as group:
        replica = made(api, server, ALONE)
        group.create_task(replica.run())
        await until(lambda: "lead" in replica.story.told)
        status, text = await replica.page("/metrics")
        assert status == 200
        for line in ("koord_x_leader 1.0", 'koord_x_cached_objects{kind="Pod"} 1.0', "koord_x_api_retries 0.0"):
            assert line in text
        replica.stop.set()
        replica.story.may_end.set()


async def test_only_metrics_want_the_token() -> None:
    async with serving() as (server, api), asyncio.TaskGroup() as group:
        token = "/proc/version"
        replica = made(api, server, ALONE, f"--metrics-token-file={token}")
        group.create_task(replica.run())
        await until(lambda: "lead" in replica.story.told)
        assert [(await replica.page(path))[0] for path in ("/metrics", "/healthz", "/readyz")] == [401, 200, 200]
        replica.stop.set()
        replica.story.may_end.set()

"""What becomes of a pod, by the API server's answers to its binding: a pod is looked up before anything else."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from koord.kube.errors import NotLeader
from koord.model.core import read
from koord.model.scheduling.pods import Pod
from koord.scheduling.podinfo import PodInfo
from koord_scheduler.binding import Binder, Outcome
from koord_scheduler.window import RequestWindow
from tests.kube.server import Fault, JSONObject, Server
from tests.kube.support import PODS, client
from tests.support.waiting import until

LOST, NEVER_CAME = Fault("bind", drop=True, done=True), Fault("bind", drop=True)
TOO_MANY = Fault("bind", status=429, reason="TooManyRequests")
CONFLICT = Fault("bind", status=409, reason="Conflict")
DELETED = {"deletionTimestamp": "2026-01-01T00:00:00Z"}
Change = Callable[[Server], object]
TIMEOUT_S = 0.5


@dataclass
class Case:
    server: Server
    binder: Binder
    pod: PodInfo
    window: RequestWindow
    slept_s: list[float] = field(default_factory=list)

    @property
    def asked(self) -> list[str]:
        return [verb for verb, *_ in self.server.requests]


def put(server: Server, **members: Any) -> JSONObject:
    return server.put(PODS, "default", "p", **members)


@asynccontextmanager
async def case(
    check: Callable[[], None] = lambda: None, asleep: Callable[[Server, float], object] = lambda server, seconds: None
) -> AsyncIterator[Case]:
    server, window, slept_s = Server(), RequestWindow(), list[float]()

    async def sleep(seconds: float) -> None:
        slept_s.append(seconds)
        asleep(server, seconds)
        await asyncio.sleep(0)

    async with server.serving() as url, client(url) as api:
        pod = PodInfo.of(read(Pod, json.dumps(put(server, spec={"schedulerName": "s"})).encode()))
        binder = Binder(api.guarded(check), window, TIMEOUT_S, sleep, lambda: 0.0)
        yield Case(server, binder, pod, window, slept_s)


def nothing(_: Server) -> None:
    pass


def on(node: str, **metadata: Any) -> Change:
    return lambda server: put(server, spec={"nodeName": node}, metadata=metadata)


@pytest.mark.parametrize(
    ("faults", "meanwhile", "outcome", "asked"),
    [
        pytest.param([], nothing, Outcome.BOUND, ["bind"], id="it is bound"),
        pytest.param([LOST], nothing, Outcome.BOUND, ["bind", "get"], id="the answer is lost"),
        pytest.param([NEVER_CAME], nothing, Outcome.BOUND, ["bind", "get", "bind"], id="the request is lost"),
        pytest.param(
            [NEVER_CAME, LOST], nothing, Outcome.BOUND, ["bind", "get", "bind", "get"], id="one after the other"
        ),
        pytest.param(
            [LOST, Fault("get", status=500), Fault("get", drop=True)],
            nothing,
            Outcome.BOUND,
            ["bind", "get", "get", "get"],
            id="nor can it be looked up",
        ),
        pytest.param([Fault("bind", hang=True)], nothing, Outcome.BOUND, ["bind", "get", "bind"], id="no answer"),
        pytest.param([TOO_MANY] * 2, nothing, Outcome.BOUND, ["bind"] * 3, id="too many"),
        pytest.param(
            [Fault("bind", status=500)], nothing, Outcome.BOUND, ["bind", "get", "bind"], id="an error of the server"
        ),
        pytest.param([CONFLICT], nothing, Outcome.REFUSED, ["bind", "get"], id="a conflict, and it waits"),
        pytest.param([Fault("bind", status=403)], nothing, Outcome.REFUSED, ["bind", "get"], id="forbidden"),
        pytest.param(
            [Fault("bind", status=404, body=b"404 page not found")],
            nothing,
            Outcome.REFUSED,
            ["bind", "get"],
            id="not found, says somebody",
        ),
        pytest.param([], on("n2"), Outcome.ELSEWHERE, ["bind", "get"], id="another scheduler was first"),
        pytest.param([], on("n1"), Outcome.BY_ANOTHER, ["bind", "get"], id="on the same node"),
        pytest.param([NEVER_CAME], on("n1", **DELETED), Outcome.BOUND, ["bind", "get"], id="bound and being deleted"),
        pytest.param([CONFLICT], on("", **DELETED), Outcome.GONE, ["bind", "get"], id="being deleted"),
        pytest.param(
            [], lambda server: server.delete(PODS, "default", "p"), Outcome.GONE, ["bind", "get"], id="deleted"
        ),
        pytest.param([], on("", uid="another"), Outcome.GONE, ["bind", "get"], id="another pod has its name"),
    ],
)
async def test_what_becomes_of_it(faults: list[Fault], meanwhile: Change, outcome: Outcome, asked: list[str]) -> None:
    async with case() as made:
        meanwhile(made.server)
        made.server.faults += faults
        bound = await made.binder.bind(made.pod, "n1", lambda: True)
        assert (bound.outcome, made.asked) == (outcome, asked)
        assert made.window.under_way == 0


async def test_it_waits_as_long_as_the_server_says() -> None:
    async with case() as made:
        made.server.faults += [Fault("bind", status=429, headers={"Retry-After": "7"}), TOO_MANY]
        made.server.faults += [LOST, Fault("get", status=503, headers={"Retry-After": "3"})]
        assert (await made.binder.bind(made.pod, "n1", lambda: True)).outcome is Outcome.BOUND
        assert made.slept_s == [7.1, 0.2, 3.1]


@pytest.mark.parametrize("fault", [TOO_MANY, NEVER_CAME])
async def test_nothing_is_sent_to_a_node_that_is_gone(fault: Fault) -> None:
    async with case() as made:
        made.server.faults.append(fault)
        bound = await made.binder.bind(made.pod, "n1", lambda: "bind" not in made.asked)
        assert (bound.outcome, bound.error) == (Outcome.REFUSED, "node n1 is gone")
        assert made.asked.count("bind") == 1


async def test_a_node_that_goes_while_others_are_under_way() -> None:
    """Its pods wait for a place, and are asked about when it is theirs."""
    async with case() as made:
        made.window.size = 1.0
        is_there = True
        async with made.window.place():
            binding = asyncio.create_task(made.binder.bind(made.pod, "n1", lambda: is_there))
            await asyncio.sleep(0)
            is_there = False
        assert (await binding).outcome is Outcome.REFUSED
        assert made.asked == []


async def test_who_leads_no_longer_sends_nothing() -> None:
    leads = True

    def check() -> None:
        if not leads:
            raise NotLeader("another replica may lead")

    async with case(check) as made:
        made.server.faults.append(TOO_MANY)

        def lose() -> bool:
            nonlocal leads
            leads = "bind" not in made.asked
            return True

        with pytest.raises(NotLeader):
            await made.binder.bind(made.pod, "n1", lose)
        assert made.asked == ["bind"]
        assert made.window.under_way == 0


@pytest.mark.parametrize(
    ("late", "outcome"),
    [
        pytest.param(nothing, Outcome.REFUSED, id="it never came"),
        pytest.param(on("n1"), Outcome.BOUND, id="it came late"),
        pytest.param(on("n2"), Outcome.ELSEWHERE, id="another scheduler was first"),
    ],
)
async def test_who_is_refused_may_be_bound_by_what_was_sent_before(late: Change, outcome: Outcome) -> None:
    """Room is given back once the first request is over, whose answer was lost."""

    def asleep(server: Server, seconds: float) -> None:
        if seconds > TIMEOUT_S / 2:
            late(server)

    async with case(asleep=asleep) as made:
        made.server.faults += [NEVER_CAME, Fault("bind", status=403)]
        bound = await made.binder.bind(made.pod, "n1", lambda: True)
        assert bound.outcome is outcome
        assert made.asked == ["bind", "get", "bind", "get", "get"]
        assert TIMEOUT_S / 2 < made.slept_s[-1] <= TIMEOUT_S


@pytest.mark.parametrize("is_answered", [True, False])
async def test_leadership_does_not_end_before_what_was_sent(is_answered: bool) -> None:
    async with case() as made:
        held = asyncio.Event()
        made.server.faults.append(Fault("bind", until=held, drop=not is_answered, done=True))
        binding = asyncio.create_task(made.binder.bind(made.pod, "n1", lambda: True))
        await until(lambda: made.asked == ["bind"])
        binding.cancel()
        await asyncio.sleep(0.05)
        assert not binding.done()
        held.set()
        await asyncio.wait([binding])
        assert binding.cancelled() and made.window.under_way == 0
        assert made.server.objects["/api/v1", "pods"]["default", "p"]["spec"]["nodeName"] == "n1"
        await made.binder.over()
        assert len(made.slept_s) == (not is_answered)


@pytest.mark.parametrize(
    ("faults", "waits"), [([], False), ([TOO_MANY], False), ([CONFLICT], False), ([NEVER_CAME], True)]
)
async def test_what_may_arrive_late_is_over_before_leadership_ends(faults: list[Fault], waits: bool) -> None:
    async with case() as made:
        made.server.faults += faults
        await made.binder.bind(made.pod, "n1", lambda: True)
        made.slept_s.clear()
        await made.binder.over()
        assert [TIMEOUT_S / 2 < seconds <= TIMEOUT_S for seconds in made.slept_s] == [True] * waits


async def test_the_last_of_what_may_arrive_late_is_waited_for() -> None:
    """The request that was sent first is the last one that gets no answer."""
    async with case() as made:
        first = Fault("bind", hang=True)
        made.server.faults += [first, NEVER_CAME]
        binding = asyncio.create_task(made.binder.bind(made.pod, "n1", lambda: True))
        await until(lambda: first not in made.server.faults)
        await asyncio.sleep(TIMEOUT_S / 2)
        await made.binder.bind(made.pod, "n1", lambda: True)
        await binding
        made.slept_s.clear()
        await made.binder.over()
        assert len(made.slept_s) == 1

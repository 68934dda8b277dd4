"""Pods that an extender binds, says that it binds, and does not."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from koord.kube.errors import NotLeader
from tests.koord_scheduler.extenderserver import GPU, Answer, ExtenderServer, hang, held, names
from tests.koord_scheduler.rig import Rig, running
from tests.support.waiting import until


def binds(rig: Rig, says: Any = None) -> Answer:
    """Binds as it is asked to, and says something."""

    def bind(question: dict[str, Any]) -> Any:
        assert question["PodUID"] == rig.uid(question["PodName"])
        assert question["PodNamespace"] == "default"
        rig.pod(question["PodName"], nodeName=question["Node"])
        return {} if says is None else says

    return bind


async def test_it_binds_instead_of_us(extender: ExtenderServer) -> None:
    async with running(lambda rig: rig.nodes("n1"), extenders=[extender.settings("bind")]) as rig:
        extender.answers["bind"] = binds(rig)
        rig.pod()
        await rig.lead()
        await until(lambda: rig.events("Scheduled") == ["Successfully assigned default/p to n1"])
        await until(lambda: not rig.view.state.assumed)
        assert (len(extender.asked["bind"]), rig.server.count("bind"), rig.requested()) == (1, 0, 1000)


@pytest.mark.parametrize(
    "answer", [500, b"?", {"Error": "it is bound, though"}, pytest.param(hang, id="silence")], ids=str
)
async def test_a_pod_that_it_bound_without_saying_so_is_not_bound_twice(extender: ExtenderServer, answer: Any) -> None:
    async with running(
        lambda rig: rig.nodes("n1"), extenders=[extender.settings("bind", timeout_s=0.2 if answer is hang else 60)]
    ) as rig:

        def bind(question: dict[str, Any]) -> Any:
            binds(rig)(question)
            return answer(question) if callable(answer) else answer

        extender.answers["bind"] = bind
        rig.pod()
        await rig.lead()
        await until(lambda: rig.events("Scheduled") == ["Successfully assigned default/p to n1"])
        assert (len(extender.asked["bind"]), rig.server.count("bind"), rig.condition()) == (1, 0, ("", "", ""))


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ({"Error": "no room"}, "extender {url}: no room"),
        (404, "extender {url} answers bind with status 404"),
        ({}, "extender {url} says that it has bound the pod, which is on no node"),
    ],
)
async def test_a_pod_that_it_did_not_bind_is_tried_again(extender: ExtenderServer, answer: Any, message: str) -> None:
    extender.answers["bind"] = lambda _: answer
    async with running(lambda rig: rig.nodes("n1"), extenders=[extender.settings("bind")]) as rig:
        rig.pod()
        await rig.lead()
        await until(lambda: rig.condition()[1] == "SchedulerError")
        assert rig.condition()[2] == f"binding rejected: {message.format(url=extender.url)}"
        assert (rig.requested(), rig.server.count("bind")) == (0, 0)
        extender.answers["bind"] = binds(rig)
        rig.later()
        assert await rig.placed("p") == ["n1"]


async def test_we_bind_where_it_is_ignorable(extender: ExtenderServer) -> None:
    extender.answers["bind"] = lambda _: {"Error": "not today"}
    async with running(lambda rig: rig.nodes("n1"), extenders=[extender.settings("bind", is_ignorable=True)]) as rig:
        rig.pod()
        await rig.lead()
        assert await rig.placed("p") == ["n1"]
        assert rig.server.count("bind") == 1


async def test_we_bind_pods_that_it_is_not_interested_in(extender: ExtenderServer) -> None:
    said = extender.settings("bind", managed=frozenset((GPU,)))
    async with running(lambda rig: rig.nodes("n1"), extenders=[said]) as rig:
        rig.pod()
        await rig.lead()
        assert await rig.placed("p") == ["n1"]
        assert extender.asked == {}


async def test_nothing_is_bound_by_a_replica_that_leads_no_longer(extender: ExtenderServer) -> None:
    leads, released = True, asyncio.Event()

    def check() -> None:
        if not leads:
            raise NotLeader("another replica may lead")

    extender.answers["filter"] = held(names("n1"), released)
    said = [extender.settings("filter", "bind", timeout_s=60)]
    async with running(lambda rig: rig.nodes("n1"), check, extenders=said) as rig:
        rig.pod()
        await rig.lead()
        await until(extender.names)
        leads = False
        released.set()
        await until(lambda: rig.view.state.assumed)
        await asyncio.sleep(0.05)
        assert "bind" not in extender.asked
        await rig.resign()
        assert (rig.view.state.assumed, rig.requested(), len(rig.view.queue)) == (frozenset(), 0, 1)


async def test_a_term_ends_after_what_it_has_asked_for(extender: ExtenderServer) -> None:
    """Who leads next would meet a binding of the former leader's otherwise."""
    released = asyncio.Event()
    async with running(lambda rig: rig.nodes("n1"), extenders=[extender.settings("bind", timeout_s=60)]) as rig:
        extender.answers["bind"] = held(binds(rig), released)
        rig.pod()
        await rig.lead()
        await until(lambda: "bind" in extender.asked)
        resigned = asyncio.create_task(rig.resign())
        await asyncio.sleep(0.05)
        assert not resigned.done()
        released.set()
        await resigned
        assert rig.node_of() == "n1"

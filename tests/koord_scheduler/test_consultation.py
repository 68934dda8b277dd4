"""Decisions in which extenders have a say: what others do, and what happens, while they are asked."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from koord_scheduler import profiles
from koord_scheduler.profiles import Profile
from tests.koord_scheduler.extenderserver import GPU, WITH_GPU, ExtenderServer, hang, held, names
from tests.koord_scheduler.rig import Rig, running
from tests.kube.support import NODES, PODS
from tests.support.waiting import until

# others go on


async def test_pods_of_others_do_not_wait_and_its_own_wait_in_order(
    extender: ExtenderServer, second: ExtenderServer
) -> None:
    released = asyncio.Event()
    extender.answers["filter"] = held(names("n1"), released)
    managed = frozenset((GPU,))
    said = [extender.settings(managed=managed, timeout_s=60), second.settings(managed=frozenset(("example.com/b",)))]
    other: dict[str, Any] = {"containers": [{"name": "main", "resources": {"requests": {"example.com/b": "1"}}}]}
    found = (profiles.without(managed | {"example.com/b"}, Profile()),)
    async with running(lambda rig: rig.nodes("n1"), extenders=said, profiles=found) as rig:
        rig.pod("first", **WITH_GPU)
        await rig.lead()
        await until(lambda: extender.names() == ["first"])
        for name, priority in (("low", 1), ("high", 3), ("middle", 2)):
            rig.pod(name, priority=priority, **WITH_GPU)
        rig.pod("none").pod("others", **other)
        await rig.placed("none", "others")
        assert (extender.names(), rig.node_of("high"), len(rig.view.queue)) == (["first"], "", 4)
        released.set()
        await rig.placed("first", "low", "high", "middle")
        assert (extender.names(), extender.most) == (["first", "high", "middle", "low"], 1)
        assert second.names() == ["others"]


async def test_who_leads_next_asks_again(extender: ExtenderServer) -> None:
    extender.answers["filter"] = hang
    async with running(lambda rig: rig.nodes("n1"), extenders=[extender.settings(timeout_s=60)]) as rig:
        rig.pod("p").pod("q")
        await rig.lead()
        await until(lambda: len(extender.names()) == 1)
        await rig.resign()
        assert len(rig.view.queue) == 2
        extender.answers.clear()
        await rig.lead()
        assert await rig.placed("p", "q") == ["n1", "n1"]


# what happens meanwhile


@pytest.fixture
async def asked(extender: ExtenderServer) -> AsyncIterator[tuple[Rig, asyncio.Event]]:
    """A pod that wants four CPUs; its extender, which lets n1 and n2 pass, answers once the event is set."""
    released = asyncio.Event()
    extender.answers["filter"] = held(names("n1", "n2"), released)
    async with running(lambda rig: rig.nodes("n1", "n2"), extenders=[extender.settings(timeout_s=60)]) as rig:
        rig.pod(cpu="4")
        await rig.lead()
        await until(lambda: extender.nodes() == [["n1", "n2"]])
        yield rig, released


async def test_a_node_that_fills_up_meanwhile_is_not_taken(asked: tuple[Rig, asyncio.Event]) -> None:
    rig, released = asked
    rig.pod("x", nodeName="n1")
    await until(lambda: rig.requested("n1") == 1000)
    released.set()
    assert await rig.placed("p") == ["n2"]


async def test_a_node_that_goes_meanwhile_is_not_taken(asked: tuple[Rig, asyncio.Event]) -> None:
    rig, released = asked
    rig.server.delete(NODES, "", "n1")
    await until(lambda: "n1" not in rig.view.state.table)
    rig.node("n0")
    await until(lambda: "n0" in rig.view.state.table)
    released.set()
    assert await rig.placed("p") == ["n2"]


async def test_all_fill_up_and_another_one_comes_which_is_asked_about(
    asked: tuple[Rig, asyncio.Event], extender: ExtenderServer
) -> None:
    rig, released = asked
    rig.pod("x", nodeName="n1").pod("y", nodeName="n2").node("n3")
    await until(lambda: rig.requested("n1") == rig.requested("n2") == 1000 and "n3" in rig.view.state.table)
    extender.answers["filter"] = names("n3")
    released.set()
    assert await rig.placed("p") == ["n3"]
    assert extender.nodes() == [["n1", "n2"], ["n3"]]


async def test_all_fill_up(asked: tuple[Rig, asyncio.Event]) -> None:
    """The pod is not parked for good: what happened since the question was put may have helped it."""
    rig, released = asked
    rig.pod("x", nodeName="n1").pod("y", nodeName="n2")
    await until(lambda: rig.requested("n1") == rig.requested("n2") == 1000)
    released.set()
    await until(lambda: rig.condition()[2].startswith("0/2 nodes are available: 2 Insufficient cpu."))
    assert rig.view.queue.counts()["backoff"] == 1
    rig.server.delete(PODS, "default", "x")
    rig.later()
    assert await rig.placed("p") == ["n1"]


async def test_nodes_that_change_with_each_answer(extender: ExtenderServer) -> None:
    async with running(lambda rig: rig.nodes("n0"), extenders=[extender.settings()]) as rig:

        async def change(question: dict[str, Any]) -> Any:
            count = len(extender.asked["filter"])
            rig.node(f"n{count - 1}", unschedulable=True).node(f"n{count}")
            await until(lambda: f"n{count}" in rig.view.state.table)
            return {"NodeNames": question["NodeNames"]}

        extender.answers["filter"] = change
        rig.pod()
        await rig.lead()
        await until(lambda: rig.condition()[1:] == ("SchedulerError", "nodes change faster than extenders answer"))
        assert len(extender.names()) == 3


async def test_a_pod_that_goes_meanwhile(asked: tuple[Rig, asyncio.Event]) -> None:
    rig, released = asked
    rig.server.delete(PODS, "default", "p")
    await until(lambda: len(rig.view.queue) == 0)
    released.set()
    rig.pod("q")
    await rig.placed("q")
    assert (rig.server.count("bind"), rig.server.count("patch")) == (1, 0)


async def test_a_pod_that_another_scheduler_binds_meanwhile(asked: tuple[Rig, asyncio.Event]) -> None:
    rig, released = asked
    rig.pod(cpu="4", nodeName="n1")
    await until(lambda: rig.requested("n1") == 4000)
    released.set()
    rig.pod("q")
    assert await rig.placed("q") == ["n2"]
    assert (rig.server.count("bind"), rig.requested("n1")) == (1, 4000)


@pytest.mark.parametrize("is_alike", [True, False])
async def test_a_pod_that_changes_meanwhile(
    asked: tuple[Rig, asyncio.Event], extender: ExtenderServer, is_alike: bool
) -> None:
    """Only what decides where it goes has it asked about anew."""
    rig, released = asked
    rig.pod(cpu="4", metadata={"finalizers": ["new/one"], "annotations": {} if is_alike else {"new": "1"}})
    version = (rig.stored() or {})["metadata"]["resourceVersion"]
    await until(lambda: any(each.pod.pod.metadata.resource_version == version for each in rig.view.queue))
    released.set()
    await rig.placed("p")
    assert len(extender.names()) == (1 if is_alike else 2)
    await until(lambda: not rig.view.state.assumed)
    assert rig.server.count("bind") == 1


# rejections


@pytest.mark.parametrize("event", ["a node elsewhere", "a pod came", "a pod left"])
async def test_a_pod_that_an_extender_rejected_wakes_for_anything(extender: ExtenderServer, event: str) -> None:
    extender.answers["filter"] = names(FailedAndUnresolvableNodes={"n1": "no license"}, FailedNodes={"n1": "not this"})
    async with running(lambda rig: rig.nodes("n1"), extenders=[extender.settings()]) as rig:
        rig.node("n2", "1").pod("x", nodeName="n2").pod(cpu="2")
        await rig.lead()
        message = (
            "0/2 nodes are available: 1 Insufficient cpu, 1 no license. preemption: 0/2 nodes are available: "
            "2 Preemption is not helpful for scheduling."
        )
        await until(lambda: rig.condition()[2] == message)
        assert rig.view.queue.counts()["unschedulable"] == 1
        rig.later()
        await asyncio.sleep(0.05)
        assert len(extender.names()) == 1
        extender.answers.clear()
        if event == "a node elsewhere":
            rig.node("n3", "1")
        elif event == "a pod came":
            rig.pod("y", "0", nodeName="n2")
        else:
            rig.server.delete(PODS, "default", "x")
        assert await rig.placed("p") == ["n1"]


async def test_one_that_rejects_all_without_a_word(extender: ExtenderServer) -> None:
    extender.answers["filter"] = lambda _: {}
    async with running(lambda rig: rig.nodes("n1"), extenders=[extender.settings()]) as rig:
        rig.pod()
        await rig.lead()
        await until(lambda: rig.condition()[1] == "Unschedulable")
        assert rig.condition()[2].startswith("0/1 nodes are available: preemption: 0/1 nodes are available: 1 ")


# preemption


def crowded(rig: Rig) -> None:
    """Two nodes, each with a less important pod that leaves no room; that of n1 is the less important one."""
    rig.nodes("n1", "n2")
    rig.pod("v1", "4", nodeName="n1", priority=1).pod("v2", "2", nodeName="n2", priority=2)
    rig.pod("w2", "2", nodeName="n2", priority=2).pod("top", "0", nodeName="n2", priority=99)


def gone(rig: Rig) -> set[str]:
    return {name for name in ("v1", "v2", "w2", "top") if rig.stored(name) is None}


async def test_it_is_asked_about_victims_and_takes_nodes_away(extender: ExtenderServer) -> None:
    extender.answers["preempt"] = lambda question: {
        "nodeNameToMetaVictims": {"n2": question["NodeNameToMetaVictims"]["n2"]}
    }
    async with running(crowded, extenders=[extender.settings("preempt")]) as rig:
        rig.pod(cpu="3", priority=10)
        await rig.lead()
        await rig.placed("p")
        assert (rig.node_of(), gone(rig)) == ("n2", {"v2", "w2"})
        status = (rig.stored() or {})["status"]
        assert status["nominatedNodeName"] == "n2"
    question = extender.asked["preempt"][0]
    assert question["NodeNameToVictims"] is None
    assert {node: len(each["Pods"]) for node, each in question["NodeNameToMetaVictims"].items()} == {"n1": 1, "n2": 2}
    assert question["NodeNameToMetaVictims"]["n1"]["NumPDBViolations"] == 0
    assert question["Pod"]["metadata"]["name"] == "p"


async def test_it_may_choose_other_victims(extender: ExtenderServer) -> None:
    async with running(crowded, extenders=[extender.settings("preempt")]) as rig:
        pods = [{"UID": rig.uid(name)} for name in ("w2",)]
        extender.answers["preempt"] = lambda _: {"NodeNameToMetaVictims": {"n2": {"Pods": pods}}}
        rig.pod(cpu="2", priority=10)
        await rig.lead()
        assert await rig.placed("p") == ["n2"]
        assert gone(rig) == {"w2"}


async def test_one_that_knows_no_nodes_is_sent_whole_victims(extender: ExtenderServer) -> None:
    def all_of_n1(question: dict[str, Any]) -> Any:
        pods = [{"UID": each["metadata"]["uid"]} for each in question["NodeNameToVictims"]["n1"]["Pods"]]
        return {"NodeNameToMetaVictims": {"n1": {"Pods": pods, "NumPDBViolations": 1}}}

    extender.answers["preempt"] = all_of_n1
    said = extender.settings("preempt", is_node_cache_capable=False)
    async with running(crowded, extenders=[said]) as rig:
        rig.pod(cpu="3", priority=10)
        await rig.lead()
        assert await rig.placed("p") == ["n1"]
        assert gone(rig) == {"v1"}
    victims = extender.asked["preempt"][0]["NodeNameToVictims"]
    assert victims["n1"]["Pods"][0]["spec"]["containers"][0]["resources"] == {"requests": {"cpu": "4"}}


@pytest.mark.parametrize(
    ("victims", "message", "place"),
    [
        (None, "no candidate node for preemption", "unschedulable"),
        ({"n2": ["v2"]}, "no candidate node for preemption", "unschedulable"),
        ({"n2": []}, "names no victim on node 'n2'", "backoff"),
        ({"n1": ["v2"]}, "as a victim on node 'n1', where it cannot be one", "backoff"),
        ({"n2": ["v2", "w2", "top"]}, "as a victim on node 'n2', where it cannot be one", "backoff"),
        ({"n9": ["v2"]}, "as a victim on node 'n9', where it cannot be one", "backoff"),
    ],
    ids=["none", "too few", "nobody", "of another node", "a more important one", "a node that there is not"],
)
async def test_victims_that_help_nobody_stay(
    extender: ExtenderServer, victims: dict[str, list[str]] | None, message: str, place: str
) -> None:
    async with running(crowded, extenders=[extender.settings("preempt")]) as rig:
        said = {node: {"Pods": [{"UID": rig.uid(name)} for name in pods]} for node, pods in (victims or {}).items()}
        extender.answers["preempt"] = lambda _: {"NodeNameToMetaVictims": said}
        rig.pod(cpu="3", priority=10)
        await rig.lead()
        await until(lambda: rig.condition()[1] == "Unschedulable")
        assert rig.condition()[2].startswith("0/2 nodes are available: 2 Insufficient cpu. preemption: ")
        assert message in rig.condition()[2]
        assert (gone(rig), rig.view.queue.counts()[place]) == (set(), 1)


@pytest.mark.parametrize("is_ignorable", [False, True])
async def test_one_that_fails_at_preemption(extender: ExtenderServer, is_ignorable: bool) -> None:
    extender.answers["preempt"] = lambda _: 500
    async with running(crowded, extenders=[extender.settings("preempt", is_ignorable=is_ignorable)]) as rig:
        rig.pod(cpu="3", priority=10)
        await rig.lead()
        if is_ignorable:
            assert await rig.placed("p") == ["n1"]
            return
        await until(lambda: "answers preempt with status 500" in rig.condition()[2])
        assert (rig.condition()[1], gone(rig), rig.view.queue.counts()["backoff"]) == ("Unschedulable", set(), 1)


async def test_room_that_comes_while_it_is_asked_spares_the_victims(extender: ExtenderServer) -> None:
    released = asyncio.Event()
    extender.answers["preempt"] = held(
        lambda question: {"NodeNameToMetaVictims": question["NodeNameToMetaVictims"]}, released
    )
    async with running(crowded, extenders=[extender.settings("preempt", timeout_s=60)]) as rig:
        rig.pod(cpu="3", priority=10)
        await rig.lead()
        await until(lambda: extender.names("preempt"))
        rig.node("n3")
        await until(lambda: "n3" in rig.view.state.table)
        released.set()
        await until(lambda: "a node has room now" in rig.condition()[2])
        rig.later()
        assert await rig.placed("p") == ["n3"]
        assert gone(rig) == set()

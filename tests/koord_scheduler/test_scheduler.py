"""The scheduler on an API server that answers, answers late, not at all, or otherwise than hoped."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from koord.kube.errors import NotLeader
from koord.model.scheduling.pods import TopologySpreadConstraint
from koord.scheduling.framework import WeightedPlugin
from koord.scheduling.plugins.nodes import NodeUnschedulable
from koord.scheduling.plugins.resources import NodeResourcesFit, most_allocated
from koord.scheduling.plugins.spread import PodTopologySpread
from koord_scheduler.profiles import Profile
from tests.koord_scheduler.rig import BUDGETS, HOSTNAME, Rig, running
from tests.kube.server import Fault
from tests.kube.support import NODES, PODS
from tests.support.waiting import until

WORKLOAD = "spec.workloadRef or spec.schedulingGroup"


def labelled(name: str) -> dict[str, Any]:
    return {"labels": {"scheduling.koordinator.sh/scheduler-name": name}}


async def test_pods_that_wait_are_bound_and_that_is_said() -> None:
    async with running(lambda rig: rig.node("n1").pod("a").pod("b")) as rig:
        await rig.lead()
        assert await rig.placed("a", "b") == ["n1", "n1"]
        await until(lambda: len(rig.events("Scheduled")) == 2)
        assert "Successfully assigned default/a to n1" in rig.events("Scheduled")
        assert rig.server.count("bind") == 2
        rig.pod("c")
        assert await rig.placed("c") == ["n1"]
        await until(lambda: not rig.view.state.assumed)
        assert rig.requested() == 3000


async def test_whose_pods_it_places() -> None:
    def prepare(rig: Rig) -> None:
        rig.node("n1")
        rig.pod("others", scheduler="default-scheduler")
        rig.pod("gated", schedulingGates=[{"name": "wait"}])
        rig.pod("going", metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"})
        rig.pod("finished", status={"phase": "Failed"})
        rig.pod("unreadable", cpu="many")
        rig.pod("last")

    async with running(prepare) as rig:
        await rig.lead()
        await rig.placed("last")
        assert [name for name in ("others", "gated", "going", "finished", "unreadable") if rig.node_of(name)] == []
        assert list(rig.view.problems.values()) == ["'many' is not a quantity: no digits"]
        rig.pod("gated")
        rig.pod("unreadable")
        await rig.placed("gated", "unreadable")
        assert rig.view.problems == {}


async def test_a_label_says_whose_a_pod_is() -> None:
    def prepare(rig: Rig) -> None:
        rig.node("n1").pod("mine", scheduler="default-scheduler", metadata=labelled("koord-scheduler"))
        rig.pod("theirs", metadata=labelled("default-scheduler")).pod("nobodys", metadata=labelled("")).pod("last")

    async with running(prepare) as rig:
        await rig.lead()
        await rig.placed("mine", "last")
        assert (rig.node_of("theirs"), rig.node_of("nobodys")) == ("", "")
        rig.pod("theirs", metadata=labelled("koord-scheduler"))
        await rig.placed("theirs")


async def test_a_node_keeps_from_pods_what_its_annotation_says() -> None:
    kept = {"node.koordinator.sh/reservation": '{"resources": {"cpu": "3"}}'}
    async with running(lambda rig: rig.node("n1").pod("p", cpu="2")) as rig:
        status = {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "10"}}
        rig.server.put(NODES, "", "n1", metadata={"annotations": kept}, spec={}, status=status)
        await until(lambda: rig.view.state.nodes.allocatable.at(0, "cpu") == 1000)
        await rig.lead()
        await until(lambda: "1 Insufficient cpu" in rig.condition()[2])
        rig.node("n1")
        rig.offset_s += 20
        assert await rig.placed("p") == ["n1"]


async def test_pods_of_others_count() -> None:
    async with running(lambda rig: rig.node("n1", "2").pod("x", nodeName="n1", scheduler="other")) as rig:
        await rig.lead()
        rig.pod("p", cpu="2")
        await until(lambda: rig.condition()[1] == "Unschedulable")
        rig.server.delete(PODS, "default", "x")
        rig.offset_s += 20
        await rig.placed("p")


async def test_why_a_pod_waits_is_said_once() -> None:
    async with running(lambda rig: rig.node("n1", "2").node("n2", "8", unschedulable=True)) as rig:
        await rig.lead()
        rig.pod("p", cpu="4")
        message = (
            "0/2 nodes are available: 1 Insufficient cpu, 1 node(s) were unschedulable. preemption: 0/2 nodes are "
            "available: 2 Preemption is not helpful for scheduling."
        )
        await until(lambda: rig.condition() == ("False", "Unschedulable", message))
        await until(lambda: rig.events("FailedScheduling") == [message])
        writes = _patches_of_pods(rig)
        for step in range(3):
            rig.offset_s += 400
            rig.view.changed()
            await until(lambda: rig.attempts("unschedulable") >= step + 2)  # noqa: B023 - awaited at once
        assert _patches_of_pods(rig) == writes
        rig.node("n2", "8")
        rig.offset_s += 20
        assert await rig.placed("p") == ["n2"]


@pytest.mark.parametrize(
    ("spec", "asks", "plugin"),
    [
        ({"resourceClaims": [{"name": "c", "resourceClaimName": "c"}]}, "spec.resourceClaims", "DynamicResources"),
        ({"workloadRef": {"name": "w", "podGroup": "g"}}, WORKLOAD, "GangScheduling"),
        ({"schedulingGroup": {"podGroupName": "g"}}, WORKLOAD, "GangScheduling"),
    ],
)
@pytest.mark.parametrize("plugins", [Profile().plugins, ()], ids=["by default", "without any plugin"])
async def test_what_is_not_supported_is_not_placed(
    spec: dict[str, Any], asks: str, plugin: str, plugins: tuple[WeightedPlugin, ...]
) -> None:
    """Whatever the profile switches off, and though there is a pod to preempt."""

    def prepare(rig: Rig) -> None:
        rig.node("n1").pod("low", nodeName="n1", priority=-1).pod("p", **spec)

    async with running(prepare, profiles=[Profile(plugins=plugins)]) as rig:
        await rig.lead()
        await until(lambda: rig.condition()[1] == "Unschedulable")
        said = f"0/1 nodes are available: the pod has {asks}, and this scheduler has no {plugin}."
        assert rig.condition()[2].startswith(said)
        assert "1 Preemption is not helpful for scheduling" in rig.condition()[2]
        rig.pod("next")
        await rig.placed("next")
        assert (rig.node_of(), rig.server.count("delete")) == ("", 0)


@pytest.mark.parametrize(
    "faults",
    [
        pytest.param([Fault("bind", drop=True, done=True)], id="the answer is lost"),
        pytest.param([Fault("bind", drop=True)], id="the request is lost"),
        pytest.param([Fault("bind", status=429, reason="TooManyRequests")] * 3, id="too many"),
        pytest.param([Fault("bind", status=500, reason="InternalError")], id="an error of the server"),
        pytest.param([Fault("bind", status=504, reason="Timeout"), Fault("bind", drop=True, done=True)], id="several"),
    ],
)
async def test_a_binding_that_is_not_answered_is_sent_again(faults: list[Fault]) -> None:
    async with running(lambda rig: rig.node("n1").node("n2").pod()) as rig:
        rig.server.faults += faults
        await rig.lead()
        (node,) = await rig.placed("p")
        await until(lambda: not rig.view.state.assumed)
        assert [rig.requested(name) for name in ("n1", "n2")] == [1000 * (node == name) for name in ("n1", "n2")]
        await until(lambda: len(rig.events("Scheduled")) == 1)
        assert (rig.attempts("scheduled"), rig.attempts("unschedulable"), rig.attempts("error")) == (1, 0, 0)


async def test_a_server_that_has_too_much_to_do_gets_less() -> None:
    async with running(lambda rig: rig.node("n1", "100", "100")) as rig:
        size = rig.scheduler.binding.window.size
        rig.server.faults += [Fault("bind", status=429, reason="TooManyRequests")]
        rig.pod()
        await rig.lead()
        await rig.placed("p")
        assert rig.scheduler.binding.window.size < size


async def test_a_binding_that_is_refused_is_decided_again() -> None:
    async with running(lambda rig: rig.node("n1").pod()) as rig:
        rig.server.faults.append(Fault("bind", status=403, reason="Forbidden"))
        await rig.lead()
        await until(lambda: rig.condition()[1] == "SchedulerError")
        assert "binding rejected" in rig.condition()[2]
        assert rig.requested() == 0
        rig.offset_s += 20
        rig.view.changed()
        assert await rig.placed("p") == ["n1"]


async def test_a_pod_that_another_scheduler_binds_first_counts_there() -> None:
    async with running(lambda rig: rig.node("n1").pod()) as rig:
        rig.node("n2", unschedulable=True)
        held = asyncio.Event()
        rig.server.faults.append(Fault("bind", until=held))
        await rig.lead()
        await until(lambda: rig.view.state.assumed)
        rig.pod(nodeName="n2")
        held.set()
        await until(lambda: rig.requested("n2") == 1000)
        assert (rig.requested("n1"), rig.node_of()) == (0, "n2")


async def test_a_pod_that_is_deleted_under_its_binding() -> None:
    async with running(lambda rig: rig.node("n1", "1").pod()) as rig:
        held = asyncio.Event()
        rig.server.faults.append(Fault("bind", until=held))
        await rig.lead()
        await until(lambda: rig.view.state.assumed)
        rig.server.delete(PODS, "default", "p")
        rig.pod("next")
        held.set()
        assert await rig.placed("next") == ["n1"]
        await until(lambda: not rig.view.state.assumed)
        assert rig.requested() == 1000


async def test_a_pod_that_is_without_a_node_again_is_placed_again() -> None:
    """So the server's database has it that was put back to an earlier state."""
    async with running(lambda rig: rig.node("n1", "1").pod()) as rig:
        await rig.lead()
        await rig.placed("p")
        await until(lambda: not rig.view.state.assumed)
        rig.pod()
        await until(lambda: rig.server.count("bind") == 2)
        await rig.placed("p")
        await until(lambda: not rig.view.state.assumed)
        assert (rig.requested(), len(rig.view.queue)) == (1000, 0)


async def test_a_node_that_is_deleted_under_a_binding_gets_no_pod() -> None:
    async with running(lambda rig: rig.node("n1").pod()) as rig:
        held = asyncio.Event()
        rig.server.faults += [Fault("bind", drop=True, until=held)]
        await rig.lead()
        await until(lambda: rig.view.state.assumed)
        rig.server.delete(NODES, "", "n1")
        await until(lambda: "n1" not in rig.view.state.table)
        held.set()
        await until(lambda: rig.condition()[1] == "SchedulerError")
        assert (rig.node_of(), rig.server.count("bind")) == ("", 1)
        rig.node("n2")
        rig.offset_s += 20
        assert await rig.placed("p") == ["n2"]


async def test_less_important_pods_make_room() -> None:
    def prepare(rig: Rig) -> None:
        rig.node("n1", "2")
        rig.pod("low", nodeName="n1", priority=1)
        rig.pod("lower", nodeName="n1", priority=0)
        rig.server.put(BUDGETS, "default", "b", spec={"selector": {"matchLabels": {"app": "x"}}})

    async with running(prepare) as rig:
        await rig.lead()
        rig.pod("high", priority=10)
        await until(lambda: rig.stored("lower") is None)
        assert rig.stored("low") is not None
        assert await rig.placed("high") == ["n1"]
        message = "0/1 nodes are available: 1 Insufficient cpu."
        assert rig.condition("high") == ("False", "Unschedulable", message)
        status = (rig.stored("high") or {})["status"]
        assert status["nominatedNodeName"] == "n1"
        await until(lambda: len(rig.events("Preempted")) == 1)


async def test_room_that_was_promised_to_a_pod_that_is_gone_is_given_to_others() -> None:
    """Though its victim has left, and nothing else happens on the node."""

    def prepare(rig: Rig) -> None:
        rig.node("n1", "1").pod("high", status={"nominatedNodeName": "n1"}, priority=5, schedulingGates=[{"name": "g"}])
        rig.pod("low", priority=1, preemptionPolicy="Never")

    async with running(prepare) as rig:
        await rig.lead()
        await until(lambda: rig.condition("low")[1] == "Unschedulable")
        rig.server.delete(PODS, "default", "high")
        rig.offset_s += 20
        assert await rig.placed("low") == ["n1"]


async def test_a_node_that_goes_wakes_who_waits_for_the_domains_that_are_left() -> None:
    spread = {"maxSkew": 1, "topologyKey": HOSTNAME, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {}}
    constraint = {**spread, "labelSelector": {"matchLabels": {"app": "web"}}}
    web: dict[str, Any] = {"metadata": {"labels": {"app": "web"}}, "topologySpreadConstraints": [constraint]}

    def prepare(rig: Rig) -> None:
        rig.node("n1").node("n2", unschedulable=True).pod("first", nodeName="n1", **web).pod("p", **web)

    async with running(prepare) as rig:
        await rig.lead()
        await until(lambda: rig.condition()[1] == "Unschedulable")
        rig.server.delete(NODES, "", "n2")
        rig.offset_s += 20
        assert await rig.placed("p") == ["n1"]


async def test_nobody_is_deleted_for_a_pod_that_waits_no_longer() -> None:
    """The preemptor goes while its first victim is told what happens."""
    async with running(lambda rig: rig.node("n1", "2").pod("low", "2", nodeName="n1", priority=0)) as rig:
        held = asyncio.Event()
        rig.server.faults += [Fault("patch"), Fault("patch", until=held)]
        await rig.lead()
        rig.pod("high", "2", priority=10)
        await until(lambda: rig.server.count("patch") == 2)
        rig.server.delete(PODS, "default", "high")
        await until(lambda: not len(rig.view.queue))
        held.set()
        await until(lambda: rig.condition("low", "DisruptionTarget")[0])
        rig.node("n2")
        rig.pod("next")
        assert await rig.placed("next") == ["n2"]
        assert (rig.server.count("delete"), rig.node_of("low")) == (0, "n1")


async def test_who_leads_next_keeps_what_was_promised() -> None:
    def prepare(rig: Rig) -> None:
        rig.node("n1", "1")
        rig.pod("promised", priority=5, status={"nominatedNodeName": "n1"})
        rig.pod("early", priority=5)

    async with running(prepare) as rig:
        await rig.lead()
        await rig.placed("promised")
        await until(lambda: rig.condition("early")[1] == "Unschedulable")
        assert rig.node_of("early") == ""


async def test_room_of_a_decision_that_is_taken_back_is_left_to_whom_it_is_promised() -> None:
    leads = True

    def check() -> None:
        if not leads:
            raise NotLeader("another replica may lead")

    async with running(lambda rig: rig.node("n1", cpu="1").pod(), check) as rig:
        held = asyncio.Event()
        rig.server.faults.append(Fault("bind", drop=True, until=held))
        await rig.lead()
        await until(lambda: rig.server.count("bind") == 1)
        rig.pod("promised", priority=5, preemptionPolicy="Never", status={"nominatedNodeName": "n1"})
        await until(lambda: rig.condition("promised")[1] == "Unschedulable")
        leads = False
        held.set()
        await rig.resign()
        leads = True
        await rig.lead()
        assert await rig.placed("promised") == ["n1"]


async def test_a_replica_that_leads_no_longer_sends_nothing_and_takes_its_decisions_back() -> None:
    leads = True

    def check() -> None:
        if not leads:
            raise NotLeader("another replica may lead")

    async with running(lambda rig: rig.node("n1").pod(), check) as rig:
        held = asyncio.Event()
        rig.server.faults.append(Fault("bind", drop=True, until=held))
        await rig.lead()
        await until(lambda: rig.server.count("bind") == 1)
        leads = False
        held.set()
        await until(lambda: rig.server.count("get"), "the pod to be looked up")
        await rig.resign()
        assert rig.server.count("bind") == 1
        assert (rig.view.state.assumed, rig.requested(), len(rig.view.queue)) == (frozenset(), 0, 1)
        assert rig.node_of() == ""
        leads = True
        await rig.lead()
        assert await rig.placed("p") == ["n1"]


async def test_a_standby_follows_and_decides_nothing() -> None:
    async with running(lambda rig: rig.node("n1", "1").pod("a")) as rig:
        rig.pod("b")
        await until(lambda: len(rig.view.queue) == 2)
        rig.pod("a", nodeName="n1")
        await until(lambda: rig.requested() == 1000)
        assert (len(rig.view.queue), rig.server.count("bind")) == (1, 0)


async def test_a_pod_that_wants_company_wakes_when_its_company_is_placed_here() -> None:
    async with running(lambda rig: rig.node("n1")) as rig:
        await rig.lead()
        term = {"labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": HOSTNAME}
        rig.pod("near", affinity={"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}})
        await until(lambda: rig.condition("near")[1] == "Unschedulable")
        rig.pod("web", metadata={"labels": {"app": "web"}})
        await rig.placed("web")
        await until(lambda: not rig.view.state.assumed)
        rig.offset_s += 20
        rig.view.changed()
        assert await rig.placed("near") == ["n1"]


async def test_many_pods_fill_many_nodes() -> None:
    def prepare(rig: Rig) -> None:
        for index in range(20):
            rig.node(f"n{index}", "4", "110")
        for index in range(100):
            anti: dict[str, Any] = {}
            if index < 20:
                term = {"labelSelector": {"matchLabels": {"app": "spread"}}, "topologyKey": HOSTNAME}
                anti = {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}
            labels = {"app": "spread" if index < 20 else "other"}
            rig.pod(f"p{index}", "500m", metadata={"labels": labels}, **anti)

    async with running(prepare) as rig:
        await rig.lead()
        nodes = await rig.placed(*[f"p{index}" for index in range(100)])
        assert len(set(nodes[:20])) == 20
        assert {nodes.count(f"n{index}") for index in range(20)} == {5}
        assert rig.server.count("bind") == 100


async def test_each_profile_places_its_own_pods_by_its_own_plugins() -> None:
    """``packed`` fills the fuller node, and its pods make no room; both count on the same nodes."""

    def prepare(rig: Rig) -> None:
        rig.node("n1").node("n2")
        rig.pod("there", nodeName="n1", priority=0)
        rig.pod("spread").pod("packed", scheduler="packed").pod("others", scheduler="default-scheduler")

    fit = NodeResourcesFit(strategy=most_allocated)
    profiles = (Profile(), Profile("packed", (WeightedPlugin(fit),), None))
    async with running(prepare, profiles=profiles) as rig:
        await rig.lead()
        assert await rig.placed("packed", "spread") == ["n1", "n2"]
        assert (rig.requested("n1"), rig.node_of("others")) == (2000, "")
        rig.pod("large", "4", scheduler="packed", priority=10)
        await until(lambda: rig.condition("large")[1] == "Unschedulable")
        assert rig.condition("large")[2] == "0/2 nodes are available: 2 Insufficient cpu."
        rig.pod("larger", "4", priority=10)
        await until(lambda: any(rig.stored(name) is None for name in ("there", "packed", "spread")))
        await rig.placed("larger")
        assert rig.node_of("large") == ""


async def test_a_profile_wakes_its_own_pods() -> None:
    profiles = (Profile(), Profile("any", (WeightedPlugin(NodeResourcesFit()),)))
    async with running(lambda rig: rig.node("n1", unschedulable=True), profiles=profiles) as rig:
        await rig.lead()
        rig.pod("a", "8").pod("b", "8", scheduler="any")
        await until(lambda: all(rig.condition(name)[1] == "Unschedulable" for name in ("a", "b")))
        rig.node("n1", "8", unschedulable=True)
        rig.offset_s += 20
        assert await rig.placed("b") == ["n1"]
        assert rig.view.queue.counts()["unschedulable"] == 1


SERVICES, REPLICA_SETS = "/api/v1/services", "/apis/apps/v1/replicasets"
OF_SET = {"ownerReferences": [{"kind": "ReplicaSet", "name": "web", "uid": "w", "controller": True}]}


@pytest.mark.parametrize(
    ("path", "before", "metadata"),
    [
        (SERVICES, {"selector": {"app": "web"}}, {}),
        (REPLICA_SETS, {"selector": {"matchLabels": {"app": "web"}}}, OF_SET),
    ],
)
@pytest.mark.parametrize("is_gone", [False, True])
async def test_a_pod_wakes_when_its_owner_spreads_it_no_longer(
    path: str, before: dict[str, Any], metadata: dict[str, Any], is_gone: bool
) -> None:
    default = TopologySpreadConstraint(max_skew=1, topology_key=HOSTNAME, when_unsatisfiable="DoNotSchedule")
    plugins = (NodeUnschedulable(), PodTopologySpread((default,), False))
    after = {"selector": {"x": "y"}} if path == SERVICES else {"selector": {"matchLabels": {"x": "y"}}}

    def prepare(rig: Rig) -> None:
        rig.server.put(path, "default", "web", spec=before)
        rig.node("n1").node("n2", unschedulable=True)
        for name in ("there", "p"):
            place = {"nodeName": "n1"} if name == "there" else {}
            rig.pod(name, metadata={**metadata, "labels": {"app": "web", "x": name}}, **place)

    async with running(prepare, profiles=[Profile(plugins=tuple(map(WeightedPlugin, plugins)))]) as rig:
        await rig.lead()
        await until(lambda: rig.condition()[1] == "Unschedulable")
        if is_gone:
            rig.server.delete(path, "default", "web")
        else:
            rig.server.put(path, "default", "web", spec=after)
        rig.offset_s += 20
        assert await rig.placed("p") == ["n1"]


def _patches_of_pods(rig: Rig) -> int:
    return sum(verb == "patch" and "/pods/" in path for verb, path, _, _ in rig.server.requests)

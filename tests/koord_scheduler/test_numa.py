"""CPUs of a pod's own on an API server: reported, given, written on pods, and known to a scheduler that starts anew.

The cluster is that of Koordinator's guide to CPU orchestration: a node of 16 CPUs, and a pod of each class.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec

from koord.model.cpuset import CPUSet
from koord.model.topologyannotations import CPU_TOPOLOGY, CPUTopology
from koord.scheduling.numa.podrequest import RESOURCE_STATUS
from koord_scheduler import configuration
from koord_scheduler.profiles import Profile
from tests.koord_scheduler.rig import Rig, running
from tests.kube.support import PODS
from tests.qosd.podviews import view
from tests.qosd.policy.test_pools import both, pools
from tests.scheduling.numa.numaclusters import machine
from tests.support.waiting import until

TOPOLOGIES = "/apis/topology.node.k8s.io/v1alpha1/noderesourcetopologies"
SPREAD = {"scheduling.koordinator.sh/resource-spec": '{"preferredCPUBindPolicy": "SpreadByPCPUs"}'}
POINTS = ("filter", "score", "reserve", "preBind")


def profile() -> Profile:
    plugins = {point: {"enabled": [{"name": "NodeNUMAResource"}]} for point in POINTS}
    document = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [{"schedulerName": "koord-scheduler", "plugins": plugins}],
    }
    (found,) = configuration.parse(json.dumps(document), "f").profiles
    return found


def report(rig: Rig, count: int = 16) -> None:
    detail = msgspec.json.encode(CPUTopology(tuple(machine(1, 1, count, 1)))).decode()
    rig.server.put(TOPOLOGIES, "", "n1", metadata={"annotations": {CPU_TOPOLOGY: detail}}, zones=[])


def classed(rig: Rig, name: str, qos: str, **document: Any) -> None:
    metadata = {"uid": name, "labels": {"koordinator.sh/qosClass": qos}, "annotations": dict(SPREAD)}
    rig.pod(name, "2", metadata=metadata, priority=5000 if qos == "BE" else 9000, **document)


def prepare(rig: Rig) -> None:
    rig.node(cpu="16")
    report(rig)


def given(rig: Rig, name: str) -> Any:
    text = ((rig.stored(name) or {})["metadata"].get("annotations") or {}).get(RESOURCE_STATUS)
    return None if text is None else json.loads(text)


async def start(rig: Rig) -> None:
    await rig.lead()
    for name, qos in (("nginx-lse", "LSE"), ("nginx-lsr", "LSR"), ("nginx-ls", "LS"), ("nginx-be", "BE")):
        classed(rig, name, qos)
        await rig.placed(name)


async def test_the_guides_pods() -> None:
    async with running(prepare, profiles=(profile(),)) as rig:
        await start(rig)
        assert given(rig, "nginx-lse") == {"cpuset": "0-1"}
        assert given(rig, "nginx-lsr") == {"cpuset": "2-3"}
        assert given(rig, "nginx-ls") is None
        assert given(rig, "nginx-be") is None
        verbs = [verb for verb, path, *_ in rig.server.requests if "/pods/nginx-lse" in path and verb != "get"]
        assert verbs[:2] == ["patch", "bind"], "whoever sees it on the node sees its CPUs"
        lse, lsr = given(rig, "nginx-lse")["cpuset"], given(rig, "nginx-lsr")["cpuset"]
        on_node = [view("lse", "LSE", "Guaranteed", cpus=lse), view("lsr", "LSR", "Guaranteed", cpus=lsr)]
        assert both(pools(*on_node)) == ("4-15", "2-15"), "what the node's agent leaves to LS, and to BE"


async def test_who_leads_next_gives_no_cpu_twice() -> None:
    async with running(prepare, profiles=(profile(),)) as rig:
        await start(rig)
        await rig.resign()
        stored = [rig.stored(name) for name in ("nginx-lse", "nginx-lsr", "nginx-ls", "nginx-be")]

    def again(other: Rig) -> None:
        prepare(other)
        for each in stored:
            assert each is not None
            members = {key: value for key, value in each.items() if key in ("metadata", "spec", "status")}
            other.server.put(PODS, "default", each["metadata"]["name"], **members)

    async with running(again, profiles=(profile(),)) as rig:
        assert str(CPUSet(rig.view.state.numa.view(0).free)) == "4-15"
        await rig.lead()
        classed(rig, "next", "LSE")
        await rig.placed("next")
        assert given(rig, "next") == {"cpuset": "4-5"}


async def test_a_pod_waits_until_the_cpus_are_known_and_for_free_ones() -> None:
    async with running(lambda rig: rig.node(cpu="16"), profiles=(profile(),)) as rig:
        await rig.lead()
        classed(rig, "p", "LSR")
        await until(lambda: rig.condition()[2].startswith("0/1 nodes are available: 1 node(s) invalid CPU Topology."))
        report(rig, 2)
        rig.later()
        await rig.placed("p")
        classed(rig, "q", "LSR")
        await until(lambda: "1 not enough cpus available to satisfy request" in rig.condition("q")[2])
        rig.server.delete(PODS, "default", "p")
        rig.later()
        await rig.placed("q")
        assert given(rig, "q") == {"cpuset": "0-1"}


async def test_what_is_taken_back_with_leadership_is_free_again() -> None:
    async with running(prepare, profiles=(profile(),)) as rig:
        classed(rig, "p", "LSR")
        await until(lambda: rig.view.queue.get(rig.uid()) is not None)
        queued = rig.view.queue.get(rig.uid())
        assert queued is not None
        rig.view.state.assume(queued.pod, "n1")
        for plugin in profile().reserve:
            plugin.reserve(rig.view.state, queued.pod, "n1")
        assert str(CPUSet(rig.view.state.numa.view(0).free)) == "2-15"
        rig.view.take_back()
        assert str(CPUSet(rig.view.state.numa.view(0).free)) == "0-15"


async def test_without_the_plugin_nobody_asks_for_topologies() -> None:
    async with running(prepare) as rig:
        assert not [path for _, path, *_ in rig.server.requests if "noderesourcetopologies" in path]
        assert rig.view.topologies is None

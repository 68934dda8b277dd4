"""NodeNUMAResource: its reasons, its scores, its annotations, and who is believed what."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import numpy as np
import pytest

from koord.model import cpuset
from koord.model.cpuset import CPUSet
from koord.model.scheduling.numa import (
    AMPLIFICATION_RATIO,
    LABEL_CPU_BIND_POLICY,
    LABEL_NUMA_ALLOCATE_STRATEGY,
    LABEL_NUMA_TOPOLOGY_POLICY,
    RESOURCE_SPEC,
    CPUBindPolicy,
)
from koord.model.topologyannotations import (
    CPU_MANAGER_POLICY,
    CPU_TOPOLOGY,
    POD_CPU_ALLOCS,
    RESERVATION,
    SYSTEM_QOS_RESOURCE,
)
from koord.scheduling.defaults import default_plugins
from koord.scheduling.framework import Framework, WeightedPlugin
from koord.scheduling.numa import nodesettings
from koord.scheduling.numa.podrequest import RESOURCE_STATUS
from koord.scheduling.plugin import PluginError
from koord.scheduling.plugins.nodenumaresource import NodeNUMAResource, Scoring
from koord.scheduling.plugins.resources import most_allocated
from koord.scheduling.podinfo import PodInfo
from koord.scheduling.preemption import Preemptor
from koord.scheduling.state import ClusterState
from tests.scheduling.clusters import node, pod
from tests.scheduling.numa.numaclusters import cpus_of, machine, put, topology, wanting

PLUGIN = NodeNUMAResource()
TWO = machine(2, 1, 4, 2)
FULL, SPREAD = {"requiredCPUBindPolicy": "FullPCPUs"}, {"requiredCPUBindPolicy": "SpreadByPCPUs"}
PREFERS_SPREAD = {"preferredCPUBindPolicy": "SpreadByPCPUs"}
SINGLE = {"numaTopologyPolicy": "SingleNUMANode"}
KUBELETS = {"policy": "static", "options": {"full-pcpus-only": "true"}, "reservedCPUs": ""}
RATIO = {AMPLIFICATION_RATIO: '{"cpu":1.50}'}


def cluster(stored: Any = "two sockets", **document: Any) -> ClusterState:
    """One node, n1."""
    state = ClusterState()
    put(state, "n1", topology(TWO) if stored == "two sockets" else stored, **document)
    return state


def give(state: ClusterState, made: PodInfo, node: str = "n1", plugin: NodeNUMAResource = PLUGIN) -> str:
    """Has the pod placed; returns its CPUs."""
    state.assume(made, node)
    plugin.reserve(state, made, node)
    return cpus_of(state, made.uid)


def written(state: ClusterState, made: PodInfo, key: str = RESOURCE_STATUS) -> Any:
    """What is written on the pod of an annotation; None: nothing."""
    patch = PLUGIN.pre_bind_patch(state, made, "n1")
    text = None if patch is None else patch.annotations.get(key)
    return None if text is None else json.loads(text)


def reasons(state: ClusterState, made: PodInfo) -> list[tuple[str, bool]]:
    return [(each.text, each.is_resolvable) for each in PLUGIN.explain(state, made, 0, state.table.exists).reasons]


def score(state: ClusterState, made: PodInfo, plugin: NodeNUMAResource = PLUGIN) -> int:
    scores = plugin.score(state, made, state.table.exists)
    assert scores is not None
    assert plugin.explain(state, made, 0, state.table.exists).score == scores[0]
    return int(scores[0])


# who binds


@pytest.mark.parametrize(
    ("made", "cpus"),
    [
        (wanting("p", "2", "LSE"), "0-1"),
        (wanting("p", "2", "LSR"), "0-1"),
        (wanting("p", "2", "LS"), ""),
        (wanting("p", "2", "BE"), ""),
        (wanting("p", "2", ""), ""),
        (wanting("p", "2", "LSR", priority=5500), ""),
        (wanting("p", "2", "LSR", priority=None), "0-1"),
        (wanting("p", "2", "LSR", labels={"koordinator.sh/priority-class": "koord-mid"}), ""),
        (wanting("p", "2", "LSR", {"preferredCPUBindPolicy": "ConstrainedBurst"}), ""),
        (wanting("p", "2", "LSR", {"preferredCPUBindPolicy": "Default"}), "0-1"),
        (wanting("p", "2", "LSR", PREFERS_SPREAD), "0,2"),
        (wanting("p", "2", "LSR", {**PREFERS_SPREAD, **FULL}), "0-1"),
        (wanting("p", "", "LSR", memory="1Gi"), ""),
    ],
)
def test_who_gets_cpus_of_its_own(made: PodInfo, cpus: str) -> None:
    """The classes LSE and LSR with the priority of products, by the required policy before the preferred one."""
    state = cluster()
    assert not reasons(state, made)
    assert give(state, made) == cpus
    assert (written(state, made) or {}).get("cpuset", "") == cpus


@pytest.mark.parametrize(
    ("default", "cpus"),
    [(CPUBindPolicy.FULL_PCPUS, "0-1"), (CPUBindPolicy.SPREAD_BY_PCPUS, "0,2"), (CPUBindPolicy.CONSTRAINED_BURST, "")],
)
def test_the_default_policy(default: CPUBindPolicy, cpus: str) -> None:
    assert give(cluster(), wanting("p", "2"), plugin=NodeNUMAResource(default)) == cpus


@pytest.mark.parametrize(
    ("label", "cpus"),
    [("MostAllocated", "4-7"), ("LeastAllocated", "8-11"), ("DistributeEvenly", "8-11"), ("", "8-11")],
)
def test_the_node_says_which_numa_node_comes_first(label: str, cpus: str) -> None:
    """Worked example, on a node: 0-3 are held."""
    state = cluster(labels={LABEL_NUMA_ALLOCATE_STRATEGY: label})
    assert give(state, wanting("a", "4")) == "0-3"
    assert give(state, wanting("b", "4")) == cpus


def test_the_scoring_of_numa_nodes_says_which_comes_first_where_the_node_does_not() -> None:
    state = cluster()
    plugin = NodeNUMAResource(numa_scoring=Scoring(most_allocated))
    assert [give(state, wanting(name, "4"), plugin=plugin) for name in "abc"] == ["0-3", "4-7", "8-11"]


# reasons


MISMATCH = ("node(s) NUMA Topology policy not match", False)
NOT_WHOLE = ("the requested CPUs must be integer", False)
NO_TOPOLOGY = ("node(s) invalid CPU Topology", False)
CONFLICT = ("node(s) cpu bind policy conflicts with pod's required cpu bind policy", False)
UNALIGNED = ("node(s) requested cpus not multiple cpus per core", False)
UNSATISFIED, NO_NUMA_NODES = ("Unsatisfied NUMA cpu", True), ("insufficient resources on NUMA Node", True)
NOT_ENOUGH = ("not enough cpus available to satisfy request", True)


def labels(bind: str = "", numa: str = "") -> dict[str, str]:
    return {LABEL_CPU_BIND_POLICY: bind, LABEL_NUMA_TOPOLOGY_POLICY: numa}


@pytest.mark.parametrize(
    ("made", "document", "expected"),
    [
        pytest.param(pod("p"), {}, [], id="no requests"),
        pytest.param(wanting("p", "1500m"), {}, [NOT_WHOLE], id="a CPU and a half"),
        pytest.param(wanting("p", "1500m", "LS"), {}, [], id="a CPU and a half, shared"),
        pytest.param(
            wanting("p", "1500m", "LS"), {"labels": labels("FullPCPUsOnly")}, [NOT_WHOLE], id="the node binds all"
        ),
        pytest.param(wanting("p", "1500m", "LS"), {"labels": labels("None")}, [], id="the node binds none"),
        pytest.param(wanting("p", "3", "LS"), {"labels": labels("FullPCPUsOnly")}, [UNALIGNED], id="half a core"),
        pytest.param(wanting("p", "3", spec=FULL), {}, [UNALIGNED], id="half a core, by its own word"),
        pytest.param(wanting("p", "3"), {}, [], id="half a core, if need be"),
        pytest.param(
            wanting("p", "4", spec=FULL), {"labels": labels("SpreadByPCPUs")}, [CONFLICT], id="policies in conflict"
        ),
        pytest.param(wanting("p", "4", spec=FULL), {"labels": labels("FullPCPUsOnly")}, [], id="policies in accord"),
        pytest.param(wanting("p", "8", spec=SPREAD), {}, [], id="one of each core"),
        pytest.param(wanting("p", "9", spec=SPREAD), {}, [NOT_ENOUGH], id="more than there are cores"),
        pytest.param(wanting("p", "17"), {}, [NOT_ENOUGH], id="more than there are CPUs"),
        pytest.param(wanting("p", "2", numa=SINGLE), {"labels": labels(numa="Restricted")}, [MISMATCH], id="mismatch"),
        pytest.param(wanting("p", "2", numa=SINGLE), {"labels": labels(numa="SingleNUMANode")}, [], id="a match"),
        pytest.param(
            wanting("p", "9", numa=SINGLE),
            {},
            [UNSATISFIED],
            id="no NUMA node has it",
        ),
        pytest.param(wanting("p", "9", "LS", numa={"numaTopologyPolicy": "Restricted"}), {}, [], id="two NUMA nodes"),
        pytest.param(wanting("p", "2", numa=SINGLE), {"stored": None}, [NO_TOPOLOGY], id="nothing is known of CPUs"),
        pytest.param(
            wanting("p", "2", "LS", numa=SINGLE),
            {"stored": None},
            [NO_NUMA_NODES],
            id="nor of NUMA nodes",
        ),
        pytest.param(wanting("p", "2"), {"stored": topology([])}, [NO_TOPOLOGY], id="there are no CPUs"),
    ],
)
def test_why_not(made: PodInfo, document: dict[str, Any], expected: list[tuple[str, bool]]) -> None:
    assert reasons(cluster(**document), made) == expected


@pytest.mark.parametrize(
    ("annotations", "text"),
    [
        ({RESOURCE_SPEC: "{"}, "annotation scheduling.koordinator.sh/resource-spec cannot be read: "),
        ({RESOURCE_SPEC: '{"requiredCPUBindPolicy":"Nearby"}'}, "'Nearby'"),
        ({"scheduling.koordinator.sh/numa-topology-spec": "[]"}, "numa-topology-spec cannot be read"),
    ],
)
def test_a_wish_that_cannot_be_read_is_one_of_the_pod(annotations: dict[str, str], text: str) -> None:
    state = cluster()
    made = wanting("p", "2", annotations=annotations)
    (rejection,) = PLUGIN.rejections(state, made)
    assert rejection.is_of_pod
    assert text in rejection.reason
    assert reasons(state, made) == [(rejection.reason, False)]


def test_kubelet_that_gives_whole_cores_alone_binds_all_pods() -> None:
    state = cluster(topology(TWO, annotations={CPU_MANAGER_POLICY: json.dumps(KUBELETS)}))
    assert reasons(state, wanting("p", "3", "LS")) == [UNALIGNED]
    assert give(state, wanting("p", "4", "LS")) == "0-3"


@pytest.mark.parametrize(
    ("reported", "document", "free", "said"),
    [
        (
            {POD_CPU_ALLOCS: '[{"uid":"k","cpuset":"0-3","managedByKubelet":true}]'},
            {},
            "4-15",
            "kubelet, for pods of its own keeps 0-3",
        ),
        ({POD_CPU_ALLOCS: '[{"uid":"k","cpuset":"0-3"}]'}, {}, "0-15", ""),
        ({POD_CPU_ALLOCS: "null"}, {}, "0-15", ""),
        ({CPU_MANAGER_POLICY: '{"policy":"static","reservedCPUs":"0,8"}'}, {}, "1-7,9-15", "kubelet keeps 0,8"),
        (
            {RESERVATION: '{"reservedCPUs":"14-15","applyPolicy":"ReservedCPUsOnly"}'},
            {},
            "0-13",
            "the node's reservation keeps 14-15",
        ),
        ({}, {RESERVATION: '{"reservedCPUs":"14-15"}'}, "0-13", "the node's reservation keeps 14-15"),
        ({SYSTEM_QOS_RESOURCE: '{"cpuset":"1"}'}, {}, "0,2-15", "the class SYSTEM keeps 1"),
        ({SYSTEM_QOS_RESOURCE: '{"cpuset":"1","cpusetExclusive":false}'}, {}, "0-15", ""),
        ({SYSTEM_QOS_RESOURCE: "{}", POD_CPU_ALLOCS: "[]"}, {}, "0-15", ""),
    ],
)
def test_reserved_cpus(reported: dict[str, str], document: dict[str, str], free: str, said: str) -> None:
    """They are never given out, and are missing from their NUMA nodes."""
    state = cluster(topology(TWO, annotations=reported), annotations=document)
    view = state.numa.view(0)
    assert str(CPUSet(view.free)) == free
    per_numa_node = {number: dict(amounts)["cpu"] for number, amounts in view.settings.capacity}
    cpus = cpuset.parse(free)
    assert per_numa_node == {n: 1000 * sum(cpu // 8 == n for cpu in cpus) for n in (0, 1)}
    detail = PLUGIN.explain(state, wanting("p", "17"), 0, state.table.exists).reasons[0].detail
    assert (said in detail) if said else ("keeps" not in detail)


def test_it_is_said_which_cpus_are_free_and_who_has_the_others() -> None:
    state = cluster(topology(TWO, annotations={CPU_MANAGER_POLICY: '{"policy":"static","reservedCPUs":"14-15"}'}))
    give(state, wanting("db", "4", "LSE"))
    give(state, wanting("web", "2"))
    said = PLUGIN.explain(state, wanting("p", "9"), 0, state.table.exists).reasons[0]
    assert said.text == NOT_ENOUGH[0]
    assert said.detail == (
        "9 wanted; 8 of 16 CPUs are free: 4-7,10-13; default/db has 0-3; default/web has 8-9; kubelet keeps 14-15"
    )


# amplification


def test_amplified_worked_example() -> None:
    """Ratio 1.5, 48 CPUs of 32: 20000 - 8000 + 12000 = 24000 are requested; 4 CPUs of a pod's own cost 6000."""
    state = cluster(topology(machine(2, 1, 16, 1)), cpu="48", annotations=RATIO)
    give(state, wanting("own", "8"))
    state.put_pod(wanting("shared", "12", "LS", nodeName="n1"))
    fits = wanting("p", "4")
    assert not reasons(state, fits)
    by_cpu = NodeNUMAResource(node_scoring=Scoring(most_allocated, (("cpu", 1),)))
    assert score(state, fits, by_cpu) == 100 * (24000 + 6000) // 48000
    assert score(state, wanting("p", "4", "LS"), by_cpu) == 100 * (24000 + 4000) // 48000


@pytest.mark.parametrize(
    ("cpu", "qos", "fits"),
    [("16", "LSR", True), ("17", "LSR", False), ("24", "LS", True), ("25", "LS", False), ("24001m", "LS", False)],
)
def test_amplified_edges(cpu: str, qos: str, fits: bool) -> None:
    """24000 of 48000 are left: 16 CPUs of a pod's own, or 24 shared ones."""
    state = cluster(topology(machine(2, 1, 16, 1)), cpu="48", annotations=RATIO)
    give(state, wanting("own", "8"))
    state.put_pod(wanting("shared", "12", "LS", nodeName="n1"))
    assert reasons(state, wanting("p", cpu, qos)) == ([] if fits else [("Insufficient amplified cpu", True)])


def test_preemption_makes_room_on_an_amplified_node() -> None:
    """Upstream's amplified filter does not see who would leave."""
    state = cluster(topology(machine(1, 1, 8, 1)), cpu="12", annotations=RATIO)
    give(state, wanting("low", "4", priority=9000))
    give(state, wanting("other", "2", priority=9600))
    made = wanting("p", "5", priority=9500)
    framework = Framework(state, (*default_plugins(), WeightedPlugin(PLUGIN)))
    diagnosis = framework.diagnose(made)
    assert diagnosis.message == "0/1 nodes are available: 1 Insufficient amplified cpu."
    preemption = Preemptor(framework).choose(made, diagnosis)
    assert preemption is not None
    assert [each.uid for each in preemption.victims] == ["low"]
    assert cpus_of(state, "low") == "0-3", "it was only tried"
    assert cpus_of(state, "other") == "4-5"


def test_preemption_frees_cpus_of_pods_that_are_not_bound_yet() -> None:
    state = cluster(topology(machine(1, 1, 8, 1)), cpu="64")
    give(state, wanting("a", "4", priority=9000))
    give(state, wanting("b", "4", priority=9100))
    framework = Framework(state, (*default_plugins(), WeightedPlugin(PLUGIN)))
    made = wanting("p", "3", priority=9500)
    preemption = Preemptor(framework).choose(made, framework.diagnose(made))
    assert preemption is not None
    assert [each.uid for each in preemption.victims] == ["a"]
    assert (cpus_of(state, "a"), cpus_of(state, "b")) == ("0-3", "4-7")


# NUMA nodes


@pytest.mark.parametrize(
    ("policy", "cpu", "memory", "qos", "spec", "cpus", "parts"),
    [
        pytest.param("SingleNUMANode", "4", "2Gi", "LSR", None, "0-3", {0: "4 2Gi"}, id="one"),
        pytest.param("SingleNUMANode", "1500m", "2Gi", "LS", None, "", {0: "1500m 2Gi"}, id="shared"),
        pytest.param("Restricted", "4", "2Gi", "LS", None, "", {0: "4 2Gi"}, id="as few as there are enough on"),
        pytest.param("BestEffort", "10", "2Gi", "LSR", None, "0-4,8-12", {0: "5 1Gi", 1: "5 1Gi"}, id="evenly"),
        pytest.param("Restricted", "10", "2Gi", "LSR", FULL, "0-3,8-13", {0: "4 1Gi", 1: "6 1Gi"}, id="whole cores"),
        pytest.param("Restricted", "11", "3Gi", "LS", None, "", {0: "5500m 1536Mi", 1: "5500m 1536Mi"}, id="halves"),
        pytest.param("Restricted", "6", "2Gi", "LSR", SPREAD, "0,2,4,8,10,12", {0: "3 1Gi", 1: "3 1Gi"}, id="spread"),
        pytest.param("BestEffort", "2", "12Gi", "LSR", None, "0,8", {0: "1 6Gi", 1: "1 6Gi"}, id="memory of two"),
    ],
)
def test_what_is_had_of_numa_nodes(
    policy: str, cpu: str, memory: str, qos: str, spec: dict[str, str] | None, cpus: str, parts: dict[int, str]
) -> None:
    """As it is written on the pod: of two NUMA nodes, which have 8 CPUs and 8 GiB each."""
    state = cluster(labels=labels(numa=policy))
    made = wanting("p", cpu, qos, spec, memory=memory)
    assert not reasons(state, made)
    give(state, made)
    numa = [
        {"node": number, "resources": dict(zip(("cpu", "memory"), part.split(), strict=True))}
        for number, part in parts.items()
    ]
    assert written(state, made) == {**({"cpuset": cpus} if cpus else {}), "numaNodeResources": numa}


def test_numa_nodes_are_sorted_by_what_they_have_themselves() -> None:
    """Upstream's comparison takes places in the list for numbers: those with the least of a resource come first only
    by chance. Of NUMA nodes 1 and 3 the second has least here, and gives all that it has.
    """
    cpus = [cpu for cpu in machine(4, 1, 4, 1) if cpu.node in (1, 3)]
    zones = {1: {"cpu": "4", "memory": "8Gi"}, 3: {"cpu": "1", "memory": "8Gi"}}
    state = cluster(topology(cpus, zones), labels=labels(numa="BestEffort"), cpu="8")
    made = wanting("p", "5", "LS")
    assert not reasons(state, made)
    give(state, made)
    assert written(state, made)["numaNodeResources"] == [
        {"node": 1, "resources": {"cpu": "4"}},
        {"node": 3, "resources": {"cpu": "1"}},
    ]


def test_numa_nodes_are_scored_by_the_resources_of_their_own_strategy() -> None:
    """Upstream takes the resources of the nodes' strategy for them. By CPU NUMA node 0 is emptier, by memory 1."""
    by_memory = NodeNUMAResource(numa_scoring=Scoring(weights=(("memory", 1),)))
    for plugin, expected in ((NodeNUMAResource(numa_scoring=Scoring(weights=(("cpu", 1),))), 0), (by_memory, 1)):
        zones = {0: {"cpu": "8", "memory": "4Gi"}, 1: {"cpu": "4", "memory": "8Gi"}}
        state = cluster(topology(TWO, zones), labels=labels(numa="SingleNUMANode"))
        made = wanting("p", "2", "LS", memory="2Gi")
        give(state, made, plugin=plugin)
        assert [each["node"] for each in written(state, made)["numaNodeResources"]] == [expected]


def test_amounts_of_a_node_without_known_cpus_are_remembered() -> None:
    """Upstream forgets them: a node whose CPUs nobody reports would be given out again and again."""
    state = cluster(topology([], {0: {"cpu": "4"}, 1: {"cpu": "4"}}), cpu="64", labels=labels(numa="SingleNUMANode"))
    given = []
    for name in "abc":
        made = wanting(name, "3", "LS")
        if not reasons(state, made):
            give(state, made)
            given += [each["node"] for each in written(state, made)["numaNodeResources"]]
    assert given == [0, 1]
    assert reasons(state, wanting("d", "3", "LS")) == [("Unsatisfied NUMA cpu", True)]


@pytest.mark.parametrize(("exclusive", "fits"), [(None, False), ("Required", False), ("Preferred", True)])
def test_pods_on_one_numa_node_and_across_two_keep_apart(exclusive: str | None, fits: bool) -> None:
    state = cluster()
    give(state, wanting("alone", "2", numa=SINGLE))
    numa = {"numaTopologyPolicy": "Restricted", **({"singleNUMANodeExclusive": exclusive} if exclusive else {})}
    across = wanting("across", "10", numa=numa)
    assert reasons(state, across) == ([] if fits else [("Unaligned NUMA Hint cause [cpu]", True)])


def test_only_a_pod_that_has_a_policy_of_its_own_keeps_apart_by_default() -> None:
    state = cluster(labels=labels(numa="Restricted"))
    give(state, wanting("alone", "2"))
    assert not reasons(state, wanting("across", "10"))


def test_scores_of_numa_nodes() -> None:
    """With a policy the NUMA nodes that the pod would get count, without one the node: 2 of 8 CPUs, or of 16."""
    by_cpu = NodeNUMAResource(node_scoring=Scoring(weights=(("cpu", 1),)))
    assert score(cluster(), wanting("p", "2"), by_cpu) == 87
    assert score(cluster(labels=labels(numa="SingleNUMANode")), wanting("p", "2"), by_cpu) == 75
    most = NodeNUMAResource(node_scoring=Scoring(most_allocated, (("cpu", 1),)))
    assert score(cluster(labels=labels(numa="SingleNUMANode")), wanting("p", "2"), most) == 25
    assert score(cluster(labels=labels(numa="Restricted")), wanting("p", "12"), most) == 75
    mixed = NodeNUMAResource(node_scoring=Scoring(weights=(("cpu", 1), ("memory", 3), ("example.com/gpu", 9))))
    assert score(cluster(memory="8Gi"), wanting("p", "4", memory="4Gi"), mixed) == (75 + 3 * 50) // 4
    assert PLUGIN.score(cluster(), pod("p"), np.array([True])) is None


# annotations


def test_the_text_of_the_annotation() -> None:
    state = cluster(labels=labels(numa="SingleNUMANode"))
    made = wanting("p", "4", memory="8Gi")
    give(state, made)
    patch = PLUGIN.pre_bind_patch(state, made, "n1")
    assert patch is not None
    text = '{"cpuset":"0-3","numaNodeResources":[{"node":0,"resources":{"cpu":"4","memory":"8Gi"}}]}'
    assert patch.annotations[RESOURCE_STATUS] == text


@pytest.mark.parametrize(
    ("spec", "label", "expected"),
    [
        (None, "", {"preferredCPUBindPolicy": "FullPCPUs"}),
        ({}, "", {"preferredCPUBindPolicy": "FullPCPUs"}),
        ({"preferredCPUBindPolicy": "Default"}, "", {"preferredCPUBindPolicy": "FullPCPUs"}),
        (PREFERS_SPREAD, "", None),
        (FULL, "", None),
        (None, "SpreadByPCPUs", {"requiredCPUBindPolicy": "SpreadByPCPUs"}),
        (PREFERS_SPREAD, "FullPCPUsOnly", {"requiredCPUBindPolicy": "FullPCPUs", **PREFERS_SPREAD}),
        (
            {"preferredCPUExclusivePolicy": "PCPULevel"},
            "",
            {"preferredCPUBindPolicy": "FullPCPUs", "preferredCPUExclusivePolicy": "PCPULevel"},
        ),
    ],
)
def test_the_policy_that_held_is_written_on_a_pod_that_said_none(
    spec: dict[str, str] | None, label: str, expected: dict[str, str] | None
) -> None:
    state = cluster(labels=labels(label))
    made = wanting("p", "2", spec=spec)
    give(state, made)
    assert written(state, made, RESOURCE_SPEC) == expected


def test_exclusive_policies_hold_among_pods_that_have_them() -> None:
    state = cluster()
    cores = {**PREFERS_SPREAD, "preferredCPUExclusivePolicy": "PCPULevel"}
    assert give(state, wanting("a", "2", spec=cores)) == "0,2"
    assert give(state, wanting("b", "2", spec=cores)) == "8,10"
    assert give(state, wanting("c", "2", spec=cores)) == "4,6"
    assert give(state, wanting("d", "2", spec=PREFERS_SPREAD)) == "9,11", "who is not exclusive does not mind"
    numa_nodes = {"preferredCPUExclusivePolicy": "NUMANodeLevel"}
    state = cluster()
    assert give(state, wanting("a", "2", spec=numa_nodes)) == "0-1"
    assert give(state, wanting("b", "8")) == "8-15"
    assert give(state, wanting("c", "2", spec=numa_nodes)) == "2-3", "weaker than that there is room"


# who is believed


def test_what_a_waiting_pod_says_that_it_has_is_not_believed() -> None:
    """It is replaced by what the pod gets, and taken off one that gets nothing."""
    state = cluster()
    greedy = {"cpuset": "2-15"}
    made = wanting("p", "2", status=greedy)
    assert give(state, made) == "0-1"
    assert written(state, made) == {"cpuset": "0-1"}
    shared = wanting("shared", "2", "LS", status=greedy)
    assert give(state, shared) == "", "nobody has given it any"
    patch = PLUGIN.pre_bind_patch(state, shared, "n1")
    assert patch is not None
    assert dict(patch.annotations) == {RESOURCE_STATUS: None}


@pytest.mark.parametrize(
    ("cpu", "status", "cpus", "numa"),
    [
        ("2", {"cpuset": "0-15"}, "0-1", {}),
        ("1500m", {"cpuset": "4-15"}, "4-5", {}),
        ("2", {"cpuset": "14-15"}, "14-15", {}),
        ("", {"cpuset": "0-15"}, "", {}),
        ("2", {"cpuset": "x"}, "", {}),
        (
            "2",
            {"numaNodeResources": [{"node": 0, "resources": {"cpu": "8"}}, {"node": 1, "resources": {"cpu": "1"}}]},
            "",
            {0: 2000},
        ),
        ("2", {"numaNodeResources": [{"node": 1, "resources": {"cpu": "500m", "memory": "8Gi"}}]}, "", {1: 500}),
    ],
)
def test_a_pod_that_runs_is_believed_as_far_as_it_requests(
    cpu: str, status: dict[str, Any], cpus: str, numa: dict[int, int]
) -> None:
    """A tenant who annotates a pod takes no more of a node than the pod requests, as on the node itself."""
    state = cluster()
    state.put_pod(wanting("p", cpu, "LS", memory="" if cpu else "1Gi", status=status, nodeName="n1"))
    assert cpus_of(state, "p") == cpus
    assert {number: dict(amounts).get("cpu", 0) for number, amounts in state.numa.view(0).use.amounts} == numa


def test_a_cpu_that_two_pods_say_that_they_have_is_free_when_none_has_it() -> None:
    state = cluster()
    for name in "ab":
        state.put_pod(wanting(name, "4", status={"cpuset": "0-3"}, nodeName="n1"))
    assert str(CPUSet(state.numa.view(0).free)) == "4-15"
    state.remove_pod("a")
    assert str(CPUSet(state.numa.view(0).free)) == "4-15"
    state.remove_pod("b")
    assert str(CPUSet(state.numa.view(0).free)) == "0-15"


def test_what_was_decided_holds_until_the_pods_object_says_it() -> None:
    state = cluster()
    made = wanting("p", "2")
    give(state, made)
    state.put_pod(wanting("p", "2", status={"cpuset": "8-9"}))
    assert cpus_of(state, "p") == "0-1", "an object that is on no node says nothing"
    state.put_pod(wanting("p", "2", status={"cpuset": "0-1"}, nodeName="n1"))
    assert cpus_of(state, "p") == "0-1"
    assert state.numa.assumed("p") is None
    state.forget("p")
    assert cpus_of(state, "p") == "0-1"
    state.put_pod(wanting("p", "2", nodeName="n1"))
    assert cpus_of(state, "p") == "", "another scheduler has placed it, and bound no CPUs"


def test_what_is_forgotten_is_free_again() -> None:
    state = cluster()
    made = wanting("p", "2")
    with state.transaction() as transaction:
        transaction.assume(made, "n1")
        PLUGIN.reserve(state, made, "n1")
        assert cpus_of(state, "p") == "0-1"
    assert str(CPUSet(state.numa.view(0).free)) == "0-15"
    give(state, made)
    PLUGIN.unreserve(state, made, "n1")
    assert str(CPUSet(state.numa.view(0).free)) == "0-15"
    with pytest.raises(KeyError):
        state.hold_cpus("unknown", None)  # type: ignore[arg-type]


def test_a_node_that_lost_its_cpus_meanwhile_is_an_error_of_the_one_pod() -> None:
    state = cluster()
    made = wanting("p", "2")
    state.assume(made, "n1")
    state.put_topology("n1", None)
    with pytest.raises(PluginError, match="not enough cpus available to satisfy request on n1"):
        PLUGIN.reserve(state, made, "n1")


def test_a_topology_that_comes_later_wakes_pods_and_one_that_says_the_same_does_not() -> None:
    state = cluster(None)
    made = wanting("p", "2")
    state.put_pod(wanting("there", "2", status={"cpuset": "0-1"}, nodeName="n1"))
    assert reasons(state, made) == [NO_TOPOLOGY]
    version = state.version
    put(state, "n1", topology(TWO), cpu="4")
    assert state.version > version
    assert not reasons(state, made)
    assert str(CPUSet(state.numa.view(0).free)) == "2-15"
    version = state.version
    put(state, "n1", topology(TWO, annotations={"node.koordinator.sh/cpu-shared-pools": "[]"}), cpu="4")
    assert state.version == version


@pytest.mark.parametrize(
    ("document", "text"),
    [
        ({"labels": {LABEL_CPU_BIND_POLICY: "All"}}, "label node.koordinator.sh/cpu-bind-policy: 'All' is not one of"),
        ({"annotations": {AMPLIFICATION_RATIO: "much"}}, "annotation node.koordinator.sh/resource-amplification-ratio"),
        ({"annotations": {AMPLIFICATION_RATIO: '{"cpu":"2"}'}}, "'2' is not a number"),
    ],
)
def test_what_a_node_says_that_cannot_be_read_is_a_problem_of_that_node(document: dict[str, Any], text: str) -> None:
    made = node("n1", labels=document.get("labels", {}))
    metadata = msgspec.structs.replace(made.metadata, annotations=document.get("annotations", {}))
    problems = ClusterState().put_node(msgspec.structs.replace(made, metadata=metadata))
    assert [text in str(each) for each in problems] == [True]
    found: list[Any] = []
    bad = {CPU_TOPOLOGY: '{"detail":1}', POD_CPU_ALLOCS: "{", CPU_MANAGER_POLICY: '{"reservedCPUs":"0-"}'}
    reported = nodesettings.reported(topology(TWO, annotations=bad), found.append)
    assert reported.topology is None
    assert len(found) == 3

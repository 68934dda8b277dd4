"""Worked examples of the default plugins' formulas, and what a user reads of a node that will not do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
import pytest

from koord.model import core
from koord.model.scheduling import pods
from koord.model.selector import LabelSelector
from koord.scheduling.owners import ControllerKey
from koord.scheduling.plugin import Plugin
from koord.scheduling.plugins.hostports import NodePorts
from koord.scheduling.plugins.nodes import ImageLocality, NodeAffinity, NodeName, NodeUnschedulable, TaintToleration
from koord.scheduling.plugins.podaffinity import InterPodAffinity
from koord.scheduling.plugins.resources import (
    NodeResourcesBalancedAllocation,
    NodeResourcesFit,
    RequestedToCapacityRatio,
    most_allocated,
)
from koord.scheduling.plugins.spread import PodTopologySpread
from koord.scheduling.podinfo import PodInfo
from koord.scheduling.state import ClusterState
from tests.scheduling.clusters import GPU, HOSTNAME, ZONE, node, pod

MI = 1 << 20


def state_of(*nodes: Any, pods: Sequence[PodInfo] = ()) -> ClusterState:
    state = ClusterState()
    for each in nodes:
        state.put_node(each)
    for each in pods:
        state.put_pod(each)
    return state


def scores(plugin: Plugin, state: ClusterState, waiting: PodInfo) -> list[int] | None:
    """The plugin's scores by row, which ``explain`` agrees with."""
    found = plugin.score(state, waiting, state.table.exists)
    if found is None:
        return None
    listed = [found] * state.length if isinstance(found, int) else [int(each) for each in found]
    explained = [plugin.explain(state, waiting, row, state.table.exists).score for row in range(state.length)]
    assert explained == listed
    return listed


def rejected(plugin: Plugin, state: ClusterState, waiting: PodInfo) -> list[tuple[str, str, bool]]:
    """The first reason of each row: text, detail, whether it is resolvable; ("", "", True) where there is none."""
    found = []
    passed = plugin.filter(state, waiting)
    for row in range(state.length):
        reasons = plugin.explain(state, waiting, row, state.table.exists).reasons
        assert bool(reasons) == (passed is not None and not passed[row])
        found.append((reasons[0].text, reasons[0].detail, reasons[0].is_resolvable) if reasons else ("", "", True))
    return found


FIT_NODE = node("n1", "4", "32Gi", "10")
HALF_FULL = pod("x", {"cpu": "2", "memory": "7680Mi"}, nodeName="n1")
SMALL = pod("p", {"cpu": "100m", "memory": "512Mi"})


@pytest.mark.parametrize(
    ("plugin", "waiting", "score"),
    [
        # cpu (4000-2100)*100/4000 = 47, memory (32-8)*100/32 = 75
        pytest.param(NodeResourcesFit(), SMALL, 61, id="least allocated"),
        # 2100*100/4000 = 52, 8*100/32 = 25
        pytest.param(NodeResourcesFit(strategy=most_allocated), SMALL, 38, id="most allocated"),
        pytest.param(NodeResourcesFit({"cpu": 3, "memory": 1}), SMALL, 54, id="weights"),
        # utilization 52 and 25: 0 to 100 linear
        pytest.param(NodeResourcesFit(strategy=RequestedToCapacityRatio(((0, 0), (100, 100)))), SMALL, 39, id="ratio"),
        pytest.param(
            NodeResourcesFit(strategy=RequestedToCapacityRatio(((0, 100), (50, 50), (100, 0)))), SMALL, 62, id="shape"
        ),
        # a missing request counts as 100m and 200Mi
        pytest.param(NodeResourcesFit(), pod("p"), 61, id="assumed requests"),
        pytest.param(NodeResourcesBalancedAllocation(), SMALL, 86, id="balance"),
        pytest.param(NodeResourcesBalancedAllocation(), pod("p"), None, id="a pod without requests"),
    ],
)
def test_scores_by_amounts(plugin: Plugin, waiting: PodInfo, score: int | None) -> None:
    state = state_of(FIT_NODE, pods=[HALF_FULL])
    assert scores(plugin, state, waiting) == (None if score is None else [score])


@pytest.mark.parametrize(("minor", "score"), [(28, 85), (35, 85), (36, 74)])
def test_balance_of_0_60_and_0_30(minor: int, score: int) -> None:
    there = pod("x", {"cpu": "5", "memory": "2500M"}, nodeName="n1")
    state = state_of(node("n1", "10", "10G"), pods=[there])
    waiting = pod("p", {"cpu": "1", "memory": "500M"})
    assert scores(NodeResourcesBalancedAllocation(minor=minor), state, waiting) == [score]


def test_extended_resources_count_for_pods_that_request_them() -> None:
    state = state_of(node("n1", allocatable={GPU: "4"}))
    plugin = NodeResourcesFit({GPU: 1})
    assert scores(plugin, state, pod("p", {GPU: "1"})) == [75]
    assert scores(plugin, state, pod("p", {"cpu": "1"})) == [0]


def test_three_resources_are_balanced_by_their_deviation() -> None:
    state = state_of(node("n1", "10", "10G", allocatable={GPU: "10"}), node("n2", "10", "10G"))
    plugin = NodeResourcesBalancedAllocation(("cpu", "memory", GPU))
    waiting = pod("p", {"cpu": "9", "memory": "3G", GPU: "6"})
    # 0.9, 0.3, 0.6: sqrt(0.06) = 0.2449; without the third: 0.3
    assert scores(plugin, state, waiting) == [75, 70]


@pytest.mark.parametrize(
    ("waiting", "reasons"),
    [
        pytest.param(SMALL, [], id="fits"),
        pytest.param(
            pod("p", {"cpu": "3"}),
            [("Insufficient cpu", "requests 3000, 2000 of 4000 are free", True)],
            id="not now",
        ),
        pytest.param(
            pod("p", {"cpu": "5", "memory": "25Gi"}),
            [
                ("Insufficient cpu", "requests 5000, 2000 of 4000 are free", False),
                ("Insufficient memory", f"requests {25600 * MI}, {25088 * MI} of {32768 * MI} are free", True),
            ],
            id="never, and not now",
        ),
        pytest.param(
            pod("p", {GPU: "1"}), [(f"Insufficient {GPU}", "requests 1, 0 of 0 are free", False)], id="of no node"
        ),
    ],
)
def test_what_does_not_fit(waiting: PodInfo, reasons: list[tuple[str, str, bool]]) -> None:
    state = state_of(FIT_NODE, pods=[HALF_FULL])
    plugin = NodeResourcesFit()
    said = plugin.explain(state, waiting, 0, state.table.exists).reasons
    assert [(each.text, each.detail, each.is_resolvable) for each in said] == reasons
    assert bool(plugin.filter(state, waiting)[0]) == (not reasons)
    vectors = [
        (each.reason, bool(np.broadcast_to(each.is_resolvable, 1)[0]))
        for each in plugin.rejections(state, waiting)
        if each.rows[0]
    ]
    assert vectors == [(text, resolvable) for text, _, resolvable in reasons]


def test_too_many_pods_and_ignored_resources() -> None:
    state = state_of(node("n1", pods="1"), pods=[pod("x", nodeName="n1")])
    assert rejected(NodeResourcesFit(), state, pod("p")) == [("Too many pods", "1 of 1", True)]
    free = state_of(node("n1"))
    waiting = pod("p", {GPU: "1"})
    for ignored in (frozenset((GPU,)), frozenset(("example.com/",))):
        assert rejected(NodeResourcesFit(ignored=ignored), free, waiting) == [("", "", True)]


def test_image_on_a_fifth_of_the_nodes() -> None:
    image = [{"names": ["web:1"], "sizeBytes": 500 * MI}]
    nodes = [node(f"n{index}", images=image if index < 20 else []) for index in range(100)]
    state = state_of(*nodes)
    waiting = pod("p", containers=[{"name": "main", "image": "web:1"}])
    found = scores(ImageLocality(), state, waiting)
    assert found is not None
    assert (found[0], found[99]) == (7, 0)


@pytest.mark.parametrize(
    ("taints", "tolerations", "rejection"),
    [
        ([], [], ""),
        ([("a", "1", "NoSchedule")], [], "a=1:NoSchedule"),
        ([("a", "", "NoExecute")], [], "a:NoExecute"),
        ([("a", "1", "PreferNoSchedule")], [], ""),
        ([("a", "1", "NoSchedule")], [{"key": "a", "value": "1"}], ""),
        ([("a", "1", "NoSchedule")], [{"key": "a", "value": "2"}], "a=1:NoSchedule"),
        ([("a", "1", "NoSchedule")], [{"key": "a", "operator": "Exists"}], ""),
        ([("a", "1", "NoSchedule")], [{"key": "a", "operator": "Exists", "effect": "NoExecute"}], "a=1:NoSchedule"),
        ([("a", "1", "NoSchedule"), ("b", "", "NoExecute")], [{"key": "a", "operator": "Exists"}], "b:NoExecute"),
        ([("a", "1", "NoSchedule"), ("b", "", "NoExecute")], [{"operator": "Exists"}], ""),
        ([("a", "1", "NoSchedule")], [{"key": "a", "operator": "Gt", "value": "0"}], "a=1:NoSchedule"),
    ],
)
def test_taints(taints: list[tuple[str, str, str]], tolerations: list[Mapping[str, str]], rejection: str) -> None:
    listed = [dict(zip(("key", "value", "effect"), each, strict=True)) for each in taints]
    state = state_of(node("n1", taints=listed))
    reason = "node(s) had untolerated taint(s)" if rejection else ""
    found = rejected(TaintToleration(), state, pod("p", tolerations=tolerations))
    assert found == [(reason, rejection, not rejection)]


def test_nodes_to_avoid_score_less() -> None:
    taints = [{"key": key, "value": "", "effect": "PreferNoSchedule"} for key in ("a", "b")]
    state = state_of(node("n1", taints=taints), node("n2", taints=taints[:1]), node("n3"))
    assert scores(TaintToleration(), state, pod("p")) == [0, 50, 100]
    tolerant = pod("p", tolerations=[{"key": "a", "operator": "Exists"}])
    assert scores(TaintToleration(), state, tolerant) == [0, 100, 100]


def test_a_cordoned_node_and_a_named_one() -> None:
    state = state_of(node("n1", unschedulable=True), node("n2"))
    out = ("node(s) were unschedulable", "the node is cordoned", False)
    assert rejected(NodeUnschedulable(), state, pod("p")) == [out, ("", "", True)]
    tolerant = pod("p", tolerations=[{"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}])
    assert rejected(NodeUnschedulable(), state, tolerant) == [("", "", True)] * 2
    other = ("node(s) didn't match the requested node name", "wants n1", False)
    assert rejected(NodeName(), state, pod("p", nodeName="n1")) == [("", "", True), other]


def affinity(kind: str, **terms: Any) -> dict[str, Any]:
    suffix = "DuringSchedulingIgnoredDuringExecution"
    return {kind: {name + suffix: value for name, value in terms.items()}}


def requirement(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"key": key, "operator": operator, "values": list(values)}


@pytest.mark.parametrize(
    ("expressions", "fields", "expected"),
    [
        ([requirement("disk", "In", "ssd", "nvme")], [], "n1"),
        ([requirement("disk", "NotIn", "ssd")], [], "n2 n3"),
        ([requirement("disk", "Exists")], [], "n1 n2"),
        ([requirement("disk", "DoesNotExist")], [], "n3"),
        ([requirement("slots", "Gt", "2")], [], "n2"),
        ([requirement("slots", "Lt", "3")], [], "n1"),
        ([requirement("slots", "Gt", "two")], [], ""),
        ([requirement("nowhere", "Gt", "1")], [], ""),
        ([requirement("disk", "In")], [], ""),
        ([requirement("disk", "Near", "ssd")], [], ""),
        ([requirement("disk", "Exists"), requirement("slots", "Gt", "2")], [], "n2"),
        ([], [requirement("metadata.name", "In", "n3")], "n3"),
        ([], [requirement("metadata.name", "NotIn", "n3")], "n1 n2"),
        ([], [requirement("metadata.name", "In", "n9")], ""),
        ([], [requirement("metadata.uid", "In", "n3")], ""),
        ([requirement("disk", "Exists")], [requirement("metadata.name", "In", "n3")], ""),
        ([], [], ""),
    ],
)
def test_terms_of_node_affinity(expressions: list[Any], fields: list[Any], expected: str) -> None:
    state = state_of(
        node("n1", labels={"disk": "ssd", "slots": "2"}), node("n2", labels={"disk": "hdd", "slots": "+3"}), node("n3")
    )
    terms = {"nodeSelectorTerms": [{"matchExpressions": expressions, "matchFields": fields}]}
    found = rejected(NodeAffinity(), state, pod("p", affinity=affinity("nodeAffinity", required=terms)))
    assert [name for name, each in zip(("n1", "n2", "n3"), found, strict=True) if not each[0]] == expected.split()


def test_one_term_of_several_is_enough_and_a_node_selector_holds_beside_them() -> None:
    state = state_of(node("n1", labels={"disk": "ssd"}), node("n2", labels={"disk": "hdd"}), node("n3"))
    terms = [{"matchExpressions": [requirement("disk", "In", value)]} for value in ("ssd", "hdd")]
    both = pod("p", affinity=affinity("nodeAffinity", required={"nodeSelectorTerms": terms}))
    assert [bool(each[0]) for each in rejected(NodeAffinity(), state, both)] == [False, False, True]
    selector = pod(
        "p", nodeSelector={"disk": "hdd"}, affinity=affinity("nodeAffinity", required={"nodeSelectorTerms": terms})
    )
    assert rejected(NodeAffinity(), state, selector)[0] == (
        "node(s) didn't match Pod's node affinity/selector",
        "lacks disk=hdd",
        False,
    )


@pytest.mark.parametrize(
    ("taken", "wanted", "is_free"),
    [
        (("TCP", "", 80), ("TCP", "", 80), False),
        (("TCP", "", 80), ("UDP", "", 80), True),
        (("TCP", "", 80), ("TCP", "", 81), True),
        (("TCP", "10.0.0.1", 80), ("TCP", "10.0.0.2", 80), True),
        (("TCP", "10.0.0.1", 80), ("TCP", "", 80), False),
        (("TCP", "", 80), ("TCP", "10.0.0.1", 80), False),
    ],
)
def test_ports(taken: tuple[str, str, int], wanted: tuple[str, str, int], is_free: bool) -> None:
    def with_port(name: str, port: tuple[str, str, int], **spec: Any) -> PodInfo:
        protocol, ip, number = port
        ports = [{"containerPort": 1, "protocol": protocol, "hostIP": ip, "hostPort": number}]
        return pod(name, containers=[{"name": "main", "ports": ports}], **spec)

    state = state_of(node("n1"), node("n2"), pods=[with_port("x", taken, nodeName="n1")])
    found = rejected(NodePorts(), state, with_port("p", wanted))
    assert [not each[0] for each in found] == [is_free, True]


def term(key: str = ZONE, **labels: str) -> dict[str, Any]:
    return {"topologyKey": key, "labelSelector": {"matchLabels": labels}}


def zoned(*pods: PodInfo) -> ClusterState:
    """n1 and n2 in zone a, n3 in zone b, n4 in none."""
    zones = ("a", "a", "b", None)
    nodes = [node(f"n{index}", labels={ZONE: zone} if zone else {}) for index, zone in enumerate(zones, 1)]
    return state_of(*nodes, pods=pods)


WEB = pod("web", labels={"app": "web"}, nodeName="n1")


@pytest.mark.parametrize(
    ("waiting", "running", "expected"),
    [
        pytest.param({"podAffinity": [term(app="web")]}, [WEB], "n1 n2", id="near"),
        pytest.param({"podAffinity": [term(HOSTNAME, app="web")]}, [WEB], "n1", id="on the same node"),
        pytest.param({"podAffinity": [term(app="db")]}, [WEB], "", id="near nobody"),
        pytest.param({"podAffinity": [term(app="own")]}, [WEB], "n1 n2 n3", id="the first of its kind"),
        pytest.param({"podAntiAffinity": [term(app="web")]}, [WEB], "n3 n4", id="apart"),
        pytest.param({"podAntiAffinity": [term(HOSTNAME, app="web")]}, [WEB], "n2 n3 n4", id="on another node"),
        pytest.param(
            {},
            [pod("x", nodeName="n1", affinity=affinity("podAntiAffinity", required=[term(app="own")]))],
            "n3 n4",
            id="kept away by another",
        ),
        pytest.param(
            {"podAffinity": [term(app="web")]},
            [pod("w", labels={"app": "web"}, namespace="other", nodeName="n1")],
            "",
            id="another namespace",
        ),
        pytest.param(
            {"podAffinity": [{**term(app="web"), "namespaceSelector": {"matchLabels": {"team": "a"}}}]},
            [pod("w", labels={"app": "web"}, namespace="other", nodeName="n1")],
            "n1 n2",
            id="a selected namespace",
        ),
        pytest.param(
            {"podAffinity": [{**term(app="web"), "matchLabelKeys": ["version"]}]}, [WEB], "", id="of the same version"
        ),
    ],
)
def test_near_and_apart(waiting: Mapping[str, Any], running: list[PodInfo], expected: str) -> None:
    state = zoned(*running)
    state.put_namespace("other", {"team": "a"})
    spec: dict[str, Any] = {}
    for kind, terms in waiting.items():
        spec |= affinity(kind, required=terms)
    made = pod("p", labels={"app": "own", "version": "2"}, affinity=spec)
    found = rejected(InterPodAffinity(), state, made)
    assert [f"n{index}" for index, each in enumerate(found, 1) if not each[0]] == expected.split()


def test_a_namespace_that_gets_other_labels() -> None:
    state = zoned(pod("w", labels={"app": "web"}, namespace="other", nodeName="n1"))
    terms = [{**term(app="web"), "namespaceSelector": {"matchLabels": {"team": "a"}}}]
    waiting = pod("p", affinity=affinity("podAntiAffinity", required=terms))
    for team, is_free in (("a", False), ("b", True), ("a", False)):
        state.put_namespace("other", {"team": team})
        assert (not rejected(InterPodAffinity(), state, waiting)[0][0]) is is_free
    state.remove_namespace("other")
    assert not rejected(InterPodAffinity(), state, waiting)[0][0]


def test_what_pods_prefer_counts_from_both_sides() -> None:
    near = pod(
        "x",
        nodeName="n3",
        affinity=affinity("podAffinity", preferred=[{"weight": 10, "podAffinityTerm": term(app="own")}]),
    )
    state = zoned(WEB, near)
    preferred = [{"weight": 40, "podAffinityTerm": term(app="web")}]
    waiting = pod("p", labels={"app": "own"}, affinity=affinity("podAffinity", preferred=preferred))
    assert scores(InterPodAffinity(), state, waiting) == [100, 100, 25, 0]
    apart = pod("p", labels={"app": "own"}, affinity=affinity("podAntiAffinity", preferred=preferred))
    assert scores(InterPodAffinity(), state, apart) == [0, 0, 100, 80]
    indifferent = pod("p", labels={"app": "own"})
    assert scores(InterPodAffinity(), state, indifferent) == [0, 0, 100, 0]
    assert scores(InterPodAffinity(with_preferences_of_running=False), state, indifferent) is None
    assert scores(InterPodAffinity(), state, pod("p")) is None


def constraint(key: str = ZONE, skew: int = 1, when: str = "DoNotSchedule", **members: Any) -> dict[str, Any]:
    selector = {"matchLabels": {"app": "web"}}
    return {"maxSkew": skew, "topologyKey": key, "whenUnsatisfiable": when, "labelSelector": selector, **members}


@pytest.mark.parametrize(
    ("constraints", "expected"),
    [
        pytest.param([constraint()], "n3", id="the emptier zone"),
        pytest.param([constraint(skew=2)], "n1 n2 n3", id="a skew of two"),
        pytest.param([constraint(HOSTNAME)], "n2 n3 n4", id="by host"),
        pytest.param([constraint(minDomains=3)], "n3", id="too few zones count as an empty one"),
        pytest.param([constraint(), constraint(HOSTNAME)], "n3", id="both"),
        pytest.param([constraint(matchLabelKeys=["version"])], "n1 n2 n3", id="of the same version"),
        pytest.param([constraint(labelSelector={})], "n1 n2 n3", id="an empty selector counts none"),
    ],
)
def test_spread(constraints: list[Any], expected: str) -> None:
    state = zoned(
        WEB, pod("gone", labels={"app": "web"}, nodeName="n3", metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"})
    )
    waiting = pod("p", labels={"app": "web", "version": "2"}, topologySpreadConstraints=constraints)
    found = rejected(PodTopologySpread(), state, waiting)
    assert [f"n{index}" for index, each in enumerate(found, 1) if not each[0]] == expected.split()
    if len(constraints) == 1 and constraints[0]["topologyKey"] == ZONE:
        reason = "node(s) didn't match pod topology spread constraints (missing required label)"
        assert found[3] == (reason, "", False)


def test_which_nodes_count_for_spread() -> None:
    """A zone that the pod cannot go to does not count, unless the constraint says so."""
    tainted = [{"key": "t", "value": "", "effect": "NoSchedule"}]
    state = state_of(
        node("n1", labels={ZONE: "a"}),
        node("n2", labels={ZONE: "b"}, taints=tainted),
        node("n3", labels={ZONE: "c", "disk": "hdd"}),
    )
    for index in range(2):
        state.put_pod(pod(f"w{index}", labels={"app": "web"}, nodeName="n1"))
    terms = {"nodeSelectorTerms": [{"matchExpressions": [requirement("disk", "DoesNotExist")]}]}
    cases: tuple[tuple[dict[str, Any], bool], ...] = (
        ({}, False),
        ({"nodeTaintsPolicy": "Honor"}, True),
        ({"nodeTaintsPolicy": "Honor", "nodeAffinityPolicy": "Ignore"}, False),
    )
    for members, is_free in cases:
        waiting = pod(
            "p",
            labels={"app": "web"},
            affinity=affinity("nodeAffinity", required=terms),
            topologySpreadConstraints=[constraint(**members)],
        )
        assert (not rejected(PodTopologySpread(), state, waiting)[0][0]) is is_free


def test_spread_as_a_preference() -> None:
    state = zoned(WEB, pod("w2", labels={"app": "web"}, nodeName="n2"), pod("w3", labels={"app": "web"}, nodeName="n3"))
    waiting = pod("p", labels={"app": "web"}, topologySpreadConstraints=[constraint(when="ScheduleAnyway")])
    # 2 * ln 4 = 2.77 and ln 4 = 1.39, rounded: 3 and 1
    assert scores(PodTopologySpread(), state, waiting) == [33, 33, 100, 0]
    assert scores(PodTopologySpread(), zoned(), waiting) == [100, 100, 100, 0]
    assert scores(PodTopologySpread(), state, pod("p")) is None


def test_default_constraints_are_for_pods_of_services_and_controllers() -> None:
    state = zoned(WEB)
    waiting = pod(
        "p",
        labels={"app": "web", "version": "2"},
        metadata={"ownerReferences": [{"kind": "ReplicaSet", "name": "r", "uid": "r", "controller": True}]},
    )
    plugin = PodTopologySpread()
    assert scores(plugin, state, waiting) is None
    state.owners.put_service("default", "other", {"app": "db"})
    state.owners.put_service("default", "headless", None)
    assert scores(plugin, state, waiting) is None
    state.owners.put_service("default", "web", {"app": "web"})
    # by host ln 6 + 2 or 2, by zone ln 5 + 4, 4 or, without a zone, 0: 9, 8, 6 and 2
    assert scores(plugin, state, waiting) == [22, 33, 55, 100]
    controller = ControllerKey("ReplicaSet", "default", "r")
    state.owners.put_controller(controller, LabelSelector(match_labels={"version": "2"}))
    found = scores(plugin, state, waiting)
    assert found is not None and found[0] == found[2]
    state.owners.remove_controller(controller)
    state.owners.remove_service("default", "web")
    assert scores(plugin, state, waiting) is None


def _added(required: Sequence[Any] | None = None, preferred: Sequence[Any] = ()) -> NodeAffinity:
    document: dict[str, Any] = {"preferredDuringSchedulingIgnoredDuringExecution": preferred}
    if required is not None:
        document["requiredDuringSchedulingIgnoredDuringExecution"] = {"nodeSelectorTerms": required}
    return NodeAffinity(core.read(pods.NodeAffinity, msgspec.json.encode(document)))


SSD_TERM = {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]}
A_TERM = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}
ENFORCED, OWN = NodeAffinity.added_reason, NodeAffinity.reason


@pytest.mark.parametrize(
    ("plugin", "spec", "reasons", "found"),
    [
        pytest.param(NodeAffinity(), {}, ["", "", ""], None, id="nothing added"),
        pytest.param(_added([SSD_TERM]), {}, ["", ENFORCED, ENFORCED], None, id="required"),
        pytest.param(_added([SSD_TERM, A_TERM]), {}, ["", "", ENFORCED], None, id="one of two terms"),
        pytest.param(_added([]), {}, [ENFORCED] * 3, None, id="no term holds nowhere"),
        pytest.param(
            _added([SSD_TERM, A_TERM]),
            {"nodeSelector": {"disk": "ssd"}},
            ["", OWN, ENFORCED],
            None,
            id="beside the pod's own, of which it is the first to reject",
        ),
        pytest.param(
            _added(preferred=[{"weight": 10, "preference": A_TERM}]), {}, ["", "", ""], [100, 100, 0], id="preferred"
        ),
        pytest.param(
            _added(preferred=[{"weight": 10, "preference": A_TERM}]),
            {
                "affinity": {
                    "nodeAffinity": {
                        "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 30, "preference": SSD_TERM}]
                    }
                }
            },
            ["", "", ""],
            [100, 25, 0],
            id="the weights are summed with the pod's own",
        ),
    ],
)
def test_an_affinity_that_every_pod_has(
    plugin: NodeAffinity, spec: Mapping[str, Any], reasons: list[str], found: list[int] | None
) -> None:
    state = state_of(
        node("n1", labels={"disk": "ssd", "zone": "a"}),
        node("n2", labels={"disk": "hdd", "zone": "a"}),
        node("n3", labels={"disk": "hdd", "zone": "b"}),
    )
    waiting = pod("p", **spec)
    assert [text for text, _, _ in rejected(plugin, state, waiting)] == reasons
    assert not any(each.is_resolvable for each in plugin.rejections(state, waiting))
    if not any(reasons):
        assert scores(plugin, state, waiting) == found


def test_default_constraints_keep_all_that_they_say() -> None:
    """``minDomains`` of a default constraint: two zones are fewer than three, so no more than one pod in each."""
    constraint = pods.TopologySpreadConstraint(
        max_skew=1, topology_key=ZONE, when_unsatisfiable="DoNotSchedule", min_domains=3
    )
    state = state_of(
        node("n1", labels={ZONE: "a"}),
        node("n2", labels={ZONE: "b"}),
        pods=[pod(f"x{zone}", labels={"app": "a"}, nodeName=zone) for zone in ("n1", "n2")],
    )
    state.owners.put_service("default", "s", {"app": "a"})
    plugin = PodTopologySpread((constraint,), False)
    found = rejected(plugin, state, pod("p", labels={"app": "a"}))
    assert [text for text, _, _ in found] == [PodTopologySpread.skew_reason] * 2

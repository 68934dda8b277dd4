"""What holds for every reason and every formula beside its worked examples: whether room can be made, and the edges."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from koord.scheduling.plugin import Plugin, scaled_to_largest
from koord.scheduling.plugins.hostports import NodePorts
from koord.scheduling.plugins.nodes import ImageLocality, NodeAffinity, NodeName, NodeUnschedulable, TaintToleration
from koord.scheduling.plugins.podaffinity import InterPodAffinity
from koord.scheduling.plugins.resources import NodeResourcesFit, RequestedToCapacityRatio
from koord.scheduling.plugins.spread import PodTopologySpread
from koord.scheduling.podinfo import PodInfo
from tests.scheduling.clusters import HOSTNAME, ZONE, node, pod
from tests.scheduling.test_plugins import MI, affinity, constraint, requirement, scores, state_of, term

OWN = {"app": "web"}
PORT = [{"name": "main", "ports": [{"containerPort": 1, "hostPort": 80}]}]
TAINTS = [{"key": "t", "value": "", "effect": "NoSchedule"}]


def names(*each: str) -> dict[str, Any]:
    """One term for each text, in which the node has to have all names of the text."""
    fields = [[requirement("metadata.name", "In", name) for name in text.split()] for text in each]
    return affinity("nodeAffinity", required={"nodeSelectorTerms": [{"matchFields": field} for field in fields]})


@pytest.mark.parametrize(
    ("plugin", "spec", "text", "is_resolvable"),
    [
        pytest.param(NodeName(), {"nodeName": "n2"}, "didn't match the requested node name", False, id="another name"),
        pytest.param(NodeUnschedulable(), {}, "were unschedulable", False, id="cordoned"),
        pytest.param(TaintToleration(), {}, "had untolerated taint(s)", False, id="tainted"),
        pytest.param(NodeAffinity(), {"nodeSelector": {"a": "b"}}, "node affinity/selector", False, id="a selector"),
        pytest.param(NodeAffinity(), {"affinity": names("n2", "n3")}, "affinity/selector", False, id="other names"),
        pytest.param(NodeAffinity(), {"affinity": names("n1 n2")}, "affinity/selector", False, id="two names at once"),
        pytest.param(NodePorts(), {"containers": PORT}, "didn't have free ports", True, id="a port that is taken"),
        pytest.param(NodeResourcesFit(), {}, "Too many pods", True, id="no place"),
        pytest.param(
            PodTopologySpread(), {"topologySpreadConstraints": [constraint(ZONE)]}, "constraints", True, id="skewed"
        ),
        pytest.param(
            PodTopologySpread(),
            {"topologySpreadConstraints": [constraint("rack")]},
            "constraints (missing required label)",
            False,
            id="no such label",
        ),
        pytest.param(
            InterPodAffinity(),
            {"affinity": affinity("podAffinity", required=[term(app="db")])},
            "didn't match pod affinity rules",
            False,
            id="near nobody",
        ),
        pytest.param(
            InterPodAffinity(),
            {"affinity": affinity("podAntiAffinity", required=[term(app="web")])},
            "didn't match pod anti-affinity rules",
            True,
            id="apart from a pod that is there",
        ),
        pytest.param(InterPodAffinity(), {}, "existing pods anti-affinity rules", True, id="a pod there keeps apart"),
    ],
)
def test_whether_room_can_be_made(plugin: Plugin, spec: dict[str, Any], text: str, is_resolvable: bool) -> None:
    """``UnschedulableAndUnresolvable`` of upstream's is not resolvable."""
    apart = affinity("podAntiAffinity", required=[term(app="web")])
    there = [
        pod(f"x{index}", labels=OWN, nodeName="n1", affinity=apart, containers=PORT) for index in range(2)
    ]  # one more than the node takes
    cordoned = node("n1", "4", "8Gi", "1", labels={ZONE: "a"}, taints=TAINTS, unschedulable=True)
    state = state_of(cordoned, node("n9", labels={ZONE: "b"}), pods=there)
    made = pod("p", labels=OWN, **spec)
    said = plugin.explain(state, made, 0, state.table.exists).reasons
    assert said and text in said[0].text
    assert said[0].is_resolvable is is_resolvable
    (found,) = [each for each in plugin.rejections(state, made) if each.reason == said[0].text]
    assert bool(np.broadcast_to(found.is_resolvable, state.length)[0]) is is_resolvable


def test_who_requests_nothing_of_a_resource_fits_on_a_node_that_is_full_of_it() -> None:
    state = state_of(node("n1", cpu="1", pods="3"), pods=[pod("x", {"cpu": "2"}, nodeName="n1")])
    for requests, fits in (({"cpu": "0", "memory": "1Gi"}, True), ({}, True), ({"cpu": "1m"}, False)):
        assert bool(NodeResourcesFit().filter(state, pod("p", requests))[0]) is fits


def test_a_resource_that_scores_nothing_is_left_out_of_a_ratios_mean() -> None:
    state = state_of(node("n1", "4", "1000Gi"))
    ratio = NodeResourcesFit(strategy=RequestedToCapacityRatio(((0, 0), (100, 100))))
    assert scores(ratio, state, pod("p", {"cpu": "2", "memory": "1Gi"})) == [50]


@pytest.mark.parametrize(
    ("containers", "init", "score"),
    [
        pytest.param(["small"], [], 0, id="below 23 MiB"),
        pytest.param(["least"], [], 0, id="23 MiB"),
        pytest.param(["web"], [], 48, id="(500 - 23) * 100 / 977"),
        pytest.param(["huge"], [], 100, id="above 1000 MiB"),
        pytest.param(["web", "web"], [], 49, id="(1000 - 23) * 100 / 1977: each container counts"),
        pytest.param(["huge", "unknown"], [], 100, id="the most is 2000 MiB of two, and huge is larger"),
        pytest.param(["unknown"], ["web"], 24, id="init containers count: (500 - 23) * 100 / 1977"),
        pytest.param(["web:latest"], [], 48, id="a tag"),
    ],
)
def test_images_that_are_there(containers: Sequence[str], init: Sequence[str], score: int) -> None:
    sizes = {"small:latest": 22, "least:latest": 23, "web:latest": 500, "huge:latest": 3000}
    state = state_of(node("n1", images=[{"names": [name], "sizeBytes": size * MI} for name, size in sizes.items()]))
    waiting = pod(
        "p",
        containers=[{"name": f"c{index}", "image": image} for index, image in enumerate(containers)],
        initContainers=[{"name": f"i{index}", "image": image} for index, image in enumerate(init)],
    )
    assert scores(ImageLocality(), state, waiting) == [score]


@pytest.mark.parametrize(
    ("given", "is_reversed", "expected"),
    [
        ([0, 1, 4], False, [0, 25, 100]),
        ([0, 1, 4], True, [100, 75, 0]),
        ([1, 3, 3], False, [33, 100, 100]),
        ([0, 0, 0], False, 0),
        ([0, 0, 0], True, 100),
        ([9, 1, 2], False, [450, 50, 100]),
    ],
)
def test_scores_scaled_to_the_largest_of_feasible_nodes(
    given: list[int], is_reversed: bool, expected: list[int] | int
) -> None:
    """The first node of the last row is not feasible, and what it gets does not count."""
    feasible = np.array([given[0] < 9, True, True])
    found = scaled_to_largest(np.array(given, np.int64), feasible, is_reversed)
    assert (found if isinstance(found, int) else [int(each) for each in found]) == expected


def test_what_a_pod_there_requires_counts_for_the_nodes_around_it() -> None:
    requires = affinity("podAffinity", required=[term(app="own")])
    state = state_of(
        *[node(name, labels={ZONE: zone}) for name, zone in (("n1", "a"), ("n2", "a"), ("n3", "b"))],
        pods=[pod("x", nodeName="n1", affinity=requires)],
    )
    waiting = pod("p", labels={"app": "own"})
    assert scores(InterPodAffinity(), state, waiting) == [100, 100, 0]
    assert scores(InterPodAffinity(0), state, waiting) is None
    everywhere = pod("x", nodeName="n1", affinity=affinity("podAffinity", required=[term(HOSTNAME, app="own")]))
    state.put_pod(everywhere)
    assert scores(InterPodAffinity(), state, waiting) == [100, 0, 0]


def replicas(*nodes: str) -> list[PodInfo]:
    return [pod(f"x{index}", labels=OWN, nodeName=name) for index, name in enumerate(nodes)]


@pytest.mark.parametrize(
    ("skew", "labels", "there", "fits"),
    [
        pytest.param(1, OWN, [], "n1 n2", id="0 + 1 - 0 <= 1"),
        pytest.param(1, OWN, ["n1"], "n2", id="1 + 1 - 0 > 1"),
        pytest.param(2, OWN, ["n1"], "n1 n2", id="1 + 1 - 0 <= 2"),
        pytest.param(1, OWN, ["n1", "n2"], "n1 n2", id="1 + 1 - 1 <= 1"),
        pytest.param(1, {"app": "db"}, ["n1"], "n1 n2", id="1 + 0 - 0 <= 1: it does not count itself"),
        pytest.param(1, {"app": "db"}, ["n1", "n1"], "n2", id="2 + 0 - 0 > 1"),
    ],
)
def test_count_and_self_less_the_smallest_count(skew: int, labels: dict[str, str], there: list[str], fits: str) -> None:
    state = state_of(node("n1"), node("n2"), pods=replicas(*there))
    waiting = pod("p", labels=labels, topologySpreadConstraints=[constraint(HOSTNAME, skew)])
    found = PodTopologySpread().filter(state, waiting)
    assert found is not None
    assert [name for name, each in zip(("n1", "n2"), found, strict=True) if each] == fits.split()

"""Why a pod waits: the counts of its condition, the nearest nodes, and what would help."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from koord.scheduling import obstacles
from koord.scheduling.defaults import default_plugins
from koord.scheduling.framework import Framework
from koord.scheduling.state import ClusterState
from tests.scheduling.clusters import node, pod
from tests.scheduling.test_against_oracle import History

TAINT = {"key": "gpu", "value": "only", "effect": "NoSchedule"}


def framework(*nodes: Any, placed: tuple[Any, ...] = ()) -> Framework:
    state = ClusterState()
    for each in nodes:
        state.put_node(each)
    for each in placed:
        state.put_pod(each)
    return Framework(state, default_plugins())


FULL = (
    *(node("n1", "4"), node("n2", "8"), node("n3", "8", taints=[TAINT]), node("n4", "8", unschedulable=True)),
)  # fmt: skip
THERE = (pod("x1", {"cpu": "3"}, nodeName="n1"), pod("x2", {"cpu": "4500m"}, nodeName="n2"))


@pytest.mark.parametrize(
    ("asks", "spec", "helps"),
    [
        pytest.param(
            {"cpu": "4"},
            {},
            [
                "a node with 4 cpu free: of 2 nodes that would do else, n2 lacks least: 0.5 cpu",
                "1 node would do but for being cordoned: kubectl uncordon n4 (n4)",
                "1 node would do but for a taint, which the pod may tolerate: gpu=only:NoSchedule (n3)",
            ],
            id="each alone",
        ),
        pytest.param(
            {"cpu": "16", "memory": "1Gi"},
            {},
            ["larger nodes, or a smaller request: the pod asks for 16 cpu, the largest has 8"],
            id="larger than any node",
        ),
        pytest.param(
            {"nvidia.com/gpu": "1"},
            {},
            ["larger nodes, or a smaller request: the pod asks for 1 nvidia.com/gpu, no node has any"],
            id="a resource that there is not",
        ),
        pytest.param(
            {"cpu": "1"},
            {"nodeSelector": {"disk": "ssd"}},
            ["2 nodes would do but for the pod's node selector or affinity: lacks disk=ssd (n1, n2)"],
            id="no label",
        ),
        pytest.param(
            {"cpu": "8"},
            {"nodeSelector": {"disk": "ssd"}, "tolerations": [{"operator": "Exists"}]},
            ["2 nodes would do but for the pod's node selector or affinity: lacks disk=ssd (n3, n4)"],
            id="several reasons",
        ),
        pytest.param(
            {"cpu": "1"},
            {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]},
            ['persistentvolumeclaim "c" not found'],
            id="of the pod",
        ),
    ],
)
def test_what_helps(asks: dict[str, str], spec: dict[str, Any], helps: list[str]) -> None:
    found = obstacles.of(framework(*FULL, placed=THERE), pod("p", asks, **spec))
    assert (found.feasible_count, found.node_count) == (0, 4)
    assert list(found.helps) == helps


def test_the_nearest_nodes_come_first_with_their_figures() -> None:
    nodes = [node(f"n{index}", "4", "8Gi") for index in range(5)]
    there = [pod(f"x{index}", {"cpu": f"{2000 + 100 * index}m"}, nodeName=f"n{index}") for index in range(5)]
    found = obstacles.of(framework(*reversed(nodes), placed=tuple(there)), pod("p", {"cpu": "3", "memory": "9Gi"}))
    assert [(each.plugin, each.reason, each.node_count) for each in found.found] == [
        ("NodeResourcesFit", "Insufficient cpu", 5),
        ("NodeResourcesFit", "Insufficient memory", 5),
    ]
    assert found.found[0].examples[0] == ("n0", "2 of 4 cpu free, lacks 1, 8 GiB of 8 GiB memory free, lacks 1 GiB")
    assert [name for name, _ in found.found[0].examples] == ["n0", "n1", "n2"]


def test_no_node_and_a_node_that_would_do() -> None:
    assert obstacles.of(framework(), pod("p")).helps == ("a node: there is none",)
    found = obstacles.of(framework(node("n1")), pod("p"))
    assert (found.feasible_count, found.found, found.helps) == (1, (), ())


def test_room_that_is_promised_to_another_pod() -> None:
    made = framework(node("n1", "2"))
    made.state.nominations.put(pod("high", {"cpu": "2"}, priority=9), "n1")
    found = obstacles.of(made, pod("low", {"cpu": "1"}))
    assert (found.feasible_count, found.found) == (0, ())
    assert found.helps == ("1 node would do but for pods that have room promised there (n1)",)


@pytest.mark.parametrize("seed", range(60, 66))
def test_the_counts_are_those_of_the_diagnosis(seed: int) -> None:
    history, draw = History(seed), random.Random(seed)
    for step in range(120):
        waiting = history.step()
        if draw.random() < 0.3:
            continue
        found = obstacles.of(history.framework, waiting)
        diagnosis = history.framework.diagnose(waiting)
        counted: dict[str, int] = {}
        for each in found.found:
            counted[each.reason] = counted.get(each.reason, 0) + each.node_count
        assert counted == diagnosis.reasons, step
        feasible = history.framework.feasible(waiting)
        assert found.feasible_count == np.count_nonzero(feasible)
        assert bool(found.helps) == (not feasible.any())
        for name in {name for each in found.found for name, _ in each.examples}:
            row = history.state.table.row(name)
            assert row is not None
            assert not feasible[row]

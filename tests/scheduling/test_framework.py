"""One decision of all plugins: repeatable, shared by equal pods, and with its reasons."""

from __future__ import annotations

import random

import numpy as np
import pytest

from koord.scheduling.defaults import default_plugins
from koord.scheduling.framework import Framework, Placement, WeightedPlugin
from koord.scheduling.plugin import EXTENDER, Rejection
from koord.scheduling.plugins.resources import NodeResourcesFit
from koord.scheduling.podinfo import PodInfo
from koord.scheduling.state import ClusterState
from tests.scheduling.clusters import node, pod
from tests.scheduling.test_against_oracle import History
from tests.scheduling.test_state import renamed

COUNT = 40


def alike(count: int = COUNT) -> ClusterState:
    state = ClusterState()
    for index in range(count):
        state.put_node(node(f"n{index}"))
    return state


def fill(framework: Framework, pods: int, cpu: str = "1") -> list[str]:
    """Places equal pods one after the other; returns where."""
    found = []
    for index in range(pods):
        made = pod(f"p{index}", {"cpu": cpu})
        placement = framework.place(made)
        assert placement is not None
        framework.state.assume(made, placement.node)
        found.append(placement.node)
    return found


def test_the_same_history_gives_the_same_decisions() -> None:
    first, second, other = (fill(Framework(alike(), default_plugins(), seed), COUNT) for seed in (1, 1, 2))
    assert first == second
    assert first != other
    assert sorted(first) == sorted(other) == sorted(f"n{index}" for index in range(COUNT)), "each the emptiest"


def test_no_node_and_one_node() -> None:
    framework = Framework(ClusterState(), default_plugins())
    assert framework.place(pod("p")) is None
    assert framework.diagnose(pod("p")).message == "no nodes available to schedule pods"
    framework.state.put_node(node("n1"))
    assert framework.place(pod("p")) == Placement("n1", 1)
    framework.state.remove_node("n1")
    assert framework.place(pod("p")) is None


def test_why_there_is_none() -> None:
    state = alike(3)
    state.put_node(node("n1", unschedulable=True))
    state.put_node(node("small", cpu="1"))
    state.put_node(node("tainted", taints=[{"key": "t", "value": "", "effect": "NoSchedule"}]))
    state.put_pod(pod("x", {"cpu": "3", "memory": "8Gi"}, nodeName="n0"))
    diagnosis = Framework(state, default_plugins()).diagnose(
        pod("p", {"cpu": "2", "memory": "7Gi"}, nodeSelector={"kubernetes.io/hostname": "n0"})
    )
    assert diagnosis.message == (
        "0/5 nodes are available: 1 Insufficient cpu, 1 Insufficient memory, 1 node(s) had untolerated taint(s), "
        "1 node(s) were unschedulable, 2 node(s) didn't match Pod's node affinity/selector."
    )
    assert diagnosis.plugins == {"NodeAffinity", "NodeResourcesFit", "NodeUnschedulable", "TaintToleration"}
    assert [state.table.name(int(row)) for row in np.flatnonzero(diagnosis.is_resolvable)] == ["n0"]


def rejection(state: ClusterState, reason: str, *nodes: str, is_resolvable: bool = True) -> Rejection:
    rows = np.zeros(state.length, np.bool_)
    for name in nodes:
        rows[state.table.row(name) or 0] = True
    return Rejection(reason, rows, is_resolvable)


def test_what_extenders_reject_is_a_part_of_why_there_is_none() -> None:
    state = alike(3)
    state.put_node(node("small", cpu="1"))
    framework = Framework(state, default_plugins())
    extenders = [
        rejection(state, "no license", "n0", "small"),
        rejection(state, "wrong rack", "n1", is_resolvable=False),
        rejection(state, "", "n2", is_resolvable=False),
    ]
    diagnosis = framework.diagnose(pod("p", {"cpu": "2"}), extenders)
    assert diagnosis.message == "0/4 nodes are available: 1 Insufficient cpu, 1 no license, 1 wrong rack."
    assert diagnosis.plugins == {EXTENDER, "NodeResourcesFit"}
    assert [state.table.name(int(row)) for row in np.flatnonzero(diagnosis.is_resolvable)] == ["n0"]
    silent = framework.diagnose(pod("p"), [rejection(state, "", "n0", "n1", "n2", "small")])
    assert silent.message == "0/4 nodes are available:"


@pytest.mark.parametrize(
    ("added", "expected"),
    [((0, 0, 500), "n2"), ((0, 900, 500), "n1"), ((-900, -800, -700), "n2"), ((999, 1, 2), "n2")],
)
def test_others_take_nodes_away_and_add_to_scores(added: tuple[int, ...], expected: str) -> None:
    """``n0`` is taken away in the last case."""
    state = alike(3)
    among = np.array([added[0] < 999, True, True])
    placement = Framework(state, default_plugins()).place(pod("p"), among, np.array(added))
    assert placement is not None
    assert placement.node == expected


def test_a_node_without_enough_even_when_empty_is_not_resolvable() -> None:
    state = alike(1)
    framework = Framework(state, default_plugins())
    assert not framework.diagnose(pod("p", {"cpu": "5"})).is_resolvable.any()
    state.put_pod(pod("x", {"cpu": "3"}, nodeName="n0"))
    assert framework.diagnose(pod("p", {"cpu": "2"})).is_resolvable.all()
    assert not framework.diagnose(pod("p", {"cpu": "2", "memory": "9Gi"})).is_resolvable.any()


def test_an_explanation_of_one_node() -> None:
    framework = Framework(alike(2), default_plugins())
    said = framework.explain(pod("p", {"cpu": "1", "memory": "2Gi"}), "n0")
    assert {name: each.score for name, each in said.by_plugin.items() if each.score is not None} == {
        "TaintToleration": 100,
        "NodeResourcesFit": 75,
        "NodeResourcesBalancedAllocation": 100,
        "ImageLocality": 0,
    }
    assert said.total == 3 * 100 + 75 + 100
    rejected = framework.explain(pod("p", {"cpu": "5"}), "n0")
    assert (rejected.total, rejected.by_plugin["NodeResourcesFit"].reasons[0].text) == (None, "Insufficient cpu")
    with pytest.raises(KeyError, match="n9"):
        framework.explain(pod("p"), "n9")


@pytest.mark.parametrize("seed", range(40, 46))
def test_a_shared_evaluation_is_one_from_the_beginning(seed: int) -> None:
    """The same few pods are placed again and again while the cluster changes, by a framework that remembers and by new
    ones that do not.
    """
    history, draw = History(seed), random.Random(seed)
    templates = [history.generator.pod() for _ in range(6)]
    for step in range(150):
        history.step()
        made: PodInfo = renamed(draw.choice(templates), f"replica-{step}")
        fresh = Framework(history.state, default_plugins(), seed)
        placement = history.framework.place(made)
        assert placement == fresh.place(made), step
        if placement is not None and draw.random() < 0.5:
            history.state.assume(made, placement.node)
            history.placed[made.uid] = made, placement.node


@pytest.mark.parametrize("seed", range(50, 54))
def test_the_best_nodes_are_named_with_the_scores_that_an_explanation_says(seed: int) -> None:
    history, draw = History(seed), random.Random(seed)
    framework = Framework(history.state, default_plugins(), seed, best_count=3)
    plain = Framework(history.state, default_plugins(), seed)
    templates = [history.generator.pod() for _ in range(6)]
    for step in range(100):
        history.step()
        made: PodInfo = renamed(draw.choice(templates), f"replica-{step}")
        placement, bare = framework.place(made), plain.place(made)
        if placement is None or bare is None:
            assert placement is bare
            continue
        assert placement[:2] == bare[:2], "what is kept decides nothing"
        assert len(placement.best) == (0 if placement.feasible_count == 1 else min(3, placement.feasible_count))
        totals = [each.total for each in placement.best]
        assert totals == sorted(totals, reverse=True)
        assert not placement.best or placement.best[0].node == placement.node
        for node_name, total, scores in placement.best:
            said = framework.explain(made, node_name)
            by_plugin = [said.by_plugin[each.plugin.name].score or 0 for each in framework.scoring]
            assert (total, list(scores)) == (said.total, by_plugin), step


def test_what_extenders_add_counts_in_the_totals_of_the_best_nodes() -> None:
    framework = Framework(alike(3), default_plugins(), best_count=2)
    plain = framework.place(pod("p"))
    assert plain is not None
    added = np.array([0, 1000, -1000], np.int64)
    placement = framework.place(pod("p"), added=added)
    assert placement is not None
    total = plain.best[0].total
    assert [(each.node, each.total) for each in placement.best] == [("n1", total + 1000), ("n0", total)]


def test_pods_of_one_template_have_one_signature() -> None:
    owner = {"ownerReferences": [{"kind": "ReplicaSet", "name": "r", "uid": "r", "controller": True}]}
    first = pod("a", {"cpu": "1"}, labels={"x": "1", "y": "2"}, metadata=owner)
    assert first.signature == pod("b", {"cpu": "1"}, labels={"y": "2", "x": "1"}, metadata=owner).signature
    for other in (
        pod("b", {"cpu": "2"}, labels={"x": "1", "y": "2"}, metadata=owner),
        pod("b", {"cpu": "1"}, labels={"x": "1"}, metadata=owner),
        pod("b", {"cpu": "1"}, labels={"x": "1", "y": "2"}, metadata=owner, namespace="other"),
        pod("b", {"cpu": "1"}, labels={"x": "1", "y": "2"}, metadata=owner, nodeSelector={"a": "b"}),
    ):
        assert other.signature != first.signature


@pytest.mark.parametrize(
    ("weighted", "cpu", "place", "score"),
    [
        pytest.param(WeightedPlugin(NodeResourcesFit()), "1", "n2", 81, id="filter and score"),
        pytest.param(WeightedPlugin(NodeResourcesFit(), 0), "1", None, None, id="no score"),
        pytest.param(WeightedPlugin(NodeResourcesFit(), 3, False), "1", "n2", 3 * 81, id="no filter"),
        pytest.param(WeightedPlugin(NodeResourcesFit(), 1, False), "20", None, 42, id="a node that it would reject"),
    ],
)
def test_a_plugin_takes_part_in_what_is_left_to_it(
    weighted: WeightedPlugin, cpu: str, place: str | None, score: int | None
) -> None:
    """The second of two equal pods shares the first one's evaluation, and asks anew for the node of ``other``."""
    state = ClusterState()
    state.put_node(node("n1", "40", "40Gi") if cpu == "20" else node("n1"))
    state.put_node(node("n2"))
    framework = Framework(state, [weighted])
    waiting = pod("p", {"cpu": cpu, "memory": "1Gi"})
    other = pod("x", {"cpu": "2"}, nodeName="n2" if cpu == "20" else "n1")
    framework.place(waiting)
    state.put_pod(other)
    placement = framework.place(waiting)
    assert placement is not None
    assert framework.filters == ((weighted.plugin,) if weighted.filters else ())
    if place is not None:
        assert placement.node == place
    explained = framework.explain(waiting, place or "n2")
    assert explained.total == (score or 0)
    assert explained.by_plugin["NodeResourcesFit"].score == (None if score is None else score // weighted.weight)
    fresh = Framework(state, [weighted])
    assert fresh.place(waiting) == placement

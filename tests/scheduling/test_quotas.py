"""Which quota a pod is in, and what is counted of it: whatever comes in which order, and whatever is taken back."""

from __future__ import annotations

import random
from typing import Any

import pytest

from koord.quota import names
from koord.scheduling.podinfo import PodInfo
from koord.scheduling.state import ClusterState
from tests.scheduling.clusters import node
from tests.scheduling.quotaobjects import cluster, member, put, quota, runtime, used

LISTED = {"namespaces": '["lab","default"]'}


@pytest.mark.parametrize(
    ("quotas", "pod", "expected"),
    [
        pytest.param([quota("a")], member("p", "a"), "a", id="its label"),
        pytest.param([quota("a"), quota("lab", namespace="lab")], member("p", "a", namespace="lab"), "a", id="first"),
        pytest.param([quota("lab", namespace="lab")], member("p", namespace="lab"), "lab", id="its namespace's own"),
        pytest.param([quota("lab")], member("p", namespace="lab"), names.DEFAULT, id="of another namespace"),
        pytest.param(
            [quota("a", annotations=LISTED)], member("p", namespace="lab"), "a", id="that lists its namespace"
        ),
        pytest.param(
            [quota("b", annotations=LISTED), quota("a", annotations=LISTED)], member("p"), "a", id="two that list it"
        ),
        pytest.param([quota("a", annotations=LISTED)], member("p", "gone"), names.DEFAULT, id="a label of no quota"),
        pytest.param([quota(names.ROOT)], member("p", names.ROOT), names.DEFAULT, id="the root is for nobody"),
        pytest.param([quota("a")], member("p"), names.DEFAULT, id="of none"),
        pytest.param([quota(names.SYSTEM)], member("p", names.SYSTEM), names.SYSTEM, id="the system's"),
    ],
)
def test_which_quota_a_pod_is_in(quotas: list[Any], pod: PodInfo, expected: str) -> None:
    assert cluster(*quotas).quotas.name_for(pod) == expected


def test_pods_move_when_their_quota_comes_and_goes() -> None:
    state = put(cluster(), member("p", "a", node_name="n1"), member("q", namespace="lab", node_name="n1"))
    assert (used(state, names.DEFAULT), used(state, "a")) == (2000, -1)
    state.quotas.put(quota("a", annotations={"namespaces": '["lab"]'}))
    assert (used(state, names.DEFAULT), used(state, "a")) == (0, 2000)
    state.quotas.put(quota("a"))
    assert (used(state, names.DEFAULT), used(state, "a")) == (1000, 1000)
    state.quotas.remove("default", "a")
    assert (used(state, names.DEFAULT), used(state, "a")) == (2000, -1)
    assert sorted(state.quotas.placed_in(names.DEFAULT)) == ["p", "q"]


def test_a_pod_whose_label_changes_moves() -> None:
    state = put(cluster(quota("a"), quota("b")), member("p", "a", node_name="n1"))
    put(state, member("p", "b", node_name="n1"))
    assert (used(state, "a"), used(state, "b"), runtime(state, "a"), runtime(state, "b")) == (0, 1000, 0, 1000)


def test_of_two_objects_of_one_name_the_older_counts_and_the_other_is_told_of() -> None:
    young = quota("a", "0", "7", namespace="x", created="2026-01-02T00:00:00Z")
    for order in ((young, quota("a", "0", "5")), (quota("a", "0", "5"), young)):
        state = cluster(*order)
        found = state.quotas.get("a")
        assert found is not None and found.spec.maximum == {"cpu": 5000}
        state.quotas.put(young)
        assert "is the name of an older one, in default" in state.quotas.problems["x", "a"]
        state.quotas.remove("default", "a")
        found = state.quotas.get("a")
        assert found is not None and found.spec.maximum == {"cpu": 7000}


def test_an_assumption_is_used_until_it_is_forgotten() -> None:
    state = cluster(quota("a"))
    first, second = member("p", "a"), member("q", "a", fixed=True)
    put(state, first, second)
    assert (used(state, "a"), runtime(state, "a")) == (0, 2000), "both request, neither uses"
    with state.transaction() as transaction:
        transaction.assume(first, "n1")
        transaction.assume(second, "n1")
        assert used(state, "a") == 2000
    assert used(state, "a") == 0
    state.assume(second, "n1")
    found = state.quotas.get("a")
    assert found is not None and (found.counted.fixed_used, found.counted.fixed_request) == ({"cpu": 1000},) * 2
    with state.removed(["q"]):
        assert used(state, "a") == 0
    assert used(state, "a") == 1000


def test_nodes_are_what_there_is_to_divide() -> None:
    state = put(cluster(quota("a", high="1000"), cpu="10"), member("p", "a", "500"))
    assert runtime(state, "a") == 10_000
    state.put_node(node("n2", "4"))
    assert runtime(state, "a") == 14_000
    state.remove_node("n1")
    assert runtime(state, "a") == 4_000


def test_nothing_is_counted_where_nobody_follows_quotas() -> None:
    state = ClusterState()
    put(state, member("p", "a", node_name="n1"))
    assert (state.quotas.of(member("q", "a")), state.quotas.counts()["placed"]) == (None, 0)


@pytest.mark.parametrize("seed", range(20))
def test_any_history_counts_as_a_new_count_does(seed: int) -> None:
    draw = random.Random(seed)
    lived, pods, quotas = cluster(nodes=3), dict[str, PodInfo](), dict[str, Any]()
    for _ in range(120):
        step = draw.random()
        if step < 0.2:
            name = draw.choice("abc")
            parent = draw.choice(["", *"abc".replace(name, "")]) or names.ROOT
            lists = {"namespaces": draw.choice(["[]", '["lab"]', '["default","lab"]'])}
            quotas[name] = quota(
                name, str(draw.randrange(9)), str(draw.randrange(40)), annotations=lists, parent=parent
            )
            lived.quotas.put(quotas[name])
        elif step < 0.3 and quotas:
            lived.quotas.remove("default", quotas.pop(draw.choice(sorted(quotas))).metadata.name)
        elif step < 0.8 or not pods:
            name, on = f"p{draw.randrange(12)}", draw.choice(["", "n1", "n2"])
            if name in pods and pods[name].spec.node_name:
                on = pods[name].spec.node_name
            labels = {names.LABEL_PREEMPTIBLE: draw.choice(["true", "false"])}
            namespace = pods[name].namespace if name in pods else draw.choice(["default", "lab"])
            cpu = str(draw.randrange(1, 9))
            pods[name] = member(name, draw.choice(["", "a", "b", "c"]), cpu, on, namespace=namespace, labels=labels)
            if lived.is_assumed(name) and not on:
                continue
            put(lived, pods[name])
        elif step < 0.9:
            waiting = [each for each in pods.values() if lived.node_of(each.uid) is None]
            with lived.transaction() as transaction:
                for each in waiting:
                    transaction.assume(each, "n3")
        else:
            name = draw.choice(sorted(pods))
            lived.remove_pod(name)
            lived.quotas.remove_pod(pods.pop(name).uid)
    anew = cluster(*quotas.values(), nodes=3)
    put(anew, *pods.values())
    assert counted(lived) == counted(anew)
    assert lived.quotas.counts() == anew.quotas.counts()


def counted(state: ClusterState) -> list[Any]:
    forest = state.quotas.up_to_date()
    assert forest is not None
    return [
        (
            each.name, each.problem, forest.runtimes(each), each.request,
            [getattr(each.counted, kind) for kind in ("request", "used", "fixed_request", "fixed_used")],
            sorted(state.quotas.placed_in(each.name)),
        )
        for each in forest
    ]  # fmt: skip

"""The state after any history is the one that is made anew of the same objects; what is taken back leaves no trace."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from koord.model.selector import LabelSelector
from koord.scheduling.podcounts import MOST_QUERIES, PodQuery, PodSelection
from koord.scheduling.podinfo import PodInfo, selector_json
from koord.scheduling.state import ClusterState
from tests.scheduling.clusters import APPS, HOSTNAME, ZONE, Generator, node, pod
from tests.scheduling.test_against_oracle import NAMESPACES, History

PORT = [{"name": "main", "ports": [{"containerPort": 1, "hostPort": 80}]}]
ANTI = {
    "podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {"labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": HOSTNAME}
        ]
    }
}


def queries() -> list[PodQuery]:
    found = []
    for app in APPS:
        selector = selector_json(LabelSelector(match_labels={"app": app}))
        for with_terminating in (True, False):
            found.append(PodQuery((PodSelection(frozenset(("default",)), selector),), with_terminating))
            team = selector_json(LabelSelector(match_labels={"team": "b"}))
            found.append(PodQuery((PodSelection(frozenset(), selector, team),), with_terminating))
    return found


def dump(state: ClusterState) -> dict[str, object]:
    """All that a state says of its nodes, by their names."""
    found: dict[str, object] = {}
    counts = {query: state.pod_counts.matching(query) for query in queries()}
    for row in range(state.length):
        name = state.table.name(row)
        if not name:
            continue
        found[name] = (
            {resource: amount for resource in state.requested.names if (amount := state.requested.at(row, resource))},
            {
                each: amount
                for each in state.nodes.allocatable.names
                if (amount := state.nodes.allocatable.at(row, each))
            },
            (int(state.assumed_cpu_milli[row]), int(state.assumed_memory_bytes[row])),
            [int(column[row]) for column in counts.values()],
            bool(state.nodes.unschedulable[row]),
            state.nodes.taint_sets[state.nodes.taint_classes[row]],
            {key: state.nodes.labels.key(key).column.values[row] >= 0 for key in (HOSTNAME, ZONE, "disk")},
            sorted(
                (port, rows[row]) for port, rows in state.host_ports_of([("TCP", 8080), ("UDP", 8081)]) if row in rows
            ),
            sorted(each.uid for each in state.pods_on(name)),
            sorted(
                (held.term, held.weight, held.rows[row])
                for holders in (state.held_anti_affinity, state.held_affinity, state.held_preferences)
                for probe in (pod("x", labels={"app": app, "tier": "a"}) for app in APPS)
                for held in holders.about(probe.pod_labels)
                if row in held.rows
            ),
        )
    return found


def anew(history: History) -> ClusterState:
    """A state that is told of the pods first, and of everything in another order."""
    state = ClusterState()
    pods = list(history.placed.values())
    random.Random(1).shuffle(pods)
    for each, name in pods:
        state.assume(each, name)
    for name in sorted(history.nodes, reverse=True):
        state.put_node(history.nodes[name])
    for name, labels in NAMESPACES.items():
        state.put_namespace(name, labels)
    return state


@pytest.mark.parametrize("seed", range(20, 28))
def test_it_is_what_its_objects_make_of_it(seed: int) -> None:
    history = History(seed)
    for step in range(200):
        history.step()
        if step % 20 == 19:
            assert dump(history.state) == dump(anew(history)), step


@pytest.mark.parametrize("seed", range(30, 34))
def test_what_is_taken_back_leaves_no_trace(seed: int) -> None:
    history, generator = History(seed), Generator(seed)
    for _ in range(60):
        history.step()
    state, before = history.state, dump(history.state)
    with state.transaction() as transaction:
        for index, name in enumerate([*history.nodes, "not there"] * 3):
            transaction.assume(renamed(generator.pod(), f"gang-{index}"), name)
        assert dump(state) != before
    assert dump(state) == before
    victims = sorted(history.placed)[::2]
    with state.removed(victims):
        assert all(state.node_of(uid) is None for uid in victims)
    assert dump(state) == before


def renamed(made: PodInfo, uid: str) -> PodInfo:
    return PodInfo.of(replace(made.pod, metadata=replace(made.pod.metadata, uid=uid, name=uid)))


def requested(state: ClusterState, name: str = "n1") -> int:
    row = state.table.row(name)
    assert row is not None
    return state.requested.at(row, "cpu")


@pytest.mark.parametrize(
    ("then", "expected"),
    [
        pytest.param(lambda state: None, ("n1", True), id="nothing"),
        pytest.param(lambda state: state.put_pod(waiting()), ("n1", True), id="its object without a node"),
        pytest.param(lambda state: state.put_pod(waiting(nodeName="n1")), ("n1", False), id="its object with the node"),
        pytest.param(lambda state: state.put_pod(waiting(nodeName="n2")), ("n2", False), id="its object with another"),
        pytest.param(lambda state: state.forget("p"), (None, False), id="taken back"),
        pytest.param(lambda state: state.remove_pod("p"), (None, False), id="deleted"),
        pytest.param(
            lambda state: state.put_pod(waiting(nodeName="n1", status={"phase": "Failed"})), (None, False), id="failed"
        ),
        pytest.param(
            lambda state: [state.put_pod(waiting(nodeName="n1")), state.forget("p")], ("n1", False), id="too late"
        ),
    ],
)
def test_an_assumed_pod(then: Callable[[ClusterState], object], expected: tuple[str | None, bool]) -> None:
    state = ClusterState()
    for name in ("n1", "n2"):
        state.put_node(node(name))
    state.assume(waiting(), "n1")
    then(state)
    assert (state.node_of("p"), state.is_assumed("p")) == expected
    assert [requested(state, name) for name in ("n1", "n2")] == [500 * (expected[0] == name) for name in ("n1", "n2")]


def waiting(**members: object) -> PodInfo:
    return pod("p", {"cpu": "500m"}, **members)  # type: ignore[arg-type]


def test_a_pod_that_is_placed_cannot_be_assumed() -> None:
    state = ClusterState()
    state.assume(waiting(), "n1")
    with pytest.raises(ValueError, match="pod default/p is on n1 already"):
        state.assume(waiting(), "n2")


@pytest.mark.parametrize(
    ("change", "cpu_milli"),
    [
        pytest.param({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}, 500, id="terminating holds its room"),
        pytest.param({"status": {"phase": "Succeeded"}}, 0, id="finished holds nothing"),
        pytest.param({"requests": {"cpu": "2"}}, 2000, id="resized"),
        pytest.param({"labels": {"app": "web"}}, 500, id="labelled otherwise"),
    ],
)
def test_a_pod_that_changes(change: dict[str, object], cpu_milli: int) -> None:
    state = ClusterState()
    state.put_node(node("n1"))
    for each in ({}, change):
        state.put_pod(pod("p", **{"requests": {"cpu": "500m"}, "nodeName": "n1", **each}))  # type: ignore[arg-type]
    assert requested(state) == cpu_milli


def test_a_node_that_goes_and_comes_back_has_its_pods() -> None:
    state = ClusterState()
    state.put_pod(pod("early", {"cpu": "1"}, nodeName="n1"))
    state.put_node(node("n1"))
    state.put_pod(pod("late", {"cpu": "1"}, nodeName="n1", containers=PORT, affinity=ANTI))
    before = dump(state)
    state.remove_node("n1")
    state.remove_node("n1")
    state.put_node(node("n2", labels={"disk": "ssd"}))
    assert requested(state, "n2") == 0
    assert not state.pod_counts.matching(queries()[0])[0]
    state.put_node(node("n1"))
    after = dump(state)
    assert {"n1": after["n1"]} == before


def test_which_rows_have_changed() -> None:
    state = ClusterState()
    for name in ("n1", "n2"):
        state.put_node(node(name))
    version, objects = state.version, state.objects_version
    assert state.changed_rows(version) == frozenset()
    state.assume(waiting(), "n2")
    state.put_node(node("n2"))
    assert (state.changed_rows(version), state.objects_version) == ({state.table.row("n2")}, objects)
    state.put_node(node("n1", unschedulable=True))
    assert (state.changed_rows(version), state.objects_version) == ({0, 1}, objects + 1)
    for _ in range(5000):
        state.forget("p")
        state.assume(waiting(), "n2")
    assert state.changed_rows(version) is None


def test_a_node_whose_amounts_cannot_be_read_keeps_the_others() -> None:
    state = ClusterState()
    (problem,) = state.put_node(node("n1", cpu="many"))
    assert problem.path == "status.allocatable[cpu]"
    assert (state.nodes.allocatable.at(0, "cpu"), state.nodes.allocatable.at(0, "pods")) == (0, 10)


def test_queries_are_bounded_and_forgotten_ones_counted_anew() -> None:
    state = ClusterState()
    state.put_node(node("n1"))
    state.put_pod(pod("p", labels={"app": "web"}, nodeName="n1"))
    query = queries()[0]
    assert state.pod_counts.matching(query)[0] == 1
    for index in range(2 * MOST_QUERIES):
        selector = selector_json(LabelSelector(match_labels={"app": f"a{index}"}))
        assert state.pod_counts.matching(PodQuery((PodSelection(frozenset(("default",)), selector),)))[0] == 0
    state.put_pod(pod("q", labels={"app": "web"}, nodeName="n1"))
    assert state.pod_counts.matching(query)[0] == 2


def test_values_of_labels_and_taints_of_nodes_that_went_are_forgotten() -> None:
    state = ClusterState()
    for index in range(5000):
        made = node(f"n{index}", taints=[{"key": "own", "value": str(index), "effect": "NoSchedule"}])
        state.put_node(made)
        assert state.nodes.labels.domains(HOSTNAME)[0] >= 0
        state.remove_node(made.metadata.name)
    assert state.length == 1
    assert state.nodes.labels.key(HOSTNAME).domain_count < 2000
    assert len(state.nodes.taint_sets) < 2000

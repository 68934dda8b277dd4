"""Who follows what nodes report gets what it lacks, from whatever version it has."""

from __future__ import annotations

import random

import pytest

from koord.model.nodelink import STALE_S
from koord.pb.koord import clusterstate_pb2 as pb
from koord_manager.nodestates import FORGET_S, MOST_GONE, NodeStates


def put(states: NodeStates, node: str, report: bytes = b"r", skew_s: float = 0.0, now_s: float = 0.0) -> None:
    states.put(node, report, 1000.0 + skew_s, now_s, 1000.0)


def test_a_follower_is_told_what_has_changed_since() -> None:
    states = NodeStates()
    for name in ("a", "b", "c"):
        put(states, name)
    first = states.since("", 0)
    assert (first.is_snapshot, sorted(first.nodes), first.gone) == (True, ["a", "b", "c"], ())
    put(states, "b")
    states.remove("c")
    later = states.since(states.instance, first.version)
    assert (later.is_snapshot, later.nodes, later.gone) == (False, ("b",), ("c",))
    assert states.since(states.instance, later.version).nodes == ()


@pytest.mark.parametrize("instance", ["", "another"])
def test_versions_of_another_instance_mean_nothing(instance: str) -> None:
    states = NodeStates()
    put(states, "a")
    assert states.since(instance, 1).is_snapshot


def test_who_missed_too_many_that_went_is_told_all() -> None:
    states = NodeStates()
    put(states, "stays")
    version = states.version
    for index in range(MOST_GONE + 1):
        put(states, f"n{index}")
        states.remove(f"n{index}")
    assert states.since(states.instance, version).is_snapshot
    assert not states.since(states.instance, states.version - 5).is_snapshot
    assert len(states._gone) == MOST_GONE


@pytest.mark.parametrize(
    ("skew_s", "age_s", "agent", "anomaly"),
    [
        (0.0, STALE_S, pb.REPORTING, ""),
        (61.0, 0.0, pb.REPORTING, "its clock is 61s ahead"),
        (-90.0, 0.0, pb.REPORTING, "its clock is 90s late"),
        (60.0, 0.0, pb.REPORTING, ""),
        (0.0, STALE_S + 1, pb.SILENT, "its agent has said nothing for 15s"),
    ],
)
def test_what_the_manager_thinks_of_a_node(skew_s: float, age_s: float, agent: int, anomaly: str) -> None:
    states = NodeStates()
    put(states, "a", skew_s=skew_s)
    version = states.version
    states.look_for_silence(age_s)
    found = states.state_of("a", age_s)
    assert found is not None
    assert (found.agent, found.anomaly, found.age_ms) == (agent, anomaly, age_s * 1000)
    assert (states.version > version) == (agent == pb.SILENT), "silence is news"
    put(states, "a", now_s=age_s)
    again = states.state_of("a", age_s)
    assert again is not None
    assert (again.agent, again.anomaly) == (pb.REPORTING, "")


def test_a_node_that_is_silent_for_long_is_gone() -> None:
    states = NodeStates()
    put(states, "a")
    version = states.version
    states.look_for_silence(FORGET_S + 1)
    assert states.since(states.instance, version).gone == ("a",)


@pytest.mark.parametrize("seed", range(10))
def test_any_follower_has_what_there_is(seed: int) -> None:
    """Followers ask whenever they like; what they were told adds up to what there is."""
    draw, states, now_s = random.Random(seed), NodeStates(), 0.0
    followers: list[tuple[str, int, dict[str, bytes]]] = [("", 0, {}) for _ in range(3)]
    for step in range(400):
        name, kind = f"n{draw.randrange(12)}", draw.random()
        now_s += draw.random()
        if kind < 0.6:
            put(states, name, str(step).encode(), now_s=now_s)
        elif kind < 0.75:
            states.remove(name)
        elif kind < 0.8:
            states.look_for_silence(now_s)
        else:
            index = draw.randrange(3)
            instance, version, known = followers[index]
            changes = states.since(instance, version)
            known = {} if changes.is_snapshot else dict(known)
            for each in changes.nodes:
                state = states.state_of(each, now_s)
                assert state is not None
                known[each] = state.report
            for each in changes.gone:
                known.pop(each, None)
            followers[index] = states.instance, changes.version, known
            assert known == {each: entry.report for each, entry in states._entries.items()}, step

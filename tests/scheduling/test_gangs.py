"""Who is in a gang, when it may be tried, and that it is placed whole or not at all."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from koord.model import core, gang
from koord.model.gang import GangDefaults, GangKey, GangMode, GangSettings, MatchPolicy
from koord.model.scheduling.koordinator import PodGroup
from koord.scheduling import gangplacement
from koord.scheduling.defaults import default_plugins
from koord.scheduling.framework import Framework, WeightedPlugin
from koord.scheduling.gangplacement import GroupPlacement, Member, NoHolder
from koord.scheduling.gangpreemption import GroupPreemption, GroupPreemptor
from koord.scheduling.gangs import Gangs
from koord.scheduling.plugin import Plugin, PluginError
from koord.scheduling.podinfo import PodInfo
from koord.scheduling.state import ClusterState
from koord.scheduling.table import Bools
from tests.scheduling.clusters import HOSTNAME, node, pod
from tests.scheduling.test_preemption import budget
from tests.scheduling.test_state import dump

A, B = GangKey("default", "a"), GangKey("default", "b")
G = "gang.scheduling.koordinator.sh/"
ONLY, RUNNING, ONCE = MatchPolicy
PLACED_AT, BEFORE, AFTER = "2026-01-01T00:00:10Z", "2026-01-01T00:00:05Z", "2026-01-01T00:00:15Z"


def member(
    name: str, of: str = "a", least: int | None = 2, *, cpu: str = "1", created: str = BEFORE, **document: Any
) -> PodInfo:
    """``document``: ``annotations`` without their prefix, ``owner``, ``status`` and what a spec has."""
    own = {f"{G}{key}": text for key, text in document.pop("annotations", {}).items()}
    annotations = {f"{G}name": of, **({f"{G}min-available": str(least)} if least is not None else {}), **own}
    owner = document.pop("owner", "")
    owners = [{"kind": "Job", "name": owner, "uid": owner, "controller": True}] if owner else []
    metadata = {"annotations": annotations, "ownerReferences": owners, "creationTimestamp": created}
    metadata |= document.pop("metadata", {})
    return pod(name, {"cpu": cpu}, metadata=metadata, **document)


def placed(name: str, of: str = "a", least: int | None = 2, **document: Any) -> PodInfo:
    condition = {"type": "PodScheduled", "status": "True", "lastTransitionTime": PLACED_AT}
    return member(name, of, least, nodeName="n1", status={"conditions": [condition]}, **document)


def ended(name: str, phase: str, owner: str = "job", **document: Any) -> PodInfo:
    return member(name, owner=owner, nodeName="n1", status={"phase": phase}, **document)


def group(least: int, name: str = "a", annotations: Mapping[str, str] | None = None, **spec: Any) -> PodGroup:
    metadata = {"name": name, "namespace": "default", "annotations": dict(annotations or {})}
    return core.read(PodGroup, msgspec.json.encode({"metadata": metadata, "spec": {"minMember": least, **spec}}))


def known(*pods: PodInfo, groups: Sequence[PodGroup] = (), state: ClusterState | None = None) -> Gangs:
    gangs = Gangs(state or ClusterState())
    for each in groups:
        gangs.put_pod_group(each)
    for made in pods:
        gangs.put(made)
    return gangs


# what is said of a gang


@pytest.mark.parametrize(
    ("labels", "annotations", "key"),
    [
        ({gang.LABEL_POD_GROUP: "x"}, {}, "x"),
        ({gang.LABEL_NAME: "x"}, {}, "x"),
        ({}, {gang.ANNOTATION_NAME: "x"}, "x"),
        ({gang.LABEL_POD_GROUP: "first", gang.LABEL_NAME: "second"}, {gang.ANNOTATION_NAME: "third"}, "first"),
        ({gang.LABEL_NAME: "second"}, {gang.ANNOTATION_NAME: "third"}, "second"),
        ({gang.LABEL_POD_GROUP: ""}, {}, None),
        ({}, {}, None),
    ],
    ids=str,
)
def test_the_gang_of_a_pod(labels: dict[str, str], annotations: dict[str, str], key: str | None) -> None:
    made = pod("p", labels=labels, metadata={"annotations": annotations})
    assert gang.key_of(made.pod.metadata) == (None if key is None else GangKey("default", key))


DEFAULT = GangSettings(3, 3, (A,))


@pytest.mark.parametrize(
    ("annotations", "wanted"),
    [
        ({}, DEFAULT),
        ({"total-number": "5"}, DEFAULT._replace(total=5)),
        ({"total-number": "2"}, DEFAULT),
        ({"total-number": "x"}, DEFAULT._replace(problems=(f"{G}total-number: 'x' is no whole number above 0",))),
        ({"waiting-time": "1m30s"}, DEFAULT._replace(waiting_s=90.0)),
        ({"waiting-time": "90"}, DEFAULT._replace(problems=(f"{G}waiting-time: '90' is no duration",))),
        ({"mode": "NonStrict"}, DEFAULT._replace(mode=GangMode.NON_STRICT)),
        ({"mode": "x"}, DEFAULT._replace(problems=(f"{G}mode: 'x' is not one of Strict, NonStrict",))),
        ({"match-policy": "only-waiting"}, DEFAULT._replace(match_policy=ONLY)),
        ({"groups": '["default/b", "default/a"]'}, DEFAULT._replace(group=(A, B))),
        ({"groups": '["default/b"]'}, DEFAULT._replace(group=(A, B))),
        ({"groups": ""}, DEFAULT),
        ({"groups": "b"}, DEFAULT._replace(blocked=f"{G}groups: 'b' is no list of \"namespace/name\"")),
        ({"groups": '["b"]'}, DEFAULT._replace(blocked=f'{G}groups: \'["b"]\' is no list of "namespace/name"')),
        (
            {"min-available": "0"},
            GangSettings(0, 0, (A,), blocked=f"{G}min-available: '0' is no whole number above 0"),
        ),
    ],
    ids=str,
)
def test_what_a_member_says(annotations: dict[str, str], wanted: GangSettings) -> None:
    made = member("p", least=3, annotations=annotations)
    assert gang.settings_of_pod(made.pod.metadata, A, GangDefaults()) == wanted


@pytest.mark.parametrize(
    ("made", "wanted"),
    [
        (group(3), GangSettings(3, 3, (A,))),
        (group(3, scheduleTimeoutSeconds=30), GangSettings(3, 3, (A,), waiting_s=30.0)),
        (group(3, annotations={f"{G}waiting-time": "5s"}), GangSettings(3, 3, (A,), waiting_s=5.0)),
        (
            group(3, annotations={gang.ANNOTATION_MATCH_POLICY_ALIAS: RUNNING}),
            GangSettings(3, 3, (A,), match_policy=RUNNING),
        ),
        (group(0), GangSettings(0, 0, (A,))),
        (group(-1), GangSettings(0, 0, (A,))),
    ],
)  # fmt: skip
def test_what_a_pod_group_says(made: PodGroup, wanted: GangSettings) -> None:
    assert gang.settings_of_group(made, GangDefaults()) == wanted


def test_the_lightweight_labels() -> None:
    made = pod("p", labels={gang.LABEL_NAME: "a", gang.LABEL_MIN: "2"})
    said = gang.settings_of_pod(made.pod.metadata, A, GangDefaults(30.0, RUNNING))
    assert said == GangSettings(2, 2, (A,), match_policy=RUNNING, waiting_s=30.0)
    assert gang.settings_of_pod(pod("p").pod.metadata, A, GangDefaults()) is None


# when it may be tried

A_AND_B = {"groups": '["default/a", "default/b"]'}


@pytest.mark.parametrize(
    ("gangs", "why"),
    [
        pytest.param(known(member("1")), "gang default/a has 1 of 2 members, 1 more must exist", id="too few"),
        pytest.param(known(member("1"), member("2")), "", id="enough"),
        pytest.param(known(member("1", least=1)), "", id="one is enough"),
        pytest.param(
            known(member("1", least=None), member("2", least=None)),
            "gang default/a has no PodGroup, and its members say no minimum", id="no minimum",
        ),
        pytest.param(known(member("1", least=None), groups=[group(1)]), "", id="the PodGroup says it"),
        pytest.param(
            known(member("1", least=1), groups=[group(2)]),
            "gang default/a has 1 of 2 members, 1 more must exist", id="the PodGroup, not the pod",
        ),
        pytest.param(known(member("1", least=None), groups=[group(0)]), "", id="a minimum of 0"),
        pytest.param(
            known(member("1", least=1), member("2", least=2)),
            "the members of gang default/a that wait do not say the same of it", id="contradiction",
        ),
        pytest.param(known(placed("1", least=1), member("2"), member("3")), "", id="an older minimum"),
        pytest.param(
            known(member("1", annotations={"min-available": "many"})),
            f"gang default/a: {G}min-available: 'many' is no whole number above 0", id="no number",
        ),
        pytest.param(
            known(member("1"), member("2", schedulingGates=[{"name": "g"}])),
            "gang default/a has 1 of 2 members, 1 more must exist", id="gated by itself",
        ),
        pytest.param(
            known(member("1"), member("2", metadata={"deletionTimestamp": AFTER})),
            "gang default/a has 1 of 2 members, 1 more must exist", id="being deleted",
        ),
        pytest.param(
            known(member("1", least=1, annotations=A_AND_B)),
            "gang default/b, which is to start with it, does not exist", id="the other gang",
        ),
        pytest.param(
            known(member("1", least=1, annotations=A_AND_B), member("2", "b", 1)),
            "gang default/b, which is to start with it, says that it starts with default/b", id="one-sided group",
        ),
        pytest.param(
            known(member("1", least=1, annotations=A_AND_B), member("2", "b", 2, annotations=A_AND_B)),
            "gang default/b has 1 of 2 members, 1 more must exist", id="the other gang has too few",
        ),
        pytest.param(
            known(member("1", least=1, annotations=A_AND_B), member("2", "b", 1, annotations=A_AND_B)), "", id="group"
        ),
    ],
)  # fmt: skip
def test_why_a_gang_is_not_tried(gangs: Gangs, why: str) -> None:
    assert gangs.why_not(A) == why
    waiting = next(iter(gangs.candidates(A)))
    assert gangs.holds(waiting) is bool(why)
    assert gangs.released(A) == []


def test_who_was_held_is_released_once() -> None:
    gangs = known()
    first, second = member("1"), member("2")
    gangs.put(first)
    assert gangs.holds(first)
    gangs.put(second)
    assert gangs.holds(first) is False
    assert gangs.released(A) == ["1"]
    assert gangs.released(A) == []
    gangs.remove("1")
    assert gangs.holds(second) and gangs.of("1") is None


def test_who_is_held_stays_so_as_its_object_changes() -> None:
    gangs = known()
    gangs.put(member("1"))
    assert gangs.holds(member("1"))
    gangs.put(member("1", status={"phase": "Pending"}))
    gangs.put(member("2"))
    assert gangs.released(A) == ["1"]


def test_a_gang_that_nobody_is_in_is_forgotten() -> None:
    gangs = known(member("1"), groups=[group(1)])
    gangs.remove_pod_group(A)
    assert gangs.get(A) is not None
    gangs.put(pod("1"))
    assert list(gangs) == [] and gangs.of("1") is None


# how many must be placed together


@pytest.mark.parametrize(
    ("policy", "pods", "needed"),
    [
        (ONCE, [member("1"), member("2"), member("3")], 2),
        (ONCE, [placed("1"), placed("2"), member("3")], 0),
        (ONCE, [placed("1"), member("2"), member("3")], 1),
        (RUNNING, [member("1"), member("2"), member("3")], 2),
        (RUNNING, [placed("1"), placed("2"), member("3")], 0),
        (RUNNING, [placed("1"), member("2"), member("3")], 1),
        (RUNNING, [ended("1", "Succeeded"), member("2", owner="job"), member("3")], 2),
        (ONLY, [member("1"), member("2"), member("3")], 2),
        (ONLY, [placed("1"), placed("2"), member("3", created=AFTER), member("4", created=AFTER)], 2),
        (ONLY, [placed("1"), placed("2"), member("3", created=BEFORE)], 0),
        (ONLY, [placed("1"), member("3", created=BEFORE)], 1),
        (ONCE, [ended("1", "Succeeded"), member("2", owner="job")], 1),
        (ONCE, [ended("1", "Succeeded"), ended("2", "Succeeded"), member("3", owner="job")], 0),
        (ONCE, [ended("1", "Succeeded", "old"), member("2", owner="new"), member("3", owner="new")], 2),
        (ONCE, [ended("1", "Failed"), member("2", owner="job"), member("3", owner="job")], 2),
        (ONCE, [placed("1", metadata={"deletionTimestamp": AFTER}), member("2"), member("3")], 2),
    ],
)
def test_how_many_are_needed(policy: MatchPolicy, pods: list[PodInfo], needed: int) -> None:
    gangs = known(*pods, groups=[group(2, annotations={f"{G}match-policy": policy})])
    assert gangs.why_not(A) == ""
    assert gangs.needs(A) == {A: needed}


def test_a_gang_that_has_lost_all_starts_anew() -> None:
    """Upstream a gang is satisfied once and for all, and its members come back one by one."""
    gangs = known(placed("1"), placed("2"))
    gangs.remove("1")
    gangs.put(member("3"))
    assert (gangs.why_not(A), gangs.needs(A)) == ("", {A: 1})
    gangs.remove("2")
    assert gangs.why_not(A) == "gang default/a has 1 of 2 members, 1 more must exist"
    gangs.put(member("4"))
    assert (gangs.why_not(A), gangs.needs(A)) == ("", {A: 2})


def test_members_that_were_lost_come_back_together() -> None:
    gangs = known(placed("1", least=3), member("2", least=3), member("3", least=3))
    assert gangs.needs(A) == {A: 2}


def test_an_assumed_member_counts_as_placed() -> None:
    state = ClusterState()
    state.put_node(node("n1"))
    first, second = member("1"), member("2")
    gangs = known(first, second, state=state)
    state.assume(first, "n1")
    assert gangs.needs(A) == {A: 1} and gangs.candidates(A) == [second]


@pytest.mark.parametrize(
    ("asked", "pods", "lacking"),
    [
        ({"cpu": "3"}, [member("1")], ""),
        ({"cpu": "4"}, [member("1")], ""),
        ({"cpu": "5"}, [member("1")], "gang default/a needs 5 cpu in all (minResources), and 4 is free"),
        ({"cpu": "5"}, [member("1"), placed("2", owner="x")], ""),
        ({"example.com/gpu": "1"}, [member("1")],
         "gang default/a needs 1 example.com/gpu in all (minResources), and 0 is free"),
    ],
)  # fmt: skip
def test_what_must_be_free_in_all(asked: dict[str, str], pods: list[PodInfo], lacking: str) -> None:
    state = ClusterState()
    for each in nodes(4):
        state.put_node(each)
    gangs = known(*pods, groups=[group(2, minResources=asked)], state=state)
    assert gangs.lacking(A).get(A, "") == lacking


def test_min_resources_that_cannot_be_read_keep_the_gang_from_starting() -> None:
    gangs = known(member("1"), groups=[group(1, minResources={"cpu": "many"})])
    assert gangs.why_not(A).startswith("gang default/a: spec.minResources of its PodGroup: 'many' is not a quantity")


# placing


class Rig:
    def __init__(self, *nodes: Any, plugins: Sequence[WeightedPlugin] = ()) -> None:
        self.state = ClusterState()
        for each in nodes:
            self.state.put_node(each)
        self.framework = Framework(self.state, (*default_plugins(), *plugins))
        self.gangs = Gangs(self.state)

    def put(self, *pods: PodInfo) -> Rig:
        for each in pods:
            self.gangs.put(each)
            self.state.put_pod(each)
        return self

    def members(self, key: GangKey = A) -> list[Member]:
        pods = sorted(self.gangs.candidates(key), key=lambda each: (-each.priority, each.name))
        return [Member(each, self.gangs.of(each.uid) or key) for each in pods]

    def place(self, key: GangKey = A, holder: Any = None) -> GroupPlacement:
        return gangplacement.place(
            self.state, lambda _: self.framework, self.members(key), self.gangs.needs(key), holder or NoHolder()
        )

    def preempt(self, key: GangKey = A, *budgets: Any) -> GroupPreemption | None:
        preemptor = GroupPreemptor(self.state, self.gangs, lambda _: self.framework, budgets)
        before = dump(self.state)
        found = preemptor.choose(self.members(key), self.gangs.needs(key), NoHolder())
        assert dump(self.state) == before
        return found


def nodes(count: int, cpu: str = "1") -> list[Any]:
    return [node(f"n{index}", cpu) for index in range(1, count + 1)]


def names(found: GroupPlacement) -> list[str]:
    return [each.member.pod.name for each in found.placed]


def both(a: int, b: int) -> list[PodInfo]:
    """The worked example: gang A with a minimum of 2 and gang B with one of 3 in one group."""
    return [
        *[member(f"a{index}", "a", 2, annotations=A_AND_B) for index in range(1, a + 1)],
        *[member(f"b{index}", "b", 3, annotations=A_AND_B) for index in range(1, b + 1)],
    ]


@pytest.mark.parametrize(
    ("pods", "node_count", "placed_names", "short"),
    [
        pytest.param(both(2, 3), 5, ["a1", "a2", "b1", "b2", "b3"], {}, id="all five at once"),
        pytest.param(both(2, 3), 4, [], {B: 1}, id="B3 has no node: all four are taken back"),
        pytest.param(both(2, 3), 0, [], {A: 2, B: 3}, id="no node"),
        pytest.param(both(3, 4), 9, ["a1", "a2", "b1", "b2", "b3"], {}, id="those beyond the minimum go by themselves"),
        pytest.param(both(3, 3), 5, ["a1", "a2", "b1", "b2", "b3"], {}, id="which take no node from the other gang"),
        pytest.param(
            [member("1", cpu="2"), member("2"), member("3")], 2, ["2", "3"], {}, id="one that never fits is passed over"
        ),
        pytest.param(
            [member("low"), member("high", priority=10), member("other")], 3, ["high", "low"], {}, id="by priority"
        ),
    ],
)
def test_a_group_is_placed_whole_or_not_at_all(
    pods: list[PodInfo], node_count: int, placed_names: list[str], short: dict[GangKey, int]
) -> None:
    rig = Rig(*nodes(node_count)).put(*pods)
    before = dump(rig.state)
    found = rig.place()
    assert (found.short, found.is_whole) == (short, not short)
    if short:
        assert dump(rig.state) == before and not rig.state.assumed
    else:
        assert names(found) == placed_names
        assert rig.state.assumed == {each.uid for each in pods if each.name in placed_names}


def test_why_it_was_not_placed_is_said_of_who_found_no_node() -> None:
    found = Rig(*nodes(4)).put(*both(2, 3)).place()
    (diagnosis,) = found.diagnoses.values()
    assert [each.pod.name for each in found.unplaced] == ["b3"]
    assert diagnosis.message == "0/4 nodes are available: 4 Insufficient cpu."


def test_a_member_waits_for_the_company_that_it_wants() -> None:
    term = {"labelSelector": {"matchLabels": {"role": "driver"}}, "topologyKey": HOSTNAME}
    near = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    rig = Rig(*nodes(2, "2")).put(member("1-executor", affinity=near), member("2-driver", labels={"role": "driver"}))
    found = rig.place()
    assert names(found) == ["2-driver", "1-executor"]
    assert len({each.placement.node for each in found.placed}) == 1


def test_what_is_hard_to_place_is_tried_first_the_second_time() -> None:
    """The small members would take a part of the only large node."""
    large = node("large", "4")
    rig = Rig(large, node("small", "2")).put(*[
        member(f"small-{index}", least=3, cpu="1") for index in (1, 2)], member("wide", least=3, cpu="4"))  # fmt: skip
    found = rig.place()
    assert found.is_whole and names(found)[0] == "wide"


class Picky(Plugin):
    """Fails for one pod, at one point."""

    name = "Picky"

    def __init__(self, pod_name: str) -> None:
        self.pod_name = pod_name

    def filter(self, state: ClusterState, pod: PodInfo) -> Bools | None:
        if pod.name == self.pod_name:
            raise PluginError("Picky", "filter", "it is ill")
        return None


class Ledger:
    """Counts what is held; fails for one pod."""

    def __init__(self, refused: str = "") -> None:
        self.refused, self.held, self.most = refused, list[str](), 0

    def hold(self, pod: PodInfo, node: str) -> None:
        if pod.name == self.refused:
            raise PluginError("Ledger", "reserve", "no")
        self.held.append(pod.uid)
        self.most = max(self.most, len(self.held))

    def release(self, uid: str) -> None:
        assert self.held.pop() == uid


@pytest.mark.parametrize(
    ("plugins", "ledger", "node_count"),
    [
        pytest.param([], Ledger(), 4, id="no room"),
        pytest.param([], Ledger("b3"), 5, id="a plugin holds nothing for the last one"),
        pytest.param([WeightedPlugin(Picky("b3"))], Ledger(), 5, id="a plugin fails"),
    ],
)
def test_a_failure_leaves_nothing_behind(plugins: list[WeightedPlugin], ledger: Ledger, node_count: int) -> None:
    rig = Rig(*nodes(node_count), plugins=plugins).put(*both(2, 3))
    before = dump(rig.state)
    try:
        assert not rig.place(holder=ledger).is_whole
    except PluginError as error:
        assert "it is ill" in str(error) or "reserve" in str(error)
    assert ledger.held == [] and ledger.most == 4
    assert dump(rig.state) == before


@given(capacity=st.integers(2, 12), extra=st.integers(0, 3), seed=st.integers(0, 1000))
@settings(max_examples=150, deadline=None)
def test_two_gangs_of_half_and_one_cannot_deadlock(capacity: int, extra: int, seed: int) -> None:
    """In whatever order they are tried: one of them runs, and the other one holds nothing; when it ends, the other one
    runs.
    """
    least = capacity // 2 + 1
    rig = Rig(*nodes(capacity)).put(
        *[member(f"{of}{index}", of, least) for of in "ab" for index in range(least + extra)]
    )
    draw = random.Random(seed)
    tries = [draw.choice((A, B)) for _ in range(6)]
    running: set[GangKey] = set()
    for key in (*tries, A, B):
        if key not in running and rig.place(key).is_whole:
            running.add(key)
        assert len(running) == 1
        assert len(rig.state.assumed) == least
    (first,) = running
    for uid in rig.state.assumed:
        rig.state.forget(uid)
        rig.gangs.remove(uid)
    other = B if first == A else A
    assert rig.place(other).is_whole and len(rig.state.assumed) == least


# preemption


def lesser(name: str, on: str = "n1", of: str = "", least: int = 2, **document: Any) -> PodInfo:
    spec = {"nodeName": on, "priority": 1, **document}
    if of:
        return member(name, of, least, **spec)
    return pod(name, {"cpu": "1"}, **spec)


def important(count: int = 2, **document: Any) -> list[PodInfo]:
    return [member(f"m{index}", least=count, priority=100, **document) for index in range(1, count + 1)]


@pytest.mark.parametrize(
    ("pods", "budgets", "victims"),
    [
        pytest.param([lesser("x", "n1"), lesser("y", "n2")], [], {"x", "y"}, id="both have to leave"),
        pytest.param([lesser("x", "n1")], [], {"x"}, id="one node is free"),
        pytest.param([lesser("x", "n1"), lesser("y", "n2", priority=100)], [], None, id="for a part nobody leaves"),
        pytest.param(
            [lesser("x", "n1"), lesser("y", "n2", labels={"scheduling.koordinator.sh/disable-preemptible": "true"})],
            [], None, id="one that must not be preempted",
        ),
        pytest.param(
            [lesser("x", "n1", labels={"app": "web"}), lesser("y", "n2")], [({"app": "web"}, 0)], None, id="a budget"
        ),
        pytest.param(
            [lesser("x", "n1", labels={"app": "web"}), lesser("y", "n2", labels={"app": "web"})],
            [({"app": "web"}, 1)], None, id="a budget for one of two",
        ),
        pytest.param(
            [lesser("x", "n1", labels={"app": "web"}), lesser("y", "n2", labels={"app": "web"})],
            [({"app": "web"}, 2)], {"x", "y"}, id="a budget for both",
        ),
        pytest.param([lesser("x1", "n1", "x"), lesser("x2", "n2", "x")], [], {"x1", "x2"}, id="a whole gang"),
        pytest.param(
            [lesser("x1", "n1", "x"), lesser("x2", "n2", "x", priority=200)], [], None,
            id="a gang of which one is too important",
        ),
    ],
)  # fmt: skip
def test_who_leaves_for_a_gang(pods: list[PodInfo], budgets: list[Any], victims: set[str] | None) -> None:
    rig = Rig(*nodes(2)).put(*pods, *important())
    found = rig.preempt(A, *[budget(left, **selector) for selector, left in budgets])
    assert (None if found is None else {each.name for each in found.victims}) == victims
    if found is not None:
        assert found.nodes.keys() == {"m1", "m2"}
        for each in found.victims:
            rig.state.remove_pod(each.uid)
            rig.gangs.remove(each.uid)
        assert rig.place().is_whole


def test_a_lesser_gang_leaves_whole_and_no_second_one_is_touched() -> None:
    """Four nodes of two gangs; two are needed. Upstream would take one member of each."""
    rig = Rig(*nodes(4)).put(
        lesser("x1", "n1", "x"), lesser("y1", "n2", "y"), lesser("x2", "n3", "x"), lesser("y2", "n4", "y"), *important()
    )
    found = rig.preempt()
    assert found is not None and {each.name for each in found.victims} in ({"x1", "x2"}, {"y1", "y2"})


def test_a_lesser_gang_loses_what_is_beyond_its_minimum_first() -> None:
    rig = Rig(*nodes(4)).put(*[lesser(f"x{index}", f"n{index}", "x") for index in range(1, 5)], *important())
    found = rig.preempt()
    assert found is not None and len(found.victims) == 2
    assert {"x1", "x2"}.isdisjoint({each.name for each in found.victims}) or len(found.victims) == 2


def test_a_single_pod_leaves_rather_than_a_gang() -> None:
    rig = Rig(*nodes(3)).put(lesser("x1", "n1", "x"), lesser("x2", "n2", "x"), lesser("one", "n3"), *important(1))
    found = rig.preempt()
    assert found is not None and [each.name for each in found.victims] == ["one"]


@pytest.mark.parametrize(
    ("made", "why"),
    [
        (important(), ""),
        (important(preemptionPolicy="Never"), "the preemptionPolicy of default/m1 is Never"),
    ],
)
def test_whether_a_gang_may_preempt(made: list[PodInfo], why: str) -> None:
    rig = Rig(*nodes(2)).put(*made)
    preemptor = GroupPreemptor(rig.state, rig.gangs, lambda _: rig.framework)
    assert preemptor.why_not(rig.members()) == why


def test_while_pods_leave_for_it_a_gang_does_not_preempt_again() -> None:
    leaving = lesser("x", metadata={"deletionTimestamp": AFTER})
    rig = Rig(*nodes(1)).put(leaving, *important(1))
    rig.state.nominations.put(rig.members()[0].pod, "n1")
    assert GroupPreemptor(rig.state, rig.gangs, lambda _: rig.framework).why_not(rig.members()) != ""

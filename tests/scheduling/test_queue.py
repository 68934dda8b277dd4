"""Which pod is next, and which pods an event wakes: no one that it cannot help, and everyone in the end."""

from __future__ import annotations

import random
from typing import Any

import pytest

from koord.model.scheduling.pods import TopologySpreadConstraint
from koord.scheduling.defaults import default_plugins
from koord.scheduling.framework import Framework, WeightedPlugin
from koord.scheduling.owners import ControllerKey, ServicePods
from koord.scheduling.plugin import EXTENDER, GANG, Event, EventKind
from koord.scheduling.plugins.nodes import NodeUnschedulable
from koord.scheduling.plugins.resources import NodeResourcesFit
from koord.scheduling.plugins.spread import PodTopologySpread
from koord.scheduling.podinfo import PodInfo
from koord.scheduling.queue import PARKED_S, SchedulingQueue
from koord.scheduling.queuedpod import BackoffTimes
from koord.scheduling.state import ClusterState
from tests.scheduling.clusters import HOSTNAME, ZONE, node, pod

FIT = frozenset(("NodeResourcesFit",))
_DEFAULT = BackoffTimes()
OTHER = Event(EventKind.OTHER)


class Rig:
    """A scheduler that places what it can, at times that a test sets."""

    def __init__(self, *nodes: Any, backoff: BackoffTimes = _DEFAULT) -> None:
        self.state = ClusterState()
        for each in nodes:
            self.state.put_node(each)
        self.framework = Framework(self.state, default_plugins())
        self.queue = SchedulingQueue(self.state, lambda _: self.framework, backoff)
        self.now_s = 0.0
        self.tried: list[str] = []

    def put(self, *pods: PodInfo) -> None:
        for each in pods:
            self.queue.put(each, self.now_s)

    def run(self, now_s: float | None = None) -> list[str]:
        """Tries what is to be tried; returns what is placed now."""
        self.now_s = self.now_s if now_s is None else now_s
        found = []
        self.tried = []
        while (queued := self.queue.pop(self.now_s)) is not None:
            self.tried.append(queued.pod.name)
            placement = self.framework.place(queued.pod)
            if placement is None:
                diagnosis = self.framework.diagnose(queued.pod)
                self.queue.park(queued, diagnosis.plugins, self.now_s)
                continue
            self.state.assume(queued.pod, placement.node)
            row = self.state.table.row(placement.node)
            assert row is not None
            self.queue.placed(queued, row)
            self.queue.note(Event(EventKind.POD_CAME, row, queued.pod))
            found.append(queued.pod.name)
        return found

    def came(self, made: PodInfo) -> None:
        self.state.put_pod(made)
        row = self.state.table.row(made.spec.node_name)
        assert row is not None
        self.queue.note(Event(EventKind.POD_CAME, row, made))

    def left(self, made: PodInfo) -> None:
        self.state.remove_pod(made.uid)
        row = self.state.table.row(made.spec.node_name)
        assert row is not None
        self.queue.note(Event(EventKind.POD_LEFT, row, made))

    def node(self, made: Any) -> None:
        self.state.put_node(made)
        row = self.state.table.row(made.metadata.name)
        assert row is not None
        self.queue.note(Event(EventKind.NODE, row))


def names(count: int, prefix: str = "p", cpu: str = "1", **spec: Any) -> list[PodInfo]:
    return [pod(f"{prefix}{index}", {"cpu": cpu}, **spec) for index in range(count)]


def test_by_priority_and_then_by_time() -> None:
    rig = Rig(node("n1", cpu="9", pods="9"))
    rig.put(*names(2, "low"))
    rig.now_s = 1.0
    rig.put(*names(2, "high", priority=10), *names(1, "late"))
    assert rig.run() == ["high0", "high1", "low0", "low1", "late0"]


def test_a_pod_that_was_deleted_or_gated_is_passed_over() -> None:
    rig = Rig(node("n1"))
    gated: dict[str, Any] = {"schedulingGates": [{"name": "wait"}]}
    rig.put(pod("a"), pod("b"), pod("c", **gated))
    rig.queue.delete("a")
    assert rig.queue.counts() == {"active": 1, "backoff": 0, "unschedulable": 0, "gated": 1}
    assert rig.run() == ["b"]
    rig.put(pod("c"))
    assert rig.run() == ["c"]
    assert len(rig.queue) == 0


LONG = BackoffTimes(3, 60)


@pytest.mark.parametrize(
    ("times", "failures", "waits_s"),
    [
        *[(BackoffTimes(), *each) for each in [(1, 1), (2, 2), (3, 4), (4, 8), (5, 10), (50, 10)]],
        *[(LONG, *each) for each in [(1, 3), (2, 6), (5, 48), (6, 60), (50, 60)]],
    ],
    ids=str,
)
def test_backoff_after_errors(times: BackoffTimes, failures: int, waits_s: int) -> None:
    rig = Rig(backoff=times)
    rig.put(pod("p"))
    now_s = 0.0
    for _ in range(failures):
        queued = rig.queue.pop(now_s)
        assert queued is not None
        rig.queue.fail(queued, now_s)
        due_s = rig.queue.due_s()
        assert due_s is not None
        assert rig.queue.pop(due_s - 0.001) is None, "not before its time"
        waited_s, now_s = due_s - now_s, due_s
    assert waited_s == waits_s


def test_pods_whose_backoff_ends_in_one_second_are_next_by_priority() -> None:
    rig = Rig()
    rig.put(pod("low"), pod("high", priority=5))
    first = [rig.queue.pop(0.0), rig.queue.pop(0.0)]
    for queued, at_s in zip(first, (0.9, 0.1), strict=True):
        assert queued is not None
        rig.queue.fail(queued, at_s)
    again = [rig.queue.pop(2.0), rig.queue.pop(2.0)]
    assert [each and each.pod.name for each in again] == ["high", "low"]


def test_where_pods_came_from_is_counted_and_who_rejects_those_that_wait() -> None:
    rig = Rig(node("n1", cpu="1"))
    rig.put(*names(3, cpu="2"))
    rig.run()
    rig.queue.delete("p2")
    assert rig.queue.rejected == {("NodeResourcesFit", ""): 2}
    rig.node(node("n1", cpu="2"))
    assert rig.run(20.0) == ["p0"]
    assert rig.queue.rejected == {("NodeResourcesFit", ""): 1}
    assert rig.run(20.0 + PARKED_S) == []
    assert rig.queue.incoming == {
        ("active", "PodAdd"): 3,
        ("active", "NodeUpdate"): 1,
        ("active", "UnschedulableTimeout"): 1,
        ("unschedulable", "ScheduleAttemptFailure"): 4,
    }
    rig.queue.delete("p1")
    assert not +rig.queue.rejected


def test_a_parked_pod_waits_for_room_and_wakes_for_it() -> None:
    rig = Rig(node("n1", cpu="2"), node("n2", cpu="1"))
    there = [pod("x1", {"cpu": "1"}, nodeName="n1"), pod("x2", {"cpu": "1"}, nodeName="n2")]
    for each in there:
        rig.came(each)
    rig.put(pod("p", {"cpu": "2"}))
    assert rig.run() == []
    assert rig.tried == ["p"]
    rig.left(there[1])
    rig.came(pod("x3", {"cpu": "1"}, nodeName="n2"))
    assert rig.run(20.0) == []
    assert rig.tried == [], "n2 is too small anyway"
    rig.left(there[0])
    assert rig.run() == ["p"]


@pytest.mark.parametrize(
    ("event", "wakes"),
    [
        pytest.param(node("n2", cpu="1", labels={"disk": "ssd"}), False, id="too small"),
        pytest.param(node("n2", cpu="4"), False, id="without the label"),
        pytest.param(node("n2", cpu="4", labels={"disk": "ssd"}), True, id="as wanted"),
        pytest.param(node("n2", cpu="4", labels={"disk": "ssd"}, unschedulable=True), False, id="cordoned"),
        pytest.param(
            node("n2", cpu="4", labels={"disk": "ssd"}, taints=[{"key": "t", "value": "", "effect": "NoSchedule"}]),
            False,
            id="tainted",
        ),
        pytest.param(node("n1", cpu="4", labels={"disk": "ssd"}), True, id="a label that changes"),
    ],
)
def test_nodes_wake_pods_that_could_go_there(event: Any, wakes: bool) -> None:
    rig = Rig(node("n1", cpu="4"))
    rig.put(pod("p", {"cpu": "2"}, nodeSelector={"disk": "ssd"}))
    rig.run()
    rig.node(event)
    assert (rig.run(20.0), rig.tried) == ((["p"], ["p"]) if wakes else ([], []))


def affinity(kind: str, **labels: str) -> dict[str, Any]:
    term = {"labelSelector": {"matchLabels": labels}, "topologyKey": HOSTNAME}
    return {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


@pytest.mark.parametrize(
    ("waiting", "labels", "comes", "wakes"),
    [
        pytest.param(affinity("podAffinity", app="web"), {"app": "web"}, True, True, id="company"),
        pytest.param(affinity("podAffinity", app="web"), {"app": "db"}, True, False, id="other company"),
        pytest.param(affinity("podAntiAffinity", app="in-the-way"), {"app": "in-the-way"}, False, True, id="it went"),
        pytest.param(affinity("podAntiAffinity", app="in-the-way"), {"app": "db"}, False, False, id="another went"),
    ],
)
def test_pods_wake_those_whose_terms_are_about_them(
    waiting: dict[str, Any], labels: dict[str, str], comes: bool, wakes: bool
) -> None:
    rig = Rig(node("n1"))
    blocking = pod("blocking", labels={"app": "in-the-way"}, nodeName="n1")
    rig.came(blocking)
    rig.put(pod("p", affinity=waiting))
    assert rig.run() == []
    other = pod("other", labels=labels, nodeName="n1")
    if comes:
        rig.came(other)
    else:
        rig.left(blocking if wakes else other) if wakes else rig.queue.note(Event(EventKind.POD_LEFT, 0, other))
    assert rig.run(20.0) == (["p"] if wakes else [])
    assert rig.tried == (["p"] if wakes else [])


def test_a_domain_that_fills_wakes_who_waits_for_it() -> None:
    spread = [
        {
            "maxSkew": 1,
            "topologyKey": ZONE,
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"app": "web"}},
        }
    ]
    rig = Rig(node("n1", labels={ZONE: "a"}), node("n2", labels={ZONE: "b"}, unschedulable=True))
    web: dict[str, Any] = {"labels": {"app": "web"}, "topologySpreadConstraints": spread}
    rig.put(pod("p0", **web), pod("p1", **web))
    assert rig.run() == ["p0"]
    rig.came(pod("db", labels={"app": "db"}, nodeName="n2"))
    assert (rig.run(20.0), rig.tried) == ([], [])
    rig.came(pod("w", labels={"app": "web"}, nodeName="n2"))
    assert rig.run(40.0) == ["p1"]


def test_the_last_of_a_kind_that_leaves_lets_another_be_the_first() -> None:
    rig = Rig(node("n1", labels={ZONE: "a"}, unschedulable=True), node("n2", labels={ZONE: "b"}))
    there = pod("w", labels={"app": "web"}, nodeName="n1")
    rig.came(there)
    rig.put(pod("p", labels={"app": "web"}, affinity=affinity("podAffinity", app="web")))
    assert rig.run() == []
    rig.left(there)
    assert rig.run(20.0) == ["p"]


def test_a_node_that_goes_with_its_domain_wakes_who_is_spread() -> None:
    spread = {"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule"}
    web: dict[str, Any] = {
        "labels": {"app": "web"},
        "topologySpreadConstraints": [{**spread, "labelSelector": {"matchLabels": {"app": "web"}}}],
    }
    rig = Rig(node("n1", labels={ZONE: "a"}), node("n2", labels={ZONE: "b"}, unschedulable=True))
    rig.put(pod("p0", **web), pod("p1", **web))
    assert rig.run() == ["p0"]
    rig.state.remove_node("n2")
    rig.queue.note(Event(EventKind.NODE))
    assert rig.run(20.0) == ["p1"]


def test_a_nomination_that_ends_wakes_who_it_kept_away() -> None:
    rig = Rig(node("n1", cpu="1"), node("n2", labels={"disk": "ssd"}, unschedulable=True))
    rig.state.nominations.ended = lambda _: rig.queue.note(Event(EventKind.POD_LEFT, 0))
    high = pod("high", {"cpu": "1"}, priority=5)
    rig.state.nominations.put(high, "n1")
    rig.put(pod("p", {"cpu": "1"}, priority=1))
    assert rig.run() == []
    rig.state.nominations.put(high, "n1")
    assert (rig.run(20.0), rig.tried) == ([], [])
    rig.state.nominations.remove("high")
    assert rig.run(40.0) == ["p"]


def test_of_equal_pods_as_many_wake_as_have_room() -> None:
    rig = Rig(node("n1", cpu="4"))
    there = names(4, "x", nodeName="n1")
    for each in there:
        rig.came(each)
    rig.put(*names(1000))
    rig.run()
    rig.left(there[0])
    assert rig.run(20.0) == ["p0"]
    assert rig.tried == ["p0"]
    for each in there[1:]:
        rig.left(each)
    assert rig.run(40.0) == ["p1", "p2", "p3"]
    assert len(rig.tried) == 3
    assert rig.queue.counts()["unschedulable"] == 996


def test_room_that_a_woken_pod_does_not_take_wakes_the_next() -> None:
    rig = Rig(node("n1", cpu="1"))
    there = pod("x", {"cpu": "1"}, nodeName="n1")
    rig.came(there)
    rig.put(*names(3))
    rig.run()
    rig.left(there)
    rig.queue.advance(20.0)
    rig.queue.delete("p0")
    assert rig.run(20.0) == ["p1"]
    rig.state.remove_pod("p1")
    rig.queue.note(Event(EventKind.POD_LEFT, 0))
    rig.queue.advance(20.0)
    rig.node(node("n2", cpu="1"))
    rig.put(*names(1, "high", priority=5))
    assert sorted(rig.run(21.0)) == ["high0", "p2"]


def test_a_pod_that_asks_for_less_is_tried_at_once() -> None:
    rig = Rig(node("n1", cpu="1"))
    rig.put(pod("p", {"cpu": "2"}))
    assert rig.run() == []
    rig.put(pod("p", {"cpu": "2"}, metadata={"resourceVersion": "2"}))
    assert rig.run() == []
    assert rig.tried == []
    rig.put(pod("p", {"cpu": "1"}))
    assert rig.run() == ["p"]


def test_nobody_is_parked_for_longer_than_five_minutes() -> None:
    rig = Rig(node("n1", cpu="1"))
    rig.put(pod("p", {"cpu": "2"}))
    rig.run()
    assert rig.queue.due_s() == PARKED_S
    assert (rig.run(PARKED_S - 1), rig.tried) == ([], [])
    assert (rig.run(PARKED_S), rig.tried) == ([], ["p"])


def test_another_object_wakes_all() -> None:
    rig = Rig(node("n1", cpu="1"))
    rig.put(pod("p", {"cpu": "2"}), pod("q", nodeSelector={"a": "b"}))
    rig.run()
    rig.queue.note(Event(EventKind.OTHER))
    rig.run(20.0)
    assert sorted(rig.tried) == ["p", "q"]


BY_DEFAULT = PodTopologySpread(
    (TopologySpreadConstraint(max_skew=1, topology_key=HOSTNAME, when_unsatisfiable="DoNotSchedule"),), False
)
SET = {"ownerReferences": [{"kind": "ReplicaSet", "name": "set", "uid": "s", "controller": True}]}
WEB, A_WEB = ("app", "web"), ("tier", "a")


@pytest.mark.parametrize(
    ("owner", "plugin", "woken"),
    [
        pytest.param(ServicePods("default", frozenset((WEB,))), BY_DEFAULT, ["web", "a-web"], id="a service"),
        pytest.param(ServicePods("default", frozenset((WEB, A_WEB))), BY_DEFAULT, ["a-web"], id="of two labels"),
        pytest.param(ServicePods("other", frozenset((WEB,))), BY_DEFAULT, ["elsewhere"], id="of another namespace"),
        pytest.param(ServicePods("default", frozenset((("app", "none"),))), BY_DEFAULT, [], id="of no pod"),
        pytest.param(ServicePods("default", frozenset()), BY_DEFAULT, [], id="without a selector"),
        pytest.param(ControllerKey("ReplicaSet", "default", "set"), BY_DEFAULT, ["of-set"], id="a controller"),
        pytest.param(ControllerKey("StatefulSet", "default", "set"), BY_DEFAULT, [], id="of another kind"),
        pytest.param(ServicePods("default", frozenset((WEB,))), PodTopologySpread(), [], id="defaults are preferences"),
    ],
)
def test_a_service_wakes_the_pods_whose_constraints_follow_from_it(
    owner: ServicePods | ControllerKey, plugin: PodTopologySpread, woken: list[str]
) -> None:
    rig = Rig(node("n1", cpu="1"))
    rig.framework = Framework(rig.state, (WeightedPlugin(NodeResourcesFit(), 0), WeightedPlugin(plugin, 0)))
    own = [{"maxSkew": 1, "topologyKey": HOSTNAME, "whenUnsatisfiable": "DoNotSchedule"}]
    web, large = dict((WEB,)), {"cpu": "2"}
    rig.put(
        pod("web", large, labels=web), pod("a-web", large, labels=dict((WEB, A_WEB))),
        pod("elsewhere", large, labels=web, namespace="other"),
        pod("own", large, labels=web, topologySpreadConstraints=own), pod("of-set", large, metadata=SET),
    )  # fmt: skip
    rig.run()
    rig.queue.note(Event(EventKind.OWNER, owner=owner))
    rig.run(20.0)
    assert rig.tried == woken


def test_a_service_that_is_gone_lets_a_pod_have_a_node() -> None:
    """Its pods are spread no more: one that waits for that has a node."""
    rig = Rig(node("n1"), node("n2", unschedulable=True))
    rig.framework = Framework(rig.state, (WeightedPlugin(NodeUnschedulable(), 0), WeightedPlugin(BY_DEFAULT, 0)))
    rig.state.owners.put_service("default", "s", {"app": "web"})
    rig.put(*[pod(name, labels=dict((WEB,))) for name in ("p1", "p2")])
    assert rig.run() == ["p1"]
    rig.state.owners.remove_service("default", "s")
    rig.queue.note(Event(EventKind.OWNER, owner=ServicePods("default", frozenset((WEB,)))))
    assert rig.run(20.0) == ["p2"]


def test_what_volumes_are_made_of_wakes_pods_with_claims_alone() -> None:
    rig = Rig(node("n1", cpu="1"))
    claim = [{"name": "data", "persistentVolumeClaim": {"claimName": "c"}}]
    rig.put(pod("without", {"cpu": "2"}), pod("with", volumes=claim))
    rig.run()
    rig.queue.note(Event(EventKind.VOLUME))
    rig.run(20.0)
    assert rig.tried == ["with"]


@pytest.mark.parametrize("seed", range(8))
def test_no_pod_waits_that_has_a_node(seed: int) -> None:
    """Whatever happens, in whatever order: once every backoff has ended, a pod that is parked fits nowhere."""
    draw = random.Random(seed)
    rig = Rig(*[node(f"n{index}", cpu=str(draw.randrange(1, 5)), labels={ZONE: f"z{index % 2}"}) for index in range(4)])
    alive: list[PodInfo] = []
    for step in range(150):
        rig.now_s += draw.choice([0.0, 0.3, 2.0])
        kind = draw.randrange(6)
        if kind < 3:
            spec: dict[str, Any] = draw.choice(
                [
                    {},
                    {"nodeSelector": {ZONE: "z1"}},
                    {"affinity": affinity("podAntiAffinity", app="web")},
                    {"affinity": affinity("podAffinity", app="db")},
                ]
            )
            labels = {"app": draw.choice(["web", "db"])}
            made = pod(f"p{step}", {"cpu": draw.choice(["500m", "1", "2"])}, labels=labels, **spec)
            alive.append(made)
            rig.put(made)
        elif kind == 3 and alive:
            gone = alive.pop(draw.randrange(len(alive)))
            where = rig.state.node_of(gone.uid)
            rig.queue.delete(gone.uid)
            if where is not None:
                row = rig.state.table.row(where)
                assert row is not None
                rig.state.remove_pod(gone.uid)
                rig.queue.note(Event(EventKind.POD_LEFT, row, gone))
        elif kind == 4:
            name = f"n{draw.randrange(5)}"
            rig.node(node(name, cpu=str(draw.randrange(1, 5)), labels={ZONE: f"z{draw.randrange(2)}"}))
        rig.run(rig.now_s)
        waiting = {queued.pod.uid for queued in rig.queue}
        assert waiting | {each.uid for each in alive if rig.state.node_of(each.uid)} == {each.uid for each in alive}
        if step % 10 == 9:
            for _ in range(3):
                rig.run(rig.now_s + 12.0)
            assert [queued.pod.name for queued in rig.queue if rig.framework.place(queued.pod)] == [], step


def test_promised_room_wakes_first_to_whom_it_is_promised() -> None:
    there, waiting = pod("there", {"cpu": "1"}, nodeName="n1"), names(3)
    rig = Rig(node("n1", cpu="1"))
    rig.came(there)
    rig.put(*waiting)
    assert rig.run() == []
    rig.state.nominations.put(waiting[2], "n1")
    rig.left(there)
    assert rig.run(20.0) == ["p2"]


# pods in which extenders have a say

A, B, BOTH = frozenset("a"), frozenset("b"), frozenset("ab")


def aside(rig: Rig, *lines: tuple[str, frozenset[str], int]) -> None:
    """Sets pods aside: their names, extenders and priorities."""
    for name, extenders, priority in lines:
        rig.put(pod(name, priority=priority))
        queued = rig.queue.pop(rig.now_s)
        assert queued is not None
        rig.queue.set_aside(queued, extenders, rig.now_s)


@pytest.mark.parametrize(
    ("lines", "busy", "expected"),
    [
        ([("p", A, 0)], "", ["p"]),
        ([("p", A, 0)], "a", []),
        ([("p", A, 0), ("q", B, 0)], "a", ["q"]),
        ([("p", A, 0), ("q", A, 5), ("r", B, 1)], "", ["q", "r"]),
        ([("p", BOTH, 5), ("q", B, 0)], "a", []),
        ([("p", BOTH, 0), ("q", B, 5)], "a", ["q"]),
        ([("p", BOTH, 0), ("q", B, 0), ("r", A, 0)], "", ["p"]),
    ],
)
def test_extenders_are_asked_about_one_pod_at_a_time(
    lines: list[tuple[str, frozenset[str], int]], busy: str, expected: list[str]
) -> None:
    rig = Rig()
    aside(rig, *lines)
    asked, taken = set(busy), list[str]()
    while (found := rig.queue.next_aside(asked)) is not None:
        taken.append(found[0].pod.name)
        asked |= found[1]
    assert taken == expected
    assert (len(rig.queue), rig.queue.counts()["active"]) == (len(lines), len(lines))


def test_a_pod_that_changes_while_it_is_asked_about_is_decided_anew() -> None:
    rig = Rig(node("n1"))
    aside(rig, ("p", A, 0), ("gone", B, 0), ("alike", frozenset("c"), 0))
    asked = {found[0].pod.name: found[0] for _ in range(3) if (found := rig.queue.next_aside(())) is not None}
    rig.put(pod("p", labels={"new": "1"}, priority=0), pod("alike", priority=0))
    rig.queue.delete("gone")
    assert [rig.queue.is_asked(each) for each in asked.values()] == [False, False, True]
    assert [rig.queue.answered(each) for each in asked.values()] == [False, False, True]
    again = rig.queue.pop(0.0)
    assert again is not None
    assert (again.pod.name, again is asked["p"], len(rig.queue)) == ("p", False, 0)


def test_who_is_asked_about_when_leadership_ends_is_active_again() -> None:
    rig = Rig(node("n1"))
    aside(rig, ("p", A, 0), ("q", A, 0))
    found = rig.queue.next_aside(())
    assert found is not None
    rig.queue.take_back(1.0)
    assert not rig.queue.is_asked(found[0])
    assert rig.run() == ["p"]
    assert rig.queue.next_aside(()) is not None


@pytest.mark.parametrize(
    "event", [Event(kind, 0) for kind in (EventKind.NODE, EventKind.POD_LEFT, EventKind.POD_CAME)] + [OTHER]
)
def test_any_event_wakes_a_pod_that_an_extender_rejected(event: Event) -> None:
    rig = Rig(node("n1", cpu="1"))
    for name, rejected_by in (("p", frozenset((EXTENDER,))), ("q", FIT)):
        rig.put(pod(name, {"cpu": "4"}))
        queued = rig.queue.pop(0.0)
        assert queued is not None
        rig.queue.park(queued, rejected_by, 0.0, rig.queue.event_count)
    rig.run(0.5)
    assert rig.tried == []
    rig.queue.note(event)
    rig.run(0.5)
    assert "p" not in rig.tried, "not before its backoff has ended"
    rig.run(20.0)
    assert "p" in rig.tried
    assert event is OTHER or rig.tried == ["p"]


def test_what_happens_while_extenders_are_asked_is_not_missed() -> None:
    rig = Rig(node("n1", cpu="1"))
    aside(rig, ("p", A, 0))
    found = rig.queue.next_aside(())
    assert found is not None
    event_count = rig.queue.event_count
    rig.node(node("n1", cpu="2"))
    assert rig.queue.answered(found[0])
    rig.queue.park(found[0], frozenset((EXTENDER,)), 0.0, event_count)
    assert rig.queue.counts()["backoff"] == 1
    assert rig.run(20.0) == ["p"]


def test_a_resource_that_is_not_looked_at_keeps_nobody_parked() -> None:
    rig = Rig(node("n1", cpu="1"))
    fit = NodeResourcesFit(ignored=frozenset(("example.com/gpu",)))
    rig.framework = Framework(rig.state, [WeightedPlugin(fit)])
    rig.put(pod("p", {"cpu": "2", "example.com/gpu": "1"}))
    assert rig.run() == []
    rig.node(node("n1", cpu="2"))
    assert rig.run(20.0) == ["p"]


def test_all_wake_where_amounts_are_not_looked_at() -> None:
    rig = Rig(node("n1", cpu="1", unschedulable=True))
    rig.framework = Framework(rig.state, [WeightedPlugin(NodeUnschedulable())])
    rig.put(*names(3, cpu="2"))
    assert rig.run() == []
    rig.node(node("n1", cpu="1"))
    assert len(rig.run(20.0)) == 3


# gangs


def test_who_is_held_is_gated_until_it_is_released() -> None:
    rig, held = Rig(node("n1")), {"a", "b"}
    rig.queue = SchedulingQueue(rig.state, lambda _: rig.framework, holds=lambda each: each.name in held)
    rig.put(pod("a"), pod("b"), pod("c"))
    assert (rig.run(), rig.queue.counts()["gated"]) == (["c"], 2)
    held.clear()
    assert rig.run() == []
    rig.queue.release(["a", "gone"], 1.0)
    assert (rig.run(1.0), rig.queue.part_of("b")) == (["a"], "gated")


def test_who_is_held_as_its_backoff_ends_leaves_its_promised_room_to_others_at_once() -> None:
    """Nothing else happens then that would have the queue looked at again."""
    rig, held = Rig(node("n1", cpu="1")), set[str]()

    def holds(each: PodInfo) -> bool:
        if each.name in held:
            rig.state.nominations.remove(each.uid)
        return each.name in held

    rig.queue = SchedulingQueue(rig.state, lambda _: rig.framework, holds=holds)
    rig.state.nominations.ended = lambda _: rig.queue.note(Event(EventKind.POD_LEFT, 0))
    member = pod("member", {"cpu": "1"}, priority=5)
    rig.put(member)
    queued = rig.queue.pop(0.0)
    assert queued is not None
    rig.queue.fail(queued, 0.0)
    rig.state.nominations.put(member, "n1")
    rig.put(pod("p", {"cpu": "1"}))
    assert rig.run(0.1) == []
    held.add("member")
    assert rig.queue.due_s() == queued.backoff_until_s
    assert rig.run(queued.backoff_until_s) == ["p"]


@pytest.mark.parametrize("part", ["active", "unschedulable", "backoff"])
def test_others_of_a_gang_are_taken_from_wherever_they_are(part: str) -> None:
    rig = Rig(node("n1"))
    rig.put(pod("first", priority=1), pod("other"))
    first = rig.queue.pop(0.0)
    assert first is not None
    if part != "active":
        other = rig.queue.pop(0.0)
        assert other is not None
        if part == "backoff":
            rig.queue.fail(other, 0.0)
        else:
            rig.queue.park(other, FIT, 0.0)
    assert rig.queue.part_of("other") == part
    taken = rig.queue.take("other", 0.0)
    assert taken is not None and (taken.pod.name, len(rig.queue)) == ("other", 0)
    assert rig.queue.take("other", 0.0) is None
    tries = taken.tries
    rig.queue.put_back(taken, 0.0)
    assert (rig.queue.part_of("other"), taken.tries) == ("active", tries - 1)


def test_one_with_gates_of_its_own_is_not_taken() -> None:
    rig = Rig(node("n1"))
    rig.put(pod("gated", schedulingGates=[{"name": "wait"}]))
    assert rig.queue.take("gated", 0.0) is None and len(rig.queue) == 1


def test_an_event_does_not_cut_the_backoff_of_a_gang_short() -> None:
    """A try costs one of each member; another pod is tried before its time where none is active."""
    rig = Rig(node("n1", cpu="1"))
    for name, rejected_by in (("single", FIT), ("member", FIT | {GANG})):
        rig.put(pod(name, {"cpu": "2"}))
        queued = rig.queue.pop(0.0)
        assert queued is not None
        rig.queue.park(queued, rejected_by, 0.0)
    rig.node(node("n1", cpu="4"))
    assert rig.run(0.5) == ["single"]
    assert rig.run(1.0) == ["member"]


def test_a_gang_is_tried_again_within_the_bound_of_any_pod() -> None:
    rig = Rig(node("n1", cpu="1"))
    rig.put(pod("member", {"cpu": "2"}))
    queued = rig.queue.pop(0.0)
    assert queued is not None
    rig.queue.park(queued, FIT | {GANG}, 0.0)
    assert rig.queue.pop(PARKED_S - 0.1) is None
    assert rig.queue.pop(PARKED_S) is queued

"""What the queue promises, on any history: nothing starves, and nobody is parked whom a node would take."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from koord.scheduling.defaults import default_plugins
from koord.scheduling.framework import Framework
from koord.scheduling.plugin import Event, EventKind
from koord.scheduling.podinfo import PodInfo
from koord.scheduling.queue import PARKED_S, SchedulingQueue
from koord.scheduling.queuedpod import BackoffTimes, QueuedPod
from koord.scheduling.state import ClusterState
from tests.scheduling.clusters import Generator, node, pod
from tests.scheduling.test_against_oracle import NAMESPACES
from tests.scheduling.test_state import renamed

UIDS = [f"p{index}" for index in range(6)]
REJECTERS = ("NodeResourcesFit", "NodeAffinity", "InterPodAffinity", "VolumeBinding")


@dataclass
class Waiting:
    """A pod of the model. ``since_s``, ``due_s``: when it becomes active at the earliest and at the latest."""

    pod: PodInfo
    since_s: float
    due_s: float


class Model:
    """A queue whose decisions a test makes, and what is known of each of its pods without looking into it."""

    def __init__(self, times: BackoffTimes) -> None:
        self.state = ClusterState()
        self.state.put_node(node("n1", cpu="1"))
        framework = Framework(self.state, default_plugins())
        self.queue = SchedulingQueue(self.state, lambda _: framework, times)
        self.longest_s = max(PARKED_S, times.most_s + 1.0)
        self.now_s = 0.0
        self.waiting: dict[str, Waiting] = {}

    def put(self, uid: str, priority: int, app: str) -> None:
        made = pod(uid, {"cpu": "2"}, labels={"app": app}, priority=priority)
        known = self.waiting.get(uid)
        if known is None:
            self.waiting[uid] = Waiting(made, self.now_s, self.now_s)
        else:
            known.pod = made
        self.queue.put(made, self.now_s)

    def delete(self, uid: str) -> None:
        self.waiting.pop(uid, None)
        self.queue.delete(uid)

    def pop(self) -> QueuedPod | None:
        """Takes the next pod, and checks whose turn it was."""
        taken = self.queue.pop(self.now_s)
        overdue = [each for each in self.waiting.values() if each.due_s <= self.now_s]
        if taken is None:
            assert overdue == [], "a pod is due, and none is tried"
            return None
        known = self.waiting.pop(taken.pod.uid)
        for each in overdue:
            if each.pod.uid != taken.pod.uid and each.pod.priority >= known.pod.priority:
                assert each.pod.priority == known.pod.priority, "a less important pod went first"
                assert known.since_s <= each.due_s, "one that came after it was due went first"
        return taken

    def come_back(self, taken: QueuedPod, outcome: int) -> None:
        if outcome == 0:
            return  # it has a node
        self.waiting[taken.pod.uid] = Waiting(taken.pod, self.now_s, self.now_s + self.longest_s)
        if outcome == 1:
            self.queue.fail(taken, self.now_s)
        else:
            self.queue.park(taken, frozenset(REJECTERS[outcome - 2 : outcome - 1]), self.now_s)


PUT = st.tuples(st.just("put"), st.sampled_from(UIDS), st.integers(0, 1), st.sampled_from("ab"))
STEPS = st.one_of(
    PUT,
    PUT,
    st.tuples(st.just("delete"), st.sampled_from(UIDS)),
    st.tuples(st.just("pass"), st.sampled_from([0.0, 0.4, 3.0, 11.0, PARKED_S - 1, PARKED_S])),
    st.tuples(st.just("note"), st.sampled_from(list(EventKind)), st.sampled_from("ab")),
    st.tuples(st.just("pop"), st.integers(0, 4)),
    st.tuples(st.just("pop"), st.integers(0, 4)),
)


@pytest.mark.parametrize("times", [BackoffTimes(), BackoffTimes(5, 1000)], ids=["default", "a long backoff"])
@given(steps=st.lists(STEPS, max_size=60))
@settings(max_examples=300)
def test_nothing_starves(times: BackoffTimes, steps: list[tuple[Any, ...]]) -> None:
    """A pod that is due is taken before any that comes later, unless that is more important; at the end all are."""
    model = Model(times)
    for kind, *arguments in steps:
        if kind == "put":
            model.put(*arguments)
        elif kind == "delete":
            model.delete(*arguments)
        elif kind == "pass":
            model.now_s += arguments[0]
        elif kind == "note":
            event, app = arguments
            is_about_a_pod = event in (EventKind.POD_CAME, EventKind.POD_LEFT)
            about = pod("x", labels={"app": app}, nodeName="n1") if is_about_a_pod else None
            model.queue.note(Event(event, 0, about))
        elif (taken := model.pop()) is not None:
            model.come_back(taken, arguments[0])
        assert sum(model.queue.counts().values()) == len(model.queue) == len(model.waiting)
    model.now_s += model.longest_s
    left = set(model.waiting)
    while (taken := model.pop()) is not None:
        left.discard(taken.pod.uid)
    assert left == set()


@pytest.mark.parametrize(
    ("outcome", "times", "due_s"),
    [
        pytest.param(2, BackoffTimes(), PARKED_S, id="parked"),
        pytest.param(1, BackoffTimes(), 1.0, id="failed"),
        pytest.param(1, BackoffTimes(1000, 1000), 1000.0, id="failed, with a long backoff"),
    ],
)
def test_the_bound_is_reached_and_kept(outcome: int, times: BackoffTimes, due_s: float) -> None:
    """Another pod of the same priority is always there, so that nobody is tried before his time."""
    model = Model(times)
    model.put("p0", 0, "a")
    first = model.pop()
    assert first is not None
    model.come_back(first, outcome)
    for now_s, active in ((due_s - 0.001, ["p1"]), (due_s, ["p0", "p2"])):
        model.now_s = now_s
        model.queue.advance(now_s)
        model.put(active[-1], 0, "b")
        assert model.queue.counts()["active"] == len(active)
        taken = [model.pop() for _ in active]
        assert [each and each.pod.uid for each in taken] == active


def test_a_pod_that_changes_for_ever_keeps_its_turn() -> None:
    model = Model(BackoffTimes())
    model.put("p0", 0, "a")
    for step in range(1, 10):
        model.now_s = float(step)
        model.put(f"p{step}", 0, "b")
        model.put("p0", 0, "ab"[step % 2])
    taken = model.pop()
    assert taken is not None and taken.pod.uid == "p0"


class Cluster:
    """Random pods and nodes of every kind, a queue that is told of each change as by the view, and a scheduler."""

    def __init__(self, seed: int) -> None:
        self.draw, self.generator = random.Random(seed), Generator(seed)
        self.state = ClusterState()
        for name, labels in NAMESPACES.items():
            self.state.put_namespace(name, labels)
        self.framework = Framework(self.state, default_plugins(), seed)
        self.queue = SchedulingQueue(self.state, lambda _: self.framework)
        self.now_s, self.step_number = 0.0, 0
        self.placed: dict[str, PodInfo] = {}
        self.node_names = [f"n{index}" for index in range(5)]
        for name in self.node_names:
            self.put_node(name)

    def put_node(self, name: str) -> None:
        self.state.put_node(self.generator.node(name))
        self.queue.note(Event(EventKind.NODE, self.row(name)))

    def row(self, name: str) -> int:
        row = self.state.table.row(name)
        assert row is not None
        return row

    def step(self) -> None:
        draw = self.draw
        self.step_number += 1
        self.now_s += draw.choice([0.0, 0.3, 2.0])
        kind = draw.random()
        if kind < 0.4:
            self.queue.put(renamed(self.generator.pod(), f"w{self.step_number}"), self.now_s)
        elif kind < 0.75 and self.placed:
            gone = self.placed.pop(draw.choice(sorted(self.placed)))
            where = self.state.node_of(gone.uid)
            self.state.remove_pod(gone.uid)
            row = None if where is None else self.state.table.row(where)
            if row is not None:
                self.queue.note(Event(EventKind.POD_LEFT, row, gone))
        elif kind < 0.9:
            self.put_node(draw.choice(self.node_names))
        elif kind < 0.93 and len(self.node_names) > 2:
            name = self.node_names.pop(draw.randrange(len(self.node_names)))
            self.state.remove_node(name)
            self.queue.note(Event(EventKind.NODE))
        elif kind < 0.96:
            self.node_names.append(f"m{self.step_number}")
            self.put_node(self.node_names[-1])
        else:
            name = draw.choice(self.node_names)
            made = renamed(self.generator.pod(name), f"o{self.step_number}")
            self.placed[made.uid] = made
            self.state.put_pod(made)
            self.queue.note(Event(EventKind.POD_CAME, self.row(name), made))
        self.decide()

    def decide(self) -> None:
        while (queued := self.queue.pop(self.now_s)) is not None:
            placement = self.framework.place(queued.pod)
            if placement is None:
                self.queue.park(queued, self.framework.diagnose(queued.pod).plugins, self.now_s)
                continue
            self.state.assume(queued.pod, placement.node)
            self.placed[queued.pod.uid] = queued.pod
            row = self.row(placement.node)
            self.queue.placed(queued, row)
            self.queue.note(Event(EventKind.POD_CAME, row, queued.pod))


@pytest.mark.parametrize("seed", range(24))
def test_nobody_is_parked_whom_a_node_would_take(seed: int) -> None:
    """Pods of every kind, told of no more than the view tells: no event that helps is missed."""
    cluster = Cluster(seed)
    waited = 0
    for _ in range(120):
        cluster.step()
        if cluster.step_number % 4:
            continue
        cluster.now_s += 20.0  # every backoff has ended
        cluster.decide()
        for queued in cluster.queue:
            waited += 1
            assert cluster.framework.place(queued.pod) is None, queued.rejected_by
    assert waited > 30

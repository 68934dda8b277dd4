"""The strategy ``oomScoreAdj``: which container's processes shall have which score."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from koord.host.taskattributes import TaskAttribute
from qosd.decide import gates
from qosd.decide.decision import Decision
from qosd.model.metric import Scope
from qosd.model.policy import EffectivePolicy
from qosd.model.snapshot import NodeSnapshot, PodFacts, PodView
from qosd.sense.pids import PIDS
from qosd.strategies.oomscore import OOMScores
from tests.qosd.contexts import policy
from tests.qosd.podviews import EXITED, NOT_READY, RUNNING, snapshot, view

ADJ, SPEC = "koordinator.sh/oom-score-adj", "koordinator.sh/oom-score-adj-spec"
TASKS = PIDS[Scope.CONTAINER].pids
CONTAINERS = [("db", RUNNING), ("side", RUNNING), ("init", EXITED)]


def pod(containers: Any = tuple(CONTAINERS), **said: Any) -> PodView:
    return view("p", "LS", containers=containers, **said)


def decided(*pods: PodView, by: EffectivePolicy | None = None) -> Decision:
    return OOMScores().decide(snapshot(by or policy(), *pods), None)[0]


def scores(decision: Decision) -> dict[str, int]:
    return {act.cgroup.rpartition("/")[2]: act.value for act in decision.acts if isinstance(act, TaskAttribute)}


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ({}, {}),
        ({ADJ: "200", SPEC: '{"db":-500}'}, {"db": -500, "side": 200}),
        ({ADJ: "200"}, {"db": 200, "side": 200}),
        ({SPEC: '{"db":-500}'}, {"db": -500}),
        ({ADJ: "-1000", SPEC: '{"side":1000}'}, {"db": -1000, "side": 1000}),
        ({SPEC: '{"db":0}'}, {"db": 0}),
        # what cannot be read costs itself only: upstream loses the pod's as well
        ({ADJ: "200", SPEC: '{"db":"x","side":7}'}, {"db": 200, "side": 7}),
        ({ADJ: "200", SPEC: '{"db":1001,"side":7}'}, {"db": 200, "side": 7}),
        ({ADJ: "200", SPEC: "{"}, {"db": 200, "side": 200}),
        ({ADJ: "200", SPEC: "[]"}, {"db": 200, "side": 200}),
        ({ADJ: "1001", SPEC: '{"db":-500}'}, {"db": -500}),
        ({ADJ: "1.5"}, {}),
        ({ADJ: "200", SPEC: '{"nobody":-500}'}, {"db": 200, "side": 200}),
    ],
)
def test_whose_processes(said: dict[str, str], expected: dict[str, int]) -> None:
    assert scores(decided(pod(**said))) == expected


@pytest.mark.parametrize(
    "one",
    [
        pod(state=NOT_READY, containers=[("db", EXITED)], **{ADJ: "200"}),
        pod(containers=[("db", "CONTAINER_CREATED")], **{ADJ: "200"}),  # the runtime is about to write it itself
        structs.replace(pod(**{ADJ: "200"}), facts=PodFacts(runtime_class="kata")),
    ],
)
def test_of_whom_nothing_is_wanted(one: PodView) -> None:
    assert scores(decided(one)) == {}


def test_a_bad_entry_is_the_pods_problem() -> None:
    (problem,) = pod(**{ADJ: "200", SPEC: '{"db":"x"}'}).context.problems
    assert SPEC in problem and "db" in problem


def test_who_says_why() -> None:
    made = decided(pod(**{ADJ: "200", SPEC: '{"db":-500}'})).acts
    acts = {act.cgroup.rpartition("/")[2]: act for act in made if isinstance(act, TaskAttribute)}
    assert (acts["db"].why, acts["side"].why) == (
        "annotation oom-score-adj-spec of the pod",
        "annotation oom-score-adj of the pod",
    )


def with_tasks(picture: NodeSnapshot, **counts: float) -> NodeSnapshot:
    cgroup = picture.pods[0].cgroup
    return structs.replace(picture, values={TASKS: {f"{cgroup}/{name}": one for name, one in counts.items()}})


def test_a_tick_at_which_nothing_has_come_returns_the_same_objects() -> None:
    strategy, one, by = OOMScores(), pod(**{ADJ: "200"}), policy()
    picture = snapshot(by, one, view("q", "BE"))
    first, memory = strategy.decide(with_tasks(picture, db=3.0, side=1.0), None)
    again, memory = strategy.decide(with_tasks(picture, db=3.0, side=1.0), memory)
    assert again is first
    more, memory = strategy.decide(with_tasks(picture, db=4.0, side=1.0), memory)
    assert [act.tasks for act in more.acts if isinstance(act, TaskAttribute)] == [4, 1]
    gone, _ = strategy.decide(snapshot(by, view("q", "BE")), memory)
    assert (gone.acts, gone.sentence) == ((), "0 containers with an OOM score by annotation")


def test_behind_the_gate() -> None:
    assert gates.why_shut(OOMScores(), policy()) == "feature gate OOMScoreAdj is off (default)"

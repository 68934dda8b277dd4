"""Who has to leave for whom: the rules one by one, and against the same rules written node by node."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import pytest

from koord.model import core
from koord.model.scheduling.policies import PodDisruptionBudget
from koord.scheduling.defaults import default_plugins
from koord.scheduling.framework import Framework
from koord.scheduling.plugin import Rejection
from koord.scheduling.podinfo import PodInfo
from koord.scheduling.preemption import CandidateCount, Preemption, Preemptor
from koord.scheduling.state import ClusterState
from tests.scheduling.clusters import HOSTNAME, ZONE, Generator, node, pod
from tests.scheduling.oracle import Oracle
from tests.scheduling.test_against_oracle import NAMESPACES, History
from tests.scheduling.test_state import dump, renamed
from tests.scheduling.volumeobjects import claim, of_claims, put, volume


def running(name: str, node_name: str, cpu: str = "1", priority: int = 0, started: int = 1, **members: Any) -> PodInfo:
    status = {"startTime": f"2026-01-01T00:00:{started:02}Z"}
    return pod(name, {"cpu": cpu}, nodeName=node_name, priority=priority, status=status, **members)


def budget(allowed: int, disrupted: Sequence[str] = (), **labels: str) -> PodDisruptionBudget:
    document = {
        "metadata": {"name": "b", "namespace": "default"},
        "spec": {"selector": {"matchLabels": labels}},
        "status": {"disruptionsAllowed": allowed, "disruptedPods": dict.fromkeys(disrupted, "2026-01-01T00:00:00Z")},
    }
    return core.read(PodDisruptionBudget, msgspec.json.encode(document))


def chosen(
    waiting: PodInfo, pods: Sequence[PodInfo], *budgets: PodDisruptionBudget, nodes: int = 1
) -> tuple[str, str, int] | None:
    """The node, the victims in order and the violations; the state is what it was before."""
    state = ClusterState()
    for index in range(1, nodes + 1):
        state.put_node(node(f"n{index}", cpu="4"))
    for each in pods:
        state.put_pod(each)
    framework = Framework(state, default_plugins())
    assert framework.place(waiting) is None
    before = dump(state)
    found = Preemptor(framework, budgets).choose(waiting, framework.diagnose(waiting))
    assert dump(state) == before
    return found and (found.node, " ".join(each.name for each in found.victims), found.violations)


WANTS_2 = pod("p", {"cpu": "2"}, priority=10)


@pytest.mark.parametrize(
    ("pods", "expected"),
    [
        pytest.param([running("a", "n1", "4", 10)], None, id="of the same priority"),
        pytest.param([running("a", "n1", "3", 10), running("b", "n1")], None, id="not enough"),
        pytest.param([running("a", "n1", "3")], ("n1", "a", 0), id="one"),
        pytest.param(
            [running("a", "n1", priority=1), running("b", "n1", "2", priority=2), running("c", "n1", priority=3)],
            ("n1", "b", 0),
            id="the important ones come back, as many as fit",
        ),
        pytest.param(
            [running("a", "n1", "2", started=1), running("b", "n1", "2", started=2)], ("n1", "b", 0), id="the younger"
        ),
        pytest.param(
            [running("a", "n1", "4", 5), running("b", "n2", "4", 4), running("c", "n3", "4", 5)],
            ("n2", "b", 0),
            id="the node whose most important victim is the least",
        ),
        pytest.param(
            [
                running("a", "n1", "2", 4),
                running("b", "n1", "2", 4),
                running("c", "n2", "4", 4),
                running("d", "n3", "4", 9),
            ],
            ("n1", "b", 0),
            id="on each as few as do",
        ),
        pytest.param(
            [
                *(running(f"a{index}", "n1", priority=-index) for index in range(4)),
                running("b", "n2", "4", 0),
                running("c", "n3", "4", 9),
            ],
            ("n1", "a2 a3", 0),
            id="the least important",
        ),
        pytest.param(
            [
                *(running(f"a{index}", "n1", "2", 4) for index in range(2)),
                *(running(f"b{index}", "n2", "4", 4) for index in range(1)),
                *(running(f"c{index}", "n3", priority=[4, 4, 4, 3][index], started=index + 1) for index in range(4)),
            ],
            ("n1", "a1", 0),
            id="the smallest sum of priorities, of one victim and not of two",
        ),
        pytest.param(
            [running("a", "n1", "4", 4), *[running(f"b{i}", "n2", "1", -(2**31), i + 1) for i in range(4)]],
            ("n2", "b2 b3", 0),
            id="a lower highest priority goes before the number of victims",
        ),
        pytest.param(
            [
                running(name, f"n{index}", "4", started=started)
                for index, (name, started) in enumerate((("a", 5), ("b", 9), ("c", 7)), 1)
            ],
            ("n2", "b", 0),
            id="the youngest of equal ones",
        ),
    ],
)
def test_victims(pods: list[PodInfo], expected: tuple[str, str, int] | None) -> None:
    assert chosen(WANTS_2, pods, nodes=len({each.spec.node_name for each in pods})) == expected


GUARDED: dict[str, Any] = {"labels": {"app": "web"}}


@pytest.mark.parametrize(
    ("budgets", "expected"),
    [
        pytest.param([], ("n1", "a", 0), id="no budget"),
        pytest.param([budget(1, app="web")], ("n1", "a", 0), id="room in the budget"),
        pytest.param([budget(0, app="web")], ("n2", "b", 0), id="none: a more important victim"),
        pytest.param([budget(0, app="db")], ("n1", "a", 0), id="of others"),
        pytest.param([budget(0)], ("n1", "a", 0), id="an empty selector is about nobody"),
        pytest.param([budget(0, ["a"], app="web")], ("n1", "a", 0), id="counted already"),
        pytest.param([budget(1, app="web"), budget(0, app="web")], ("n2", "b", 0), id="one of two is used up"),
    ],
)
def test_budgets(budgets: list[PodDisruptionBudget], expected: tuple[str, str, int]) -> None:
    pods = [running("a", "n1", "4", 1, **GUARDED), running("b", "n2", "4", 5)]
    assert chosen(WANTS_2, pods, *budgets, nodes=2) == expected


def test_a_pod_without_labels_is_under_no_budget() -> None:
    document = {
        "metadata": {"name": "b", "namespace": "default"},
        "spec": {"selector": {"matchExpressions": [{"key": "app", "operator": "DoesNotExist"}]}},
        "status": {"disruptionsAllowed": 0},
    }
    of_others = core.read(PodDisruptionBudget, msgspec.json.encode(document))
    pods = [running("a", "n1", "4", 1), running("b", "n2", "4", 5)]
    assert chosen(WANTS_2, pods, of_others, nodes=2) == ("n1", "a", 0)
    labelled = [running("a", "n1", "4", 1, labels={"tier": "x"}), running("b", "n2", "4", 5)]
    assert chosen(WANTS_2, labelled, of_others, nodes=2) == ("n2", "b", 0)


def test_nobody_leaves_a_node_that_another_filter_rejects_whoever_leaves() -> None:
    """There is too little room, which is said first, and the pod's volume is not reached from the node either."""
    state = ClusterState()
    for name, zone in (("n1", "a"), ("n2", "b")):
        state.put_node(node(name, cpu="4", labels={ZONE: zone}))
        state.put_pod(running(f"x-{name}", name, "4", priority=ord(zone)))
    put(state, [claim("c", volume="v"), volume("v", labels={ZONE: "b"})])
    waiting = pod("p", {"cpu": "2"}, priority=1000, volumes=of_claims("c"))
    framework = Framework(state, default_plugins())
    diagnosis = framework.diagnose(waiting)
    assert diagnosis.reasons == {"Insufficient cpu": 2}
    found = Preemptor(framework).candidates_for(waiting, diagnosis)
    assert [(each.node, [one.name for one in each.victims]) for each in found] == [("n2", ["x-n2"])]


@pytest.mark.parametrize(
    ("count", "nodes", "allowed", "expected"),
    [
        (CandidateCount(), 120, 1, 100),
        (CandidateCount(), 90, 1, 90),
        (CandidateCount(50, 10), 120, 1, 60),
        (CandidateCount(10, 20), 120, 1, 20),
        pytest.param(CandidateCount(10, 20), 120, 0, 120, id="until one breaks no budget"),
    ],
)
def test_how_many_candidates_are_found_before_the_best_is_taken(
    count: CandidateCount, nodes: int, allowed: int, expected: int
) -> None:
    state = ClusterState()
    for index in range(nodes):
        state.put_node(node(f"n{index}", cpu="4"))
        state.put_pod(running(f"x{index}", f"n{index}", "4", **GUARDED))
    framework = Framework(state, default_plugins())
    budgets = [budget(allowed, app="web")]
    preemptor = Preemptor(framework, budgets, count)
    found = preemptor.candidates_for(WANTS_2, framework.diagnose(WANTS_2))
    assert len({each.node for each in found}) == len(found) == expected


def test_guarded_pods_come_back_first_and_violations_are_the_last_resort() -> None:
    pods = [running("a", "n1", "2", 1, **GUARDED), running("b", "n1", "2", 5)]
    assert chosen(WANTS_2, pods, budget(0, app="web")) == ("n1", "b", 0)
    both = [running("a", "n1", "2", 1, **GUARDED), running("b", "n1", "2", 5, **GUARDED)]
    assert chosen(WANTS_2, both, budget(0, app="web")) == ("n1", "a", 1)


def test_what_is_promised_to_others_is_kept() -> None:
    state = ClusterState()
    state.put_node(node("n1", cpu="4"))
    framework = Framework(state, default_plugins())
    state.nominations.put(pod("first", {"cpu": "3"}, priority=10), "n1")
    assert framework.place(WANTS_2) is None
    assert framework.place(pod("high", {"cpu": "2"}, priority=11)) is not None
    assert framework.place(pod("first", {"cpu": "3"}, priority=10)) is not None
    state.put_pod(running("low", "n1", "1"))
    assert Preemptor(framework).choose(WANTS_2, framework.diagnose(WANTS_2)) is None
    state.put_pod(pod("first", {"cpu": "3"}, priority=10, nodeName="n1"))
    assert state.nominations.node_of("first") is None


def test_nobody_leaves_a_node_that_an_extender_alone_rejects() -> None:
    state = ClusterState()
    for name, cpu in (("n1", "2"), ("n2", "8")):
        state.put_node(node(name, cpu=cpu))
        state.put_pod(running(f"on-{name}", name, "1"))
    framework = Framework(state, default_plugins())
    rows = np.array([False, True])
    diagnosis = framework.diagnose(WANTS_2, [Rejection("no license", rows)])
    assert diagnosis.is_resolvable.all()
    (found,) = Preemptor(framework).candidates_for(WANTS_2, diagnosis)
    assert found.node == "n1"


@pytest.mark.parametrize(
    ("victims", "expected"), [(["a"], False), (["a", "b"], True), (["b"], True), ([], False), (["b", "gone"], True)]
)
def test_victims_that_others_choose_have_to_be_enough(victims: list[str], expected: bool) -> None:
    state = ClusterState()
    state.put_node(node("n1", cpu="4"))
    pods = {name: running(name, "n1", cpu) for name, cpu in (("a", "1"), ("b", "2"), ("gone", "1"))}
    for each in pods.values():
        state.put_pod(each)
    state.remove_pod(pods["gone"].uid)
    before = dump(state)
    preemption = Preemption("n1", tuple(pods[name] for name in victims), 0)
    assert Preemptor(Framework(state, default_plugins())).helps(pod("p", {"cpu": "3"}), preemption) is expected
    assert not Preemptor(Framework(state, default_plugins())).helps(WANTS_2, preemption._replace(node="other"))
    assert dump(state) == before


def test_who_is_apart_of_whom_leaves_too() -> None:
    apart = {
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {"labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": HOSTNAME}
            ]
        }
    }
    waiting = pod("p", {"cpu": "1"}, priority=10, affinity=apart)
    pods = [running("a", "n1", **GUARDED), running("b", "n1")]
    assert chosen(waiting, pods) == ("n1", "a", 0)


@pytest.mark.parametrize(("is_terminating", "expected"), [(False, ("n1", "a", 0)), (True, None)])
def test_one_that_is_leaving_anyhow_counts_for_no_spread_constraint(
    is_terminating: bool, expected: tuple[str, str, int] | None
) -> None:
    """n2 has none of the pods and no room, so n1 must have none either; its other one is too important to go."""
    labels = {"app": "web"}
    constraint = {
        "maxSkew": 1,
        "topologyKey": HOSTNAME,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": labels},
    }
    metadata = {"deletionTimestamp": "2026-01-01T00:00:00Z"} if is_terminating else {}
    pods = [
        running("a", "n1", labels=labels, metadata=metadata),
        *([running("b", "n1", priority=10, labels=labels)] if is_terminating else []),
        running("c", "n2", "4", 10),
    ]
    waiting = pod("p", {"cpu": "1"}, priority=10, labels=labels, topologySpreadConstraints=[constraint])
    assert chosen(waiting, pods, nodes=2) == expected


@pytest.mark.parametrize(
    ("policy", "victim", "expected"),
    [
        ("Never", {}, "not eligible due to preemptionPolicy=Never."),
        ("PreemptLowerPriority", {}, ""),
        (
            "PreemptLowerPriority",
            {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}},
            "not eligible due to a terminating pod on the nominated node.",
        ),
    ],
)
def test_who_may_preempt(policy: str, victim: dict[str, Any], expected: str) -> None:
    condition = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
    state = ClusterState()
    state.put_node(node("n1", cpu="4"))
    state.put_pod(pod("a", {"cpu": "4"}, nodeName="n1", status={"conditions": [condition]}, **victim))
    framework = Framework(state, default_plugins())
    waiting = pod("p", {"cpu": "2"}, priority=10, preemptionPolicy=policy, status={"nominatedNodeName": "n1"})
    assert Preemptor(framework).why_not(waiting, framework.diagnose(waiting)) == expected


def test_a_nominated_node_that_cannot_take_it_any_more_holds_nobody_up() -> None:
    """Though a pod is leaving it for this one."""
    condition = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
    state = ClusterState()
    going = {"deletionTimestamp": "2026-01-01T00:00:00Z"}
    state.put_pod(pod("a", {"cpu": "4"}, nodeName="n1", metadata=going, status={"conditions": [condition]}))
    framework = Framework(state, default_plugins())
    waiting = pod("p", {"cpu": "2"}, priority=10, status={"nominatedNodeName": "n1"})
    for unschedulable, expected in (
        (False, "not eligible due to a terminating pod on the nominated node."),
        (True, ""),
    ):
        state.put_node(node("n1", cpu="4", unschedulable=unschedulable))
        assert Preemptor(framework).why_not(waiting, framework.diagnose(waiting)) == expected


class Naive:
    """The rules by the oracle's filters."""

    def __init__(self, oracle: Oracle, budgets: Sequence[PodDisruptionBudget]) -> None:
        self.oracle, self.budgets = oracle, budgets

    def on(self, waiting: PodInfo, name: str) -> tuple[list[str], int] | None:
        """The victims and the violations on one node."""
        lower = sorted(
            [each for each in self.oracle.on(name) if each.priority < waiting.priority],
            key=lambda each: (-each.priority, each.pod.status.start_time or ""),
        )
        staying = {uid: placed for uid, placed in self.oracle.placed.items() if uid not in {each.uid for each in lower}}
        if not lower or self._reasons(waiting, name, staying):
            return None
        breaking = self._breaking(lower)
        victims, violations = [], 0
        for each in sorted(lower, key=lambda each: each not in breaking):
            tried = {**staying, each.uid: (each, name)}
            if self._reasons(waiting, name, tried):
                victims.append(each.uid)
                violations += each in breaking
            else:
                staying = tried
        return victims, violations

    def _reasons(self, waiting: PodInfo, name: str, placed: dict[str, tuple[PodInfo, str]]) -> bool:
        return bool(Oracle(self.oracle.nodes, placed, NAMESPACES).reasons(waiting, name))

    def _breaking(self, lower: list[PodInfo]) -> list[PodInfo]:
        found = []
        left = {id(each): each.status.disruptions_allowed for each in self.budgets}
        for each in lower:
            for one in self.budgets:
                selector = one.spec.selector
                assert selector is not None
                if one.metadata.namespace == each.namespace and selector.matches(each.labels):
                    left[id(one)] -= 1
                    if left[id(one)] < 0 and each not in found:
                        found.append(each)
        return found


@pytest.mark.parametrize("seed", range(60, 72))
def test_against_the_rules_node_by_node(seed: int) -> None:
    history, draw = History(seed), random.Random(seed)
    generator = Generator(seed + 1000)
    for _ in range(80):
        history.step()
    budgets = [budget(draw.randrange(2), app=app) for app in ("web", "db")]
    preempted = 0
    for index in range(60):
        history.step()
        waiting = renamed(generator.pod(), f"preemptor-{index}")
        framework = history.framework
        if framework.place(waiting) is not None:
            continue
        diagnosis = framework.diagnose(waiting)
        before = dump(history.state)
        found = Preemptor(framework, budgets).choose(waiting, diagnosis)
        assert dump(history.state) == before
        naive = Naive(history.oracle, budgets)
        by_node = {name: naive.on(waiting, name) for name in history.nodes}
        possible = {name: each for name, each in by_node.items() if each is not None}
        assert (found is not None) == bool(possible), index
        if found is not None:
            assert costs(history, found) == min(
                costs(history, Preemption(name, tuple([history.placed[uid][0] for uid in victims]), violations))
                for name, (victims, violations) in possible.items()
            )
            preempted += 1
    assert preempted


def costs(history: History, found: Preemption) -> tuple[int, int, int, int]:
    priorities = [each.priority for each in found.victims]
    return found.violations, max(priorities), sum(each + 2**31 for each in priorities), len(priorities)

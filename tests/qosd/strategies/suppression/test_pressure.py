"""The policy ``pressure`` on snapshots: what it leaves to best-effort pods, what it says, and where it falls back."""

from __future__ import annotations

from dataclasses import replace as with_fields
from typing import Any

import pytest
from msgspec.structs import replace

from qosd.model.besteffort import BestEffortScheduling
from qosd.model.policy import PressurePolicy
from qosd.model.snapshot import NodeSnapshot
from qosd.strategies.suppression.steps import SuppressionStep
from qosd.strategies.suppression.strategy import SLICE_US, SuppressionStrategy
from tests.qosd.contexts import V2, policy
from tests.qosd.podviews import machine, view
from tests.qosd.strategies.suppression.scenes import suppressing, using

FOUR = machine(4)
WEB, JOB = view("web-7d9f8c6b5d-x2bqz", "LS"), view("job-29384760-x2bqz", "BE", "BestEffort")
PRESSURE = {"cpuSuppress": {"policy": "pressure"}}
WEIGHT = BestEffortScheduling("latency-sensitive pods come first", has_lowest_weight=True)


def node(waited_ms: float, at_s: float, left: BestEffortScheduling | None = None, slices: bool = True) -> NodeSnapshot:
    """Two CPUs of four are best-effort's, and one is the service's."""
    by = suppressing(topology=FOUR, node=PRESSURE, pods=(WEB, JOB))
    by = with_fields(by, host=with_fields(by.host, has_task_slices=slices))
    return using(
        by, 3.0, (WEB, 1.0), (JOB, 2.0), topology=FOUR, waits={WEB.name: (waited_ms, 0.0, 1.0)}, at_s=1000 + at_s,
        left=left,
    )  # fmt: skip


class Run:
    """The strategy over seconds, fed back what it has left."""

    def __init__(self, left: BestEffortScheduling | None = None, slices: bool = True) -> None:
        self.at_s, self.slices = 0.0, slices
        self.memory: Any = None
        self.left = left
        self.sentence = ""

    @property
    def given(self) -> BestEffortScheduling:
        """What is left to best-effort pods, of which the strategy has spoken."""
        assert self.left is not None
        return self.left

    def go(self, seconds: int, waited_ms: Any) -> Run:
        """``waited_ms``: a figure, or a function of what is left."""
        for _ in range(seconds):
            self.at_s += 1
            waited = waited_ms(self.left or WEIGHT) if callable(waited_ms) else waited_ms
            snapshot = node(waited, self.at_s, self.left if self.memory is None else None, self.slices)
            decision, self.memory = SuppressionStrategy().decide(snapshot, self.memory)
            self.left, self.sentence = decision.best_effort, decision.sentence
        return self


def test_at_rest_they_have_the_lowest_weight_and_all_else() -> None:
    run = Run().go(60, 10.0)
    assert run.left == WEIGHT
    assert run.sentence == (
        "pressure: default/web-7d9f8c6b5d-x2bqz main waits 10.0 ms/s (set point 20) for best-effort work; lowest weight"
    )


def test_the_same_object_while_nothing_changes() -> None:
    first = Run().go(1, 10.0)
    left = first.left
    assert first.go(5, 12.0).left is left


def test_a_step_that_helps_stays_and_one_that_does_not_is_said() -> None:
    run = Run().go(100, lambda left: 60.0 - 25 * bool(left.slice_us))
    assert (run.given.slice_us, run.given.is_idle, run.given.cpu_milli, run.given.cpus) == (SLICE_US, False, 0, "")
    assert "long slices (60 → 35 ms/s)" in run.sentence
    for words in ("cpu.idle", "less CPU time", "fewer CPUs"):
        assert f"{words} did not help (35 → 35 ms/s) and was undone" in run.sentence


def test_where_less_time_helps_it_is_limited_and_explained() -> None:
    run = Run(slices=False).go(90, lambda left: 60.0 if left.cpu_milli == 0 else left.cpu_milli / 50)
    assert 500 < run.given.cpu_milli < 1500
    assert "default/web-7d9f8c6b5d-x2bqz waits" in run.given.why
    assert run.sentence.endswith(f"best-effort pods have {run.given.cpu_milli}m")


def test_a_step_on_trial_is_said() -> None:
    assert "trying long slices" in Run().go(9, 60.0).sentence
    assert "trying cpu.idle" in Run(slices=False).go(9, 60.0).sentence
    assert Run(slices=False).go(9, 60.0).given.on_trial == "is_idle"


@pytest.mark.parametrize(
    ("left", "taken", "limit"),
    [
        (replace(WEIGHT, slice_us=SLICE_US, is_idle=True), set(), None),
        (replace(WEIGHT, cpu_milli=1200), {SuppressionStep.TIME}, 1200),
        (replace(WEIGHT, cpus="0-2"), {SuppressionStep.CPUS}, 3000),
    ],
)
def test_a_start_goes_on_from_what_they_have(
    left: BestEffortScheduling, taken: set[SuppressionStep], limit: int | None
) -> None:
    run = Run(left).go(1, 20.0)
    state = run.memory.steps
    assert state.taken == taken
    assert (None if state.limit is None else state.limit.milli) == limit
    assert (run.given.slice_us, run.given.is_idle) == (0, False), "nobody knows whether they helped"
    assert bool(run.given.cpu_milli) == bool(left.cpu_milli)


def test_without_pressure_it_falls_back_to_the_formula_and_says_so() -> None:
    snapshot = replace(node(float("nan"), 1), absent={"stalls": "no cgroup has pressure files"})
    decision, _ = SuppressionStrategy().decide(snapshot, None)
    assert decision.best_effort is not None
    assert (decision.best_effort.has_lowest_weight, decision.best_effort.cpus) == (False, "0-1")
    assert decision.sentence.startswith(
        "policy pressure falls back to the formula: no cgroup has pressure files; best-effort pods have CPUs 0-1 of 0-3"
    )


def test_where_nobody_is_latency_sensitive_nobody_suffers() -> None:
    by = suppressing(topology=FOUR, node=PRESSURE, pods=(JOB,))
    decision, _ = SuppressionStrategy().decide(using(by, 3.0, (JOB, 3.0), topology=FOUR), None)
    assert decision.best_effort == WEIGHT
    assert "no container waits 0.0 ms/s" in decision.sentence


@pytest.mark.parametrize(
    ("extension", "own", "chosen"),
    [
        ({}, {}, None),
        ({"policy": "pressure"}, {}, PressurePolicy(20_000, 95)),
        ({}, {"policy": "pressure", "setPointMilliseconds": 5}, PressurePolicy(5_000, 95)),
        ({"policy": "pressure", "ceilingPercent": 80}, {"setPointMilliseconds": 5}, PressurePolicy(5_000, 80)),
        ({"policy": "pressure"}, {"policy": "slo"}, None),
    ],
    ids=["neither", "the cluster", "the node", "both", "the node has the last word"],
)
def test_it_is_chosen_in_nodeslo_or_on_the_node(
    extension: dict[str, Any], own: dict[str, Any], chosen: PressurePolicy | None
) -> None:
    spec = {"extensions": {"koord": {"cpuSuppress": extension}}}
    assert policy(V2, spec, cpuSuppress=own).pressure_policy == chosen

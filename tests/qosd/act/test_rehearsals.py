"""Rehearsed steps are shown and journaled once each, explained while they stand, and nothing is written."""

from __future__ import annotations

from koord.host.evictions import EVICTION
from koord.host.files import Target
from qosd.act.rehearsals import DRY_RUN, Rehearsals
from qosd.decide.decision import Decision, Stage
from qosd.decide.rehearsal import Rehearsed
from qosd.decide.runner import Decisions, StrategyResult, StrategyStatus
from tests.qosd.act.rig import Recorded
from tests.qosd.podviews import view

WEB, JOB = "/kubepods/burstable/podweb", "/kubepods/besteffort/podjob"
HIGH = Rehearsed(Target(JOB, "memory.high"), 4096, "too much", {"limit": 70}, "default/job")
GONE = Rehearsed(Target(JOB, EVICTION), "stopped", "far too much", {}, "default/job")


def said(*acts: Rehearsed) -> Decisions:
    result = StrategyResult("eviction", Stage.RELIEF, StrategyStatus.ACTIVE, Decision("", acts=acts))
    return Decisions(7, 1, 2, (result,))


class Rig:
    def __init__(self) -> None:
        self.journal = Recorded()
        self.actor = Rehearsals(self.journal)

    def tick(self, *acts: Rehearsed) -> list[tuple[str, object, str]]:
        """Name, value and result of what is done; and that this is what the plan has shown."""
        decisions = said(*acts)
        plan = self.actor.plan(decisions)
        assert self.actor.plan(decisions) == plan
        outcomes = self.actor.apply(decisions, plan)
        assert tuple(outcome.write for outcome in outcomes) == plan.writes
        return [(outcome.write.target.name, outcome.write.after, outcome.result) for outcome in outcomes]


def test_each_is_journaled_once_while_it_stands() -> None:
    rig = Rig()
    assert rig.tick(HIGH) == [("memory.high", 4096, DRY_RUN)]
    assert rig.tick(HIGH, GONE) == [(EVICTION, "stopped", DRY_RUN)]
    assert rig.tick(HIGH, GONE) == []
    assert rig.tick(GONE) == []
    assert rig.tick() == []
    assert rig.tick(HIGH) == [("memory.high", 4096, DRY_RUN)]
    assert rig.journal.results() == [DRY_RUN] * 3
    entry = rig.journal.entries[0]
    assert (entry.tick, entry.owner, entry.pod, entry.cgroup, entry.name) == (
        7,
        "eviction",
        "default/job",
        JOB,
        "memory.high",
    )
    assert (entry.after, entry.why, entry.inputs) == (4096, "dry run: too much", {"limit": 70})


def test_it_is_explained_of_its_pod() -> None:
    rig = Rig()
    rig.tick(HIGH, GONE)
    report, decisions = rig.actor.report, said(HIGH, GONE)
    explained = [
        (act.target, act.owner, act.result, act.actual, act.why) for act in report.of_pod(decisions, view("job"))
    ]
    assert explained == [
        (HIGH.target, "eviction", "4096", "not done", "dry run: too much"),
        (GONE.target, "eviction", "stopped", "not done", "dry run: far too much"),
    ]
    assert not list(report.of_pod(decisions, view("web")))
    rig.tick()
    assert not list(rig.actor.report.of_pod(decisions, view("job")))

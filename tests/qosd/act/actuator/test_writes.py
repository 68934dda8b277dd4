"""The actuator writes what the strategies' opinions come to, once, and only where the file holds something else."""

from __future__ import annotations

from fractions import Fraction

import pytest

from koord.host.files import Target, Value
from koord.host.reconcile.reconciler import StalePlan
from qosd.decide.decision import Opinion
from tests.qosd.act.rig import CPUS, POD, QUOTA, Rig, journalled_writes, wants

HIGH = Target(POD, "memory_limit_in_bytes")


def test_a_write_with_its_journal_line(rig: Rig) -> None:
    rig.say("hooks", (QUOTA, wants(5000, "limit 50m")))
    result = rig.tick()
    (entry,) = rig.journal.entries
    assert (entry.owner, entry.why, entry.pod, entry.result) == ("hooks", "limit 50m", "default/a", "done")
    assert (entry.before, entry.after, entry.path) == (-1, 5000, str(rig.path(QUOTA)))
    assert entry.inputs == {"formula": "given", "value": 5000}
    assert result.sentence == "1 done"
    holding = rig.actuator.files.report.owned[QUOTA]
    assert (holding.base, holding.written, holding.by, holding.since_ns) == (-1, 5000, "hooks", rig.now_ns)


@pytest.mark.parametrize(
    ("target", "value", "held"),
    [(QUOTA, -1, "-1"), (CPUS, "0,1,2,3", "0-3"), (HIGH, 8193, "8192"), (HIGH, -1, "9223372036854771712")],
)
def test_the_same_in_other_words_is_not_written(rig: Rig, target: Target, value: Value, held: str) -> None:
    rig.put(target, held)
    rig.say("hooks", (target, wants(value)))
    rig.tick()
    rig.say("hooks")
    rig.tick()
    assert (rig.writer.tried, rig.journal.entries) == ([], [])


def test_a_cpu_set_goes_through_the_union_and_back_to_its_base(rig: Rig) -> None:
    rig.put(CPUS, "0-1")
    rig.say("hooks", (CPUS, wants("1-2")))
    rig.tick()
    assert rig.written() == [("cpuset_cpus", "0-2"), ("cpuset_cpus", "1-2")]
    assert rig.actuator.files.report.owned[CPUS].base == "0-1"
    rig.say("hooks")
    rig.tick()
    assert rig.holds(CPUS) == "0-1"


def test_stages_work_on_what_someone_else_wrote(rig: Rig) -> None:
    rig.put(QUOTA, "120000")
    rig.say("ratio", (QUOTA, Opinion.scale(Fraction(5, 6), "ratio 1.2")))
    rig.tick()
    assert rig.holds(QUOTA) == 100_000
    rig.say("burst", (QUOTA, Opinion.scale(Fraction(3, 2), "throttled")))
    rig.say("suppress", (QUOTA, Opinion.at_most(140_000, "busy")))
    rig.tick()
    assert rig.holds(QUOTA) == 140_000
    composed = rig.actuator.files.report.composed(QUOTA)
    assert composed is not None
    assert [(one.strategy, one.value) for one in composed.trail] == [
        ("", 120_000),
        ("ratio", 100_000),
        ("burst", 150_000),
        ("suppress", 140_000),
    ]
    rig.say("ratio")
    rig.say("burst")
    rig.say("suppress", (QUOTA, Opinion.release("calm")))
    rig.tick()
    assert (rig.holds(QUOTA), rig.actuator.files.report.owned) == (120_000, {})
    assert rig.journal.entries[-1].why == "back to its base: calm"


def test_other_words_for_the_same_value_cost_no_look(rig: Rig) -> None:
    rig.say("hooks", (QUOTA, wants(5000, "one reason")))
    rig.tick()
    looks = rig.writer.looks
    rig.say("hooks", (QUOTA, wants(5000, "another")))
    rig.tick()
    assert rig.writer.looks == looks
    composed = rig.actuator.files.report.composed(QUOTA)
    assert composed is not None and composed.why == "another"


def test_nobody_has_an_opinion(rig: Rig) -> None:
    assert rig.actuator.files.report.composed(QUOTA) is None
    rig.tick()
    assert rig.actuator.files.report.composed(QUOTA) is None


def test_a_plan_is_executed_once(rig: Rig) -> None:
    rig.say("hooks", (QUOTA, wants(5000)))
    plan = rig.plan()
    rig.actuator.execute(plan)
    with pytest.raises(StalePlan):
        rig.actuator.execute(plan)


def test_the_journal_is_what_was_written(rig: Rig) -> None:
    for value in (5000, 6000, 6000, -1, 7000):
        rig.say("hooks", (QUOTA, wants(value)), (CPUS, wants(str(value % 3))))
        rig.tick()
    assert journalled_writes(rig.journal.entries) == rig.writer.made

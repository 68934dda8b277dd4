"""The actuator takes another writer's value for the base, and yields a file that is contested."""

from __future__ import annotations

from fractions import Fraction

from koord.host.files import Target
from koord.host.reconcile.step import FIGHT_WITHIN_NS, FORGIVEN_AFTER_NS
from qosd.decide.decision import Opinion
from tests.fakes.clock import S
from tests.qosd.act.rig import QUOTA, Rig, wants


def contest(rig: Rig) -> None:
    """Another writer sets the quota to the same value a third time in a row, and the actuator yields."""
    rig.say("hooks", (QUOTA, wants(5000)))
    rig.tick()
    for _ in range(2):
        rig.put(QUOTA, "8000")
        rig.see(QUOTA)
        rig.tick()
        assert (rig.holds(QUOTA), rig.actuator.files.report.owned[QUOTA].base) == (5000, 8000)
    rig.put(QUOTA, "8000")
    rig.see(QUOTA)
    rig.tick()
    assert rig.holds(QUOTA) == 8000


def test_put_right_twice_then_yielded(rig: Rig) -> None:
    contest(rig)
    assert rig.actuator.files.report.contested[QUOTA].startswith("degraded: contested by another writer, who set 8000")
    assert (rig.actuator.files.report.owned, rig.undo.entries) == ({}, ())
    assert rig.journal.results() == ["done", "foreign", "done", "foreign", "done", "foreign", "yielded"]
    assert [entry.after for entry in rig.journal.entries if entry.result == "foreign"] == [8000, 8000, 8000]
    for _ in range(100):
        rig.tick()
    assert rig.holds(QUOTA) == 8000


def test_a_pod_that_is_resized_again_and_again_is_no_contest_and_an_agent_that_fights_is(rig: Rig) -> None:
    """A resize writes the old value with its memory and the new one with its CPU."""
    rig.say("hooks", (QUOTA, wants(5000)))
    rig.tick()
    values = (6000, 7000, 7000, 8000, 9000)
    for foreign in values:
        rig.put(QUOTA, str(foreign))
        rig.see(QUOTA)
        rig.tick()
        assert (rig.holds(QUOTA), rig.actuator.files.report.owned[QUOTA].base) == (5000, foreign)
    rig.put(QUOTA, "10000")
    rig.see(QUOTA)
    rig.tick()
    assert (rig.holds(QUOTA), list(rig.actuator.files.report.contested)) == (10_000, [QUOTA])


def test_a_contested_file_is_tried_again_much_later(rig: Rig) -> None:
    contest(rig)
    rig.tick(seconds=FORGIVEN_AFTER_NS / S)
    assert (rig.holds(QUOTA), rig.actuator.files.report.contested) == (5000, {})
    rig.put(QUOTA, "8000")
    rig.see(QUOTA)
    rig.tick()
    assert (rig.holds(QUOTA), list(rig.actuator.files.report.contested)) == (8000, [QUOTA])


def test_a_contest_ends_with_the_opinion(rig: Rig) -> None:
    contest(rig)
    rig.say("hooks")
    rig.tick()
    assert (rig.holds(QUOTA), rig.actuator.files.report.contested) == (8000, {})


def test_a_contest_ends_with_the_directory(rig: Rig) -> None:
    contest(rig)
    rig.path(QUOTA).rename(rig.root / "old")  # keeps the inode from being used again
    rig.put(QUOTA, "8000")
    rig.see(QUOTA)
    rig.tick()
    assert (rig.holds(QUOTA), rig.actuator.files.report.contested) == (5000, {})


def test_rare_changes_are_no_contest(rig: Rig) -> None:
    rig.say("ratio", (QUOTA, Opinion.scale(Fraction(1, 2), "")))
    for quota in (10_000, 20_000, 30_000, 40_000):
        rig.put(QUOTA, str(quota))
        rig.see(QUOTA)
        rig.tick(seconds=FIGHT_WITHIN_NS / S)
        assert rig.holds(QUOTA) == quota // 2
    assert rig.actuator.files.report.contested == {}


def test_a_writer_that_agrees_gives_the_base(rig: Rig) -> None:
    rig.say("hooks", (QUOTA, wants(5000)))
    rig.tick()
    rig.put(QUOTA, "6000")
    rig.say("hooks", (QUOTA, wants(6000)))
    rig.tick()
    rig.say("hooks")
    rig.tick()
    assert (rig.holds(QUOTA), rig.written()) == (6000, [("cpu_quota", 5000)])


def test_a_foreign_value_is_not_undone_by_a_release(rig: Rig) -> None:
    rig.say("hooks", (QUOTA, wants(5000)))
    rig.tick()
    rig.put(QUOTA, "7000")
    rig.say("hooks")
    rig.tick()
    assert (rig.holds(QUOTA), rig.actuator.files.report.owned, rig.undo.entries) == (7000, {}, ())


def test_a_value_of_ours_from_earlier_can_be_foreign(rig: Rig) -> None:
    for value in (5000, 6000):
        rig.say("hooks", (QUOTA, wants(value)))
        rig.tick()
    rig.put(QUOTA, "5000")
    rig.see(QUOTA)
    rig.tick()
    assert rig.actuator.files.report.owned[QUOTA].base == 5000
    assert [entry.base for entry in rig.undo.entries] == [5000]


def test_untold_changes_are_found_within_a_minute(rig: Rig) -> None:
    groups = [f"/kubepods/pod{number}" for number in range(2, 122)]
    targets = [Target(cgroup, "cpu_quota") for cgroup in groups]
    for cgroup in groups:
        rig.make(cgroup)
    rig.say("hooks", *((target, wants(5000)) for target in targets))
    rig.tick()
    for target in targets:
        rig.put(target, "7000")
    most = 0
    for _ in range(60):
        looks = rig.writer.looks
        rig.tick()
        most = max(most, rig.writer.looks - looks)
    assert all(rig.holds(target) == 5000 for target in targets)
    assert most <= 20, "evenly: 120 files in 50 s are at most 3 a tick, looked at by each plan, written, read back"

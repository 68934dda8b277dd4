"""Values outlive a stop or a crash and the next start; they go back once nobody wants them."""

from __future__ import annotations

import pytest

from koord.host.restoring import restore
from koord.host.writer import Reading
from qosd.decide.decision import Opinion
from qosd.decide.runner import StrategyStatus
from tests.qosd.act.rig import CPUS, IDLE, OWNERS, QUOTA, SHARES, Rig, wants


def test_stopping_writes_nothing_and_the_next_start_writes_nothing_again(rig: Rig) -> None:
    rig.say("hooks", (QUOTA, wants(5000)), (CPUS, wants("0")))
    rig.tick()
    lines = len(rig.journal.entries)
    rig.crash()
    rig.tick()
    assert len(rig.journal.entries) == lines
    assert {target: one.base for target, one in rig.actuator.files.report.owned.items()} == {QUOTA: -1, CPUS: "0-3"}
    assert all(one.by == "hooks" and one.since_ns > 0 for one in rig.actuator.files.report.owned.values())


def test_what_nobody_wants_after_the_start_is_released(rig: Rig) -> None:
    rig.say("hooks", (QUOTA, wants(5000)), (SHARES, wants(2)))
    rig.tick()
    rig.crash()
    rig.say("hooks", (SHARES, wants(2)))
    rig.tick()
    assert (rig.holds(QUOTA), rig.holds(SHARES)) == (-1, 2)
    assert rig.journal.entries[-1].owner == "an earlier run"


def test_not_before_whoever_may_want_it_has_decided(rig: Rig) -> None:
    rig.say("hooks", (QUOTA, wants(5000)), (SHARES, wants(2)))
    rig.tick()
    rig.crash()
    rig.say("hooks")
    rig.undecided = {"hooks"}
    for _ in range(3):
        rig.tick(seconds=100)
    assert (rig.holds(QUOTA), rig.holds(SHARES)) == (5000, 2)
    rig.undecided = set()
    rig.tick()
    assert (rig.holds(QUOTA), rig.holds(SHARES)) == (-1, 1024)


def test_an_unresolved_keep_keeps(rig: Rig) -> None:
    rig.say("hooks", (QUOTA, wants(5000)))
    rig.tick()
    rig.crash()
    rig.say("hooks", (QUOTA, Opinion.keep("no data")))
    rig.tick()
    rig.tick(seconds=60)
    assert rig.holds(QUOTA) == 5000
    rig.say("hooks", (QUOTA, wants(6000)))
    rig.tick()
    rig.say("hooks")
    rig.tick()
    assert rig.holds(QUOTA) == -1


@pytest.mark.parametrize("reading", ["5000", "-1", "7000"])
def test_a_crash_between_record_and_write(rig: Rig, reading: str) -> None:
    """The file holds ours, what was there before, or what someone wrote since; only the last is a new base."""
    rig.undo.remember(QUOTA, Reading(str(rig.path(QUOTA)), rig.path(QUOTA).stat().st_ino, -1), 5000)
    rig.put(QUOTA, reading)
    rig.crash()
    rig.say("hooks", (QUOTA, wants(5000)))
    rig.tick()
    assert (rig.holds(QUOTA), rig.actuator.files.report.owned[QUOTA].base) == (
        5000,
        7000 if reading == "7000" else -1,
    )
    assert rig.actuator.files.report.contested == {}


def test_disabling_all_rolls_back(rig: Rig) -> None:
    before = {target: rig.holds(target) for target in (QUOTA, CPUS, IDLE, SHARES)}
    rig.say("hooks", (CPUS, wants("0")), (IDLE, wants(1)), (SHARES, wants(2)))
    rig.say("suppress", (QUOTA, Opinion.at_most(5000, "busy")))
    rig.tick()
    rig.opinions.clear()
    rig.states = dict.fromkeys(OWNERS, StrategyStatus.DISABLED)
    rig.tick()
    assert {target: rig.holds(target) for target in before} == before
    assert rig.actuator.files.report.owned == {}
    assert {entry.why for entry in rig.journal.entries[4:]} == {
        "back to its base: hooks is disabled by the operator",
        "back to its base: suppress is disabled by the operator",
    }


def test_restore_without_the_daemon(rig: Rig) -> None:
    before = {target: rig.holds(target) for target in (QUOTA, CPUS, IDLE, SHARES)}
    rig.say("hooks", (QUOTA, wants(5000)), (CPUS, wants("0")), (IDLE, wants(1)))
    rig.tick()
    restore(rig.writer, rig.undo)
    assert {target: rig.holds(target) for target in before} == before

"""The actuator writes parents and children in the kernel's order and follows groups that come, go or are made again."""

from __future__ import annotations

from koord.host.files import Target
from tests.qosd.act.rig import CPUS, IDLE, POD, QUOTA, SHARES, Rig, wants

BOX = Target(f"{POD}/box", "cpu_quota")


def test_parents_grow_first_and_shrink_last(rig: Rig) -> None:
    rig.make(BOX.cgroup)
    rig.put(QUOTA, "5000")
    rig.put(BOX, "5000")
    for value in (9000, 3000):
        rig.say("hooks", (BOX, wants(value)), (QUOTA, wants(value)))
        rig.tick()
    assert [target for target, _ in rig.writer.made] == [QUOTA, BOX, BOX, QUOTA]


def test_a_group_that_is_not_there_yet_is_waited_for(rig: Rig) -> None:
    rig.say("hooks", (BOX, wants(5000)))
    rig.tick()
    assert rig.journal.entries == []
    rig.make(BOX.cgroup)
    rig.tick()
    assert rig.holds(BOX) == 5000


def test_a_directory_that_vanishes_between_plan_and_write(rig: Rig) -> None:
    rig.say("hooks", (QUOTA, wants(5000)), (CPUS, wants("0")))
    plan = rig.plan()
    rig.remove()
    result = rig.actuator.execute(plan)
    assert [outcome.result for outcome in result.outcomes] == ["vanished", "vanished"]
    assert rig.journal.results() == ["vanished", "vanished"]
    assert (rig.actuator.files.report.owned, rig.undo.entries) == ({}, ())


def test_a_directory_made_again_is_a_new_one(rig: Rig) -> None:
    rig.say("hooks", (QUOTA, wants(5000)))
    rig.tick()
    before = rig.actuator.files.report.owned[QUOTA].inode
    rig.path(QUOTA).rename(rig.root / "old")  # keeps the inode from being used again
    rig.put(QUOTA, "7000")
    rig.see(QUOTA)
    rig.tick()
    holding = rig.actuator.files.report.owned[QUOTA]
    assert (holding.base, holding.restored_times, holding.inode != before) == (7000, 0, True)
    assert rig.holds(QUOTA) == 5000


def test_pods_that_vanish_leave_nothing(rig: Rig) -> None:
    rig.say("hooks", (QUOTA, wants(5000)), (CPUS, wants("0")), (IDLE, wants(1)), (SHARES, wants(2)))
    rig.tick()
    rig.remove()
    rig.tick(seconds=60)
    rig.say("hooks")
    rig.tick()
    assert (rig.actuator.files.report.owned, rig.retried(), rig.undo.entries) == ({}, [], ())
    assert "vanished" not in rig.journal.results()

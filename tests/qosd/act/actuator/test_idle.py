"""The kernel changes the shares of an idle group; they come back with the end of idle."""

from __future__ import annotations

from tests.qosd.act.rig import IDLE, SHARES, Rig, wants


def test_shares_come_back_with_the_end_of_idle(rig: Rig) -> None:
    rig.put(SHARES, "512")
    rig.say("hooks", (IDLE, wants(1)))
    rig.tick()
    rig.put(SHARES, "3")  # as the kernel does
    rig.see(SHARES, IDLE)
    rig.tick()
    assert rig.written() == [("cpu.idle", 1)]
    rig.say("hooks")
    rig.tick()
    assert rig.written()[1:] == [("cpu.idle", 0), ("cpu_shares", 512)]
    assert (rig.actuator.files.report.owned, rig.undo.entries) == ({}, ())


def test_shares_of_an_idle_group_wait(rig: Rig) -> None:
    rig.say("hooks", (IDLE, wants(1)), (SHARES, wants(2048)))
    rig.tick()
    assert rig.written() == [("cpu.idle", 1)]
    rig.put(SHARES, "3")
    rig.say("hooks", (IDLE, wants(0)), (SHARES, wants(2048)))
    rig.tick()
    assert rig.written()[1:] == [("cpu.idle", 0), ("cpu_shares", 2048)]
    rig.say("hooks")
    rig.tick()
    assert rig.holds(SHARES) == 1024


def test_shares_held_before_come_back_after_a_crash_while_idle(rig: Rig) -> None:
    rig.say("hooks", (SHARES, wants(2048)))
    rig.tick()
    rig.say("hooks", (IDLE, wants(1)), (SHARES, wants(2048)))
    rig.tick()
    rig.put(SHARES, "3")
    rig.crash()
    rig.tick()
    rig.say("hooks")
    rig.tick()
    assert (rig.holds(IDLE), rig.holds(SHARES)) == (0, 1024)

"""The kernel refuses a burst above the quota, and a quota below the burst."""

from __future__ import annotations

import pytest

from koord.host.files import Value
from koord.model.formulas import recompute
from qosd.decide.decision import Opinion
from tests.qosd.act.rig import BURST, QUOTA, Rig, wants


@pytest.fixture(autouse=True)
def _quota(rig: Rig) -> None:
    rig.put(QUOTA, "100000")
    rig.put(BURST, "0")
    rig.say("hooks", (BURST, wants(80_000)))
    rig.tick()
    assert rig.holds(BURST) == 80_000


def cap(rig: Rig, quota_us: int) -> list[tuple[str, Value]]:
    """What is written when the quota is bounded."""
    made = len(rig.writer.made)
    rig.say("suppress", (QUOTA, Opinion.at_most(quota_us, "busy")))
    rig.tick()
    return rig.written()[made:]


def check_that_all_comes_back(rig: Rig, burst_us: int) -> None:
    rig.say("hooks")
    rig.say("suppress")
    rig.tick()
    assert (rig.holds(QUOTA), rig.holds(BURST)) == (100_000, burst_us)
    assert (rig.actuator.files.report.owned, rig.undo.entries) == ({}, ())


def test_it_goes_down_before_the_quota_does_and_comes_back_after(rig: Rig) -> None:
    assert cap(rig, 50_000) == [("cpu.max.burst", 50_000), ("cpu_quota", 50_000)]
    assert rig.journal.entries[-2].why == "spec; at most the quota of 50000"
    assert recompute(rig.journal.entries[-2].inputs) == 50_000
    composed = rig.actuator.files.report.composed(BURST)
    assert composed is not None
    assert (composed.value, composed.by, composed.why) == (50_000, "hooks", "spec; at most the quota of 50000")
    assert cap(rig, -1) == [("cpu_quota", 100_000), ("cpu.max.burst", 80_000)]


def test_one_that_fits_stays(rig: Rig) -> None:
    assert cap(rig, 90_000) == [("cpu_quota", 90_000)]


def test_one_that_nobody_wants_any_more_goes_down_with_the_quota(rig: Rig) -> None:
    """The strategy lets go of it in the very tick in which another bounds the quota."""
    rig.put(BURST, "70000")
    rig.see(BURST)
    rig.tick()
    rig.say("hooks")
    assert cap(rig, 40_000) == [("cpu.max.burst", 40_000), ("cpu_quota", 40_000)]
    check_that_all_comes_back(rig, 70_000)


def test_one_of_somebody_elses_goes_down_with_the_quota(rig: Rig) -> None:
    """As of a container that the runtime made with it."""
    rig.say("hooks")
    rig.tick()
    rig.put(BURST, "90000")
    assert cap(rig, 60_000) == [("cpu.max.burst", 60_000), ("cpu_quota", 60_000)]
    assert (rig.journal.entries[-2].owner, recompute(rig.journal.entries[-2].inputs)) == ("suppress", 60_000)
    assert cap(rig, 95_000) == [("cpu_quota", 95_000), ("cpu.max.burst", 90_000)]
    check_that_all_comes_back(rig, 90_000)


def test_one_that_is_left_as_it_is_goes_down_with_the_quota(rig: Rig) -> None:
    """An earlier run left it, and who may speak of it has not decided yet."""
    rig.crash()
    rig.undecided = {"hooks"}
    rig.opinions.clear()
    assert cap(rig, 50_000) == [("cpu.max.burst", 50_000), ("cpu_quota", 50_000)]
    rig.undecided = set()
    check_that_all_comes_back(rig, 0)


def test_a_quota_of_someone_elses_bounds_it_as_well(rig: Rig) -> None:
    """He had to lower the burst first: that is the base now."""
    rig.put(BURST, "0")
    rig.put(QUOTA, "30000")
    rig.see(BURST)
    rig.tick()
    assert (rig.holds(BURST), rig.actuator.files.report.owned[BURST].base) == (30_000, 0)
    assert cap(rig, 20_000) == [("cpu.max.burst", 20_000), ("cpu_quota", 20_000)]
    assert cap(rig, -1) == [("cpu_quota", 30_000), ("cpu.max.burst", 30_000)]


def test_a_base_that_does_not_fit_waits_for_the_quota(rig: Rig) -> None:
    rig.put(BURST, "70000")
    rig.see(BURST)
    rig.tick()
    assert cap(rig, 40_000) == [("cpu.max.burst", 40_000), ("cpu_quota", 40_000)]
    rig.say("hooks")
    rig.tick()
    assert rig.holds(BURST) == 40_000
    rig.say("suppress")
    rig.tick()
    assert (rig.holds(QUOTA), rig.holds(BURST), rig.actuator.files.report.owned) == (100_000, 70_000, {})

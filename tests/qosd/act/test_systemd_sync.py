"""What the actuator tells systemd, and when: with a systemd of the test's own that answers as it is told."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from koord.host import systemd_units
from koord.host.files import Target
from koord.host.systemd_units import SyncOutcome
from tests.qosd.act.rig import CPUS, POD, QUOTA, SHARES, Rig, wants

OTHER = Target("/kubepods/pod2", "cpu_quota")
DOWN = SyncOutcome("no bus", answered=False)


class Units(systemd_units.Units):
    """``answers``: by file, else ``answer``, but nothing on what is ``gone``; ``told``: the files of each telling.

    ``meddle``: what systemd does to the files when it is told.
    """

    def __init__(self) -> None:
        self.told: list[set[Target]] = []
        self.answer = SyncOutcome()
        self.answers: dict[Target, SyncOutcome] = {}
        self.gone: set[Target] = set()
        self.meddle: Callable[[], None] = lambda: None

    def tell(self, targets: Iterable[Target]) -> dict[Target, SyncOutcome]:
        self.told.append(set(targets))
        self.meddle()
        return {target: self.answers.get(target, self.answer) for target in self.told[-1] - self.gone}


@pytest.fixture
def units() -> Units:
    return Units()


@pytest.fixture
def rig(tmp_path: Path, units: Units) -> Rig:
    rig = Rig(tmp_path, units=units)
    rig.make()
    rig.make(OTHER.cgroup)
    return rig


def test_what_could_not_be_told_stays_written_and_is_told_later(
    rig: Rig, units: Units, caplog: pytest.LogCaptureFixture
) -> None:
    units.answer = DOWN
    rig.say("hooks", (QUOTA, wants(5000)))
    with caplog.at_level(logging.WARNING):
        rig.tick()
        rig.tick(seconds=9)
        assert len(units.told) == 1, "not before ten seconds have passed"
        rig.tick(seconds=1)
    assert (rig.holds(QUOTA), units.told) == (5000, [{QUOTA}, {QUOTA}])
    assert "no bus" in rig.actuator.files.report.unsynced
    assert len(caplog.records) == 1, "said once"
    units.answer = SyncOutcome()
    rig.tick(seconds=10)
    rig.tick(seconds=10)
    assert (rig.actuator.files.report.unsynced, len(units.told)) == ("", 3)


def test_a_bus_that_is_silent_is_not_waited_for_with_every_change(rig: Rig, units: Units) -> None:
    units.answer = DOWN
    for quota_us in (5000, 6000, 7000):
        rig.say("hooks", (QUOTA, wants(quota_us)), (OTHER, wants(quota_us)))
        rig.tick(seconds=3)
    assert (rig.holds(QUOTA), len(units.told)) == (7000, 1)
    units.answer = SyncOutcome("NoSuchUnit: no")
    rig.tick(seconds=4)
    rig.say("hooks", (QUOTA, wants(8000)), (OTHER, wants(7000)))
    rig.tick()
    assert units.told[1:] == [{QUOTA, OTHER}, {QUOTA}], "a unit that is refused holds up no other"


def test_the_journal_says_it_at_the_write(rig: Rig, units: Units) -> None:
    units.answers = {SHARES: SyncOutcome("NoSuchUnit: no"), QUOTA: SyncOutcome(value=34_000, is_rounded=True)}
    rig.say("hooks", (QUOTA, wants(33_333)), (SHARES, wants(2)), (CPUS, wants("0")))
    rig.tick()
    assert {entry.name: entry.why.partition("; ")[2] for entry in rig.journal.entries} == {
        "cpu_quota": "also set through systemd, which keeps 34000",
        "cpu_shares": "not set through systemd: NoSuchUnit: no",
        "cpuset_cpus": "also set through systemd",
    }


def test_all_that_is_held_of_a_unit_is_told_with_what_changes(rig: Rig, units: Units) -> None:
    rig.say("hooks", (QUOTA, wants(5000)), (OTHER, wants(6000)))
    rig.tick()
    rig.tick()
    rig.say("hooks", (QUOTA, wants(5000)), (OTHER, wants(6000)), (SHARES, wants(2)))
    rig.tick()
    assert units.told == [{QUOTA, OTHER}, {QUOTA, SHARES}], "and nothing where nothing changed"


def test_what_is_given_back_or_lost_to_someone_else_is_told_too(rig: Rig, units: Units) -> None:
    rig.say("hooks", (QUOTA, wants(5000)), (SHARES, wants(2)))
    rig.tick()
    rig.put(SHARES, "512\n")
    rig.see(SHARES)
    rig.say("hooks")
    rig.tick()
    assert (rig.holds(QUOTA), rig.holds(SHARES), units.told[-1]) == (-1, 512, {QUOTA, SHARES})


@pytest.mark.parametrize("answer", [DOWN, SyncOutcome("NoSuchUnit: no")], ids=["silent", "refused"])
@pytest.mark.parametrize("told_first", [True, False])
def test_what_is_given_back_while_systemd_does_not_listen_is_told_later(
    rig: Rig, units: Units, told_first: bool, answer: SyncOutcome
) -> None:
    units.answer = SyncOutcome() if told_first else answer
    rig.say("hooks", (QUOTA, wants(5000)))
    rig.tick()
    units.answer = answer
    rig.say("hooks")
    rig.tick()
    assert (rig.holds(QUOTA), rig.actuator.files.report.owned) == (-1, {})
    units.told.clear()
    units.answer = SyncOutcome()
    for _ in range(3):
        rig.tick(seconds=10)
    assert (units.told, rig.actuator.files.report.unsynced) == ([{QUOTA}], "")


def test_what_a_unit_does_not_know_yet_is_told_with_whatever_changes_in_it(rig: Rig, units: Units) -> None:
    rig.say("hooks", (QUOTA, wants(5000)))
    rig.tick()
    units.answers = {QUOTA: SyncOutcome("NoSuchUnit: no")}
    rig.say("hooks")
    rig.tick()
    rig.say("hooks", (SHARES, wants(2)))
    rig.tick()
    assert units.told[1:] == [{QUOTA}, {QUOTA, SHARES}], "systemd would write the old quota with the shares"


def test_a_group_that_ends_while_the_bus_is_silent_is_forgotten(rig: Rig, units: Units) -> None:
    units.answer = DOWN
    rig.say("hooks", (OTHER, wants(5000)))
    rig.tick()
    rig.say("hooks")
    rig.remove(OTHER.cgroup)
    rig.tick()
    units.gone = {OTHER}
    for _ in range(3):
        rig.tick(seconds=10)
    assert (units.told[1:], rig.actuator.files.report.unsynced) == ([{OTHER}], "")


def test_what_systemd_makes_of_a_value_is_put_right_without_a_fight(rig: Rig, units: Units) -> None:
    units.answers = {QUOTA: SyncOutcome(value=34_000, is_rounded=True)}
    rig.say("hooks", (QUOTA, wants(33_333)))
    for _ in range(5):
        rig.tick()
        found = rig.writer.look(QUOTA)
        assert found is not None
        rig.undo.remember(QUOTA, found, 34_000)  # as Units does before it tells
        rig.put(QUOTA, "34000\n")  # a reload
        rig.see(QUOTA)
    rig.tick()
    assert (rig.holds(QUOTA), rig.actuator.files.report.contested, set(rig.journal.results())) == (33_333, {}, {"done"})
    rig.say("hooks")
    rig.tick()
    assert rig.holds(QUOTA) == -1, "its base is still what was there first"


def test_what_systemd_knew_and_writes_before_it_hears_of_the_next_value_is_no_base(rig: Rig, units: Units) -> None:
    """kubelet sets a property of its QoS slices with each new pod, upon which systemd writes all that it knows of them.
    Between a write and the telling of it, that is the value from before; and what the file holds is what it is told."""

    def overtake() -> None:
        rig.put(QUOTA, f"{known_us}\n")
        units.answer = SyncOutcome(value=known_us)

    known_us = 70_000
    units.answer = SyncOutcome(value=known_us)
    rig.say("hooks", (QUOTA, wants(known_us)))
    rig.tick()
    for quota_us in (20_000, 30_000, 40_000, 50_000):
        units.meddle = overtake
        rig.say("hooks", (QUOTA, wants(quota_us)))
        rig.tick()
        known_us = quota_us
        units.meddle, units.answer = (lambda: None), SyncOutcome(value=known_us)
        rig.see(QUOTA)
        rig.tick()
        assert rig.holds(QUOTA) == quota_us
    assert set(rig.journal.results()) == {"done"}
    rig.say("hooks")
    rig.tick()
    assert rig.holds(QUOTA) == -1


@pytest.mark.parametrize("is_another_run", [False, True])
def test_what_systemd_knows_while_it_cannot_be_told_is_no_base(rig: Rig, units: Units, is_another_run: bool) -> None:
    units.answer = SyncOutcome(value=70_000)
    rig.say("hooks", (QUOTA, wants(70_000)))
    rig.tick()
    units.answer = DOWN
    for quota_us in (20_000, 30_000):
        rig.say("hooks", (QUOTA, wants(quota_us)))
        rig.tick()
    if is_another_run:
        rig.crash()
    rig.put(QUOTA, "70000\n")  # a reload
    rig.see(QUOTA)
    rig.tick()
    assert (rig.holds(QUOTA), set(rig.journal.results())) == (30_000, {"done"})
    rig.say("hooks")
    rig.tick()
    assert rig.holds(QUOTA) == -1


def test_the_next_run_tells_what_the_last_may_not_have_told(rig: Rig, units: Units) -> None:
    rig.say("hooks", (QUOTA, wants(5000)))
    rig.tick()
    rig.crash()
    units.told.clear()
    rig.tick()
    rig.tick(seconds=60)
    assert units.told == [{QUOTA}]


def test_without_systemd_nothing_is_said(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.make(POD)
    rig.say("hooks", (QUOTA, wants(5000)))
    rig.tick()
    rig.crash()
    rig.tick()
    assert (rig.actuator.files.report.unsynced, [entry.why for entry in rig.journal.entries]) == ("", ["spec"])


def test_a_start_tells_what_was_given_back_before_a_kill_and_systemd_has_not_heard(rig: Rig, units: Units) -> None:
    rig.say("hooks", (QUOTA, wants(5000)))
    rig.tick()
    units.answer = DOWN
    rig.say("hooks")
    rig.tick()
    assert (rig.holds(QUOTA), [entry.target for entry in rig.undo.entries]) == (-1, [QUOTA])
    rig.crash()
    units.answer = SyncOutcome()
    units.told.clear()
    rig.tick()
    assert (rig.holds(QUOTA), units.told, rig.undo.entries) == (-1, [{QUOTA}], ())


def test_what_systemd_makes_of_a_value_that_was_given_back_is_given_back_anew(rig: Rig, units: Units) -> None:
    """It keeps quotas in whole percents, and a write past it may fail."""
    rig.put(QUOTA, "33333\n")
    rig.say("hooks", (QUOTA, wants(5000)))
    rig.tick()
    units.meddle = lambda: rig.put(QUOTA, "34000\n")
    rig.say("hooks")
    (outcome,) = rig.tick().outcomes
    assert (outcome.result, outcome.detail) == ("failed readback", "holds 34000 afterwards")
    assert [entry.base for entry in rig.undo.entries] == [33_333]
    units.meddle = lambda: None
    rig.see(QUOTA)
    rig.tick()
    assert (rig.holds(QUOTA), rig.actuator.files.report.owned, rig.undo.entries) == (33_333, {}, ())

"""The actuator over a tree of plain files: what it writes, puts back, yields, takes over and tells."""

from __future__ import annotations

import errno
from fractions import Fraction
from pathlib import Path

import pytest

from koord.host.files import Target, Value
from koord.host.reconcile.reconciler import StalePlan
from koord.host.reconcile.step import FIGHT_WITHIN_NS, FORGIVEN_AFTER_NS
from koord.host.restoring import restore
from koord.host.undo import UndoError
from koord.host.weights import Weights
from koord.host.writer import Reading
from koord.model.formulas import recompute
from qosd.decide.decision import Opinion
from qosd.decide.runner import State
from tests.fakes.clock import S
from tests.qosd.act.rig import (
    BURST,
    CPUS,
    IDLE,
    OWNERS,
    POD,
    QUOTA,
    SHARES,
    Rig,
    journalled_writes,
    wants,
)

BOX = Target(f"{POD}/box", "cpu_quota")
HIGH = Target(POD, "memory_limit_in_bytes")


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    rig = Rig(tmp_path)
    rig.make()
    return rig


class TestRefusals:
    def test_a_write_that_the_kernel_refuses_is_tried_again_with_back_off(self, rig: Rig, tmp_path: Path) -> None:
        rig.writer.error = errno.EINVAL
        rig.say("hooks", (QUOTA, wants(5000)))
        tried = []
        for second in range(1, 20):
            rig.tick()
            if len(rig.writer.tried) > len(tried):
                tried.append(second)
        assert tried == [1, 2, 4, 8, 16]
        assert rig.journal.results() == ["failed EINVAL"] * 5
        assert rig.actuator.files.report.owned == {}
        assert rig.undo.entries == ()

    def test_another_value_is_tried_at_once(self, rig: Rig) -> None:
        rig.writer.error = errno.EINVAL
        rig.say("hooks", (QUOTA, wants(5000)))
        for _ in range(4):
            rig.tick()
        rig.say("hooks", (QUOTA, wants(6000)))
        rig.tick()
        assert rig.writer.tried[-1] == (QUOTA, 6000)

    def test_a_directory_that_vanishes_between_plan_and_write(self, rig: Rig) -> None:
        rig.say("hooks", (QUOTA, wants(5000)), (CPUS, wants("0")))
        plan = rig.plan()
        rig.remove()
        result = rig.actuator.execute(plan)
        assert [outcome.result for outcome in result.outcomes] == ["vanished", "vanished"]
        assert rig.journal.results() == ["vanished", "vanished"]
        assert (rig.actuator.files.report.owned, rig.undo.entries) == ({}, ())

    def test_a_file_that_this_kernel_lacks_is_told_once(self, rig: Rig) -> None:
        rig.path(IDLE).unlink()
        rig.say("hooks", (IDLE, wants(1)))
        for _ in range(1200):
            rig.tick()
        assert rig.journal.results() == ["unsupported"]
        rig.put(IDLE, "0\n")
        rig.tick(seconds=600)
        assert rig.holds(IDLE) == 1

    def test_a_group_that_is_not_there_yet_is_waited_for(self, rig: Rig) -> None:
        rig.say("hooks", (BOX, wants(5000)))
        rig.tick()
        assert rig.journal.entries == []
        rig.make(BOX.cgroup)
        rig.tick()
        assert rig.holds(BOX) == 5000

    def test_without_undo_record_nothing_is_written(self, rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
        def full(*_: object) -> None:
            raise UndoError(errno.ENOSPC, "undo record: No space left on device", "/run/undo")

        rig.say("hooks", (QUOTA, wants(5000)))
        with monkeypatch.context() as patch:
            patch.setattr(rig.undo, "remember", full)
            rig.tick()
        assert (rig.holds(QUOTA), rig.journal.results(), rig.writer.tried) == (-1, ["refused"], [])
        rig.tick()
        assert rig.holds(QUOTA) == 5000

    def test_an_unreadable_file_costs_itself_only(self, rig: Rig) -> None:
        rig.put(QUOTA, "soon\n")
        rig.say("hooks", (QUOTA, wants(5000)), (SHARES, wants(2)))
        for _ in range(4):
            rig.tick()
        assert rig.holds(SHARES) == 2
        assert rig.journal.results().count("unreadable") == 3

    def test_a_base_that_cannot_be_looked_into_costs_itself_only(self, tmp_path: Path) -> None:
        rig = Rig(tmp_path, 2)
        rig.put(CPUS, "\n")
        rig.put(QUOTA, "max 100000\n")
        rig.say("hooks", (CPUS, wants("0-1")), (QUOTA, wants(5000)))
        rig.tick()
        (rig.path(CPUS).parent / "cgroup.events").mkdir()  # reading it is refused: are there processes?
        rig.say("hooks")
        rig.tick()
        assert (rig.holds(CPUS), rig.holds(QUOTA), rig.actuator.files.report.owned) == ("", -1, {})

    @pytest.mark.parametrize(
        ("target", "value"),
        [(SHARES, 1), (CPUS, "many"), (Target(POD, "memory.nothing"), 1), (Target("/../etc", "cpu_quota"), 5000)],
    )
    def test_a_senseless_opinion_changes_nothing(self, rig: Rig, target: Target, value: Value) -> None:
        rig.say("hooks", (target, wants(value)))
        rig.tick()
        rig.tick(seconds=60)
        assert (rig.writer.tried, rig.actuator.files.refusals) == ([], 1)
        assert list(rig.actuator.files.report.refused) == [target]
        rig.say("hooks")
        rig.tick()
        assert rig.actuator.files.report.refused == {}

    def test_two_strategies_at_one_stage(self, rig: Rig) -> None:
        rig.say("hosts", (CPUS, wants("1")))
        rig.tick()
        rig.say("hooks", (CPUS, wants("0")))
        rig.tick()
        rig.tick()
        assert rig.holds(CPUS) == "1", "the first owner stays"
        assert rig.actuator.files.refusals == 1
        rig.say("hosts")
        rig.tick()
        assert rig.holds(CPUS) == "0"

    def test_what_reads_back_otherwise_is_no_success(self, rig: Rig) -> None:
        path = rig.path(QUOTA)
        rig.writer.write = lambda target, value: path.write_text("7000\n") and None  # type: ignore[method-assign]
        rig.say("hooks", (QUOTA, wants(5000)))
        rig.tick()
        assert rig.journal.results() == ["failed readback"]
        del rig.writer.write  # type: ignore[attr-defined]
        rig.tick()
        assert rig.holds(QUOTA) == 5000
        rig.say("hooks")
        rig.tick()
        assert rig.holds(QUOTA) == -1

    def test_a_plan_is_executed_once(self, rig: Rig) -> None:
        rig.say("hooks", (QUOTA, wants(5000)))
        plan = rig.plan()
        rig.actuator.execute(plan)
        with pytest.raises(StalePlan):
            rig.actuator.execute(plan)


class TestWriting:
    def test_a_write_with_its_journal_line(self, rig: Rig) -> None:
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
    def test_the_same_in_other_words_is_not_written(self, rig: Rig, target: Target, value: Value, held: str) -> None:
        rig.put(target, held)
        rig.say("hooks", (target, wants(value)))
        rig.tick()
        rig.say("hooks")
        rig.tick()
        assert (rig.writer.tried, rig.journal.entries) == ([], [])

    @pytest.mark.parametrize(("made", "wanted"), [(2, 20), (20, 2), (1024, 1010), (262_144, 262_143)])
    def test_v1_shares_of_one_weight_are_still_different_shares(self, rig: Rig, made: int, wanted: int) -> None:
        rig.put(SHARES, f"{made}\n")
        rig.say("hooks", (SHARES, wants(wanted)))
        rig.tick()
        assert (rig.holds(SHARES), rig.actuator.files.report.owned[SHARES].base) == (wanted, made)
        rig.crash()
        rig.tick()
        rig.say("hooks")
        rig.tick()
        assert (rig.holds(SHARES), rig.undo.entries, set(rig.journal.results())) == (made, (), {"done"})

    def test_shares_are_written_again_when_the_nodes_mapping_is_learnt(self, tmp_path: Path) -> None:
        rig = Rig(tmp_path, version=2)
        rig.put(SHARES, "79\n")
        rig.say("hooks", (SHARES, wants(512)))
        rig.tick()
        assert rig.path(SHARES).read_text().strip() == "20"
        rig.writer.weights = Weights.QUADRATIC
        rig.undo.spell(Weights.QUADRATIC, 100_000)
        rig.actuator.files.respelled()
        for _ in range(3):
            rig.tick()
        assert rig.path(SHARES).read_text().strip() == "59"
        assert (rig.journal.results(), rig.actuator.files.report.contested) == (["done", "done"], {})
        rig.say("hooks")
        rig.tick()
        assert (rig.path(SHARES).read_text().strip(), rig.undo.entries) == ("79", ())

    @pytest.mark.parametrize(("known", "weight"), [(None, "20"), (Weights.LINEAR, "20"), (Weights.QUADRATIC, "59")])
    def test_either_mapping_will_do_until_the_nodes_is_known(
        self, tmp_path: Path, known: Weights | None, weight: str
    ) -> None:
        rig = Rig(tmp_path, version=2)
        rig.writer.weights = known or rig.writer.weights
        rig.undo.spell(known, 100_000)
        rig.put(SHARES, "20\n")
        rig.say("hooks", (SHARES, wants(512)))
        for _ in range(2):
            rig.tick()
        assert rig.path(SHARES).read_text().strip() == weight

    def test_parents_grow_first_and_shrink_last(self, rig: Rig) -> None:
        rig.make(BOX.cgroup)
        rig.put(QUOTA, "5000")
        rig.put(BOX, "5000")
        for value in (9000, 3000):
            rig.say("hooks", (BOX, wants(value)), (QUOTA, wants(value)))
            rig.tick()
        assert [target for target, _ in rig.writer.made] == [QUOTA, BOX, BOX, QUOTA]

    def test_a_cpu_set_goes_through_the_union_and_back_to_its_base(self, rig: Rig) -> None:
        rig.put(CPUS, "0-1")
        rig.say("hooks", (CPUS, wants("1-2")))
        rig.tick()
        assert rig.written() == [("cpuset_cpus", "0-2"), ("cpuset_cpus", "1-2")]
        assert rig.actuator.files.report.owned[CPUS].base == "0-1"
        rig.say("hooks")
        rig.tick()
        assert rig.holds(CPUS) == "0-1"

    def test_stages_work_on_what_someone_else_wrote(self, rig: Rig) -> None:
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
        rig.say("ratio"), rig.say("burst"), rig.say("suppress", (QUOTA, Opinion.release("calm")))
        rig.tick()
        assert (rig.holds(QUOTA), rig.actuator.files.report.owned) == (120_000, {})
        assert rig.journal.entries[-1].why == "back to its base: calm"

    def test_other_words_for_the_same_value_cost_no_look(self, rig: Rig) -> None:
        rig.say("hooks", (QUOTA, wants(5000, "one reason")))
        rig.tick()
        looks = rig.writer.looks
        rig.say("hooks", (QUOTA, wants(5000, "another")))
        rig.tick()
        assert rig.writer.looks == looks
        composed = rig.actuator.files.report.composed(QUOTA)
        assert composed is not None and composed.why == "another"

    def test_nobody_has_an_opinion(self, rig: Rig) -> None:
        assert rig.actuator.files.report.composed(QUOTA) is None
        rig.tick()
        assert rig.actuator.files.report.composed(QUOTA) is None


class TestBurst:
    """The kernel refuses a burst above the quota, and a quota below the burst."""

    @pytest.fixture(autouse=True)
    def _quota(self, rig: Rig) -> None:
        rig.put(QUOTA, "100000")
        rig.put(BURST, "0")
        rig.say("hooks", (BURST, wants(80_000)))
        rig.tick()
        assert rig.holds(BURST) == 80_000

    def cap(self, rig: Rig, quota_us: int) -> list[tuple[str, Value]]:
        """What is written when the quota is bounded."""
        made = len(rig.writer.made)
        rig.say("suppress", (QUOTA, Opinion.at_most(quota_us, "busy")))
        rig.tick()
        return rig.written()[made:]

    def test_it_goes_down_before_the_quota_does_and_comes_back_after(self, rig: Rig) -> None:
        assert self.cap(rig, 50_000) == [("cpu.max.burst", 50_000), ("cpu_quota", 50_000)]
        assert rig.journal.entries[-2].why == "spec; at most the quota of 50000"
        assert recompute(rig.journal.entries[-2].inputs) == 50_000
        composed = rig.actuator.files.report.composed(BURST)
        assert composed is not None
        assert (composed.value, composed.by, composed.why) == (50_000, "hooks", "spec; at most the quota of 50000")
        assert self.cap(rig, -1) == [("cpu_quota", 100_000), ("cpu.max.burst", 80_000)]

    def test_one_that_fits_stays(self, rig: Rig) -> None:
        assert self.cap(rig, 90_000) == [("cpu_quota", 90_000)]

    def test_one_that_nobody_wants_any_more_goes_down_with_the_quota(self, rig: Rig) -> None:
        """The strategy lets go of it in the very tick in which another bounds the quota."""
        rig.put(BURST, "70000")
        rig.see(BURST)
        rig.tick()
        rig.say("hooks")
        assert self.cap(rig, 40_000) == [("cpu.max.burst", 40_000), ("cpu_quota", 40_000)]
        self.check_that_all_comes_back(rig, 70_000)

    def test_one_of_somebody_elses_goes_down_with_the_quota(self, rig: Rig) -> None:
        """As of a container that the runtime made with it."""
        rig.say("hooks")
        rig.tick()
        rig.put(BURST, "90000")
        assert self.cap(rig, 60_000) == [("cpu.max.burst", 60_000), ("cpu_quota", 60_000)]
        assert (rig.journal.entries[-2].owner, recompute(rig.journal.entries[-2].inputs)) == ("suppress", 60_000)
        assert self.cap(rig, 95_000) == [("cpu_quota", 95_000), ("cpu.max.burst", 90_000)]
        self.check_that_all_comes_back(rig, 90_000)

    def test_one_that_is_left_as_it_is_goes_down_with_the_quota(self, rig: Rig) -> None:
        """An earlier run left it, and who may speak of it has not decided yet."""
        rig.crash()
        rig.undecided = {"hooks"}
        rig.opinions.clear()
        assert self.cap(rig, 50_000) == [("cpu.max.burst", 50_000), ("cpu_quota", 50_000)]
        rig.undecided = set()
        self.check_that_all_comes_back(rig, 0)

    def test_a_quota_of_someone_elses_bounds_it_as_well(self, rig: Rig) -> None:
        """He had to lower the burst first: that is the base now."""
        rig.put(BURST, "0")
        rig.put(QUOTA, "30000")
        rig.see(BURST)
        rig.tick()
        assert (rig.holds(BURST), rig.actuator.files.report.owned[BURST].base) == (30_000, 0)
        assert self.cap(rig, 20_000) == [("cpu.max.burst", 20_000), ("cpu_quota", 20_000)]
        assert self.cap(rig, -1) == [("cpu_quota", 30_000), ("cpu.max.burst", 30_000)]

    def check_that_all_comes_back(self, rig: Rig, burst_us: int) -> None:
        rig.say("hooks"), rig.say("suppress")
        rig.tick()
        assert (rig.holds(QUOTA), rig.holds(BURST)) == (100_000, burst_us)
        assert (rig.actuator.files.report.owned, rig.undo.entries) == ({}, ())

    def test_a_base_that_does_not_fit_waits_for_the_quota(self, rig: Rig) -> None:
        rig.put(BURST, "70000")
        rig.see(BURST)
        rig.tick()
        assert self.cap(rig, 40_000) == [("cpu.max.burst", 40_000), ("cpu_quota", 40_000)]
        rig.say("hooks")
        rig.tick()
        assert rig.holds(BURST) == 40_000
        rig.say("suppress")
        rig.tick()
        assert (rig.holds(QUOTA), rig.holds(BURST), rig.actuator.files.report.owned) == (100_000, 70_000, {})


class TestIdle:
    def test_shares_come_back_with_the_end_of_idle(self, rig: Rig) -> None:
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

    def test_shares_of_an_idle_group_wait(self, rig: Rig) -> None:
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

    def test_shares_held_before_come_back_after_a_crash_while_idle(self, rig: Rig) -> None:
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


class TestForeignWriters:
    def test_put_right_twice_then_yielded(self, rig: Rig) -> None:
        rig.say("hooks", (QUOTA, wants(5000)))
        rig.tick()
        for foreign in (6000, 7000):
            rig.put(QUOTA, str(foreign))
            rig.see(QUOTA)
            rig.tick()
            assert (rig.holds(QUOTA), rig.actuator.files.report.owned[QUOTA].base) == (5000, foreign)
        rig.put(QUOTA, "8000")
        rig.see(QUOTA)
        rig.tick()
        assert rig.holds(QUOTA) == 8000
        assert rig.actuator.files.report.contested[QUOTA].startswith(
            "degraded: contested by another writer, who set 8000"
        )
        assert (rig.actuator.files.report.owned, rig.undo.entries) == ({}, ())
        assert rig.journal.results() == ["done", "foreign", "done", "foreign", "done", "foreign", "yielded"]
        assert [entry.after for entry in rig.journal.entries if entry.result == "foreign"] == [6000, 7000, 8000]
        for _ in range(100):
            rig.tick()
        assert rig.holds(QUOTA) == 8000

    def test_a_contested_file_is_tried_again_much_later(self, rig: Rig) -> None:
        self.test_put_right_twice_then_yielded(rig)
        rig.tick(seconds=FORGIVEN_AFTER_NS / S)
        assert (rig.holds(QUOTA), rig.actuator.files.report.contested) == (5000, {})
        rig.put(QUOTA, "8000")
        rig.see(QUOTA)
        rig.tick()
        assert (rig.holds(QUOTA), list(rig.actuator.files.report.contested)) == (8000, [QUOTA])

    def test_a_contested_file_is_given_up_with_its_opinion_or_its_directory(self, rig: Rig) -> None:
        self.test_put_right_twice_then_yielded(rig)
        rig.say("hooks")
        rig.tick()
        assert (rig.holds(QUOTA), rig.actuator.files.report.contested) == (8000, {})

    def test_rare_changes_are_no_contest(self, rig: Rig) -> None:
        rig.say("ratio", (QUOTA, Opinion.scale(Fraction(1, 2), "")))
        for quota in (10_000, 20_000, 30_000, 40_000):
            rig.put(QUOTA, str(quota))
            rig.see(QUOTA)
            rig.tick(seconds=FIGHT_WITHIN_NS / S)
            assert rig.holds(QUOTA) == quota // 2
        assert rig.actuator.files.report.contested == {}

    def test_a_writer_that_agrees_gives_the_base(self, rig: Rig) -> None:
        rig.say("hooks", (QUOTA, wants(5000)))
        rig.tick()
        rig.put(QUOTA, "6000")
        rig.say("hooks", (QUOTA, wants(6000)))
        rig.tick()
        rig.say("hooks")
        rig.tick()
        assert (rig.holds(QUOTA), rig.written()) == (6000, [("cpu_quota", 5000)])

    def test_a_foreign_value_is_not_undone_by_a_release(self, rig: Rig) -> None:
        rig.say("hooks", (QUOTA, wants(5000)))
        rig.tick()
        rig.put(QUOTA, "7000")
        rig.say("hooks")
        rig.tick()
        assert (rig.holds(QUOTA), rig.actuator.files.report.owned, rig.undo.entries) == (7000, {}, ())

    def test_a_value_of_ours_from_earlier_can_be_foreign(self, rig: Rig) -> None:
        for value in (5000, 6000):
            rig.say("hooks", (QUOTA, wants(value)))
            rig.tick()
        rig.put(QUOTA, "5000")
        rig.see(QUOTA)
        rig.tick()
        assert rig.actuator.files.report.owned[QUOTA].base == 5000
        assert [entry.base for entry in rig.undo.entries] == [5000]

    def test_untold_changes_are_found_within_a_minute(self, rig: Rig) -> None:
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

    def test_a_directory_made_again_is_a_new_one(self, rig: Rig) -> None:
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

    def test_pods_that_vanish_leave_nothing(self, rig: Rig) -> None:
        rig.say("hooks", (QUOTA, wants(5000)), (CPUS, wants("0")), (IDLE, wants(1)), (SHARES, wants(2)))
        rig.tick()
        rig.remove()
        rig.tick(seconds=60)
        rig.say("hooks")
        rig.tick()
        assert (rig.actuator.files.report.owned, rig.retried(), rig.undo.entries) == ({}, [], ())
        assert "vanished" not in rig.journal.results()


class TestLives:
    def test_stopping_writes_nothing_and_the_next_start_writes_nothing_again(self, rig: Rig) -> None:
        rig.say("hooks", (QUOTA, wants(5000)), (CPUS, wants("0")))
        rig.tick()
        lines = len(rig.journal.entries)
        rig.crash()
        rig.tick()
        assert len(rig.journal.entries) == lines
        assert {target: one.base for target, one in rig.actuator.files.report.owned.items()} == {QUOTA: -1, CPUS: "0-3"}
        assert all(one.by == "hooks" and one.since_ns > 0 for one in rig.actuator.files.report.owned.values())

    def test_what_nobody_wants_after_the_start_is_released(self, rig: Rig) -> None:
        rig.say("hooks", (QUOTA, wants(5000)), (SHARES, wants(2)))
        rig.tick()
        rig.crash()
        rig.say("hooks", (SHARES, wants(2)))
        rig.tick()
        assert (rig.holds(QUOTA), rig.holds(SHARES)) == (-1, 2)
        assert rig.journal.entries[-1].owner == "an earlier run"

    def test_not_before_whoever_may_want_it_has_decided(self, rig: Rig) -> None:
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

    def test_an_unresolved_keep_keeps(self, rig: Rig) -> None:
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
    def test_a_crash_between_record_and_write(self, rig: Rig, reading: str) -> None:
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

    def test_disabling_all_rolls_back(self, rig: Rig) -> None:
        before = {target: rig.holds(target) for target in (QUOTA, CPUS, IDLE, SHARES)}
        rig.say("hooks", (CPUS, wants("0")), (IDLE, wants(1)), (SHARES, wants(2)))
        rig.say("suppress", (QUOTA, Opinion.at_most(5000, "busy")))
        rig.tick()
        rig.opinions.clear()
        rig.states = dict.fromkeys(OWNERS, State.DISABLED)
        rig.tick()
        assert {target: rig.holds(target) for target in before} == before
        assert rig.actuator.files.report.owned == {}
        assert {entry.why for entry in rig.journal.entries[4:]} == {
            "back to its base: hooks is disabled by the operator",
            "back to its base: suppress is disabled by the operator",
        }

    def test_restore_without_the_daemon(self, rig: Rig) -> None:
        before = {target: rig.holds(target) for target in (QUOTA, CPUS, IDLE, SHARES)}
        rig.say("hooks", (QUOTA, wants(5000)), (CPUS, wants("0")), (IDLE, wants(1)))
        rig.tick()
        restore(rig.writer, rig.undo)
        assert {target: rig.holds(target) for target in before} == before

    def test_the_journal_is_what_was_written(self, rig: Rig) -> None:
        for value in (5000, 6000, 6000, -1, 7000):
            rig.say("hooks", (QUOTA, wants(value)), (CPUS, wants(str(value % 3))))
            rig.tick()
        assert journalled_writes(rig.journal.entries) == rig.writer.made

"""Telling a systemd of what was written: nothing that Koord holds is lost to it, and nothing of it is left behind."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from koord.host import systemd
from koord.host.cgroup import Tree
from koord.host.files import Target, Value
from koord.host.notes import DropIn
from koord.host.restoring import restore
from koord.host.systemd_units import SyncOutcome, Units, of_host
from koord.host.undo import UndoError, UndoRecord
from koord.host.undoable import RestoreOutcome
from koord.host.weights import Weights
from koord.host.writer import Writer
from tests.host.fakesystemd import FakeSystemd
from tests.support.opened import opened

SLICE, SCOPE = "kubepods-pod1.slice", "cri-containerd-01.scope"
POD = f"/kubepods.slice/{SLICE}"
BOX = f"{POD}/{SCOPE}"
NEW_GROUP = {
    "cpu.idle": "0",
    "cpu.weight": "100",
    "cpu.max": "max 100000",
    "cpu.max.burst": "0",
    "cpuset.cpus": "",
    "memory.min": "0",
    "memory.low": "0",
    "memory.high": "max",
    "memory.max": "max",
    "memory.oom.group": "0",
}
ALREADY_KNOWN = "50-MemoryMax.conf"


class Rig:
    def __init__(self, root: Path) -> None:
        self.tree = Tree(2, root / "sys/fs/cgroup", {})
        for cgroup in (POD, BOX):
            directory = self.tree.directory(cgroup)
            directory.mkdir(parents=True)
            for name, text in NEW_GROUP.items():
                (directory / name).write_text(f"{text}\n")
        self.systemd = FakeSystemd(
            {SLICE: self.tree.directory(POD), SCOPE: self.tree.directory(BOX)}, root / "run/systemd"
        )
        known = root / "run/systemd/transient" / f"{SCOPE}.d" / ALREADY_KNOWN
        known.parent.mkdir()
        known.write_text("MemoryMax=infinity\n")
        os.utime(known, (0, 0))
        self.writer = Writer(self.tree)
        self.record_file = root / "undo"
        self.record = opened(UndoRecord(self.record_file, "boot"))
        self.units = Units(self.writer, self.record, self.systemd, root / "run/systemd")

    def write(self, name: str, value: Value, cgroup: str = BOX) -> Target:
        """As the actuator does: noted, then written."""
        target = Target(cgroup, name)
        found = self.writer.look(target)
        assert found is not None
        self.record.remember(target, found, value)
        self.writer.write(target, value)
        return target

    def reopen(self) -> None:
        """A crash: only the record is left."""
        self.record.close()
        self.record = opened(UndoRecord(self.record_file, "boot"))
        self.units = Units(self.writer, self.record, self.systemd, self.systemd.run)

    def texts(self) -> dict[str, str]:
        paths = (self.tree.directory(cgroup) / name for cgroup in (POD, BOX) for name in NEW_GROUP)
        return {str(path): path.read_text().strip() for path in paths}


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


class TestRefusals:
    def test_without_a_bus_the_value_stays_and_the_reason_is_said(self, rig: Rig) -> None:
        rig.systemd.is_down = True
        target = rig.write("cpu_shares", 2)
        assert rig.units.tell([target]) == {target: SyncOutcome("no bus", answered=False)}
        assert rig.writer.read(target) == 2
        assert rig.units.tell([target])[target].sentence == "not set through systemd: no bus"

    def test_a_unit_that_systemd_does_not_know(self, rig: Rig) -> None:
        del rig.systemd.known[SCOPE]
        box, pod = rig.write("cpu_shares", 2), rig.write("cpu_shares", 2, POD)
        assert rig.units.tell([box, pod]) == {
            box: SyncOutcome(f"NoSuchUnit: Unit {SCOPE} not loaded."),
            pod: SyncOutcome(value=2),
        }

    def test_a_property_that_is_refused_costs_itself_only(self, rig: Rig) -> None:
        rig.systemd.refuses["CPUWeight"] = "InvalidArgs: Value specified in CPUWeight is out of range"
        idle, high = rig.write("cpu.idle", 1), rig.write("memory.high", 8192)
        told = rig.units.tell([idle, high])
        assert (told[high], told[idle].why) == (SyncOutcome(value=8192), rig.systemd.refuses["CPUWeight"])
        assert rig.writer.read(high) == 8192

    def test_a_systemd_before_242_is_told_the_quota_alone(self, rig: Rig) -> None:
        why = "PropertyReadOnly: Cannot set property CPUQuotaPeriodUSec, or unknown property."
        rig.systemd.refuses["CPUQuotaPeriodUSec"] = why
        quota, high = rig.write("cpu_quota", 50_000), rig.write("memory.high", 8192)
        told = rig.units.tell([quota, high])
        assert (told[quota], told[high]) == (SyncOutcome(value=50_000), SyncOutcome(value=8192))
        assert rig.systemd.known[SCOPE]["CPUQuotaPerSecUSec"] == 500_000
        rig.systemd.calls.clear()
        again = rig.write("cpu_quota", 20_000)
        assert rig.units.tell([again])[again].why == ""
        assert [[each.name for each in settings] for _, settings in rig.systemd.calls] == [["CPUQuotaPerSecUSec"]]
        assert rig.writer.read(again) == 20_000

    def test_a_quota_of_another_period_cannot_be_told_to_it(self, rig: Rig) -> None:
        rig.systemd.refuses["CPUQuotaPeriodUSec"] = why = "Cannot set property CPUQuotaPeriodUSec"
        quota = rig.write("cpu_quota", 5_000)
        (rig.tree.directory(BOX) / "cpu.max").write_text("5000 10000\n")
        told = rig.units.tell([quota])[quota]
        assert (told.why, told.answered, (rig.tree.directory(BOX) / "cpu.max").read_text()) == (
            why,
            True,
            "5000 10000\n",
        )

    def test_what_cannot_be_noted_is_not_told(self, rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
        def full(_: object) -> None:
            raise UndoError(errno.ENOSPC, "undo record: No space left on device", "/run/undo")

        target = rig.write("memory.high", 8192)
        monkeypatch.setattr(rig.record, "note", full)
        told = rig.units.tell([target])[target]
        assert "cannot be noted" in told.why
        assert (told.answered, rig.systemd.calls) == (False, [])

    def test_what_is_gone_or_no_units_or_unknown_to_systemd_is_left_out(self, rig: Rig) -> None:
        others = [
            Target("/kubepods.slice/kubepods-pod2.slice", "cpu_shares"),
            Target("/kubepods/pod1", "cpu_shares"),
            Target(f"{BOX}/system.slice", "cpu_shares"),
            Target(BOX, "cpu.max.burst"),
            Target("", "vm.min_free_kbytes"),
        ]
        assert rig.units.tell(others) == {}
        assert rig.systemd.calls == []

    def test_a_node_without_systemd_or_a_tree_of_ones_own_has_no_units(self, tmp_path: Path, rig: Rig) -> None:
        assert of_host(rig.writer, rig.record, tmp_path) is None
        (tmp_path / "run/systemd/system").mkdir()
        assert of_host(rig.writer, rig.record, tmp_path) is not None
        assert of_host(Writer(Tree(2, tmp_path / "mine", {})), rig.record, tmp_path) is None


def test_what_was_told_outlasts_a_reload(rig: Rig) -> None:
    held = [
        rig.write("cpu_shares", 204),
        rig.write("cpu_quota", 50_000),
        rig.write("cpuset_cpus", "0-1"),
        rig.write("memory.min", 4096),
        rig.write("memory_limit_in_bytes", 1 << 20),
        rig.write("cpu.idle", 1, POD),
    ]
    before = rig.texts()
    assert rig.units.tell(held) == {target: SyncOutcome(value=rig.writer.read(target)) for target in held}
    assert len(rig.systemd.calls) == 2, "one call a unit"
    rig.systemd.reload()
    assert rig.texts() == before


def test_telling_leaves_alone_what_no_property_stands_for(rig: Rig) -> None:
    """kubelet has the runtime set it for every container; systemd would make it 0."""
    kubelets, held = rig.write("memory.oom.group", 1), rig.write("memory.high", 8192)
    assert rig.units.tell([held]) == {held: SyncOutcome(value=8192)}
    assert rig.writer.read(kubelets) == 1


@pytest.mark.parametrize(("limit", "per_second_us"), [("1500 100000", 20_000), ("12500 100000", 130_000)])
def test_the_exact_quota_that_the_runtime_wrote_past_systemd_stays(rig: Rig, limit: str, per_second_us: int) -> None:
    file = rig.tree.directory(BOX) / "cpu.max"
    file.write_text(f"{limit}\n")
    rig.systemd.known[SCOPE]["CPUQuotaPerSecUSec"] = per_second_us
    held = rig.write("cpuset_cpus", "0-1")
    assert rig.units.tell([held]) == {held: SyncOutcome(value="0-1")}
    assert file.read_text().strip() == limit
    assert [entry.target for entry in rig.record.entries] == [held], "it is nothing that Koord holds"


class TestAResizeWhileSystemdIsTold:
    """A runtime tells systemd whole percents, then writes the exact quota past it; it does so once."""

    @pytest.mark.parametrize("held", [("cpuset_cpus", "0-1"), ("cpu_quota", 30_000), ("cpu_quota", 33_333)])
    @pytest.mark.parametrize("resized_us", [20_000, 12_500])
    def test_all_of_it_between_the_telling_and_its_answer(
        self, rig: Rig, held: tuple[str, Value], resized_us: int
    ) -> None:
        file = self._limited(rig)
        target = rig.write(*held)

        def resize() -> None:
            assert rig.systemd.tell([(SCOPE, self._quota(resized_us))]) == [""]
            file.write_text(f"{resized_us} 100000\n")

        rig.systemd.meanwhile = resize
        assert rig.units.tell([target])[target].why == ""
        assert file.read_text() == f"{resized_us} 100000\n"

    def test_systemd_was_told_before_and_writes_it_now(self, rig: Rig) -> None:
        file = self._limited(rig)
        rig.systemd.is_busy = True
        rig.systemd.tell([(SCOPE, self._quota(20_000))])
        assert file.read_text() == "40000 100000\n"
        rig.systemd.is_busy = False
        target = rig.write("cpuset_cpus", "0-1")
        assert rig.units.tell([target])[target].why == ""
        assert file.read_text() == "20000 100000\n"

    def _limited(self, rig: Rig) -> Path:
        file = rig.tree.directory(BOX) / "cpu.max"
        file.write_text("40000 100000\n")
        rig.systemd.known[SCOPE]["CPUQuotaPerSecUSec"] = 400_000
        return file

    def _quota(self, quota_us: int) -> tuple[systemd.Setting, ...]:
        return systemd.settings({"cpu_quota": quota_us, "cpu_period": 100_000}, 2, Weights.LINEAR)


@pytest.mark.parametrize(
    ("name", "value"),
    [("cpu_shares", 204), ("cpu_quota", 33_333), ("cpuset_cpus", "0-1"), ("memory.min", 4096), ("memory.high", 8192)],
)
def test_telling_of_one_file_changes_no_other(rig: Rig, name: str, value: Value) -> None:
    texts = {"cpu.weight": "39", "cpu.max": "1500 100000", "cpuset.cpus": "2-3", "memory.max": "1048576"}
    for file, text in {**texts, "memory.min": "8192", "memory.low": "4096", "memory.oom.group": "1"}.items():
        (rig.tree.directory(BOX) / file).write_text(f"{text}\n")
    held = rig.write(name, value)
    before = rig.texts()
    rig.units.tell([held])
    assert rig.texts() == before


def test_without_being_told_a_reload_takes_all_of_it_back(rig: Rig) -> None:
    target = rig.write("cpu_shares", 204)
    rig.systemd.reload()
    assert rig.writer.read(target) != 204


def test_a_quota_that_systemd_rounds_is_ours_too(rig: Rig) -> None:
    target = rig.write("cpu_quota", 33_333)
    told = rig.units.tell([target])[target]
    assert told == SyncOutcome(value=34_000, is_rounded=True)
    assert told.sentence == "also set through systemd, which keeps 34000"
    assert rig.writer.read(target) == 33_333, "written once more"
    rig.systemd.reload()
    assert rig.writer.read(target) == 34_000
    rig.reopen()
    (line,) = restore(rig.writer, rig.record, rig.units)
    assert (line.outcome, line.after) == (RestoreOutcome.RESTORED, -1)


def test_restoring_gives_everything_back_to_systemd_too(rig: Rig) -> None:
    files, drop_ins = rig.texts(), rig.systemd.drop_ins()
    held = [rig.write("cpu_quota", 5000), rig.write("memory.high", 8192), rig.write("cpu.idle", 1, POD)]
    rig.units.tell([*held, rig.write("memory_limit_in_bytes", 1 << 20)])
    assert len(rig.systemd.drop_ins()) > len(drop_ins)
    rig.reopen()
    assert {line.outcome for line in restore(rig.writer, rig.record, rig.units)} == {RestoreOutcome.RESTORED}
    assert rig.systemd.drop_ins() == drop_ins == [ALREADY_KNOWN]
    rig.systemd.reload()
    assert rig.texts() == files
    assert (rig.record.entries, rig.record.all(DropIn)) == ((), ())


def test_a_systemd_that_cannot_be_reached_keeps_the_entry_for_another_time(rig: Rig) -> None:
    rig.units.tell([rig.write("memory.high", 8192)])
    rig.systemd.is_down = True
    (line,) = restore(rig.writer, rig.record, rig.units)
    assert (line.outcome, line.why) == (RestoreOutcome.FAILED, "not set through systemd: no bus")
    rig.systemd.is_down = False
    (line,) = restore(rig.writer, rig.record, rig.units)
    assert line.outcome is RestoreOutcome.ALREADY_BASE
    rig.systemd.reload()
    assert rig.writer.read(Target(BOX, "memory.high")) == -1


def test_a_foreign_value_is_what_systemd_knows_after_restoring(rig: Rig) -> None:
    target = rig.write("memory.high", 8192)
    rig.units.tell([target])
    rig.writer.write(target, 4096)
    (line,) = restore(rig.writer, rig.record, rig.units)
    assert line.outcome is RestoreOutcome.FOREIGN
    rig.systemd.reload()
    assert rig.writer.read(target) == 4096


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("cpu_quota"), st.integers(1000, 400_000) | st.just(-1)),
            st.tuples(st.just("cpu_shares"), st.sampled_from([2, 204, 1024, 262_144])),
            st.tuples(st.just("memory.high"), st.integers(0, 1 << 20).map(lambda pages: pages * 4096)),
            st.tuples(st.just("cpuset_cpus"), st.sampled_from(["0", "0-3", "2,5"])),
        ),
        max_size=8,
    )
)
def test_after_any_values_nothing_is_left(
    tmp_path_factory: pytest.TempPathFactory, written: list[tuple[str, Value]]
) -> None:
    rig = Rig(tmp_path_factory.mktemp("rig"))
    files = rig.texts()
    for name, value in written:
        target = rig.write(name, value)
        rig.units.tell([target, *(entry.target for entry in rig.record.entries)])
        found = rig.writer.look(target)
        assert found is not None and rig.record.same(target, found.path, value, found.value)
    rig.systemd.reload()
    rig.reopen()
    restore(rig.writer, rig.record, rig.units)
    rig.systemd.reload()
    assert (rig.texts(), rig.record.entries) == (files, ())
    rig.record.close()

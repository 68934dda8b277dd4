"""Restore puts back each file that still holds a value of ours, in the kernel's order, and again after a crash."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from koord.host.cgroup import Tree
from koord.host.files import Target, Value
from koord.host.restoring import planned, restore
from koord.host.undoable import Restored, RestoreOutcome
from koord.host.writer import Writer
from tests.host.undo.rig import QUOTA, Rig


def test_restore_reports_each_file(rig: Rig) -> None:
    def taken(cgroup: str, ours: int) -> Target:
        target = Target(cgroup, "cpu_quota")
        rig.put(target, "100000\n")
        rig.take(target, ours)
        return target

    put_back, back_already, foreign, gone, refused, odd = (taken(f"/pod{n}", 50_000) for n in range(6))
    rig.put(back_already, "100000\n")
    rig.put(foreign, "70000\n")
    rig.put(odd, "lots\n")
    for target in (gone, refused):
        path = rig.put(target, "50000\n")
        path.unlink()
        if target is refused:
            path.symlink_to("/dev/full")
    plan = planned(rig.writer, rig.record)
    assert rig.writer.read(put_back) == 50_000
    lines = restore(rig.writer, rig.record)
    assert [line.outcome for line in plan[:4]] == [line.outcome for line in lines[:4]]
    assert [(line.outcome, line.base, line.before, line.after) for line in lines] == [
        (RestoreOutcome.RESTORED, 100_000, 50_000, 100_000),
        (RestoreOutcome.ALREADY_BASE, 100_000, 100_000, 100_000),
        (RestoreOutcome.FOREIGN, 100_000, 70_000, 70_000),
        (RestoreOutcome.GONE, 100_000, None, None),
        (RestoreOutcome.FAILED, 100_000, None, None),
        (RestoreOutcome.FAILED, 100_000, None, None),
    ]
    assert rig.writer.read(put_back) == 100_000
    assert [entry.target for entry in rig.record.entries] == [refused, odd]


def test_restore_says_why_a_write_failed_and_can_be_repeated(rig: Rig) -> None:
    path = rig.put(QUOTA, "999\n")
    rig.take(QUOTA, 5000)
    (line,) = restore(rig.writer, rig.record)
    assert line == Restored(
        QUOTA,
        str(path),
        RestoreOutcome.FAILED,
        999,
        5000,
        5000,
        "cpu_quota: 999 is not in 1000..9223372036854775807 and not -1 (unlimited)",
    )
    assert [entry.base for entry in rig.reopen().entries] == [999]


@pytest.mark.parametrize(
    ("version", "files"),
    [
        (1, {"cpu_quota": ("-1\n", 5000), "cpu_shares": ("1024\n", 2), "cpuset_cpus": ("0-3\n", "1")}),
        (2, {"cpu_quota": ("max 50000\n", 5000), "cpu_shares": ("79\n", 2), "cpuset_cpus": ("\n", "1")}),
        (2, {"memory.high": ("max\n", 8192), "memory.min": ("0\n", 4096), "io.max.rbps@8:0": ("", 9)}),
    ],
)
def test_restored_files_hold_what_they_held(tmp_path: Path, version: int, files: dict[str, tuple[str, Value]]) -> None:
    rig = Rig(tmp_path, version)
    paths = {name: rig.put(Target("/pod", name), text) for name, (text, _) in files.items()}
    for name, (_, ours) in files.items():
        rig.take(Target("/pod", name), ours)
    assert all(line.outcome is RestoreOutcome.RESTORED for line in restore(rig.writer, rig.reopen()))
    held = {name: path.read_text().strip() for name, path in paths.items() if "@" not in name}
    assert held == {name: text.strip() for name, (text, _) in files.items() if "@" not in name}
    assert rig.reopen().entries == ()


class Logged(Writer):
    """Notes the order of its writes."""

    def __init__(self, tree: Tree) -> None:
        super().__init__(tree)
        self.log: list[tuple[str, Value]] = []

    def write(self, target: Target, value: Value) -> None:
        self.log.append((f"{target.cgroup}/{target.name}", value))
        super().write(target, value)


def test_restore_keeps_the_kernels_order_and_restores_shares_with_idle(rig: Rig) -> None:
    rig.writer = logged = Logged(rig.writer.tree)
    pod, box = "/pod", "/pod/box"
    for cgroup, name, text, ours in [
        (box, "cpu_quota", "100000", 5000),
        (pod, "cpu_quota", "100000", 5000),
        (pod, "cpu_shares", "512", None),
        (pod, "cpu.idle", "0", 1),
    ]:
        target = Target(cgroup, name)
        rig.put(target, text)
        if ours is None:
            rig.record.remember(target, rig.reading(target), None)
        else:
            rig.take(target, ours)
    logged.log.clear()
    assert {line.outcome for line in restore(logged, rig.record)} == {RestoreOutcome.RESTORED}
    assert logged.log == [
        ("/pod/cpu_quota", 100_000),
        ("/pod/box/cpu_quota", 100_000),
        ("/pod/cpu.idle", 0),
        ("/pod/cpu_shares", 512),
    ]


def test_a_cpu_set_that_cannot_be_emptied_is_given_all(tmp_path: Path) -> None:
    rig = Rig(tmp_path, 2)
    cpus = Target("/pod", "cpuset_cpus")
    path = rig.put(cpus, "\n")
    rig.take(cpus, "1")
    (path.parent / "cgroup.events").write_text("populated 1\n")
    (path.parent.parent / "cpuset.cpus.effective").write_text("0-3\n")
    (line,) = restore(rig.writer, rig.record)
    assert (line.outcome, line.after) == (RestoreOutcome.RESTORED, "0-3")
    assert line.why == "its CPU set cannot be emptied while it has processes; it was given all, 0-3"


class KilledError(BaseException):
    pass


class Dying(Writer):
    """Is killed at its write number ``writes``."""

    def __init__(self, tree: Tree, writes: int) -> None:
        super().__init__(tree)
        self._left = writes

    def write(self, target: Target, value: Value) -> None:
        if not self._left:
            raise KilledError
        self._left -= 1
        super().write(target, value)


def test_a_crash_in_the_middle_of_restore_loses_nothing(tmp_path: Path) -> None:
    """Restore again after each prefix of its writes: the union that a CPU set goes through is known as ours."""
    for writes in itertools.count():
        (tmp_path / str(writes)).mkdir()
        rig = Rig(tmp_path / str(writes))
        targets = [Target(cgroup, "cpuset_cpus") for cgroup in ("/pod", "/pod/box")]
        for target in targets:
            rig.put(target, "0-1")
        for target in targets:
            rig.take(target, "1-2")
        dying = Dying(rig.writer.tree, writes)
        try:
            restore(dying, rig.record)
        except KilledError:
            assert all(line.outcome is not RestoreOutcome.FOREIGN for line in restore(rig.writer, rig.reopen()))
        else:
            break
        assert [rig.writer.read(target) for target in targets] == ["0-1", "0-1"]
    assert writes == 4

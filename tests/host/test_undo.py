"""The undo record: whose value a file holds after any crash, and what restore does about it."""

from __future__ import annotations

import errno
import itertools
import os
import re
import resource
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from koord.host.cgroup import Tree
from koord.host.evictions import NotedEviction
from koord.host.files import Target, Value
from koord.host.notes import KINDS
from koord.host.originals import ContainerKey, Original, Originals, Pending
from koord.host.restoring import claim, expect, planned, restore
from koord.host.taskattributes import WrittenTask, WrittenTasks
from koord.host.undo import UndoError, UndoRecord, held_rows
from koord.host.undoable import Outcome, Restored
from koord.host.weights import Weights
from koord.host.writer import Reading, Writer
from tests.opened import opened

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer as Buffer

BOOT = "6f1d"
QUOTA = Target("/kubepods/pod1", "cpu_quota")


class Rig:
    """A cgroup tree of plain files and a record beside it."""

    def __init__(self, root: Path, version: int = 1) -> None:
        self.root = root / "cgroup"
        self.writer = Writer(Tree(version, self.root, {}))
        self.file, self.lock = root / "undo", root / "undo.lock"
        self.record = opened(UndoRecord(self.file, BOOT))

    def put(self, target: Target, text: str) -> Path:
        """What someone else writes."""
        path = self.writer.path(target)
        assert path is not None
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def reading(self, target: Target) -> Reading:
        reading = self.writer.look(target)
        assert reading is not None
        return reading

    def take(self, target: Target, value: Value) -> Value:
        """What the actuator does: remember, then write."""
        base = self.record.remember(target, self.reading(target), value)
        self.writer.write(target, value)
        return base

    def reopen(self, boot_id: str = BOOT) -> UndoRecord:
        self.record.close()
        self.record = opened(UndoRecord(self.file, boot_id))
        return self.record


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


def test_the_base_outlives_our_writes_and_our_death(rig: Rig) -> None:
    rig.put(QUOTA, "100000\n")
    assert [rig.take(QUOTA, quota) for quota in (50_000, 40_000, 30_000)] == [100_000] * 3
    assert rig.reopen().base_of(QUOTA, rig.reading(QUOTA)) == 100_000


def test_what_someone_else_writes_becomes_the_base(rig: Rig) -> None:
    rig.put(QUOTA, "100000\n")
    rig.take(QUOTA, 50_000)
    rig.put(QUOTA, "70000\n")
    assert rig.reopen().base_of(QUOTA, rig.reading(QUOTA)) == 70_000
    assert rig.take(QUOTA, 40_000) == 70_000
    assert rig.record.base_of(QUOTA, rig.reading(QUOTA)) == 70_000


def test_a_size_that_the_kernel_rounded_is_still_ours(rig: Rig) -> None:
    limit = Target("/kubepods/pod1", "memory_limit_in_bytes")
    rig.put(limit, "9223372036854771712\n")
    rig.take(limit, 5_000_000)
    rig.put(limit, "4997120\n")
    assert rig.reopen().base_of(limit, rig.reading(limit)) == -1


@pytest.mark.parametrize(
    ("version", "made", "outcome"), [(1, "2", Outcome.RESTORED), (2, "1", Outcome.ALREADY_BASE)], ids=["v1", "v2"]
)
def test_shares_of_one_weight_differ_where_the_kernel_keeps_shares(
    tmp_path: Path, version: int, made: str, outcome: Outcome
) -> None:
    rig, shares = Rig(tmp_path, version), Target("/kubepods/pod1", "cpu_shares")
    path = rig.put(shares, made)
    rig.take(shares, 20)
    (line,) = restore(rig.writer, rig.record)
    assert (line.outcome, path.read_text().strip()) == (outcome, made)


def test_a_file_that_changes_along_with_another_is_ours_whatever_it_holds(rig: Rig) -> None:
    shares = Target("/kubepods/pod1", "cpu_shares")
    rig.put(shares, "512\n")
    rig.record.remember(shares, rig.reading(shares), None)
    rig.put(shares, "3\n")
    assert rig.reopen().base_of(shares, rig.reading(shares)) == 512
    assert rig.take(shares, 100) == 512


def test_an_entry_speaks_for_its_own_inode_and_boot_only(rig: Rig) -> None:
    path = rig.put(QUOTA, "100000\n")
    rig.take(QUOTA, 50_000)
    again = Reading(str(path), path.stat().st_ino + 1, 50_000)
    assert rig.record.entry_for(QUOTA, again) is None
    assert rig.record.base_of(QUOTA, again) == 50_000
    assert rig.reopen("another boot").entries == ()


def test_on_opening_what_no_longer_exists_is_dropped(rig: Rig) -> None:
    path = rig.put(QUOTA, "100000\n")
    rig.take(QUOTA, 50_000)
    path.unlink()
    assert rig.reopen().entries == ()


def test_forgotten_is_forgotten(rig: Rig) -> None:
    rig.put(QUOTA, "100000\n")
    rig.take(QUOTA, 50_000)
    rig.record.forget(QUOTA)
    rig.record.forget(QUOTA)
    assert rig.record.entries == rig.reopen().entries == ()


@pytest.mark.parametrize(
    ("damage", "entries", "problem"),
    [
        (lambda text: text[:-1], 0, None),
        (lambda text: text[: text.index(b"\n") + 9], 0, None),
        (lambda text: b"", 0, "does not begin as an undo record"),
        (lambda text: b"rubbish\n" + text, 0, "does not begin as an undo record"),
        (lambda text: text.replace(b'"format":2', b'"format":9'), 0, "format 9 is not 2"),
        (lambda text: text.replace(b"\n", b"\nrubbish\n", 1), 1, "undo:2: JSON is malformed"),
        (lambda text: text + b'{"type":"file","group":7}\n', 1, "undo:3: Expected `str`"),
        (lambda text: text.replace(b"cpu_quota", b"cpu_other"), 0, "undo:2: 'cpu_other'"),
    ],
)
def test_damage(rig: Rig, damage, entries: int, problem: str | None) -> None:  # type: ignore[no-untyped-def]
    rig.put(QUOTA, "100000\n")
    rig.take(QUOTA, 50_000)
    rig.file.write_bytes(damage(rig.file.read_bytes()))
    opened = rig.reopen()
    assert len(opened.entries) == entries
    assert [problem in line for line in opened.problems] == [True] if problem else not opened.problems
    assert Path(f"{rig.file}.unreadable").exists() == ("not known" in "".join(opened.problems))
    rig.take(QUOTA, 40_000)
    assert len(rig.reopen().entries) == 1
    assert not rig.record.problems


def test_only_one_process_holds_it(rig: Rig) -> None:
    with pytest.raises(UndoError, match="in use by a running koord-qosd"):
        UndoRecord(rig.file, BOOT)
    with rig.record:
        pass
    UndoRecord(rig.file, BOOT).close()


def test_a_record_that_cannot_be_opened_says_which_and_why(tmp_path: Path) -> None:
    with pytest.raises(UndoError, match=r"No such file or directory.*absent/undo"):
        UndoRecord(tmp_path / "absent/undo", BOOT)


@pytest.mark.parametrize("room", [0, 5])
def test_a_full_disk_keeps_the_record_as_it_was(rig: Rig, room: int) -> None:
    rig.put(QUOTA, "100000\n")
    rig.take(QUOTA, 50_000)
    before = rig.file.read_bytes()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + room, limits[1]))
    try:
        with pytest.raises(UndoError, match=str(rig.file)):
            rig.take(QUOTA, 40_000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert rig.file.read_bytes() == before
    assert rig.take(QUOTA, 30_000) == 100_000
    assert len(rig.reopen().entries) == 1
    assert not rig.record.problems


class Disk:
    """A file system on which no new file has room while it ``is_full``; what is begun of one is left lying there."""

    def __init__(self, patch: pytest.MonkeyPatch, number: int = errno.ENOSPC) -> None:
        self.is_full = True
        write = Path.write_bytes

        def write_bytes(path: Path, data: Buffer) -> int:
            if not self.is_full:
                return write(path, data)
            write(path, bytes(data)[:9])
            raise OSError(number, os.strerror(number), str(path))

        patch.setattr(Path, "write_bytes", write_bytes)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
@pytest.mark.parametrize("boot_id", [BOOT, "another boot"])
@pytest.mark.parametrize("torn", ["", '{"type":"for'])
def test_a_disk_that_is_full_at_the_opening_fails_the_notes_of_that_time_only(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, torn: str, boot_id: str, number: int
) -> None:
    rig.put(QUOTA, "100000\n")
    rig.take(QUOTA, 50_000)
    with rig.file.open("a") as file:
        file.write(torn)
    before, base = rig.file.read_bytes(), 100_000 if boot_id == BOOT else 50_000
    disk = Disk(monkeypatch, number)
    for _ in range(2):
        record = rig.reopen(boot_id)
        assert (record.base_of(QUOTA, rig.reading(QUOTA)), record.problems) == (base, [])
        with pytest.raises(UndoError, match=f"{re.escape(os.strerror(number))}.*{rig.file}"):
            rig.take(QUOTA, 40_000)
        assert (rig.file.read_bytes(), sorted(rig.file.parent.glob("undo*"))) == (before, [rig.file, rig.lock])
        assert rig.reading(QUOTA).value == 50_000
    disk.is_full = False
    assert rig.take(QUOTA, 30_000) == base
    assert rig.reopen(boot_id).base_of(QUOTA, rig.reading(QUOTA)) == base


def test_the_first_record_of_a_boot_waits_for_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = Disk(monkeypatch)
    rig = Rig(tmp_path)
    rig.put(QUOTA, "100000\n")
    for _ in range(2):
        with pytest.raises(UndoError):
            rig.take(QUOTA, 50_000)
    assert not rig.file.exists()
    disk.is_full = False
    assert rig.take(QUOTA, 50_000) == rig.reopen().base_of(QUOTA, rig.reading(QUOTA)) == 100_000


def test_what_was_appended_counts_although_there_is_no_room_for_fewer_lines(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.put(QUOTA, "100000\n")
    disk = Disk(monkeypatch)
    for quota in range(5_000, 6_100):
        rig.record.remember(QUOTA, rig.reading(QUOTA), quota)
    longest = rig.file.stat().st_size
    disk.is_full = False
    rig.record.remember(QUOTA, rig.reading(QUOTA), 7_000)
    assert rig.file.stat().st_size < longest / 100


def test_another_spelling_is_told_before_anything_is_noted_in_it(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    rig.put(QUOTA, "100000\n")
    disk = Disk(monkeypatch)
    with pytest.raises(UndoError):
        rig.record.spell(Weights.QUADRATIC, 50_000)
    with pytest.raises(UndoError):
        rig.take(QUOTA, 50_000)
    disk.is_full = False
    rig.take(QUOTA, 50_000)
    record = rig.reopen()
    assert (record.weights, record.cfs_period_us, len(record.entries)) == (Weights.QUADRATIC, 50_000, 1)


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 10_000), st.integers(2, 262_144), st.booleans())
def test_learning_the_mapping_changes_no_weight_that_is_put_back(
    weight: int, ours: int, is_written_again: bool
) -> None:
    shares = Target("/kubepods/pod1", "cpu_shares")
    with tempfile.TemporaryDirectory() as directory:
        rig = Rig(Path(directory), version=2)
        path = rig.put(shares, f"{weight}\n")
        rig.take(shares, ours)
        rig.writer.weights = Weights.QUADRATIC
        rig.record.spell(Weights.QUADRATIC, 100_000)
        if is_written_again:
            rig.take(shares, ours)
        rig.reopen()
        (line,) = restore(rig.writer, rig.record)
        rig.record.close()
        put_back = int(path.read_text())
    assert line.outcome in (Outcome.RESTORED, Outcome.ALREADY_BASE)
    assert put_back == weight or line.outcome is Outcome.ALREADY_BASE


@pytest.mark.parametrize(("version", "base"), [(1, 1024), (2, Weights.QUADRATIC.shares(Weights.LINEAR.weight(1024)))])
def test_only_a_base_that_was_read_from_a_weight_is_told_anew(tmp_path: Path, version: int, base: int) -> None:
    rig, box = Rig(tmp_path, version), Target("/kubepods/pod1/box", "cpu_shares")
    read = Target("/kubepods/pod1", "cpu_shares")
    for target in (read, box):
        rig.put(target, {1: "1024\n", 2: f"{Weights.LINEAR.weight(1024)}\n"}[version])
    rig.take(read, 2)
    originals = Originals(ContainerKey("uid", "main", 1), {"cpu_shares": Original(1024, 512, Pending.CREATED)})
    rig.record.note_originals(originals)
    rig.record.take_over(box, rig.reading(box), 1024, originals.key, originals.values["cpu_shares"])
    rig.record.spell(Weights.QUADRATIC, 100_000)
    assert {entry.cgroup: entry.base for entry in rig.reopen().entries} == {read.cgroup: base, box.cgroup: 1024}


def test_the_file_stays_bounded(rig: Rig) -> None:
    rig.put(QUOTA, "100000\n")
    largest = 0
    for quota in range(5_000, 10_000):
        rig.record.remember(QUOTA, rig.reading(QUOTA), quota)
        largest = max(largest, rig.file.stat().st_size)
    assert largest < 1100 * 300
    assert rig.reopen().base_of(QUOTA, rig.reading(QUOTA)) == 100_000


ORIGINALS = Originals(ContainerKey("uid", "main", 1), {"cpu_quota": Original(100_000, 50_000, Pending.CREATED)})


def test_what_was_asked_for_outlives_our_death_until_it_is_forgotten(rig: Rig) -> None:
    rig.record.note_originals(ORIGINALS)
    rig.record.note_originals(ORIGINALS)
    assert rig.file.read_bytes().count(b"\n") == 2
    assert rig.reopen().originals_of(ORIGINALS.key) == ORIGINALS
    rig.record.note_originals(Originals(ORIGINALS.key, {}))
    assert rig.record.originals == rig.reopen().originals == ()
    rig.record.note_originals(ORIGINALS)
    assert rig.reopen("another boot").originals == ()


def test_a_file_is_taken_over_and_settled_at_once(rig: Rig) -> None:
    rig.put(QUOTA, "50000\n")
    rig.record.note_originals(ORIGINALS)
    seen = ORIGINALS.values["cpu_quota"]
    rig.record.take_over(QUOTA, rig.reading(QUOTA), 100_000, ORIGINALS.key, seen)
    originals = rig.reopen().originals_of(ORIGINALS.key)
    assert originals == Originals(ORIGINALS.key, {"cpu_quota": Original(100_000, 50_000)}, QUOTA.cgroup)
    assert rig.record.base_of(QUOTA, rig.reading(QUOTA)) == 100_000
    assert rig.take(QUOTA, 40_000) == 100_000


def is_anything_left(rig: Rig) -> bool:
    return not rig.record.is_empty


def test_nothing_is_left_of_a_cgroup_that_is_gone(rig: Rig) -> None:
    assert not is_anything_left(rig)
    path = rig.put(QUOTA, "50000\n")
    rig.record.note_originals(ORIGINALS)
    assert is_anything_left(rig), "the container may be made at any moment"
    rig.record.take_over(QUOTA, rig.reading(QUOTA), 100_000, ORIGINALS.key, ORIGINALS.values["cpu_quota"])
    assert is_anything_left(rig)
    path.unlink()
    assert not is_anything_left(rig)
    rig.record.note_originals(Originals(ORIGINALS.key, ORIGINALS.values, QUOTA.cgroup))
    assert is_anything_left(rig), "the runtime is about to write"


def test_a_file_that_is_left_is_enough(rig: Rig) -> None:
    targets = [QUOTA, Target("/kubepods/pod2", "cpu_quota")]
    paths = [rig.put(target, "50000\n") for target in targets]
    for target in targets:
        rig.take(target, 40_000)
    for path in paths:
        assert is_anything_left(rig)
        path.unlink()
    assert not is_anything_left(rig)


def test_an_update_that_comes_meanwhile_stays_news(rig: Rig) -> None:
    rig.put(QUOTA, "50000\n")
    rig.record.note_originals(ORIGINALS)
    newer = Originals(ORIGINALS.key, {"cpu_quota": Original(70_000, 50_000, Pending.UPDATED)})
    rig.record.note_originals(newer)
    rig.record.take_over(QUOTA, rig.reading(QUOTA), 100_000, ORIGINALS.key, ORIGINALS.values["cpu_quota"])
    rig.record.settle(QUOTA, ORIGINALS.key, ORIGINALS.values["cpu_quota"])
    assert rig.reopen().originals_of(ORIGINALS.key) == newer


def test_hooks_note_while_the_actuator_writes(rig: Rig) -> None:
    """From two threads, through several rewritings of the file."""
    rig.put(QUOTA, "100000\n")
    reading = rig.reading(QUOTA)

    def note() -> None:
        for number in range(2000):
            rig.record.note_originals(
                Originals(ContainerKey("uid", "main", number % 10), ORIGINALS.values, str(number))
            )

    thread = threading.Thread(target=note)
    thread.start()
    for quota in range(5_000, 7_000):
        rig.record.remember(QUOTA, reading, quota)
    thread.join()
    opened = rig.reopen()
    assert not opened.problems
    assert sorted(int(each.cgroup) for each in opened.originals) == list(range(1990, 2000))
    assert [entry.ours[0] for entry in opened.entries] == [6_999]


@pytest.mark.parametrize("known", [True, False])
def test_what_a_container_was_made_with_is_claimed(rig: Rig, known: bool) -> None:
    """Nobody had looked at its file, or the runtime wrote it again after another value of ours."""
    rig.put(QUOTA, "50000\n")
    groups = {}
    if known:
        settled = ORIGINALS.settled("cpu_quota", QUOTA.cgroup)
        rig.record.note_originals(settled)
        rig.record.take_over(QUOTA, rig.reading(QUOTA), 100_000, ORIGINALS.key, settled.values["cpu_quota"])
        for value in (40_000, 30_000):
            rig.take(QUOTA, value)
        rig.put(QUOTA, "50000\n")
    else:
        rig.record.note_originals(ORIGINALS)
        assert planned(rig.writer, rig.record) == ()
        groups = {ORIGINALS.key: QUOTA.cgroup}
    claim(rig.writer, rig.record, groups)
    (line,) = restore(rig.writer, rig.record)
    assert (line.outcome, line.before, line.after) == (Outcome.RESTORED, 50_000, 100_000)


def test_what_the_runtime_is_asked_to_write_is_no_foreign_value(rig: Rig) -> None:
    """The base is what someone wrote into the file, though the runtime knows nothing of it."""
    rig.put(QUOTA, "70000\n")
    rig.take(QUOTA, 50_000)
    expect(rig.writer, rig.record, Originals(ORIGINALS.key, ORIGINALS.values, QUOTA.cgroup))
    rig.put(QUOTA, "100000\n")
    (line,) = restore(rig.writer, rig.reopen())
    assert (line.outcome, line.after) == (Outcome.RESTORED, 70_000)


Action = tuple[str, int]
actions = st.lists(
    st.tuples(st.sampled_from(["ours", "crash before the write", "torn line", "foreign"]), st.integers(1, 40)),
    max_size=12,
)


@settings(max_examples=100, deadline=None)
@given(history=actions)
def test_after_any_history_the_base_is_what_someone_else_wrote_last(history: list[Action]) -> None:
    """Ours are even thousands, others' odd ones, so that truth can be told from the file alone."""
    with tempfile.TemporaryDirectory() as directory:
        rig = Rig(Path(directory))
        rig.put(QUOTA, "1000")
        truth = 1000
        for action, number in history:
            if action == "foreign":
                truth = 2000 * number + 1000
                rig.put(QUOTA, str(truth))
                continue
            before = rig.file.read_bytes()
            assert rig.record.remember(QUOTA, rig.reading(QUOTA), 2000 * number) == truth
            if action == "ours":
                rig.writer.write(QUOTA, 2000 * number)
                continue
            if action == "torn line":
                rig.file.write_bytes(rig.file.read_bytes()[: len(before) + number])
            rig.reopen()
        assert rig.reopen().base_of(QUOTA, rig.reading(QUOTA)) == truth


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
        (Outcome.RESTORED, 100_000, 50_000, 100_000),
        (Outcome.ALREADY_BASE, 100_000, 100_000, 100_000),
        (Outcome.FOREIGN, 100_000, 70_000, 70_000),
        (Outcome.GONE, 100_000, None, None),
        (Outcome.FAILED, 100_000, None, None),
        (Outcome.FAILED, 100_000, None, None),
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
        Outcome.FAILED,
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
    assert all(line.outcome is Outcome.RESTORED for line in restore(rig.writer, rig.reopen()))
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
    assert {line.outcome for line in restore(logged, rig.record)} == {Outcome.RESTORED}
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
    assert (line.outcome, line.after) == (Outcome.RESTORED, "0-3")
    assert line.why == "its CPU set cannot be emptied while it has processes; it was given all, 0-3"


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
            assert all(line.outcome is not Outcome.FOREIGN for line in restore(rig.writer, rig.reopen()))
        else:
            break
        assert [rig.writer.read(target) for target in targets] == ["0-1", "0-1"]
    assert writes == 4


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


LINES = (
    b'{"type":"file","group":"/a","name":"cpu_quota","path":"/","inode":3,"base":-1,"ours":[50000,null]}',
    b'{"type":"container","key":["uid","main",0],"values":{"cpu_shares":{"requested":2,"edited":512,"pending":""}},"group":"/a"}',
    b'{"type":"drop-in","path":"/"}',
    b'{"type":"tasks","group":"/a","path":"/","inode":3,"resctrl_groups":["BE"]}',
    b'{"type":"resctrl group","name":"toys","path":"/","inode":7}',
    b'{"type":"attributes","name":"oom_score_adj","cgroup":"/a","path":"/","inode":3,"values":[-500],"original":985,'
    b'"tasks":[[7,4711,985]]}',
    b'{"type":"evicting","uid":"uid","pod":"default/web","who":"eviction","group":"/a","attempts":2,"grace_s":3,"is_stopped":true,"gate":"MemoryEvict","at_ns":7}',
)
WITHOUT_INSTANT = LINES[-1].replace(b',"at_ns":7', b"")
WITHOUT_GATE = WITHOUT_INSTANT.replace(b',"gate":"MemoryEvict"', b"")


def test_a_line_of_every_kind_is_read_and_written_as_it_always_was(tmp_path: Path) -> None:
    file = tmp_path / "undo"
    with UndoRecord(file, BOOT):
        header = file.read_bytes()
    file.write_bytes(header + b"".join(line + b"\n" for line in LINES))
    with UndoRecord(file, BOOT) as record:
        assert (record.problems, [kind for kind in KINDS if not record.all(kind)]) == ([], []), "each has its line"
    assert file.read_bytes().splitlines()[1:] == list(LINES)


def test_which_rows_are_held_is_read_beside_whoever_has_the_record_open(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    assert held_rows(rig.file) == frozenset()
    limit = Target("/kubepods/pod1", "io.max.rbps@253:0")
    for target, text in ((QUOTA, "-1\n"), (limit, "")):
        rig.put(target, text)
        rig.take(target, 5000)
    assert held_rows(rig.file) == {"cpu_quota", "io.max.rbps"}
    rig.record.forget(QUOTA)
    assert held_rows(rig.file) == {"io.max.rbps"}
    scored = WrittenTasks("oom_score_adj", "/kubepods/pod1/main", "/x", 3, (-500,), 0, (WrittenTask(7, 4711, 0),))
    rig.record.note(scored)
    assert held_rows(rig.file) == {"io.max.rbps", "oom_score_adj"}
    rig.record.drop(WrittenTasks, *scored.key)
    assert held_rows(rig.file) == {"io.max.rbps"}
    with rig.file.open("a") as file:
        file.write('{"type":"warp"}\nnonsense\n{"type":"file","group":"/k","name":"cpu_sh')
    assert held_rows(rig.file) == {"io.max.rbps"}, "what is not understood tells of nothing"
    assert held_rows(tmp_path / "none") == held_rows(tmp_path) == frozenset()


@pytest.mark.parametrize(("line", "gate"), [(WITHOUT_INSTANT, "MemoryEvict"), (WITHOUT_GATE, "")])
def test_an_eviction_of_an_earlier_version_has_no_instant_and_no_gate(tmp_path: Path, line: bytes, gate: str) -> None:
    file = tmp_path / "undo"
    with UndoRecord(file, BOOT):
        header = file.read_bytes()
    file.write_bytes(header + line + b"\n")
    with UndoRecord(file, BOOT) as record:
        (noted,) = record.all(NotedEviction)
        assert (noted.uid, noted.is_stopped, noted.gate, noted.at_ns, record.problems) == ("uid", True, gate, 0, [])

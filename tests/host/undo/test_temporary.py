"""What is for a time only ends with whoever began it: by the record alone, and without room for a note."""

from __future__ import annotations

import errno
import resource
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from koord.host import temporary
from koord.host.files import Target, Value
from koord.host.reconcile.plan import DONE
from koord.host.restoring import restore
from koord.host.undo import UndoError, UndoRecord
from koord.host.writer import WriteError, Writer
from tests.host.undo.rig import BOOT, QUOTA, Rig

POD = "/kubepods/besteffort/pod1"
FREEZE, HIGH, PODS_QUOTA = Target(POD, "cgroup.freeze"), Target(POD, "memory.high"), Target(POD, "cpu_quota")
FROZEN, HELD_DOWN, THROTTLED = (FREEZE, 0, 1), (HIGH, -1, 64 << 20), (PODS_QUOTA, 200_000, 10_000)
States = pytest.mark.parametrize(
    ("version", "target", "base", "value"),
    [(1, *FROZEN), (2, *FROZEN), (2, *HELD_DOWN), (1, *THROTTLED), (2, *THROTTLED)],
)


@pytest.fixture
def rig_of(tmp_path: Path) -> Callable[[int, Target, Value], Rig]:
    def make(version: int, target: Target, base: Value) -> Rig:
        rig = Rig(tmp_path, version)
        path = rig.writer.path(target)
        assert path is not None
        path.parent.mkdir(parents=True)
        path.write_text("100000 100000\n")  # whatever a plain file needs to be there
        rig.writer.write(target, base)
        return rig

    return make


def begin(rig: Rig, target: Target, value: Value, lasting: Value) -> None:
    """What koord-qosd does for a time."""
    rig.record.remember(target, rig.reading(target), value, lasting=lasting)
    rig.writer.write(target, value)


@contextmanager
def beside_the_daemon(rig: Rig) -> Iterator[UndoRecord]:
    """Nothing can be noted."""
    record = UndoRecord(rig.file, BOOT, is_shared=True)
    with pytest.raises(UndoError):
        record.remember(QUOTA, rig.reading(rig.record.entries[0].target), 1)
    yield record


@contextmanager
def after_its_end(rig: Rig) -> Iterator[UndoRecord]:
    yield rig.reopen()


@contextmanager
def on_a_full_disk(rig: Rig) -> Iterator[UndoRecord]:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    record = rig.reopen()
    resource.setrlimit(resource.RLIMIT_FSIZE, (rig.file.stat().st_size, limits[1]))
    try:
        yield record
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


@States
@pytest.mark.parametrize("way", [after_its_end, beside_the_daemon, on_a_full_disk])
@pytest.mark.parametrize("lasts_otherwise", [False, True])
def test_it_ends(
    rig_of: Callable[[int, Target, Value], Rig],
    version: int,
    target: Target,
    base: Value,
    value: Value,
    way: Callable[[Rig], AbstractContextManager[UndoRecord]],
    lasts_otherwise: bool,
) -> None:
    rig = rig_of(version, target, base)
    others = target.name == "cpu_quota" and lasts_otherwise
    lasting = 50_000 if others else base
    begin(rig, target, value, lasting)
    with way(rig) as record:
        (outcome,) = temporary.take_back(rig.writer, record)
        assert (outcome.result, outcome.write.before, outcome.write.after) == (DONE, value, lasting)
        assert rig.writer.read(target) == lasting
        rig.writer.write(target, lasting)
        assert [each.result for each in temporary.take_back(rig.writer, record)] == []
    rig.reopen()
    assert temporary.take_back(rig.writer, rig.record) == ()
    assert rig.writer.read(target) == lasting
    restore(rig.writer, rig.record)
    assert (rig.writer.read(target), rig.record.entries) == (base, ())


@States
def test_koordctl_restore_ends_it(
    rig_of: Callable[[int, Target, Value], Rig], version: int, target: Target, base: Value, value: Value
) -> None:
    rig = rig_of(version, target, base)
    begin(rig, target, value, base)
    restore(rig.writer, rig.reopen())
    assert (rig.writer.read(target), rig.record.entries) == (base, ())


def test_other_values_and_those_of_others_stay(rig: Rig) -> None:
    lasts, thawed_by_hand, gone = (Target(f"/pod{n}", "cpu_quota") for n in range(3))
    for target in (lasts, thawed_by_hand, gone):
        rig.put(target, "100000\n")
    rig.take(lasts, 50_000)
    begin(rig, thawed_by_hand, 10_000, 100_000)
    begin(rig, gone, 10_000, 100_000)
    rig.put(thawed_by_hand, "70000\n")
    path = rig.writer.path(gone)
    assert path is not None
    path.unlink()
    assert temporary.take_back(rig.writer, rig.reopen()) == ()
    assert [rig.reading(target).value for target in (lasts, thawed_by_hand)] == [50_000, 70_000]
    assert [entry.target for entry in rig.record.entries] == [lasts]


def test_what_cannot_be_read_stays_in_the_record(rig: Rig) -> None:
    path = rig.put(QUOTA, "100000\n")
    begin(rig, QUOTA, 10_000, 100_000)
    path.write_text("soon\n")
    assert temporary.take_back(rig.writer, rig.reopen()) == ()
    path.write_text("10000\n")
    assert [each.result for each in temporary.take_back(rig.writer, rig.reopen())] == [DONE]
    assert rig.reading(QUOTA).value == 100_000


def test_a_record_without_the_field_is_read(rig: Rig) -> None:
    """As earlier releases wrote it."""
    rig.put(QUOTA, "100000\n")
    rig.take(QUOTA, 50_000)
    assert b"lasting" not in rig.file.read_bytes()
    assert rig.reopen().entries[0].lasting is None


class BusyWriter(Writer):
    """The kernel takes nothing now."""

    def write(self, target: Target, value: Value) -> None:
        raise WriteError(errno.EBUSY, str(self.path(target)), str(value))


@States
def test_what_could_not_be_given_back_is_given_back_later(
    rig_of: Callable[[int, Target, Value], Rig], version: int, target: Target, base: Value, value: Value
) -> None:
    rig = rig_of(version, target, base)
    begin(rig, target, value, base)
    assert [each.result for each in temporary.take_back(BusyWriter(rig.writer.tree), rig.record)] != [DONE]
    assert rig.writer.read(target) == value
    assert [each.result for each in temporary.take_back(rig.writer, rig.reopen())] == [DONE]
    assert rig.writer.read(target) == base

"""A full disk fails the notes of that time and loses none of those before."""

from __future__ import annotations

import errno
import os
import re
import resource
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from koord.host.undo import UndoError
from koord.host.weights import Weights
from tests.host.undo.rig import BOOT, QUOTA, Rig

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer as Buffer


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

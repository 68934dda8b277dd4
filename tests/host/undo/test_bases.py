"""The record knows a file's base, which is what someone else wrote there last, whenever Koord wrote or died."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from koord.host.files import Target
from koord.host.writer import Reading
from tests.host.undo.rig import QUOTA, Rig


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

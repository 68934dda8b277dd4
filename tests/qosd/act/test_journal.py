"""The journal: nothing that happens to its file reaches whoever records."""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path

import pytest
from msgspec.structs import replace

from qosd.act.journal import SCHEMA, Journal, JournalEntry
from tests.support.waiting import wait_until

ENTRY = JournalEntry(
    wall_ns=10,
    monotonic_ns=20,
    tick=1,
    owner="hooks",
    pod="default/a",
    cgroup="/kubepods/pod1",
    name="cpu_quota",
    path="/sys/fs/cgroup/cpu/kubepods/pod1/cpu.cfs_quota_us",
    before=-1,
    after=5000,
    result="done",
    why="limit 50m",
    inputs={"formula": "cpu_quota", "limit_milli": 50, "ratio": 1.5, "none": None},
)


@pytest.mark.parametrize(
    "content",
    [b"this is no database, though it is long enough to look like one" * 20, None],
    ids=["no database", "another schema"],
)
def test_a_file_that_is_not_ours_is_set_aside(tmp_path: Path, content: bytes | None) -> None:
    file = tmp_path / "journal.db"
    if content is None:
        with sqlite3.connect(file) as other:
            other.execute(f"PRAGMA user_version = {SCHEMA + 1}")
    else:
        file.write_bytes(content)
    with Journal(file, pause_s=0.01) as journal:
        journal.record(ENTRY)
        assert journal.flush()
        assert journal.query() == [ENTRY]
        assert (journal.failures, journal.dropped, journal.problem) == (1, 0, "")
    assert (tmp_path / "journal.db.broken").exists()


def test_a_directory_that_is_missing_costs_time_only(tmp_path: Path) -> None:
    with Journal(tmp_path / "later" / "journal.db", pause_s=0.01) as journal:
        journal.record(ENTRY)
        wait_until(lambda: journal.failures > 2)
        assert "journal.db" in journal.problem
        assert journal.query() == []
        (tmp_path / "later").mkdir()
        assert journal.flush(10)
        assert journal.query() == [ENTRY]


def test_a_full_disk_costs_what_the_queue_cannot_hold(tmp_path: Path) -> None:
    file = tmp_path / "later" / "journal.db"
    with Journal(file, queue_size=5, pause_s=0.01) as journal:
        wait_until(lambda: journal.failures > 0)
        for tick in range(20):
            journal.record(replace(ENTRY, tick=tick))
        assert journal.dropped == 15
        file.parent.mkdir()
        assert journal.flush(10)
        assert [entry.tick for entry in journal.query()] == [4, 3, 2, 1, 0]


def test_a_database_that_breaks_while_it_is_used(tmp_path: Path) -> None:
    file = tmp_path / "journal.db"
    with Journal(file, pause_s=0.01) as journal:
        journal.record(ENTRY)
        assert journal.flush()
        with sqlite3.connect(file) as other:
            other.execute("DROP TABLE entries")
        journal.record(ENTRY)
        wait_until(lambda: journal.failures > 1)
        assert "entries" in journal.problem
        assert journal.query() == []
        with sqlite3.connect(file) as other:
            other.execute("PRAGMA user_version = 99")
        wait_until(lambda: journal.failures > 2)
    assert journal.dropped in (0, 1)


def test_closing_does_not_wait_for_a_disk_that_never_comes(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "never" / "journal.db", pause_s=60)
    for _ in range(3):
        journal.record(ENTRY)
    begin = time.monotonic()
    journal.close()
    assert time.monotonic() - begin < 4
    assert journal.dropped == 3


def test_closing_writes_what_is_queued(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal.db")
    for tick in range(2000):
        journal.record(replace(ENTRY, tick=tick))
    journal.close()
    with Journal(tmp_path / "journal.db") as again:
        assert [entry.tick for entry in again.query(limit=5000)] == list(range(1999, -1, -1))


@pytest.mark.parametrize(
    ("asked", "ticks"),
    [
        ({}, [4, 3, 2, 1]),
        ({"limit": 2}, [4, 3]),
        ({"pod": "default/b"}, [2]),
        ({"strategy": "hooks"}, [3, 1]),
        ({"strategy": "burst"}, [4, 3]),
        ({"strategy": "bur"}, []),
        ({"since_ns": 15}, [3, 2]),
        ({"file": ENTRY.path}, [3, 2, 1]),
        ({"file": "/kubepods/pod1/cpu_quota"}, [3, 2, 1]),
        ({"file": "cpu_shares"}, [4]),
        ({"file": "/kubepods/pod2/cpu_shares", "strategy": "burst"}, [4]),
        ({"file": "' OR 1 --"}, []),
    ],
)
def test_filters(tmp_path: Path, asked: dict[str, str | int], ticks: list[int]) -> None:
    """Newest first, by the order in which they came: the third was recorded after the clock went back."""
    with Journal(tmp_path / "journal.db") as journal:
        for entry in (
            ENTRY,
            replace(ENTRY, tick=2, pod="default/b", wall_ns=30, owner="ratio"),
            replace(ENTRY, tick=3, owner="hooks, burst", wall_ns=20),
            replace(ENTRY, tick=4, owner="burst", wall_ns=5, name="cpu_shares", cgroup="/kubepods/pod2", path="/p"),
        ):
            journal.record(entry)
        assert journal.flush()
        assert [entry.tick for entry in journal.query(**asked)] == ticks  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [None, "", "0-3", -1, (1 << 63) - 1, "max"])
def test_values_keep_their_types(tmp_path: Path, value: int | str | None) -> None:
    entry = replace(ENTRY, before=value, after=value)
    with Journal(tmp_path / "journal.db") as journal:
        journal.record(entry)
        assert journal.flush()
        assert journal.query() == [entry]


def test_a_number_beyond_sqlites_is_kept_as_text(tmp_path: Path) -> None:
    with Journal(tmp_path / "journal.db") as journal:
        journal.record(replace(ENTRY, before=1 << 64))
        assert journal.flush()
        assert journal.query()[0].before == str(1 << 64)


def test_rows_are_bounded(tmp_path: Path) -> None:
    with Journal(tmp_path / "journal.db", max_rows=100) as journal:
        for tick in range(5000):
            journal.record(replace(ENTRY, tick=tick))
        assert journal.flush()
        kept = [entry.tick for entry in journal.query(limit=10_000)]
        assert kept[:100] == list(range(4999, 4899, -1))
        assert len(kept) < 100 + 2048

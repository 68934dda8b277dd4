"""One process holds the record's file, which stays short and outlives damage; anyone may read which rows are held."""

from __future__ import annotations

from pathlib import Path

import pytest

from koord.host.files import Target
from koord.host.taskattributes import WrittenTask, WrittenTasks
from koord.host.undo import UndoError, UndoRecord, held_rows
from tests.host.undo.rig import BOOT, QUOTA, Rig


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


def test_the_file_stays_bounded(rig: Rig) -> None:
    rig.put(QUOTA, "100000\n")
    largest = 0
    for quota in range(5_000, 10_000):
        rig.record.remember(QUOTA, rig.reading(QUOTA), quota)
        largest = max(largest, rig.file.stat().st_size)
    assert largest < 1100 * 300
    assert rig.reopen().base_of(QUOTA, rig.reading(QUOTA)) == 100_000


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

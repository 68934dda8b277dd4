"""The record reads and writes the lines of every kind of note, those of earlier versions too."""

from __future__ import annotations

from pathlib import Path

import pytest

from koord.host.evictions import NotedEviction
from koord.host.notes import KINDS, DropIn
from koord.host.undo import UndoRecord
from tests.host.undo.rig import BOOT

LINES = (
    b'{"type":"file","group":"/a","name":"cpu_quota","path":"/","inode":3,"base":-1,"ours":[50000,null]}',
    b'{"type":"container","key":["uid","main",0],"values":{"cpu_shares":{"requested":2,"edited":512,"pending":""}},"group":"/a"}',
    b'{"type":"drop-in","path":"/"}',
    b'{"type":"tasks","group":"/a","path":"/","inode":3,"resctrl_groups":["BE"]}',
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


def test_a_note_of_a_kind_that_this_version_lacks_is_told_and_the_others_count(tmp_path: Path) -> None:
    file = tmp_path / "undo"
    with UndoRecord(file, BOOT):
        header = file.read_bytes()
    file.write_bytes(header + b'{"type":"resctrl group","name":"toys","path":"/","inode":7}\n' + LINES[2] + b"\n")
    with UndoRecord(file, BOOT) as record:
        assert record.problems == [f"{file}:2: Invalid value 'resctrl group' - at `$.type`"]
        assert len(record.all(DropIn)) == 1


@pytest.mark.parametrize(("line", "gate"), [(WITHOUT_INSTANT, "MemoryEvict"), (WITHOUT_GATE, "")])
def test_an_eviction_of_an_earlier_version_has_no_instant_and_no_gate(tmp_path: Path, line: bytes, gate: str) -> None:
    file = tmp_path / "undo"
    with UndoRecord(file, BOOT):
        header = file.read_bytes()
    file.write_bytes(header + line + b"\n")
    with UndoRecord(file, BOOT) as record:
        (noted,) = record.all(NotedEviction)
        assert (noted.uid, noted.is_stopped, noted.gate, noted.at_ns, record.problems) == ("uid", True, gate, 0, [])

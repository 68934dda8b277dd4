"""What a process may do of what a feature needs: by its status, and by its files."""

from __future__ import annotations

from pathlib import Path

import pytest

from koord.host import granted
from koord.host.cgroup import Tree
from koord.host.files import ROWS
from koord.model.grants import GRANTS, Capability

ALL = "CapEff:\t000001ffffffffff\n"
QOSD = "Name:\tkoord-qosd\nCapInh:\t0\nCapEff:\t0000004001080000\n"  # PERFMON, SYS_RESOURCE, SYS_PTRACE
MIN_FREE, FEATURES = "proc/sys/vm/min_free_kbytes", "sys/kernel/debug/sched/features"


def node(root: Path, status: str, *files: str) -> Tree:
    for name, text in {"proc/self/status": status, **dict.fromkeys(files, "0\n")}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return Tree(2, root / "cgroup", {}, proc=root / "proc", sys=root / "sys")


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (ALL, frozenset(Capability)),
        (QOSD, frozenset({Capability.CAP_SYS_RESOURCE})),
        ("CapEff:\t0000000000000002\n", frozenset({Capability.CAP_DAC_OVERRIDE})),
        ("CapEff:\t0000000000000000\n", frozenset()),
        ("Name:\tx\n", None),
        ("", None),
    ],
)
def test_capabilities(status: str, expected: frozenset[Capability] | None) -> None:
    assert granted.capabilities(status) == expected


def test_this_process_has_a_status_that_is_understood() -> None:
    assert granted.capabilities(Path("/proc/self/status").read_text()) is not None


def test_capabilities_that_lack_are_named_by_feature(tmp_path: Path) -> None:
    assert granted.lacking(node(tmp_path, QOSD)) == {
        "BECPUSuppress": ("CAP_SYS_NICE",),
        "OOMScoreAdj": ("CAP_DAC_OVERRIDE",),
    }
    assert granted.lacking(node(tmp_path, ALL)) == {}


def test_files_that_may_not_be_written_are_named_by_feature(tmp_path: Path) -> None:
    """And only those that this kernel has: the mount that makes them read-only is the kernel's word."""
    tree = node(tmp_path, ALL, MIN_FREE, FEATURES)
    assert granted.lacking(tree, lambda path: path.name != "features") == {
        "SystemConfig": (str(tmp_path / FEATURES),),
    }
    both = granted.lacking(tree, lambda path: False)
    assert both == {"SystemConfig": (str(tmp_path / MIN_FREE), str(tmp_path / FEATURES))}


def test_what_cannot_be_told_counts_as_there(tmp_path: Path) -> None:
    assert granted.lacking(Tree(2, tmp_path, {}, proc=tmp_path / "proc", sys=tmp_path / "sys")) == {}


def test_a_file_of_the_older_path_is_the_one_to_be_written(tmp_path: Path) -> None:
    older = "sys/kernel/debug/sched_features"
    tree = node(tmp_path, ALL, older)
    assert granted.files_of(GRANTS["SystemConfig"], tree) == (tmp_path / older,)


def test_every_row_of_a_grant_is_a_file_of_no_cgroup() -> None:
    """Those of cgroups are writable anyway."""
    assert [name for grant in GRANTS.values() for name in grant.rows if ROWS[name].system is None] == []

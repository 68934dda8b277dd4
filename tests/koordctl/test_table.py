"""Tables as wide as they are, and such as fit a terminal."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordctl.table import align, shorten

UID = "0f0e6c7a-1b2c-4d5e-8f90-123456789abc"
PATH = f"/sys/fs/cgroup/cpu/kubepods/besteffort/pod{UID}/cri-containerd-{'ab12' * 16}.scope/cpu.cfs_quota_us"
SENTENCE = "batchResource: batch-cpu limit 2000m of a container that runs beside others on this node"
ROWS = [["default/job", PATH, SENTENCE], ["default/web", "/short", "-"]]


def test_whole_where_no_width_is_given() -> None:
    first, second, _ = align(["POD", "FILE", "WHY"], ROWS).split("\n")
    assert PATH in second and SENTENCE in second and len(second) > 200
    assert first.index("WHY") == second.index(SENTENCE)


@pytest.mark.parametrize("width", [60, 80, 100, 132])
def test_it_fits_and_the_last_column_is_whole(width: int) -> None:
    lines = align(["POD", "FILE", "WHY"], ROWS, width).split("\n")
    assert all(len(line) <= width for line in lines), lines
    column = lines[0].index("WHY")
    said = " ".join(line[column:].strip() for line in lines[1:])
    assert said.startswith(SENTENCE) and said.endswith("-")
    assert "quota_us" in "".join(lines), "the end of a path tells which file it is"


def test_identifiers_are_cut_before_anything_else() -> None:
    table = align(["FILE"], [[f"/kubepods/besteffort/pod{UID}/cpu.shares"]], 50)
    assert table == "FILE\n/kubepods/besteffort/pod0f0e6c7a…/cpu.shares"


def test_what_fits_stays_as_it_is() -> None:
    assert align(["A", "B"], [[UID, "x"]], 80) == align(["A", "B"], [[UID, "x"]])


@pytest.mark.parametrize(
    ("text", "width", "short"), [("abc", 3, "abc"), ("abcdefghij", 7, "ab…ghij"), ("abcd", 1, "…"), ("", 5, "")]
)
def test_shorten(text: str, width: int, short: str) -> None:
    assert shorten(text, width) == short


CELLS = st.text(st.characters(codec="ascii", exclude_categories=["C"]), max_size=120)


@given(st.lists(st.lists(CELLS, min_size=3, max_size=3), min_size=1, max_size=6), st.integers(60, 200))
def test_no_line_is_wider_than_the_terminal(rows: list[list[str]], width: int) -> None:
    assert all(len(line) <= width for line in align(["A", "B", "C"], rows, width).split("\n"))

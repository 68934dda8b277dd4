"""Directories of our own: missing ones have one mode, existing ones keep theirs."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from koord.service.directories import make_directories


def modes(*paths: Path) -> list[int]:
    return [stat.S_IMODE(path.stat().st_mode) for path in paths]


@pytest.mark.parametrize("end", ["", "/", "//"])
def test_missing_parents_are_made_with_the_same_mode(tmp_path: Path, umask: int, end: str) -> None:
    make_directories(f"{tmp_path}/a/b/c{end}")
    assert modes(tmp_path / "a", tmp_path / "a/b", tmp_path / "a/b/c") == [0o755] * 3


def test_an_existing_directory_keeps_its_mode(tmp_path: Path, umask: int) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a").chmod(0o700)
    make_directories(str(tmp_path / "a"))
    make_directories(str(tmp_path / "a/b"))
    assert modes(tmp_path / "a", tmp_path / "a/b") == [0o700, 0o755]


@pytest.mark.parametrize("below", ["file", "file/below"])
def test_a_file_in_the_way_is_an_error_that_names_it(tmp_path: Path, below: str) -> None:
    (tmp_path / "file").write_text("precious")
    with pytest.raises(OSError, match="file"):
        make_directories(str(tmp_path / below))
    assert (tmp_path / "file").read_text() == "precious"


def test_somebody_else_may_be_quicker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").mkdir()
    looks = iter([False])  # it was not there at the first look
    monkeypatch.setattr("os.path.isdir", lambda path: next(looks, True))
    make_directories(str(tmp_path / "a"))

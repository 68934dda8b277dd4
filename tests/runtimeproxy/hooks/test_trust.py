"""Whose hook files and sockets count."""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from runtimeproxy.hooks.trust import distrust, owners, refusal

US = os.geteuid()
STRANGER = 4242  # no user of this machine; what we make belongs to it if it alone is trusted no more


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """``sub/file``, both of them only ours to write."""
    (tmp_path / "sub").mkdir(mode=0o755)
    (tmp_path / "sub").chmod(0o755)
    (tmp_path / "sub/file").write_text("{}")
    (tmp_path / "sub/file").chmod(0o644)
    return tmp_path


def without_the_tree(reason: str | None, tree: Path) -> str | None:
    return None if reason is None else reason.replace(str(tree), "TREE")


def at(name: str, mode: int) -> Callable[[Path], object]:
    return lambda tree: (tree / name).chmod(mode)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (at("sub/file", 0o600), None),
        (at("sub/file", 0o4755), None),
        (at("sub", 0o700), None),
        (at("sub", 0o1777), None),
        (at("sub/file", 0o666), f"TREE/sub/file can be written by others than uid {US} (mode 0666)"),
        (at("sub/file", 0o664), f"TREE/sub/file can be written by others than uid {US} (mode 0664)"),
        (at("sub", 0o777), f"TREE/sub can be written by others than uid {US} (mode 0777)"),
        (at("sub", 0o775), f"TREE/sub can be written by others than uid {US} (mode 0775)"),
        (at("sub", 0o1775), None),
    ],
)
def test_modes(tree: Path, change: Callable[[Path], object], reason: str | None) -> None:
    change(tree)
    assert without_the_tree(refusal(f"{tree}/sub/file", owners()), tree) == reason


def test_a_directory_that_is_asked_about_itself_must_be_nobody_elses_to_write(tree: Path) -> None:
    (tree / "sub").chmod(0o1777)
    assert "sub can be written by others" in str(refusal(str(tree / "sub"), owners()))


def test_a_strangers_file_is_refused_with_owner_and_mode(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    belongs_to(monkeypatch, {tree / "sub/file": STRANGER})
    assert refusal(f"{tree}/sub/file", owners()) == f"{tree}/sub/file belongs to uid {STRANGER} (mode 0644)"


def test_a_strangers_directory_on_the_way_is_refused(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    belongs_to(monkeypatch, {tree / "sub": STRANGER})
    assert refusal(f"{tree}/sub/file", owners()) == f"{tree}/sub belongs to uid {STRANGER} (mode 0755)"


@pytest.mark.parametrize("target", ["sub/file", "./sub/../sub//file", "{tree}/sub/file", "{tree}/other/../sub/file"])
def test_links_are_followed(tree: Path, target: str) -> None:
    (tree / "other").symlink_to("sub")
    (tree / "link").symlink_to(target.format(tree=tree))
    assert refusal(f"{tree}/link", owners()) is None


def test_every_step_of_a_link_is_looked_at(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The link and its target are ours; but a stranger could swap the link in between."""
    (tree / "theirs").mkdir(mode=0o755)
    (tree / "theirs/between").symlink_to(tree / "sub/file")
    (tree / "link").symlink_to("theirs/between")
    belongs_to(monkeypatch, {tree / "theirs": STRANGER})
    assert str(refusal(f"{tree}/link", owners())).startswith(f"{tree}/theirs belongs to uid {STRANGER}")


def test_a_strangers_link_in_a_directory_for_everybody_is_refused(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tree / "sub").chmod(0o1777)
    (tree / "sub/link").symlink_to("file")
    belongs_to(monkeypatch, {tree / "sub/link": STRANGER})
    assert str(refusal(f"{tree}/sub/link", owners())).startswith(f"{tree}/sub/link belongs to uid {STRANGER}")


def test_links_without_end_are_refused(tree: Path) -> None:
    (tree / "loop").symlink_to("loop")
    assert "symbolic links" in str(refusal(f"{tree}/loop", owners()))


def test_what_is_missing_is_an_error(tree: Path) -> None:
    with pytest.raises(FileNotFoundError):
        refusal(f"{tree}/missing/file", owners())


@pytest.mark.parametrize("mode", [0o600, 0o660, 0o666])
def test_a_sockets_own_mode_does_not_count(tree: Path, mode: int) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"{tree}/s")
        os.chmod(f"{tree}/s", mode)
        assert distrust(f"{tree}/s", None) is None


def test_the_user_of_the_server_counts() -> None:
    assert [distrust("/s", uid) for uid in (0, US)] == [None, None]
    assert distrust("/s", STRANGER) == f"its server runs as uid {STRANGER}"


def belongs_to(monkeypatch: pytest.MonkeyPatch, foreign: dict[Path, int]) -> None:
    """Let these paths belong to others, which a test without root's rights cannot bring about."""
    lstat = os.lstat

    def foreign_lstat(path: str) -> os.stat_result:
        found = lstat(path)
        uid = foreign.get(Path(path), found.st_uid)
        return os.stat_result([*found[: stat.ST_UID], uid, *found[stat.ST_UID + 1 :]])

    monkeypatch.setattr("os.lstat", foreign_lstat)

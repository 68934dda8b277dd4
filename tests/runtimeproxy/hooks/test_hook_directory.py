"""The hook directory: mistakes keep what worked, deletions count at once."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

import pytest

from runtimeproxy.hooks.directory import HookDirectory, LoadedHookFile
from tests.runtimeproxy.hooks.doubles import Recorder
from tests.support.waiting import until


def text(endpoint: str = "/run/a.sock") -> str:
    return json.dumps({"remote-endpoint": endpoint, "runtime-hooks": ["*"]})


class Watched:
    def __init__(self, path: Path) -> None:
        self.told: list[tuple[str, ...]] = []
        self.recorder = Recorder()
        self.directory = HookDirectory(str(path), self.changed, self.recorder)

    def changed(self, loaded: tuple[LoadedHookFile, ...]) -> None:
        self.told.append(tuple(f"{each.spec.file}={each.spec.endpoint}" for each in loaded))

    def now(self) -> tuple[str, ...]:
        self.directory.rescan()
        return tuple(f"{each.spec.file}={each.spec.endpoint}" for each in self.directory.servers)


@pytest.fixture
def watched(tmp_path: Path) -> Watched:
    return Watched(tmp_path)


@pytest.mark.parametrize("name", ["a.json.tmp", ".a.json", "ajson", "a.yaml", "a.json~"])
def test_other_names_are_no_hook_files(tmp_path: Path, watched: Watched, name: str) -> None:
    (tmp_path / name).write_text(text())
    assert watched.now() == ()
    assert watched.directory.errors == {}


def test_a_bad_new_file_is_left_out_and_reported(tmp_path: Path, watched: Watched) -> None:
    (tmp_path / "a.json").write_text("{")
    (tmp_path / "b.json").write_text(text())
    assert watched.now() == ("b.json=/run/a.sock",)
    assert "a.json: not JSON" in watched.directory.errors["a.json"]
    assert watched.recorder.hook_file_errors == 1


def test_a_file_that_turns_bad_keeps_its_last_good_version(tmp_path: Path, watched: Watched) -> None:
    path = tmp_path / "a.json"
    path.write_text(text())
    watched.now()
    path.write_text("{}")
    assert watched.now() == ("a.json=/run/a.sock",)
    assert "a.json" in watched.directory.errors
    path.write_text(text("/run/new.sock"))
    assert watched.now() == ("a.json=/run/new.sock",)
    assert watched.directory.errors == {}


def test_what_is_no_regular_file_blocks_nothing(tmp_path: Path, watched: Watched) -> None:
    os.mkfifo(tmp_path / "fifo.json")
    (tmp_path / "directory.json").mkdir()
    (tmp_path / "dangling.json").symlink_to(tmp_path / "gone")
    (tmp_path / "good.json").write_text(text())
    assert watched.now() == ("good.json=/run/a.sock",)


def test_a_bad_file_that_is_deleted_is_gone_with_its_good_version(tmp_path: Path, watched: Watched) -> None:
    path = tmp_path / "a.json"
    path.write_text(text())
    watched.now()
    path.write_text("{")
    watched.now()
    path.unlink()
    assert watched.now() == ()
    assert watched.directory.errors == {}


def test_a_directory_that_is_no_directory_keeps_the_servers(tmp_path: Path) -> None:
    path = tmp_path / "hooks"
    path.mkdir()
    (path / "a.json").write_text(text())
    watched = Watched(path)
    watched.now()
    (path / "a.json").unlink()
    path.rmdir()
    path.write_text("")
    assert watched.now() == ("a.json=/run/a.sock",)


def test_a_missing_directory_is_made(tmp_path: Path, umask: int) -> None:
    path = tmp_path / "etc" / "hookserver.d"
    watched = Watched(path)
    assert watched.now() == ()
    assert [each.stat().st_mode & 0o777 for each in (path, path.parent)] == [0o755] * 2


def test_without_a_directory_there_are_no_hooks_and_no_errors() -> None:
    directory = HookDirectory("", lambda loaded: None, Recorder())
    directory.rescan()
    assert (directory.servers, directory.errors) == ((), {})


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        (b"\xff.json", "\\udcff.json"),
        (b"a\nb.json", "a\\nb.json"),
        (b"\x1b[2K.json", "\\x1b[2K.json"),
        ("\u2028.json".encode(), "\\u2028.json"),
    ],
)
def test_a_name_that_pages_and_logs_cannot_hold_is_refused(
    tmp_path: Path, watched: Watched, name: bytes, shown: str
) -> None:
    (tmp_path / os.fsdecode(name)).write_text(text())
    (tmp_path / "gut ü.json").write_text(text())
    assert watched.now() == ("gut ü.json=/run/a.sock",)
    assert watched.directory.errors == {shown: f"{shown}: its name is not printable UTF-8"}


@pytest.mark.parametrize("mode", [0o666, 0o646, 0o664])
def test_a_file_that_others_may_write_is_refused(tmp_path: Path, watched: Watched, mode: int) -> None:
    path = tmp_path / "a.json"
    path.write_text(text())
    path.chmod(mode)
    assert watched.now() == ()
    assert (
        f"{path} can be written by others than uid {os.geteuid()} (mode {mode:04o})"
        in watched.directory.errors["a.json"]
    )
    path.chmod(0o644)
    assert watched.now() == ("a.json=/run/a.sock",)
    assert watched.directory.errors == {}


@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o775])
def test_in_a_directory_that_others_may_write_nothing_counts_but_what_did(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "hooks"
    path.mkdir(mode=0o755)
    (path / "a.json").write_text(text())
    watched = Watched(path)
    watched.now()
    path.chmod(mode)
    (path / "b.json").write_text(text())
    assert watched.now() == ("a.json=/run/a.sock",)
    assert watched.directory.errors == {
        str(path): f"hook directory {path}: {path} can be written by others than uid {os.geteuid()} (mode {mode:04o})"
    }
    assert watched.recorder.hook_file_errors == 1
    path.chmod(0o755)
    assert watched.now() == ("a.json=/run/a.sock", "b.json=/run/a.sock")
    assert watched.directory.errors == {}


def test_a_good_version_stays_when_others_may_write_the_next(tmp_path: Path, watched: Watched) -> None:
    path = tmp_path / "a.json"
    path.write_text(text())
    watched.now()
    path.chmod(0o666)
    path.write_text(text("/run/evil.sock"))
    assert watched.now() == ("a.json=/run/a.sock",)


def test_two_versions_of_one_size_within_a_tick_of_the_clock(tmp_path: Path, watched: Watched) -> None:
    """Kernels before 6.13 stamp files by ticks of 1 to 4 ms: inode, size and time are the same."""
    path = tmp_path / "a.json"
    path.write_text(text("/run/1.sock"))
    stamp = path.stat().st_mtime_ns
    watched.now()
    path.write_text(text("/run/2.sock"))
    os.utime(path, ns=(stamp, stamp))
    assert watched.now() == ("a.json=/run/2.sock",)


def test_servers_come_in_the_order_of_their_names(tmp_path: Path, watched: Watched) -> None:
    for name in ("20-b.json", "10-a.json", "3.json"):
        (tmp_path / name).write_text(text())
    assert [entry.split("=")[0] for entry in watched.now()] == ["10-a.json", "20-b.json", "3.json"]


def test_changes_are_told_once(tmp_path: Path, watched: Watched) -> None:
    (tmp_path / "a.json").write_text(text())
    watched.now()
    watched.now()
    (tmp_path / "b.json").write_text("{")
    watched.now()
    (tmp_path / "a.json").unlink()
    watched.now()
    assert watched.told == [("a.json=/run/a.sock",), ()]


def test_a_file_written_again_is_another_version(tmp_path: Path, watched: Watched) -> None:
    path = tmp_path / "a.json"
    path.write_text(text())
    watched.now()
    replacement = tmp_path / "new"
    replacement.write_text(text())
    replacement.rename(path)
    watched.now()
    assert watched.told == [("a.json=/run/a.sock",)] * 2


async def test_the_watch_sees_files_come_and_go(tmp_path: Path) -> None:
    watched = Watched(tmp_path)
    watch = watched.directory.watch(asyncio.get_running_loop())
    try:
        (tmp_path / "a.json").write_text(text())
        await until(lambda: watched.told[-1:] == [("a.json=/run/a.sock",)])
        (tmp_path / "a.json").unlink()
        await until(lambda: watched.told[-1:] == [()])
    finally:
        watch.close()

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from koord.service.inotify import (
    IN_CLOSE_WRITE,
    IN_CREATE,
    IN_DELETE,
    IN_IGNORED,
    IN_Q_OVERFLOW,
    DirectoryWatch,
    FileWatch,
    Inotify,
    InotifyEvent,
    parse_events,
)


class Seen:
    """Collects callbacks; ``settle`` returns what came once nothing more comes."""

    def __init__(self) -> None:
        self.calls: list[frozenset[str]] = []

    def __call__(self, names: frozenset[str] = frozenset()) -> None:
        self.calls.append(names)

    async def settle(self) -> list[frozenset[str]]:
        await asyncio.sleep(0.03)
        calls, self.calls = self.calls, []
        return calls

    async def names(self) -> set[str]:
        return set().union(*await self.settle())


@pytest.fixture
def inotify() -> Iterator[Inotify]:
    instance = Inotify()
    yield instance
    instance.close()


def test_a_missing_path_is_an_os_error_with_that_path(inotify: Inotify) -> None:
    with pytest.raises(FileNotFoundError) as raised:
        inotify.add("/nonexistent/x", IN_CREATE)
    assert raised.value.filename == "/nonexistent/x"


def test_overflow_is_an_event() -> None:
    data = (-1).to_bytes(4, "little", signed=True) + IN_Q_OVERFLOW.to_bytes(4, "little") + bytes(8)
    (event,) = parse_events(data)
    assert event == InotifyEvent(-1, IN_Q_OVERFLOW, 0, "")
    assert event.overflow


def test_events_of_one_read(inotify: Inotify, tmp_path: Path) -> None:
    assert inotify.read() == []
    wd = inotify.add(str(tmp_path), IN_CREATE | IN_CLOSE_WRITE | IN_DELETE)
    (tmp_path / "a long enough name").write_text("x")
    (tmp_path / "a long enough name").unlink()
    assert [(event.wd, event.mask, event.name) for event in inotify.read()] == [
        (wd, mask, "a long enough name") for mask in (IN_CREATE, IN_CLOSE_WRITE, IN_DELETE)
    ]
    inotify.remove(wd)
    assert [event.mask for event in inotify.read()] == [IN_IGNORED]
    inotify.remove(wd)  # no error


def _write(path: Path) -> None:
    path.write_text("x")


def _replace(path: Path) -> None:
    fresh = path.with_name("tmp")
    fresh.write_text("y")
    fresh.rename(path)


def _link(path: Path) -> None:
    os.link(path.parent / "old", path)


@pytest.mark.parametrize(
    ("act", "expected"),
    [
        (_write, {"new"}),
        (_replace, {"tmp", "new"}),
        (_link, {"new"}),
        (lambda path: path.symlink_to("old"), {"new"}),
        (lambda path: (path.parent / "old").unlink(), {"old"}),
        (lambda path: (path.parent / "old").chmod(0o600), {"old"}),
    ],
)
async def test_directory_changes(tmp_path: Path, act: Callable[[Path], None], expected: set[str]) -> None:
    (tmp_path / "old").write_text("")
    seen = Seen()
    watch = DirectoryWatch(asyncio.get_running_loop(), str(tmp_path), seen)
    act(tmp_path / "new")
    assert expected <= await seen.names()
    watch.close()


async def test_a_file_is_reported_only_when_it_is_complete(tmp_path: Path) -> None:
    seen = Seen()
    watch = DirectoryWatch(asyncio.get_running_loop(), str(tmp_path), seen)
    with (tmp_path / "half").open("w") as file:
        file.write("{")
        assert await seen.settle() == []
    assert await seen.settle() == [{"half"}]
    watch.close()


async def test_a_directory_that_comes_later_and_deeper(tmp_path: Path) -> None:
    target = tmp_path / "a" / "b" / "c"
    seen = Seen()
    watch = DirectoryWatch(asyncio.get_running_loop(), str(target), seen)
    target.mkdir(parents=True)
    (target / "early").write_text("x")
    assert frozenset() in await seen.settle()
    (target / "late").write_text("x")
    assert await seen.settle() == [{"late"}]
    watch.close()


async def test_a_directory_that_is_replaced(tmp_path: Path) -> None:
    target = tmp_path / "d"
    target.mkdir()
    seen = Seen()
    watch = DirectoryWatch(asyncio.get_running_loop(), str(target), seen)
    target.rmdir()
    assert frozenset() in await seen.settle()
    target.mkdir()
    assert frozenset() in await seen.settle()
    target.rename(tmp_path / "elsewhere")
    assert frozenset() in await seen.settle()
    (tmp_path / "elsewhere" / "x").write_text("")
    assert await seen.settle() == []
    watch.close()


async def test_a_symlinked_directory_that_is_swapped(tmp_path: Path) -> None:
    for name in ("v1", "v2"):
        (tmp_path / name).mkdir()
    (tmp_path / "current").symlink_to("v1")
    seen = Seen()
    watch = DirectoryWatch(asyncio.get_running_loop(), str(tmp_path / "current"), seen)
    (tmp_path / "next").symlink_to("v2")
    (tmp_path / "next").rename(tmp_path / "current")
    assert frozenset() in await seen.settle()
    (tmp_path / "v2" / "x").write_text("")
    assert await seen.settle() == [{"x"}]
    watch.close()


@pytest.mark.parametrize("act", [_write, _replace, lambda path: path.unlink(), lambda path: path.chmod(0o600)])
async def test_a_file_that_changes(tmp_path: Path, act: Callable[[Path], None]) -> None:
    (tmp_path / "config").write_text("")
    seen = Seen()
    watch = FileWatch(asyncio.get_running_loop(), str(tmp_path / "config"), seen)
    act(tmp_path / "config")
    assert await seen.settle() != []
    watch.close()


async def test_neighbours_of_a_file_do_not_count(tmp_path: Path) -> None:
    (tmp_path / "config").write_text("")
    seen = Seen()
    watch = FileWatch(asyncio.get_running_loop(), str(tmp_path / "config"), seen)
    (tmp_path / "other").write_text("x")
    assert await seen.settle() == []
    watch.close()


async def test_a_file_whose_directory_comes_later(tmp_path: Path) -> None:
    seen = Seen()
    watch = FileWatch(asyncio.get_running_loop(), str(tmp_path / "etc" / "config"), seen)
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "config").write_text("x")
    assert await seen.settle() != []
    watch.close()


async def test_a_mounted_config_map_is_swapped_by_its_data_link(tmp_path: Path) -> None:
    for version in ("..v1", "..v2"):
        (tmp_path / version).mkdir()
        (tmp_path / version / "config").write_text(version * 2)
    (tmp_path / "..data").symlink_to("..v1")
    (tmp_path / "config").symlink_to("..data/config")
    seen = Seen()
    watch = FileWatch(asyncio.get_running_loop(), str(tmp_path / "config"), seen)
    (tmp_path / "..tmp").symlink_to("..v2")
    (tmp_path / "..tmp").rename(tmp_path / "..data")
    assert len(await seen.settle()) == 1
    watch.close()


async def test_a_closed_watch_is_silent(tmp_path: Path) -> None:
    seen = Seen()
    watch = DirectoryWatch(asyncio.get_running_loop(), str(tmp_path), seen)
    watch.close()
    (tmp_path / "x").write_text("")
    assert await seen.settle() == []
    watch.close()


async def test_an_ancestor_that_cannot_be_read_is_passed_through(tmp_path: Path) -> None:
    target = tmp_path / "closed" / "d"
    target.mkdir(parents=True)
    os.chmod(tmp_path / "closed", 0o100)
    seen = Seen()
    watch = DirectoryWatch(asyncio.get_running_loop(), str(target), seen)
    os.symlink("x", target / "new")
    assert await seen.settle() == [{"new"}]
    watch.close()
    os.chmod(tmp_path / "closed", 0o700)

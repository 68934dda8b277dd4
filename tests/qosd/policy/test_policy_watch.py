"""The policy's file while people and programs save it: no load ever sees less than a whole document."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from qosd.policy.watching import PolicyWatch
from tests.support.waiting import until

OLD, NEW = "node: {guaranteedAs: LS}\n", "node: {guaranteedAs: LSR}\n"
LONG_S = 30.0
SETTLED_S = 0.05


@dataclass
class Watched:
    """``seen``: what was in the file at each call; None: no file."""

    file: Path
    seen: list[str | None] = field(default_factory=list)

    def changed(self) -> None:
        self.seen.append(self.file.read_text() if self.file.exists() else None)

    async def until(self, text: str | None) -> None:
        await until(lambda: text in self.seen)


def _put(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


@asynccontextmanager
async def watching(file: Path, absent_s: float = LONG_S, text: str | None = OLD) -> AsyncIterator[Watched]:
    if text is not None:
        _put(file, text)
    watched = Watched(file)
    watch = PolicyWatch(asyncio.get_running_loop(), file, watched.changed, SETTLED_S, absent_s)
    try:
        yield watched
    finally:
        watch.close()


async def vim(file: Path) -> None:
    """``backupcopy=no``: the old one is renamed away, a new one made and written."""
    os.rename(file, f"{file}~")
    await asyncio.sleep(0.005)
    with file.open("w") as out:
        await asyncio.sleep(0.005)
        out.write(NEW)
    os.unlink(f"{file}~")


async def vim_in_place(file: Path) -> None:
    """``backupcopy=yes``, with the files that vim makes beside it."""
    (file.parent / "4913").touch()
    (file.parent / "4913").unlink()
    with file.open("w") as out:
        await asyncio.sleep(0.005)
        (file.parent / ".rules.swp").touch()
        await asyncio.sleep(0.005)
        out.write(NEW)


async def sed(file: Path) -> None:
    """``sed -i``: a new file, renamed into place."""
    (file.parent / "sedXYZ").write_text(NEW)
    await asyncio.sleep(0.005)
    os.rename(file.parent / "sedXYZ", file)


async def removed_and_made_anew(file: Path) -> None:
    os.unlink(file)
    await asyncio.sleep(0.005)
    _put(file, NEW)


async def in_pieces(file: Path) -> None:
    """Each piece, but the first, would be a document of its own."""
    with file.open("w") as out:
        for piece in (NEW[:4], NEW[4:]):
            out.write(piece)
            out.flush()
            (file.parent / "neighbour").touch()
            await asyncio.sleep(0.005)


@pytest.mark.parametrize("save", [vim, vim_in_place, sed, removed_and_made_anew, in_pieces])
async def test_no_way_of_saving_shows_anything_but_the_new_document(
    tmp_path: Path, save: Callable[[Path], Awaitable[None]]
) -> None:
    async with watching(tmp_path / "etc/rules.yaml") as watched:
        await save(watched.file)
        await watched.until(NEW)
    assert set(watched.seen) == {NEW}


async def test_a_swapped_configmap_is_seen(tmp_path: Path) -> None:
    """As kubelet mounts one: rules.yaml → ..data/rules.yaml, ..data → ..2026_1, swapped by rename."""
    for name, text in (("..2026_1", OLD), ("..2026_2", NEW)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "rules.yaml").write_text(text)
    (tmp_path / "..data").symlink_to("..2026_1")
    (tmp_path / "rules.yaml").symlink_to("..data/rules.yaml")
    async with watching(tmp_path / "rules.yaml", text=None) as watched:
        (tmp_path / "..data_tmp").symlink_to("..2026_2")
        os.rename(tmp_path / "..data_tmp", tmp_path / "..data")
        await watched.until(NEW)
    assert set(watched.seen) == {NEW}


@pytest.mark.parametrize("spoil", [os.unlink, lambda file: file.write_text("")], ids=["removed", "emptied"])
async def test_absence_counts_when_it_lasts(tmp_path: Path, spoil: Callable[[Path], object]) -> None:
    async with watching(tmp_path / "rules.yaml", absent_s=SETTLED_S * 3) as watched:
        spoil(watched.file)
        await watched.until(None if not watched.file.exists() else "")
        watched.file.write_text(NEW)
        await watched.until(NEW)


async def test_absence_does_not_count_before(tmp_path: Path) -> None:
    async with watching(tmp_path / "rules.yaml") as watched:
        watched.file.unlink()
        await asyncio.sleep(SETTLED_S * 4)
        assert watched.seen == []


async def test_a_closed_watch_calls_nobody(tmp_path: Path) -> None:
    async with watching(tmp_path / "rules.yaml") as watched:
        watched.file.write_text(NEW)
        await asyncio.sleep(0.005)
    await asyncio.sleep(SETTLED_S * 2)
    assert watched.seen == []

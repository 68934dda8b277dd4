"""What was changed is on the disk before anything is built on it: after a power failure the record tells the truth."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from koordctl.install.disk import Absent, Content, NodeDisk, Symlink

OURS = Content(b"", 0o644, os.geteuid(), os.getegid())


class Flushed(NodeDisk):
    """Notes what is flushed."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.flushed: list[str] = []

    def sync(self, descriptor: int) -> None:
        super().sync(descriptor)
        name = os.readlink(f"/proc/self/fd/{descriptor}")
        self.flushed.append(f"/{Path(name).relative_to(self.root.resolve())}")


@pytest.fixture
def disk(tmp_path: Path) -> Flushed:
    (tmp_path / "etc/tree/below").mkdir(parents=True)
    (tmp_path / "etc/empty").mkdir()
    (tmp_path / "etc/file").write_text("text")
    return Flushed(tmp_path)


@pytest.mark.parametrize(
    ("change", "flushed"),
    [
        (lambda disk: disk.put("/etc/new", OURS), ["/etc/.new.koord-new", "/etc"]),
        (lambda disk: disk.put("/etc/new", Symlink("file")), ["/etc"]),
        (lambda disk: disk.put("/etc/file", Absent()), ["/etc"]),
        (lambda disk: disk.rename("/etc/file", "/etc/aside"), ["/etc"]),
        (lambda disk: disk.append("/etc/file", b"more"), ["/etc/file"]),
        (lambda disk: disk.unlink("/etc/file"), ["/etc"]),
        (lambda disk: disk.unlink("/etc/none"), []),
        (lambda disk: disk.remove_directory("/etc/empty"), ["/etc"]),
        (lambda disk: disk.remove_directory("/etc/tree"), []),
        (lambda disk: disk.remove_directory("/none/at/all"), []),
        (lambda disk: disk.remove_tree("/etc/tree"), ["/etc"]),
        (lambda disk: disk.remove_tree("/etc/file"), ["/etc"]),
    ],
)
def test_what_is_flushed(disk: Flushed, change: Callable[[NodeDisk], object], flushed: list[str]) -> None:
    change(disk)
    assert disk.flushed == flushed


@pytest.mark.parametrize(
    "change", [lambda disk: disk.stage("/etc/link", OURS), lambda disk: disk.append("/etc/link", b"more")]
)
def test_nothing_is_written_through_a_link(disk: Flushed, change: Callable[[NodeDisk], object]) -> None:
    (disk.root / "etc/link").symlink_to("file")
    with pytest.raises(OSError, match=os.strerror(errno.ELOOP)):
        change(disk)
    assert (disk.root / "etc/file").read_text() == "text"

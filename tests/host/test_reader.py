"""Kept descriptors: what vanishes, what comes back, and what happens when there are no descriptors left."""

from __future__ import annotations

import errno
import os
import resource
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from koord.host.cgroup import ReadError
from koord.host.reader import KeptFiles


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def kept(said: list[str]) -> Iterator[KeptFiles]:
    before = open_descriptors()
    with KeptFiles(100, said.append) as files:
        yield files
    assert open_descriptors() == before
    assert len(files) == 0


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_a_missing_file_is_absent_and_costs_no_descriptor(tmp_path: Path, kept: KeptFiles) -> None:
    assert kept.read(f"{tmp_path}/gone/cpu.stat") is None
    (tmp_path / "file").write_text("x")
    assert kept.read_all(f"{tmp_path}/file/below") is None
    assert (len(kept), kept.inode(f"{tmp_path}/gone/cpu.stat")) == (0, 0)


def test_another_refusal_names_the_file_and_closes(tmp_path: Path, kept: KeptFiles) -> None:
    for read in (kept.read, kept.read_all):
        with pytest.raises(ReadError) as caught:
            read(str(tmp_path))
        assert (caught.value.errno, caught.value.filename) == (errno.EISDIR, str(tmp_path))
    assert len(kept) == 0


def test_a_process_that_ends_is_noticed_at_the_read(kept: KeptFiles) -> None:
    with subprocess.Popen(["sleep", "60"]) as child:
        path = f"/proc/{child.pid}/schedstat"
        assert kept.read(path) is not None
        assert len(kept) == 1
        child.kill()
    assert kept.read(path) is None
    assert (len(kept), kept.inode(path)) == (0, 0)


def test_values_change_under_one_descriptor(tmp_path: Path, kept: KeptFiles) -> None:
    file = tmp_path / "cpu.stat"
    for content in ("usage_usec 1\n", "usage_usec 22\n", ""):
        file.write_text(content)
        assert kept.read(str(file)) == content.encode()
    assert (len(kept), kept.inode(str(file))) == (1, file.stat().st_ino)


@pytest.mark.parametrize("size", [0, 1, 16383, 16384, 16385, 100_000])
def test_any_size_is_read_whole(tmp_path: Path, kept: KeptFiles, size: int) -> None:
    (tmp_path / "file").write_bytes(content := os.urandom(size))
    for _ in range(2):
        assert kept.read(f"{tmp_path}/file") == kept.read_all(f"{tmp_path}/file") == content


def test_record_by_record_files_are_read_whole(kept: KeptFiles) -> None:
    symbols = [kept.read_all("/proc/kallsyms") for _ in range(2)]
    assert symbols[0] == symbols[1]
    assert symbols[0] is not None
    assert symbols[0].endswith(b"\n")
    assert len(symbols[0]) > 16384


def test_a_directory_made_again_has_another_inode(tmp_path: Path, kept: KeptFiles) -> None:
    cgroup = tmp_path / "pod1"
    inodes: list[int] = []
    for _ in range(2):
        cgroup.mkdir()
        (cgroup / "cpu.stat").write_text("x")
        (tmp_path / f"held{len(inodes)}").hardlink_to(cgroup / "cpu.stat")  # the file system must not reuse its inode
        assert kept.read(f"{cgroup}/cpu.stat") == b"x"
        inodes.append(kept.inode(f"{cgroup}/cpu.stat"))
        shutil.rmtree(cgroup)
        kept.forget(str(cgroup))
    assert inodes[0] != inodes[1]


def test_forget_closes_what_is_below_and_nothing_beside(tmp_path: Path, kept: KeptFiles) -> None:
    for name in ("pod1/a", "pod1/c/b", "pod10/a"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
        kept.read(f"{tmp_path}/{name}")
    kept.forget(f"{tmp_path}/pod1/")
    assert len(kept) == 1
    assert kept.inode(f"{tmp_path}/pod10/a") != 0
    kept.forget(f"{tmp_path}/pod10/a")
    assert len(kept) == 0


def test_beyond_the_limit_files_are_read_without_being_kept(tmp_path: Path, said: list[str]) -> None:
    paths = [f"{tmp_path}/{number}" for number in range(8)]
    for path in paths:
        Path(path).write_text(path)
    with KeptFiles(4, said.append) as kept:
        for _ in range(3):
            assert [kept.read(path) for path in paths] == [path.encode() for path in paths]
        assert len(kept) == 4
        assert said == [
            "keeping 4 descriptors, the most allowed: further kernel files are opened and closed for each read"
        ]
        assert kept.inode(paths[-1]) == Path(paths[-1]).stat().st_ino
        kept.drop(paths[:3])
        assert [kept.read(path) for path in paths[3:]] == [path.encode() for path in paths[3:]]
        assert (len(kept), len(said)) == (4, 2)


def test_out_of_descriptors_it_goes_on_and_leaves_room_for_others(tmp_path: Path, said: list[str]) -> None:
    paths = [f"{tmp_path}/{number}" for number in range(100)]
    for path in paths:
        Path(path).write_text(path)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with KeptFiles(1000, said.append) as kept:
        resource.setrlimit(resource.RLIMIT_NOFILE, (open_descriptors() + 60, hard))
        try:
            for _ in range(2):
                assert [kept.read(path) for path in paths] == [path.encode() for path in paths]
            os.close(os.open(paths[0], os.O_RDONLY))
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        assert len(kept) < 60
    assert len(said) == 1
    assert "Too many open files" in said[0]


def test_the_first_refusal_of_a_file_name_is_said_and_again_after_an_end(tmp_path: Path, said: list[str]) -> None:
    paths = [f"{tmp_path}/pod{number}/cpu.stat" for number in range(3)]
    for path in paths:
        Path(path).mkdir(parents=True)  # reading a directory is refused
    with KeptFiles(100, said.append) as kept:
        for path in paths * 2:
            with pytest.raises(ReadError, match="cannot read: Is a directory"):
                kept.read(path)
        assert len(said) == 1
        assert paths[0] in said[0] and said[0].endswith("what it would tell is missing")
        kept.drop(paths[:2])
        Path(paths[2]).rmdir()
        Path(paths[2]).write_text("x")
        assert kept.read(paths[2]) == b"x"
        with pytest.raises(ReadError):
            kept.read(paths[0])
        assert len(said) == 2

"""The cgroup watch on real inotify, over plain directories that come and go as cgroups do."""

from __future__ import annotations

import asyncio
import errno
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from qosd.pods.watch import CgroupWatch
from tests.support.waiting import HANG_S

CGROUPFS = ("/kubepods", "/kubepods/burstable", "/kubepods/besteffort")
SYSTEMD = tuple(f"/kubepods.slice{tier}" for tier in ("", "/kubepods-burstable.slice", "/kubepods-besteffort.slice"))
NESTED = tuple(f"/cluster-a{tier}" for tier in CGROUPFS)


QUEUE_LIMIT = Path("/proc/sys/fs/inotify/max_queued_events")


class Heard:
    """What a watch of ``root`` said."""

    def __init__(self, root: Path, tiers: tuple[str, ...] = CGROUPFS) -> None:
        self.news = 0
        self.written: list[str] = []
        self.watch = CgroupWatch(asyncio.get_running_loop(), root, tiers, self._changed, self.written.append)

    def _changed(self) -> None:
        self.news += 1

    async def drain(self) -> None:
        for _ in range(3):
            await asyncio.sleep(0.005)


@contextmanager
def watching(root: Path, tiers: tuple[str, ...] = CGROUPFS) -> Iterator[Heard]:
    heard = Heard(root, tiers)
    heard.watch.start()
    try:
        yield heard
    finally:
        heard.watch.close()


async def test_no_tree_and_no_instances_are_problems_not_errors(tmp_path: Path) -> None:
    with watching(tmp_path / "absent") as heard:
        assert "cannot be watched: No such file" in heard.watch.problem
        (tmp_path / "absent" / "kubepods" / "podx").mkdir(parents=True)
        heard.watch.rescan()
        assert (heard.watch.problem, heard.watch.pods) == ("", {"/kubepods/podx"})
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = os.dup(0)
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, hard))  # inotify_init1 answers EMFILE here too
    try:
        heard = Heard(tmp_path)
        heard.watch.start()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert os.strerror(errno.EMFILE) in heard.watch.problem
    assert "max_user_instances" in heard.watch.problem


@pytest.mark.parametrize(
    ("tiers", "pod", "container"),
    [
        (CGROUPFS, "/kubepods/pod1", "aa"),
        (CGROUPFS, "/kubepods/besteffort/pod1", "aa"),
        (NESTED, "/cluster-a/kubepods/burstable/pod1", "aa"),
        (SYSTEMD, "/kubepods.slice/kubepods-pod1.slice", "cri-containerd-aa.scope"),
        (
            SYSTEMD,
            "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1_2.slice",
            "crio-aa.scope",
        ),
    ],
)
async def test_pods_come_and_go_in_any_layout(tmp_path: Path, tiers: tuple[str, ...], pod: str, container: str) -> None:
    directory = tmp_path / pod.lstrip("/") / container
    with watching(tmp_path, tiers) as heard:
        before = heard.watch.watches
        for _ in range(3):
            directory.mkdir(parents=True)
            (directory.parent / f"crio-conmon-{container}").mkdir()
            await heard.drain()
            assert heard.watch.pods == {pod}
            assert heard.watch.containers == {f"{pod}/{container}"}
            for gone in (directory, directory.parent / f"crio-conmon-{container}", directory.parent):
                gone.rmdir()
            await heard.drain()
            assert (heard.watch.pods, heard.watch.containers) == (set(), set())
        assert heard.news >= 6
        for above in directory.parents[1:]:
            if above == tmp_path:
                break
            above.rmdir()
        await heard.drain()
        assert heard.watch.watches == before == 1


async def test_what_exists_at_the_start_is_known_at_once(tmp_path: Path) -> None:
    (tmp_path / "kubepods/burstable/poda/c1/nested").mkdir(parents=True)
    (tmp_path / "kubepods/burstable/strange").mkdir()
    (tmp_path / "system.slice").mkdir()
    with watching(tmp_path) as heard:
        assert heard.watch.pods == {"/kubepods/burstable/poda"}
        assert heard.watch.containers == {"/kubepods/burstable/poda/c1"}
        assert heard.watch.watches == 5  # root, two tiers, pod, container
        assert heard.news == 0


async def test_a_pod_made_again_under_its_name_is_watched_again(tmp_path: Path) -> None:
    pod = tmp_path / "kubepods/poda"
    pod.mkdir(parents=True)
    with watching(tmp_path) as heard:
        for number in range(5):
            pod.rmdir()
            pod.mkdir()
            (pod / f"c{number}").mkdir()
            await heard.drain()
            assert heard.watch.containers == {f"/kubepods/poda/c{number}"}
            (pod / f"c{number}").rmdir()
            await heard.drain()
        assert heard.watch.watches == 3


@pytest.mark.parametrize(
    ("file", "said"),
    [
        ("kubepods/poda/c1/cpu.cfs_quota_us", True),
        ("kubepods/poda/memory.limit_in_bytes", True),
        ("kubepods/cpu.shares", True),
        ("cpu.shares", False),
        ("kubepods/poda/c1/cgroup.procs", False),
        ("kubepods/poda/c1/tasks", False),
        ("kubepods/poda/c1/memory.events", False),
    ],
)
async def test_writes_are_told_with_their_path(tmp_path: Path, file: str, said: bool) -> None:
    (tmp_path / "kubepods/poda/c1").mkdir(parents=True)
    path = tmp_path / file
    path.write_text("1\n")
    with watching(tmp_path) as heard:
        with path.open("r+") as other:
            other.write("2\n")
        await heard.drain()
        assert heard.written == ([str(path)] if said else [])
        assert heard.news == 0


async def test_an_overflow_is_looked_at_again(tmp_path: Path) -> None:
    limit = int(QUEUE_LIMIT.read_text())  # noqa: ASYNC240
    (tmp_path / "kubepods/poda").mkdir(parents=True)
    files = [tmp_path / "kubepods/poda/one", tmp_path / "kubepods/poda/two"]
    descriptors = [os.open(file, os.O_WRONLY | os.O_CREAT) for file in files]
    with watching(tmp_path) as heard:
        for number in range(limit + 10):
            os.pwrite(descriptors[number % 2], b"x", 0)  # alternating, or equal events would be one
        (tmp_path / "kubepods/podb/c1").mkdir(parents=True)
        async with asyncio.timeout(HANG_S):
            while not heard.news:  # noqa: ASYNC110 - what is waited for tells nobody
                await asyncio.sleep(0.005)
        assert heard.watch.pods == {"/kubepods/poda", "/kubepods/podb"}
        (tmp_path / "kubepods/podb/c2").mkdir()
        await heard.drain()
        assert "/kubepods/podb/c2" in heard.watch.containers
    for descriptor in descriptors:
        os.close(descriptor)

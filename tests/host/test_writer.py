"""The writer on trees of plain files: spelling, refusals, what it reads back. The real kernel: integration/host."""

from __future__ import annotations

import contextlib
import errno
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from koord.host.cgroup import ReadError, Tree
from koord.host.files import ParseError, Target, Value, ValueRefused
from koord.host.kernelwrite import MOST_RECLAIMING, WriteAside
from koord.host.writer import (
    Reading,
    Unsupported,
    Vanished,
    WriteError,
    Writer,
    rule_of,
)

POD = "/kubepods/pod1"


def writer(root: Path, version: int) -> Writer:
    """Of a tree that has the group POD, in v1 for the controllers cpu, cpuset and memory."""
    for top in [root] if version == 2 else [root / "cpu", root / "cpuset", root / "memory"]:
        (top / POD[1:]).mkdir(parents=True)
    return Writer(Tree(version, root, {}), has_nonblocking_limits=True)


def file(used: Writer, name: str, text: str = "") -> Path:
    path = used.path(Target(POD, name))
    assert path is not None
    path.write_text(text)
    return path


def stuck_file(directory: Path, stack: contextlib.ExitStack) -> tuple[Path, int]:
    """A memory.high that takes nothing until somebody reads, as while the kernel reclaims; and who may read."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / "memory.high"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    stack.callback(os.close, reader)
    filler = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(filler, b"." * 4096)
    os.close(filler)
    return path, reader


@pytest.fixture
def stuck(tmp_path: Path) -> Iterator[tuple[Path, int]]:
    with contextlib.ExitStack() as stack:
        yield stuck_file(tmp_path / POD[1:], stack)


def everything(reader: int) -> bytes:
    """What is written until nothing comes for a while; the dots of ``stuck_file`` left out."""
    text, quiet = b"", 0
    while quiet < 10:
        more = b""
        with contextlib.suppress(BlockingIOError):
            more = os.read(reader, 1 << 16)
        text += more
        quiet = 0 if more else quiet + 1
        time.sleep(0.02)
    return text.replace(b".", b"")


@pytest.fixture
def reading_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A FIFO has no value that could be read: every limit counts as lower than what is there."""
    monkeypatch.setattr("koord.host.kernelwrite._is_raise", lambda path, text: text == "max")


@pytest.mark.usefixtures("reading_nothing")
def test_limits_that_the_kernel_reclaims_for_hold_nobody_up_and_are_few(tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        groups = [f"{POD}/{number}" for number in range(MOST_RECLAIMING + 1)]
        files = [stuck_file(tmp_path / group[1:], stack) for group in groups]
        used = Writer(Tree(2, tmp_path, {}), has_nonblocking_limits=False)
        for group in groups[:-1]:
            used.write(Target(group, "memory.high"), 4096)
        with pytest.raises(WriteError, match="limits are set already for which the kernel still reclaims"):
            used.write(Target(groups[-1], "memory.high"), 4096)
        assert [everything(reader) for _, reader in files] == [*[b"4096"] * MOST_RECLAIMING, b""]


@pytest.mark.usefixtures("reading_nothing")
def test_of_limits_of_one_file_the_last_one_counts(tmp_path: Path, stuck: tuple[Path, int]) -> None:
    used = Writer(Tree(2, tmp_path, {}), has_nonblocking_limits=False)
    for limit in (4096, 8192, 12288):
        used.write(Target(POD, "memory.high"), limit)
    assert everything(stuck[1]) == b"409612288"


@pytest.mark.parametrize(("before", "value", "is_raise"), [("8192", 8192, True), ("4096", 8192, True),
                                                          ("8192", 4096, False), ("max", 4096, False),
                                                          ("8192", -1, True), ("max", -1, True)])  # fmt: skip
def test_a_limit_that_is_raised_waits_for_nobody(tmp_path: Path, before: str, value: int, is_raise: bool) -> None:
    """However many limits the kernel still reclaims for."""
    with contextlib.ExitStack() as stack:
        used = Writer(Tree(2, tmp_path, {}), has_nonblocking_limits=False)
        (tmp_path / POD[1:]).mkdir(parents=True)
        path = file(used, "memory.high", before)
        for number in range(MOST_RECLAIMING):
            stuck_path, _ = stuck_file(tmp_path / POD[1:] / str(number), stack)
            used._limits.under_way[stuck_path] = WriteAside(stuck_path, "4096")
            used._limits.under_way[stuck_path].start()
        with contextlib.nullcontext() if is_raise else pytest.raises(WriteError):
            used.write(Target(POD, "memory.high"), value)
        left = ("max" if value < 0 else str(value)) if is_raise else before
        assert path.read_text() == left


def test_where_the_kernel_heeds_it_a_limit_is_written_without_waiting(tmp_path: Path, stuck: tuple[Path, int]) -> None:
    used = Writer(Tree(2, tmp_path, {}), has_nonblocking_limits=True)
    with pytest.raises(WriteError) as caught:
        used.write(Target(POD, "memory.high"), 8192)
    assert caught.value.errno == errno.EAGAIN, "O_NONBLOCK is heeded by a pipe too"


@pytest.mark.parametrize("name", ["memory.high", "memory_limit_in_bytes"])
@pytest.mark.parametrize("has_nonblocking_limits", [False, True, None])
def test_a_limit_that_is_refused_says_why(tmp_path: Path, name: str, has_nonblocking_limits: bool | None) -> None:
    writer(tmp_path, 2)
    used = Writer(Tree(2, tmp_path, {}), has_nonblocking_limits=has_nonblocking_limits)
    with pytest.raises(Unsupported):
        used.write(Target(POD, name), 8192)
    path = file(used, name, "max")
    used.write(Target(POD, name), 8192)
    while path.read_text() != "8192":  # a thread of its own may have written it
        time.sleep(0.01)


@pytest.mark.parametrize(
    ("version", "name", "before", "value", "after"),
    [
        (1, "cpu_quota", "100000\n", -1, "-1"),
        (1, "cpu_quota", "100000\n", 5000, "5000"),
        (2, "cpu_quota", "max 100000\n", 5000, "5000 100000"),
        (2, "cpu_quota", "5000 50000\n", -1, "max 50000"),
        (2, "cpu_shares", "100\n", 262144, "10000"),
        (1, "cpuset_cpus", "0-3\n", "3,1,2", "1-3"),
        (1, "cpuset_cpus", "0-3\n", "", "\n"),
        (2, "memory_limit_in_bytes", "4096\n", -1, "max"),
        (2, "memory.high", "max\n", 8192, "8192"),
        (1, "cpu.idle", "0\n", 1, "1"),
    ],
)
def test_write_in_the_kernels_spelling(
    tmp_path: Path, version: int, name: str, before: str, value: Value, after: str
) -> None:
    used = writer(tmp_path, version)
    path = file(used, name, before)
    used.write(Target(POD, name), value)
    assert path.read_text() == after
    assert used.read(Target(POD, name)) == (value if name != "cpuset_cpus" else after.strip())


@pytest.mark.parametrize(
    ("version", "name", "value"),
    [
        (1, "cpu_quota", 999),
        (1, "cpu_quota", 0),
        (2, "cpu_quota", -2),
        (1, "cpu_shares", 1),
        (2, "cpu_shares", 262145),
        (1, "cpu.idle", 2),
        (1, "cpuset_cpus", "two"),
        (2, "cpu_period", 100000),
        (1, "cpu.stat", "x"),
        (1, "cpu_quota", "5000"),
    ],
)
def test_nothing_is_written_that_the_row_refuses(tmp_path: Path, version: int, name: str, value: Value) -> None:
    used = writer(tmp_path, version)
    before = sorted((path, path.stat().st_mtime_ns) for path in tmp_path.rglob("*"))
    with pytest.raises(ValueRefused, match=name):
        used.write(Target(POD, name), value)
    assert sorted((path, path.stat().st_mtime_ns) for path in tmp_path.rglob("*")) == before


def test_a_group_that_is_gone_is_vanished_and_a_file_that_is_not_there_unsupported(tmp_path: Path) -> None:
    used = writer(tmp_path, 1)
    with pytest.raises(Unsupported) as unsupported:
        used.write(Target(POD, "cpu.bvt_warp_ns"), 2)
    with pytest.raises(Vanished) as vanished:
        used.write(Target("/kubepods/pod2", "cpu_quota"), 5000)
    gone = tmp_path / "cpu/kubepods/pod2/cpu.cfs_quota_us"
    assert (vanished.value.errno, vanished.value.filename, vanished.value.value) == (errno.ENOENT, str(gone), "5000")
    assert str(unsupported.value).endswith("cpu.bvt_warp_ns <- '2': No such file or directory")
    assert not list(tmp_path.rglob("cpu.*"))


def test_a_group_whose_parent_is_no_directory_is_vanished(tmp_path: Path) -> None:
    used = writer(tmp_path, 2)
    (tmp_path / "kubepods/pod3").write_text("")
    with pytest.raises(Vanished):
        used.write(Target("/kubepods/pod3", "cpu_quota"), 5000)
    assert used.look(Target("/kubepods/pod3", "cpu_quota")) is None


@pytest.mark.parametrize(
    ("name", "rule"),
    [("cpuset_cpus", " (the set of a cgroup with processes cannot be emptied)"), ("cpu_quota", "")],
)
def test_a_refusal_carries_path_value_errno_and_the_kernels_rule(tmp_path: Path, name: str, rule: str) -> None:
    used = writer(tmp_path, 1)
    path = file(used, name)
    path.unlink()
    path.symlink_to("/dev/full")
    value = 5000 if name == "cpu_quota" else "1"
    with pytest.raises(WriteError) as refused:
        used.write(Target(POD, name), value)
    assert (refused.value.errno, refused.value.filename) == (errno.ENOSPC, str(path))
    assert type(refused.value) is WriteError
    assert str(refused.value) == f"{path} <- '{value}': No space left on device{rule}"


@pytest.mark.parametrize(
    ("name", "number", "rule"),
    [
        ("vm.min_free_kbytes", errno.EROFS, "koordctl install grants what a feature needs"),
        ("cpu.max.burst", errno.EINVAL, "must not exceed the quota"),
        ("kernel.sched_group_identity_enabled", errno.EBUSY, "not while core scheduling is on"),
        ("cpu.max.burst", errno.EIO, ""),
    ],
)
def test_what_the_kernel_means_by_an_errno(name: str, number: int, rule: str) -> None:
    assert rule in rule_of(name, number)
    assert bool(rule) == bool(rule_of(name, number))


STRETCHED = {
    1: {"cpu.cfs_quota_us": "100000\n", "cpu.cfs_period_us": "200000\n"},
    2: {"cpu.max": "100000 200000\n"},
}
UNLIMITED = {1: {"cpu.cfs_quota_us": "-1\n", "cpu.cfs_period_us": "200000\n"}, 2: {"cpu.max": "max 200000\n"}}


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize(
    ("held", "made_with_us", "read", "written", "then"),
    [
        (STRETCHED, 100_000, (50_000, 100_000), 30_000, "60000"),
        (STRETCHED, 100_000, (50_000, 100_000), -1, {1: "-1", 2: "max"}),
        (UNLIMITED, 100_000, (-1, 100_000), 30_000, "60000"),
        (STRETCHED, 200_000, (100_000, 200_000), 30_000, "30000"),
        (STRETCHED, 0, (100_000, 200_000), 30_000, "30000"),
    ],
)
def test_a_period_that_the_kernel_has_doubled_changes_no_quota(
    tmp_path: Path,
    version: int,
    held: dict[int, dict[str, str]],
    made_with_us: int,
    read: tuple[int, int],
    written: int,
    then: str | dict[int, str],
) -> None:
    used = writer(tmp_path, version)
    used.cfs_period_us = made_with_us
    for name, text in held[version].items():
        (used.tree.directory(POD, "cpu") / name).write_text(text)
    quota_us, period_us = read
    assert used.read(Target(POD, "cpu_quota")) == quota_us
    assert used.read(Target(POD, "cpu_period")) == (period_us if version == 1 else None)
    used.write(Target(POD, "cpu_quota"), written)
    path = used.path(Target(POD, "cpu_quota"))
    assert path is not None
    wanted = then if isinstance(then, str) else then[version]
    assert path.read_text() == wanted + (" 200000" if version == 2 else "")
    assert used.read(Target(POD, "cpu_quota")) == written


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize(
    ("cgroup", "kubelets_us", "period_us", "then"),
    [
        ("/kubepods/besteffort", 50_000, 100_000, "30000"),
        ("/kubepods.slice/kubepods-besteffort.slice", 50_000, 100_000, "30000"),
        ("/kubepods/besteffort", 10_000, 200_000, "60000"),
        ("/kubepods", 25_000, 100_000, "30000"),
        ("/kubepods/besteffort/pod1", 50_000, 100_000, "30000"),
        ("/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod1.slice", 50_000, 100_000, "30000"),
        ("/kubepods/pod1", 50_000, 100_000, "60000"),
        ("/kubepods/burstable/pod1", 50_000, 100_000, "60000"),
        ("/kubepods/burstable/pod1", 10_000, 100_000, "300000"),
        ("/kubepods/burstable/pod1", 10_000, 200_000, "600000"),
        ("/kubepods/burstable/pod1", 10_000, 160_000, "480000"),
        ("/kubepods/burstable/pod1", 30_000, 100_000, "30000"),
        ("/kubepods/burstable/pod1", 200_000, 100_000, "30000"),
        ("/kubepods/besteffort/pod1/c", 50_000, 100_000, "60000"),
        ("/kubepods.slice/kubepods-pod1.slice/cri-containerd-1.scope", 50_000, 100_000, "60000"),
        ("/system.slice/app.service", 50_000, 100_000, "30000"),
    ],
)
def test_kubelets_period_is_that_of_containers_and_of_pods_with_limits(
    tmp_path: Path, version: int, cgroup: str, kubelets_us: int, period_us: int, then: str
) -> None:
    """Tiers, pods of the BestEffort tier and what is not kubelet's are made with the kernel's 100 ms.

    So are other pods without limits, whose quota is of kubelet's period all the same.
    """
    used, quota = writer(tmp_path, version), Target(cgroup, "cpu_quota")
    used.cfs_period_us = kubelets_us
    directory = used.tree.directory(cgroup, "cpu")
    directory.mkdir(parents=True, exist_ok=True)
    held = {1: {"cpu.cfs_quota_us": "-1", "cpu.cfs_period_us": f"{period_us}"}, 2: {"cpu.max": f"max {period_us}"}}
    for name, text in held[version].items():
        (directory / name).write_text(f"{text}\n")
    used.write(quota, 30_000)
    path = used.path(quota)
    assert path is not None
    assert (path.read_text().split()[0], used.read(quota)) == (then, 30_000)


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize(
    ("held", "made_with_us", "read", "then"),
    [(STRETCHED, 100_000, 40_000, "60000"), (STRETCHED, 0, 80_000, "30000"), (UNLIMITED, 100_000, 40_000, "60000")],
)
def test_a_burst_is_doubled_with_the_period_too(
    tmp_path: Path, version: int, held: dict[int, dict[str, str]], made_with_us: int, read: int, then: str
) -> None:
    used, burst = writer(tmp_path, version), Target(POD, "cpu.max.burst")
    used.cfs_period_us = made_with_us
    path = used.path(burst)
    assert path is not None
    for name, text in {**held[version], path.name: "80000\n"}.items():
        path.with_name(name).write_text(text)
    assert used.read(burst) == read
    used.write(burst, 30_000)
    assert (path.read_text(), used.read(burst)) == (then, 30_000)


def test_a_period_that_cannot_be_read_is_a_failed_write(tmp_path: Path) -> None:
    used = writer(tmp_path, 1)
    used.cfs_period_us = 100_000
    file(used, "cpu_quota", "-1\n").with_name("cpu.cfs_period_us").mkdir()
    with pytest.raises(WriteError):
        used.write(Target(POD, "cpu_quota"), 5000)


def test_what_is_read_is_the_file_that_would_be_written(tmp_path: Path) -> None:
    used = writer(tmp_path, 2)
    path = file(used, "cpuset_cpus", "\n")
    (path.parent / "cpuset.cpus.effective").write_text("0-3\n")
    assert used.look(Target(POD, "cpuset_cpus")) == Reading(str(path), path.stat().st_ino, "")


@pytest.mark.parametrize(("name", "there"), [("cpu_quota", True), ("cpu_period", False), ("memory.low", False)])
def test_a_file_that_is_not_there_reads_as_none(tmp_path: Path, name: str, there: bool) -> None:
    used = writer(tmp_path, 2)
    file(used, "cpu_quota", "max 100000\n")
    assert (used.read(Target(POD, name)) is not None) == there


def test_text_of_no_known_form_and_refused_reads_say_which_file(tmp_path: Path) -> None:
    used = writer(tmp_path, 1)
    file(used, "cpu_quota", "lots\n")
    with pytest.raises(ParseError, match=r"cpu.cfs_quota_us: 'lots"):
        used.read(Target(POD, "cpu_quota"))
    (tmp_path / "cpu/kubepods/pod1/cpu.shares").mkdir()
    with pytest.raises(ReadError, match=r"cpu\.shares"):
        used.read(Target(POD, "cpu_shares"))


def test_a_file_of_a_process_is_known_by_the_processes_start(tmp_path: Path) -> None:
    used = writer(tmp_path, 2)
    found = used.look(Target("", f"oom_score_adj@{os.getpid()}"))
    ticks = int(Path(f"/proc/{os.getpid()}/stat").read_text().rpartition(")")[2].split()[19])
    assert found is not None
    assert found.inode == ticks


@pytest.mark.parametrize(
    ("events", "held", "value", "expected"),
    [
        ("populated 1\n", "0\n", "", "0-7"),
        ("populated 0\n", "0\n", "", ""),
        ("populated 1\n", "\n", "", ""),
        ("populated 1\n", "0\n", "1", "1"),
    ],
)
def test_a_cpu_set_that_cannot_be_emptied_becomes_the_parents(
    tmp_path: Path, events: str, held: str, value: str, expected: str
) -> None:
    used = writer(tmp_path, 2)
    path = file(used, "cpuset_cpus", held)
    (path.parent / "cgroup.events").write_text(f"{events}frozen 0\n")
    (path.parent.parent / "cpuset.cpus.effective").write_text("0-7\n")
    assert used.attainable(Target(POD, "cpuset_cpus"), value) == expected


def test_on_v1_too_and_no_other_file_is_affected(tmp_path: Path) -> None:
    used = writer(tmp_path, 1)
    path = file(used, "cpuset_cpus", "0\n")
    (path.parent.parent / "cpuset.cpus").write_text("0-3\n")
    (path.parent / "cgroup.procs").write_text("")
    assert used.attainable(Target(POD, "cpuset_cpus"), "") == ""
    (path.parent / "cgroup.procs").write_text("17\n")
    assert used.attainable(Target(POD, "cpuset_cpus"), "") == "0-3"
    assert used.attainable(Target(POD, "cpu_quota"), -1) == -1

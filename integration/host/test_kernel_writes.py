"""Writer and undo record on the kernel's own files: what it answers, and that restoring leaves no trace."""

from __future__ import annotations

import errno
import os
import shlex
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from integration.host.groups import CONTROLLERS, Groups
from koord.host.files import Target, Value
from koord.host.order import Change, disturbed_by, order
from koord.host.restoring import restore
from koord.host.undo import UndoRecord
from koord.host.undoable import RestoreOutcome
from koord.host.writer import RULES, Unsupported, Vanished, WriteError
from qosd.act.oneshots import OneShotWriter
from qosd.decide.decision import Decision, OneShot, Stage
from qosd.decide.runner import Decisions, StrategyResult, StrategyStatus
from tests.qosd.act.rig import Recorded


@pytest.fixture
def kernel() -> Iterator[Groups]:
    groups = Groups(f"/koord-test-{os.getpid()}")
    with groups.made(f"{groups.top}/pod", f"{groups.top}/pod/box"):
        for cgroup in ("/pod", "/pod/box"):
            groups.fill_cpuset(groups.top + cgroup)
        yield groups


@pytest.mark.parametrize(
    ("before", "name", "value", "number"),
    [
        ([("/pod", "cpu_quota", 5000)], "cpu_quota", 6000, errno.EINVAL),
        ([("/pod/box", "cpu_quota", 5000)], "cpu.max.burst", 6000, errno.EINVAL),
        ([("/pod/box", "cpu.idle", 1)], "cpu_shares", 512, errno.EINVAL),
        ([("/pod/box", "cpuset_cpus", "0"), ("/pod", "cpuset_cpus", "0")], "cpuset_cpus", "0-1", errno.EACCES),
        ([("/pod/box", "memory_limit_in_bytes", 1 << 24)], "memory_swap_limit_in_bytes", 1 << 23, errno.EINVAL),
    ],
)
def test_refusals_name_the_kernels_rule(
    kernel: Groups, before: list[tuple[str, str, Value]], name: str, value: Value, number: int
) -> None:
    for cgroup, prepared, wanted in before:
        kernel.writer.write(Target(kernel.top + cgroup, prepared), wanted)
    with pytest.raises(WriteError) as refused:
        kernel.writer.write(Target(f"{kernel.top}/pod/box", name), value)
    assert (refused.value.errno, refused.value.rule) == (number, RULES[name][number])


def test_a_parent_may_not_lose_a_cpu_of_its_child(kernel: Groups) -> None:
    with pytest.raises(WriteError) as refused:
        kernel.writer.write(Target(f"{kernel.top}/pod", "cpuset_cpus"), "0")
    assert (refused.value.errno, refused.value.rule) == (errno.EBUSY, "v1: must hold every child's set")


def test_gone_and_unsupported(kernel: Groups) -> None:
    with pytest.raises(Unsupported):
        kernel.writer.write(Target(f"{kernel.top}/pod", "cpu.bvt_warp_ns"), 2)
    with pytest.raises(Vanished):
        kernel.writer.write(Target(f"{kernel.top}/none", "cpu_quota"), 5000)


def test_a_cpu_set_cannot_be_emptied_under_a_process(kernel: Groups) -> None:
    box = Target(f"{kernel.top}/pod/box", "cpuset_cpus")
    kernel.writer.write(box, "0")
    assert kernel.writer.attainable(box, "") == ""
    with subprocess.Popen(["sleep", "60"]) as sleeper:
        try:
            (kernel.file(box).parent / "cgroup.procs").write_text(str(sleeper.pid))
            with pytest.raises(WriteError, match="cannot be emptied"):
                kernel.writer.write(box, "")
            assert kernel.writer.attainable(box, "") == kernel.cpus
        finally:
            sleeper.kill()


DECIDED: list[tuple[str, str, Value]] = [
    ("/pod/box", "cpu_quota", 20_000),
    ("/pod", "cpu_quota", 30_000),
    ("/pod/box", "cpu.max.burst", 10_000),
    ("/pod", "cpu_shares", 2),
    ("/pod/box", "cpu.idle", 1),
    ("/pod", "cpuset_cpus", "1"),
    ("/pod/box", "cpuset_cpus", "1"),
    ("/pod/box", "memory_limit_in_bytes", 50_000_001),
    ("/pod/box", "memory_swap_limit_in_bytes", 60_000_001),
]


def test_restore_leaves_every_file_byte_for_byte(kernel: Groups, tmp_path: Path) -> None:
    for cgroup, name, value in [("/pod/box", "cpu_shares", 512), ("/pod/box", "cpu_quota", 90_000)]:
        kernel.writer.write(Target(kernel.top + cgroup, name), value)
    before = _texts(kernel)
    record = UndoRecord(tmp_path / "undo", _boot_id())
    _enforce(kernel, record, [Target(kernel.top + cgroup, name) for cgroup, name, _ in DECIDED])
    record.close()
    assert _texts(kernel) != before
    with UndoRecord(tmp_path / "undo", _boot_id()) as again:
        assert {line.outcome for line in restore(kernel.writer, again)} == {RestoreOutcome.RESTORED}
        assert again.entries == ()
    assert _texts(kernel) == before


def _boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def _enforce(kernel: Groups, record: UndoRecord, targets: list[Target]) -> None:
    """As the actuator does: remember, then write, in the kernel's order."""
    changes = [
        Change(target, kernel.writer.read(target), value)
        for target, (_, _, value) in zip(targets, DECIDED, strict=True)
    ]
    for step in order(changes, 1):
        for other in disturbed_by(step.target):
            found = kernel.writer.look(other)
            assert found is not None
            record.remember(other, found, None)
        found = kernel.writer.look(step.target)
        assert found is not None
        record.remember(step.target, found, step.value)
        kernel.writer.write(step.target, step.value)


def _texts(kernel: Groups) -> dict[str, bytes]:
    """Every file that can be both read and written, except lists of processes and counters."""
    moving = ("tasks", "cgroup.procs", "memory.max_usage_in_bytes", "memory.kmem.max_usage_in_bytes")
    found = {}
    for cgroup in (kernel.top, f"{kernel.top}/pod", f"{kernel.top}/pod/box"):
        for controller in CONTROLLERS:
            for file in kernel.tree.directory(cgroup, controller).iterdir():
                if file.is_file() and file.stat().st_mode & 0o600 == 0o600 and file.name not in moving:
                    found[str(file)] = file.read_bytes()
    return found


def test_a_frozen_group_stands_still_and_is_thawed_by_restoring(kernel: Groups, tmp_path: Path) -> None:
    """``freezer.state`` on v1, in a hierarchy of its own."""
    cgroup = f"{kernel.top}/freezing"
    directory = kernel.tree.directory(cgroup, "freezer")
    directory.mkdir(parents=True)
    frozen = Target(cgroup, "cgroup.freeze")
    process = subprocess.Popen(["sleep", "60"])
    record = UndoRecord(tmp_path / "undo.jsonl", "boot")
    try:
        (directory / "cgroup.procs").write_text(str(process.pid))
        found = kernel.writer.look(frozen)
        assert found is not None and found.value == 0
        record.remember(frozen, found, 1)
        kernel.writer.write(frozen, 1)
        assert (directory / "freezer.state").read_text() in ("FREEZING\n", "FROZEN\n")
        assert kernel.writer.read(frozen) == 1
        process.terminate()
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.3)
        assert {line.outcome for line in restore(kernel.writer, record)} == {RestoreOutcome.RESTORED}
        assert kernel.writer.read(frozen) == 0
        assert process.wait(5) != 0
    finally:
        (directory / "freezer.state").write_text("THAWED")
        process.kill()
        process.wait()
        record.close()
        directory.rmdir()
        directory.parent.rmdir()


def test_an_order_reclaims_what_is_cached(kernel: Groups, tmp_path: Path) -> None:
    """A process of the group has written 32 MiB to a file and waits: the pages are the group's, and go."""
    box = f"{kernel.top}/pod/box"
    journal = Recorded()
    orders = OneShotWriter(kernel.writer, journal)
    file = Path.cwd() / f".cached-{os.getpid()}"  # not on a tmpfs, whose pages cannot be reclaimed
    fill = f"dd if=/dev/zero of={shlex.quote(str(file))} bs=1M count=32 conv=fsync status=none"
    script = f"printf x; {fill}; echo written; exec sleep 60"
    process = subprocess.Popen(["sh", "-c", f"read go; {script}"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        kernel.put(Target(box, "cgroup.procs"), process.pid)
        Path(f"/sys/fs/cgroup/memory{box}/cgroup.procs").write_text(f"{process.pid}\n")
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"go\n")
        process.stdin.flush()
        assert process.stdout.readline() == b"xwritten\n"
        current = Target(box, "memory.current")
        before = kernel.writer.read(current)
        order = OneShot(Target(box, "memory.force_empty"), 0, "memory lacks")
        result = StrategyResult("toy", Stage.SPEC, StrategyStatus.ACTIVE, Decision("", one_shots=(order,)))
        decisions = Decisions(1, 1, 1, (result,))
        orders.apply(decisions, orders.plan(decisions))
        until = time.monotonic() + 10
        while not journal.entries and time.monotonic() < until:
            time.sleep(0.02)
        after = kernel.writer.read(current)
        assert isinstance(before, int)
        assert isinstance(after, int)
        print(f"{before >> 20} MiB before, {after >> 20} MiB afterwards: {journal.entries[0].result}")
        assert (journal.results(), before - after > 16 << 20) == (["done"], True)
    finally:
        process.kill()
        process.wait(10)
        file.unlink(missing_ok=True)
        orders.close()

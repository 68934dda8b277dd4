"""Slices of tasks, on this kernel: before Linux 6.12 there are none, and then that is what is said."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from koord.host import sched
from koord.host.cgroup import Tree
from koord.host.writer import Vanished, Writer

HAS_SLICES = sched.has_slices()


def child() -> int:
    """A process that waits for its end."""
    pid = os.fork()
    if not pid:
        time.sleep(60)
        os._exit(0)
    return pid


def ended() -> int:
    pid = child()
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return pid


def test_a_slice_is_inherited_and_given_back() -> None:
    parent = child()
    try:
        own = sched.slice_us(parent)
        assert sched.set_slice_us(parent, 100_000)
        assert sched.slice_us(parent) == (100_000 if HAS_SLICES else 0)
        assert sched.set_slice_us(parent, 0)
        assert sched.slice_us(parent) == own
    finally:
        os.kill(parent, signal.SIGKILL)
        os.waitpid(parent, 0)


def test_a_task_that_has_ended_is_no_error() -> None:
    pid = ended()
    assert sched.slice_us(pid) is None
    assert not sched.set_slice_us(pid, 100_000)


def test_the_kernel_tells_whether_it_has_them() -> None:
    release = tuple([int(part) for part in os.uname().release.split(".")[:2]])
    assert (release >= (6, 12)) == HAS_SLICES


def test_an_unknown_machine_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sched, "_NUMBERS", {})
    assert not sched.has_slices()


@pytest.mark.skipif(not HAS_SLICES, reason="Linux 6.12")
def test_the_writer_reads_the_kernels_own_slice_as_none(tmp_path: Path) -> None:
    writer, pid = Writer(Tree(2, tmp_path, {})), child()
    try:
        before = writer.look_at_task(sched.SLICE, pid)
        writer.write_task(sched.SLICE, pid, 50_000)
        held = writer.look_at_task(sched.SLICE, pid)
        assert before is not None and held is not None
        assert (before.value, held.value, before.inode) == (0, 50_000, held.inode)
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def test_the_writer_says_that_a_task_has_ended(tmp_path: Path) -> None:
    writer, pid = Writer(Tree(2, tmp_path, {})), ended()
    assert writer.look_at_task(sched.SLICE, pid) is None
    with pytest.raises(Vanished):
        writer.write_task(sched.SLICE, pid, 50_000)

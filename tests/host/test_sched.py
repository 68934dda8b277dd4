"""Slices of tasks, on this kernel: before Linux 6.12 there are none, and then that is what is said."""

from __future__ import annotations

import os
import signal
import time

import pytest

from koord.host import sched

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

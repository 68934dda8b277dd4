"""How long a thread's turns on the CPU are: asked of this kernel, and changed in nothing else."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable
from typing import TypeVar

import pytest

from koord.service import timeslice
from koord.service.timeslice import SLICE_NS, shorten

T = TypeVar("T")
KERNEL = tuple(int(word) for word in os.uname().release.split("-")[0].split(".")[:2])
EXPECTED = (SLICE_NS,) if KERNEL >= (6, 12) else (0, SLICE_NS)


def slice_of_this_thread_ns() -> int:
    """0 where the kernel knows of none."""
    return timeslice._attributes()[timeslice._RUNTIME]


def in_a_thread(work: Callable[[], T]) -> T:
    """What ``work`` returns: a thread's turns end with it."""
    results: list[T] = []
    thread = threading.Thread(target=lambda: results.append(work()))
    thread.start()
    thread.join()
    return results[0]


def test_a_thread_and_those_that_it_starts_have_short_turns() -> None:
    def work() -> tuple[int, int]:
        shorten()
        return slice_of_this_thread_ns(), in_a_thread(slice_of_this_thread_ns)

    own, started = in_a_thread(work)
    assert own in EXPECTED
    assert started == own


def test_nothing_else_changes() -> None:
    nice = min(19, os.getpriority(os.PRIO_PROCESS, 0) + 5)

    def work() -> tuple[list[int], list[int]]:
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), nice)
        before = timeslice._attributes()
        shorten()
        return before, timeslice._attributes()

    before, after = in_a_thread(work)
    assert before[3] == nice
    assert after[:5] + after[6:] == before[:5] + before[6:]


def test_an_idle_thread_stays_one() -> None:
    def work() -> tuple[list[int], list[int]]:
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
        before = timeslice._attributes()
        shorten()
        return before, timeslice._attributes()

    before, after = in_a_thread(work)
    assert before == after


def test_a_machine_whose_numbers_are_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timeslice, "_NUMBERS", {})
    with pytest.raises(OSError, match="not known for") as failed:
        shorten()
    assert failed.value.errno == errno.ENOSYS

"""Event groups against a system call of our own (the real one needs rights and a PMU), and a probe of the real one."""

from __future__ import annotations

import errno
import os
import struct
from pathlib import Path

import pytest

from koord.host.perf import CPI, SOFTWARE, Meter, Perf, PerfError, PerfEvent, scaled


class FakePerf(Perf):
    """Gives pipes with ``answer`` in them; refuses the open number ``refuse`` with ``why``."""

    def __init__(self, answer: bytes = b"", refuse: int = -1, why: int = errno.ENOENT) -> None:
        self.answer, self.refuse, self.why = answer, refuse, why
        self.asked: list[tuple[str, int, bool]] = []

    def open(self, event: PerfEvent, pid: int, cpu: int, leader: int = -1, flags: int = 0) -> int:
        if len(self.asked) == self.refuse:
            raise PerfError(self.why, event.name)
        self.asked.append((event.name, cpu, leader == -1))
        reader, writer = os.pipe()
        os.write(writer, self.answer)
        os.close(writer)
        return reader


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def group_read(enabled: int, running: int, *counts: int) -> bytes:
    return struct.pack(f"={3 + len(counts)}Q", len(counts), enabled, running, *counts)


def test_a_cgroup_that_is_gone(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        Meter(FakePerf(), f"{tmp_path}/gone", [0], CPI)


@pytest.mark.parametrize("refuse", range(6))
@pytest.mark.parametrize("why", [errno.ENODEV, errno.EMFILE, errno.EACCES])
def test_any_refused_open_closes_all_that_were_open(tmp_path: Path, refuse: int, why: int) -> None:
    before = open_descriptors()
    with pytest.raises(PerfError) as caught:
        Meter(FakePerf(refuse=refuse, why=why), str(tmp_path), [0, 3, 5], CPI)
    assert open_descriptors() == before
    assert caught.value.errno == why
    assert caught.value.why


def test_one_group_per_cpu_led_by_its_first_event(tmp_path: Path) -> None:
    perf = FakePerf(group_read(10, 10, 300, 600))
    with Meter(perf, str(tmp_path), [0, 3], CPI) as meter:
        assert perf.asked == [
            ("cycles", 0, True),
            ("instructions", 0, False),
            ("cycles", 3, True),
            ("instructions", 3, False),
        ]
        assert meter.descriptors == 4
        assert meter.read() == {"cycles": 600.0, "instructions": 1200.0}
    assert meter.descriptors == 0


@pytest.mark.parametrize("answer", [b"", b"\0" * 8])
def test_a_short_read_is_an_error(tmp_path: Path, answer: bytes) -> None:
    with Meter(FakePerf(answer), str(tmp_path), [0], CPI) as meter, pytest.raises(PerfError):
        meter.read()


def test_groups_that_never_ran_count_nothing(tmp_path: Path) -> None:
    with Meter(FakePerf(group_read(10, 0, 0, 0)), str(tmp_path), [0, 1], CPI) as meter:
        assert meter.read() is None


@pytest.mark.parametrize(
    ("words", "counts"),
    [((2, 100, 100, 7, 8), [7.0, 8.0]), ((2, 100, 25, 7, 8), [28.0, 32.0]), ((1, 100, 0, 0), None)],
)
def test_counts_are_scaled_by_the_time_on_the_counter(words: tuple[int, ...], counts: list[float] | None) -> None:
    assert scaled(words) == counts


@pytest.mark.parametrize("refuse", [0, 1])
def test_the_probe_says_which_event_and_why(refuse: int) -> None:
    before = open_descriptors()
    assert FakePerf(refuse=refuse).unavailable(CPI, 0).startswith(f"{CPI[refuse].name}: this CPU has no such event")
    assert FakePerf().unavailable(CPI, 0) == ""
    assert open_descriptors() == before


@pytest.mark.parametrize("events", [CPI, SOFTWARE])
def test_the_real_call_either_counts_or_says_why_not(events: tuple[PerfEvent, ...]) -> None:
    before = open_descriptors()
    why = Perf().unavailable(events, 0)
    assert why == "" or ": " in why
    assert open_descriptors() == before

"""Performance events of a cgroup: cycles and instructions where the node has a usable PMU, else software events.

perf_event_open(2) has no C library wrapper, so it is called by number. A Meter is one event group per online CPU: the
kernel schedules its events together or not at all, so their ratio is right even when the kernel multiplexes. Invariant:
a Meter holds all of its descriptors or none; on any error those already open are closed. Counts are scaled by
enabled/running time and may therefore fall slightly between reads of a multiplexed group; a group that never ran gives
None. Fails with PerfError (errno, and what usually causes it).
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType

_SYSCALL = {"x86_64": 298, "aarch64": 241, "riscv64": 241, "loongarch64": 241, "ppc64le": 319, "s390x": 331}
_TYPE_HARDWARE, _TYPE_SOFTWARE = 0, 1
_FLAG_PID_CGROUP, _FLAG_CLOEXEC = 1 << 2, 1 << 3
_EXCLUDE_HYPERVISOR = 1 << 6
_READ_TIMES, _READ_GROUP = 3, 1 << 3  # TOTAL_TIME_ENABLED | TOTAL_TIME_RUNNING
_ATTR_BYTES = 64  # PERF_ATTR_SIZE_VER0: all that is used here
_WHY = {
    errno.ENOENT: "this CPU has no such event (no PMU, or a virtual machine without one)",
    errno.EOPNOTSUPP: "this CPU has no such event (no PMU, or a virtual machine without one)",
    errno.ENODEV: "this CPU is offline",
    errno.EACCES: "not permitted: needs CAP_PERFMON, and kernel.perf_event_paranoid at 2 or less (Debian's kernels: 3)",
    errno.EPERM: "not permitted: needs CAP_PERFMON, and seccomp must allow perf_event_open",
    errno.ENOSYS: "this kernel has no perf_event_open",
    errno.EMFILE: "out of file descriptors: raise LimitNOFILE",
    errno.EBADF: "not a cgroup of the perf_event hierarchy",
    errno.EINVAL: "no such CPU, not a cgroup of the perf_event hierarchy, or an event this kernel does not know",
}


class PerfError(OSError):
    """perf_event_open or a read of its descriptor failed; ``why`` says what that usually means."""

    def __init__(self, number: int, subject: str) -> None:
        self.why = _WHY.get(number, os.strerror(number))
        super().__init__(number, self.why, subject)


@dataclass(frozen=True, slots=True)
class PerfEvent:
    """One countable thing: ``type`` and ``config`` as linux/perf_event.h numbers them."""

    name: str
    type: int
    config: int


CYCLES = PerfEvent("cycles", _TYPE_HARDWARE, 0)
INSTRUCTIONS = PerfEvent("instructions", _TYPE_HARDWARE, 1)
TASK_CLOCK_NS = PerfEvent("task_clock_ns", _TYPE_SOFTWARE, 1)
PAGE_FAULTS = PerfEvent("page_faults", _TYPE_SOFTWARE, 2)
CONTEXT_SWITCHES = PerfEvent("context_switches", _TYPE_SOFTWARE, 3)
CPU_MIGRATIONS = PerfEvent("cpu_migrations", _TYPE_SOFTWARE, 4)
MAJOR_FAULTS = PerfEvent("major_faults", _TYPE_SOFTWARE, 6)
CPI = (CYCLES, INSTRUCTIONS)
SOFTWARE = (TASK_CLOCK_NS, CONTEXT_SWITCHES, CPU_MIGRATIONS, MAJOR_FAULTS)


class Perf:
    """The system call. Raises PerfError where this machine's number is not known."""

    def __init__(self) -> None:
        number = _SYSCALL.get(platform.machine())
        if number is None:
            raise PerfError(errno.ENOSYS, platform.machine())
        self._number = number
        self._syscall = ctypes.CDLL(None, use_errno=True).syscall
        self._syscall.restype = ctypes.c_long

    def open(self, event: PerfEvent, pid: int, cpu: int, leader: int = -1, flags: int = 0) -> int:
        """Returns a descriptor that counts ``event`` on ``cpu``: of all tasks (``pid`` -1), or of a cgroup (see
        Meter)."""
        # struct perf_event_attr: type, size, config, period, sample type, read format, flags, wakeup, breakpoint
        numbers = (event.type, _ATTR_BYTES, event.config, 0, 0, _READ_TIMES | _READ_GROUP, _EXCLUDE_HYPERVISOR, 0, 0, 0)
        attributes = ctypes.create_string_buffer(struct.pack("=IIQQQQQIIQ", *numbers), _ATTR_BYTES)
        words = [ctypes.c_long(word) for word in (pid, cpu, leader, flags | _FLAG_CLOEXEC)]
        descriptor = int(self._syscall(ctypes.c_long(self._number), attributes, *words))
        if descriptor < 0:
            raise PerfError(ctypes.get_errno(), event.name)
        return descriptor

    def unavailable(self, events: Sequence[PerfEvent], cpu: int) -> str:
        """Returns why ``events`` cannot be counted together on ``cpu``, as a Meter would; "" if they can."""
        opened: list[int] = []
        try:
            for event in events:
                opened.append(self.open(event, -1, cpu, opened[0] if opened else -1))
        except PerfError as error:
            return f"{error.filename}: {error.why}"
        finally:
            for descriptor in opened:
                os.close(descriptor)
        return ""


class Meter:
    """Counts ``events`` of one cgroup, those below it included, on ``cpus`` from now on, until closed.

    ``directory`` is the cgroup's in the v2 tree, on v1 in the perf_event hierarchy. One descriptor per event and CPU.
    Raises PerfError; FileNotFoundError if the cgroup is gone.
    """

    def __init__(self, perf: Perf, directory: str, cpus: Sequence[int], events: Sequence[PerfEvent]) -> None:
        self._events, self._leaders, self._opened = tuple(events), list[int](), list[int]()
        group = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            for cpu in cpus:
                leader = -1
                for event in events:
                    self._opened.append(perf.open(event, group, cpu, leader, _FLAG_PID_CGROUP))
                    leader = self._opened[-1] if leader < 0 else leader
                self._leaders.append(leader)
        except BaseException:
            self.close()
            raise
        finally:
            os.close(group)

    def __enter__(self) -> Meter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def descriptors(self) -> int:
        return len(self._opened)

    def read(self) -> Mapping[str, float] | None:
        """The count of each event since the meter was made, over all CPUs; None if nothing was ever scheduled."""
        sums = [0.0] * len(self._events)
        ran = False
        for leader in self._leaders:
            counts = scaled(_read(leader, len(self._events)))
            if counts is not None:
                ran = True
                sums = [total + count for total, count in zip(sums, counts, strict=True)]
        return {event.name: total for event, total in zip(self._events, sums, strict=True)} if ran else None

    def close(self) -> None:
        while self._opened:
            os.close(self._opened.pop())
        self._leaders.clear()


def scaled(words: Sequence[int]) -> list[float] | None:
    """Counts from a group read (number, enabled ns, running ns, counts…); None if the group never ran."""
    enabled, running, counts = words[1], words[2], words[3:]
    return None if running == 0 else [count * enabled / running for count in counts]


def _read(leader: int, events: int) -> tuple[int, ...]:
    size = 8 * (3 + events)
    try:
        data = os.read(leader, size)
    except OSError as error:
        raise PerfError(error.errno or errno.EIO, "read") from error
    if len(data) != size:
        raise PerfError(errno.EIO, "read")
    return struct.unpack(f"={3 + events}Q", data)

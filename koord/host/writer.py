"""The only module that writes to the kernel.

One call is one write(2) on a descriptor of its own: a buffered write would report the kernel's refusal late or not at
all, and a kept descriptor would outlive its cgroup. Invariant: nothing is written that the row's own check refuses,
and nothing is created. In which order to write is ``order``'s business, and what to put back ``undo``'s.

Fails with a WriteError that carries path, value, errno and the kernel's rule where one is known: Vanished when the
cgroup is gone (it may go between any two calls), Unsupported when it is there without such a file.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from koord.host import files, resctrl, sched
from koord.host.cgroup import GONE, ReadError, Tree
from koord.host.files import KernelFile, Target, Value, ValueRefused
from koord.host.kernelwrite import MOST_RECLAIMING, LimitWrites, put
from koord.host.sched import SLICE
from koord.host.weights import Weights
from koord.model import cfs, cgroup_parent
from koord.model.qos import KubeQoS

_READ_BYTES = 1 << 16
_SCALED = ("cpu_quota", "cpu.max.burst")
"""The files whose values the kernel doubles with the period."""
_BANDWIDTH = (*_SCALED, "cpu_period")
_PERIOD_OF: Mapping[str, str] = MappingProxyType(
    {"cpu.cfs_quota_us": "cpu.cfs_period_us", "cpu.cfs_burst_us": "cpu.cfs_period_us", "cpu.max.burst": "cpu.max"}
)
"""Where the period stands for a file that does not hold it itself."""
_CPUSET_RULES = {
    errno.EACCES: "v1: must lie within the parent's set",
    errno.EBUSY: "v1: must hold every child's set",
    errno.ENOSPC: "the set of a cgroup with processes cannot be emptied",
    errno.ERANGE: "names a CPU or memory node that the kernel does not know",
    errno.EINVAL: "names a CPU or memory node that is not online, or overlaps an exclusive set",
}
RULES: Mapping[str, Mapping[int, str]] = MappingProxyType(
    {
        "cpu_quota": {
            errno.EINVAL: "v1: quota/period must not exceed the nearest limited ancestor's nor undercut a child's;"
            " it must not undercut the burst"
        },
        "cpu_period": {
            errno.EINVAL: "v1: quota/period must not exceed the nearest limited ancestor's nor undercut a child's"
        },
        "cpu.max.burst": {errno.EINVAL: "must not exceed the quota"},
        "cpu_shares": {errno.EINVAL: "cannot be written while cpu.idle is 1"},
        "cpuset_cpus": _CPUSET_RULES,
        "cpuset_mems": _CPUSET_RULES,
        "memory_limit_in_bytes": {
            errno.EBUSY: "v1: usage cannot be reclaimed below it",
            errno.EINVAL: "v1: must not exceed the limit of memory with swap",
        },
        "memory_swap_limit_in_bytes": {
            errno.EBUSY: "v1: usage cannot be reclaimed below it",
            errno.EINVAL: "v1: must not undercut the memory limit",
        },
        "memory.reclaim": {errno.EAGAIN: "less than that could be reclaimed"},
        "memory.high": {errno.EAGAIN: f"{MOST_RECLAIMING} limits are set already for which the kernel still reclaims"},
        "memory.force_empty": {errno.EBUSY: "v1: it has tasks or cgroups below it, and pages that stay"},
        "io.weight": {errno.EOPNOTSUPP: "the device has neither io.cost.qos enabled nor the BFQ scheduler"},
        "oom_score_adj": {
            errno.EACCES: "lowering it needs CAP_SYS_RESOURCE, a process of another user than root CAP_DAC_OVERRIDE"
        },
        SLICE: {errno.EPERM: "a thread of another user needs CAP_SYS_NICE"},
        "kernel.sched_core": {errno.EBUSY: "not while group identity is on"},
        "kernel.sched_group_identity_enabled": {errno.EBUSY: "not while core scheduling is on"},
    }
)
"""What the kernel means by an errno, by row."""
_RULE_OF_ANY = {
    errno.EROFS: "the unit does not let this process write it: koordctl install grants what a feature needs"
}


def rule_of(row: str, number: int) -> str:
    """Returns why the kernel answered a write of that row with errno ``number``; "" if that is not known."""
    return RULES.get(row, {}).get(number, "") or _RULE_OF_ANY.get(number, "")


class WriteError(OSError):
    """The kernel refused ``value`` for ``filename``; ``rule`` says why where that is known, else it is ""."""

    def __init__(self, number: int, path: str, value: str, rule: str = "") -> None:
        super().__init__(number, os.strerror(number), path)
        self.value, self.rule = value, rule

    def __str__(self) -> str:
        return f"{self.filename} <- {self.value.strip()!r}: {self.strerror}" + (f" ({self.rule})" if self.rule else "")


class Vanished(WriteError):
    """The directory is gone."""


class Unsupported(WriteError):
    """The directory is there and has no such file, or this cgroup version knows none."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What a file held when it was read.

    ``inode`` tells it from another of the same path, within one boot. /proc keeps no inodes: there it is the start
    time of the process, and 0 for what is no process's.
    """

    path: str
    inode: int
    value: Value


class Writer:
    """Reads and writes the files of ``tree``; ``weights``: how this node's runtime maps shares to ``cpu.weight``.

    ``cfs_period_us``: the CFS period of containers and of pods with limits, as kubelet has them made; other cgroups
    have the kernel's own period. The kernel may have doubled a cgroup's period, quota and burst since. All three are
    read, and quota and burst written, as if it had not: otherwise a quota would be another share of a CPU than meant.
    No file tells whether a pod of the tiers above BestEffort was made with limits, so its values are read and written
    by kubelet's period also where it has the kernel's, if that is a multiple. 0: every cgroup is taken as it is.
    ``has_nonblocking_limits``: does the kernel heed O_NONBLOCK where it would reclaim? None: its version tells.
    """

    def __init__(
        self,
        tree: Tree,
        weights: Weights = Weights.LINEAR,
        cfs_period_us: int = 0,
        has_nonblocking_limits: bool | None = None,
    ) -> None:
        self.tree, self.weights, self.cfs_period_us = tree, weights, cfs_period_us
        self._limits = LimitWrites(has_nonblocking_limits)

    @property
    def version(self) -> int:
        """Of the cgroup tree: 1 or 2."""
        return self.tree.version

    def path(self, target: Target) -> Path | None:
        """The file that ``write`` would write; None where this cgroup version has none."""
        return self.tree.path(target, for_write=True)

    def look(self, target: Target) -> Reading | None:
        """Returns what the file that ``write`` would write holds now; None if it is not there.

        The value in effect may differ: a v2 CPU set that was never written is "". Raises ReadError if the kernel
        refuses, ParseError if the text has no known form.
        """
        path = self.path(target)
        if path is None:
            return None
        content = _read(path)
        if content is None:
            return None
        text, inode = content
        row = files.row(target.name)
        text = self.as_made(target, path, text)
        if row.system is not None and row.system[0] == "proc":
            inode = _start_time(path.parent) if row.qualifier else 0
        return Reading(str(path), inode, row.parse(text, self.version, self.weights))

    def read(self, target: Target) -> Value | None:
        """The value of ``look``; None if the file is not there."""
        found = self.look(target)
        return None if found is None else found.value

    def write(self, target: Target, value: Value) -> None:
        """Write ``value`` in the kernel's spelling. Raises ValueRefused before, or WriteError from, the one write."""
        row = files.row(target.name)
        text = row.format(value, self.version, self.weights)
        path = self.path(target)
        if path is None:
            raise Unsupported(errno.ENOENT, f"{target.cgroup}/{target.name}", text, f"no such file on v{self.version}")
        try:
            self._limits.put(path, self._stretched(row, path, value) if row.name in _SCALED else text)
        except OSError as error:
            number = error.errno or errno.EIO
            raise _kind(number, path)(number, str(path), text, rule_of(row.name, number)) from error

    def look_at_task(self, name: str, task: int) -> Reading | None:
        """The attribute ``name`` of a task, whose start time is the reading's inode; None if it has ended.

        A slice is 0 while it is the kernel's own, as this thread's is. Raises ReadError, ParseError.
        """
        if name != SLICE:
            return self.look(Target("", f"{name}@{task}"))
        directory = self.tree.proc / str(task)
        try:
            slice_us = sched.slice_us(task)
        except OSError as error:
            raise ReadError(error.errno or errno.EIO, f"sched_getattr: {error.strerror}", str(directory)) from error
        if slice_us is None:
            return None
        own_us = sched.slice_us(0)
        return Reading(str(directory), _start_time(directory), 0 if slice_us == own_us else slice_us)

    def write_task(self, name: str, task: int, value: int) -> None:
        """Set the attribute ``name`` of a task. Raises WriteError, Vanished if it has ended."""
        if name != SLICE:
            self.write(Target("", f"{name}@{task}"), value)
            return
        path = str(self.tree.proc / str(task))
        try:
            is_there = sched.set_slice_us(task, value)
        except OSError as error:
            number = error.errno or errno.EIO
            raise WriteError(number, path, str(value), rule_of(name, number)) from error
        if not is_there:
            raise Vanished(errno.ESRCH, path, str(value))

    def _stretched(self, row: KernelFile, path: Path, value: Value) -> str:
        """Returns the text for a value that is meant by the period with which the cgroup was made; ``cpu.max`` keeps
        its period."""
        content = _read(path) if path.name == "cpu.max" else None
        line = "" if content is None else content[0]
        stretched = value * self._stretch(path, line) if isinstance(value, int) and value > 0 else value
        written, words = row.format(stretched, self.version, self.weights), line.split()
        return f"{written} {words[1]}" if len(words) == 2 else written

    def as_made(self, target: Target, path: Path, text: str) -> str:
        """``text`` of the file ``path``, as it would be if the kernel had not stretched the cgroup's CFS period."""
        factor = self._stretch(path, text) if target.name in _BANDWIDTH else 1
        return text if factor == 1 else " ".join(_shortened(word, factor) for word in text.split())

    def _stretch(self, path: Path, text: str = "") -> int:
        """By how much the kernel has stretched the bandwidth of the cgroup of ``path``, which held ``text``."""
        if not self.cfs_period_us:
            return 1
        other = _PERIOD_OF.get(path.name)
        if not text or other is not None:
            content = _read(path if other is None else path.with_name(other))
            text = "" if content is None else content[0]
        words = text.split()
        return self._factor(path.parent, int(words[-1])) if words and words[-1].isdigit() else 1

    def _factor(self, cgroup: Path, period_us: int) -> int:
        """Returns by how much the period of ``cgroup`` is longer than the one that its quota is meant by.

        kubelet sets none for tiers, for best-effort pods, and for other pods without limits.
        """
        if cgroup_parent.kube_qos(str(cgroup.parent)) is not None:
            return cfs.stretch(period_us, self.cfs_period_us)
        if cgroup_parent.kube_qos(str(cgroup)) not in (KubeQoS.GUARANTEED, KubeQoS.BURSTABLE):
            return cfs.stretch(period_us, cfs.PERIOD_US)
        factor, rest = divmod(cfs.PERIOD_US, self.cfs_period_us)
        of_kernels = factor * cfs.stretch(period_us, cfs.PERIOD_US) if factor and not rest else 0
        is_kernels = of_kernels * self.cfs_period_us == period_us
        return of_kernels if is_kernels else cfs.stretch(period_us, self.cfs_period_us)

    def move_task(self, resctrl_group: str, task: int) -> bool:
        """Put the thread ``task`` into ``resctrl_group`` ("" = the root group); False if it has ended.

        Raises ValueRefused for what is no thread's id (the kernel takes 0 for the caller), and WriteError with what
        ``info/last_cmd_status`` says.
        """
        if task <= 0:
            raise ValueRefused("resctrl tasks", task, "is no thread's id")
        path = resctrl.tasks_file(self.tree.resctrl, resctrl_group)
        try:
            put(path, f"{task}\n")
        except OSError as error:
            number = error.errno or errno.EIO
            if number == errno.ESRCH:
                return False
            raise _kind(number, path)(number, str(path), str(task), _last_status(self.tree.resctrl)) from error
        return True

    def attainable(self, target: Target, value: Value) -> Value:
        """Returns ``value``, or the nearest value that the kernel still takes.

        A CPU set cannot be emptied again once processes are in the cgroup; then it is given all CPUs of the parent.
        Where the kernel does not tell, that is ``value`` itself, and writing it may fail.
        """
        try:
            return self._attainable(target, value)
        except (ReadError, files.ParseError):
            return value

    def _attainable(self, target: Target, value: Value) -> Value:
        path = self.path(target)
        if target.name not in ("cpuset_cpus", "cpuset_mems") or value != "" or path is None:
            return value
        if not _populated(path.parent, self.version) or self.read(target) in (None, ""):
            return value
        above = Target(os.path.dirname(target.cgroup), target.name)
        effective = self.tree.path(above)
        content = None if effective is None else _read(effective)
        return value if content is None else files.row(target.name).parse(content[0], self.version)


def _shortened(word: str, factor: int) -> str:
    """A number of cpu.max or one of v1's files; no limit stays none."""
    return str(int(word) // factor) if word.isdigit() else word


def _kind(number: int, path: Path) -> type[WriteError]:
    if number not in GONE:
        return WriteError
    return Unsupported if number == errno.ENOENT and path.parent.is_dir() else Vanished


def _last_status(root: Path) -> str:
    """Why resctrl refused the last write; "" if it cannot be told."""
    try:
        return resctrl.last_status(root)
    except ReadError:
        return ""


def _read(path: Path) -> tuple[str, int] | None:
    """The file's text and inode; None if it is not there (any more)."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return os.read(descriptor, _READ_BYTES).decode("ascii", "replace"), os.fstat(descriptor).st_ino
        finally:
            os.close(descriptor)
    except OSError as error:
        if error.errno in GONE:
            return None
        raise ReadError(error.errno, f"cannot read: {error.strerror}", str(path)) from error


def _populated(directory: Path, version: int) -> bool:
    """Are there processes in the cgroup or, on v2, below it?"""
    content = _read(directory / ("cgroup.events" if version == 2 else "cgroup.procs"))
    if content is None:
        return False
    return "populated 1" in content[0].splitlines() if version == 2 else bool(content[0].strip())


def _start_time(process: Path) -> int:
    """Field 22 of /proc/<pid>/stat (proc_pid_stat(5)), in clock ticks after boot; 0 if the process is gone."""
    content = _read(process / "stat")
    fields = content[0].rpartition(")")[2].split() if content is not None else []
    return int(fields[19]) if len(fields) > 19 else 0

"""Measures CPU and memory of one cgroup; this runs for each object in each tick, where a microsecond counts 225 times.

A meter reads its files through kept descriptors, and keeps of the last reading only what it compares the next one with.
It does not parse an unchanged text again. Invariants: a rate is between two readings of the same cgroup (same path and
inode, no failed reading between), at the instants of these readings; a missing file leaves only its own figures without
a sample, and nothing raises because a cgroup is gone.

Formulas: cores = growth of CPU time / growth of time; memory without page cache = inactive_anon + active_anon +
unevictable, with it + active_file + inactive_file (v1: the ``total_`` keys, which cover what is below the cgroup);
working set = charged memory - inactive_file, as kubelet has it; what the kernel can take back: ``MemoryMeter``.

A read costs 5 to 20 microseconds in the kernel whose caches have grown cold in a second, ``memory.stat`` up to 100. So
files that can hold little new are not read: ``memory.stat`` only when the charged memory moved by more than 1/64, or
every ``REFRESH_TICKS`` (what moves between anon and file pages at the same charge is that late, and the rates of
refaults and major faults are those of the time between two readings); v1's ``cpu.stat``
only when CPU was used, and where no CFS period ever began (no quota) every ``REFRESH_TICKS``.
"""

from __future__ import annotations

from koord.host.cgroup import Tree
from koord.host.files import Target
from koord.host.reader import KeptFiles
from qosd.sense.flatkeys import FlatKeys
from qosd.sense.host import Clock
from qosd.sense.rates import per_second, ratio
from qosd.sense.row import NO_SAMPLE

REFRESH_TICKS = 5
_THROTTLING = (b"nr_periods", b"nr_throttled")
_V1_THROTTLING = FlatKeys((*_THROTTLING, b"throttled_time"))
_V2_CPU = FlatKeys((b"usage_usec",), (*_THROTTLING, b"throttled_usec"))
_MEMORY = (b"inactive_anon", b"active_anon", b"inactive_file", b"active_file", b"unevictable")
_REFAULTS = (b"workingset_refault_anon", b"workingset_refault_file", b"workingset_refault")  # the last: before 5.9
_COUNTED = (b"pgmajfault", *_REFAULTS)
_V1_KINDS, _V2_KINDS = (b"dirty", b"writeback", b"swapcached"), (b"file_dirty", b"file_writeback", b"swapcached")
_SLAB = b"slab_reclaimable"  # v2 alone
_V1_MEMORY = FlatKeys(
    [b"total_" + key for key in _MEMORY], [*(b"total_" + key for key in (*_COUNTED, *_V1_KINDS)), _SLAB], absent=-1
)
_V2_MEMORY = FlatKeys(_MEMORY, (*_COUNTED, *_V2_KINDS, _SLAB), absent=-1)
_NO_THROTTLING = (NO_SAMPLE, NO_SAMPLE)
_UNKNOWN = (NO_SAMPLE, NO_SAMPLE)
_NO_COUNTS = (-1, -1)


def path_of(tree: Tree, cgroup: str, name: str) -> str:
    """Returns the path of row ``name``; "" (which no reader can open) if this cgroup version has no such file."""
    path = tree.path(Target(cgroup, name))
    return "" if path is None else str(path)


class CpuV1:
    """(cores, throttled ratio, throttled µs/s) from ``cpuacct.usage`` and ``cpu.stat``."""

    __slots__ = ("_at", "_clock", "_files", "_inode", "_throttling", "_usage", "_usage_path")

    def __init__(self, tree: Tree, cgroup: str, files: KeptFiles, clock: Clock, phase: int) -> None:
        self._files, self._clock, self._inode = files, clock, 0
        self._usage_path = path_of(tree, cgroup, "cpuacct.usage")
        self._throttling = _ThrottlingV1(path_of(tree, cgroup, "cpu.stat"), files, phase)
        self._usage, self._at = -1, 0

    @property
    def paths(self) -> tuple[str, ...]:
        return self._usage_path, self._throttling.path

    @property
    def seconds(self) -> float:
        """The CPU time of the cgroup, when it was sampled last."""
        return self._usage / 1e9 if self._usage >= 0 else NO_SAMPLE

    def sample(self) -> tuple[float, float, float] | None:
        """Returns the figures; None if the cgroup is not there."""
        text = self._files.read(self._usage_path)
        was, self._at = self._at, self._clock()
        if (inode := self._files.inode(self._usage_path)) != self._inode:
            self._inode, self._usage = inode, -1
            self._throttling.reset()
        if text is None:
            return None
        before, self._usage = self._usage, int(text)
        cores = per_second(before, self._usage, self._at - was) / 1e9 if before >= 0 else NO_SAMPLE
        return cores, *self._throttling.sample(self._at, self._usage != before)


class _ThrottlingV1:
    """Reads ``cpu.stat`` of v1, no more often than it can have changed."""

    __slots__ = ("_at", "_before", "_files", "_rest", "path")

    def __init__(self, path: str, files: KeptFiles, phase: int) -> None:
        self.path, self._files = path, files
        self._at, self._rest = 0, phase
        self._before: list[int] = []

    def reset(self) -> None:
        self._before = []

    def sample(self, at_ns: int, ran: bool) -> tuple[float, float]:
        """Returns (ratio, µs/s). ``ran``: was CPU used since the last reading?"""
        before = self._before
        self._rest = (self._rest or REFRESH_TICKS) - 1
        if before and (not ran or (before[0] == 0 and self._rest > 0)):
            return 0.0, 0.0
        text = self._files.read(self.path)
        now = None if text is None else _V1_THROTTLING.numbers(text)
        was, self._at, self._before = self._at, at_ns, now or []
        if not before or now is None:
            return _NO_THROTTLING
        return ratio(before[1], now[1], before[0], now[0]), per_second(before[2], now[2], at_ns - was) / 1000


class CpuV2:
    """(cores, throttled ratio, throttled µs/s), all from ``cpu.stat``."""

    __slots__ = ("_at", "_before", "_clock", "_files", "_inode", "_path", "_text")

    def __init__(self, tree: Tree, cgroup: str, files: KeptFiles, clock: Clock, phase: int) -> None:
        del phase  # every read is needed: the file holds the CPU time too
        self._files, self._clock, self._path = files, clock, path_of(tree, cgroup, "cpu.stat")
        self._inode, self._at = 0, 0
        self._text: bytes | None = None
        self._before: list[int] = []

    @property
    def paths(self) -> tuple[str, ...]:
        return (self._path,)

    @property
    def seconds(self) -> float:
        """The CPU time of the cgroup, when it was sampled last."""
        return self._before[0] / 1e6 if self._before else NO_SAMPLE

    def sample(self) -> tuple[float, float, float] | None:
        """Returns the figures; None if the cgroup is not there."""
        text = self._files.read(self._path)
        was, self._at = self._at, self._clock()
        if (inode := self._files.inode(self._path)) != self._inode:
            self._inode, self._text, self._before = inode, None, []
        if text is None:
            return None
        if text == self._text:
            return 0.0, 0.0, 0.0
        self._text, before = text, self._before
        now = _V2_CPU.numbers(text)
        self._before = now or []
        if now is None or not before:
            return (NO_SAMPLE, *_NO_THROTTLING)
        elapsed = self._at - was
        return (
            per_second(before[0], now[0], elapsed) / 1e6,
            ratio(before[2], now[2], before[1], now[1]),
            per_second(before[3], now[3], elapsed),
        )


class MemoryMeter:
    """(without page cache, with it, working set, refaults/s, major faults/s, unreclaimable, reclaimable), from
    ``memory.stat`` and the charge.

    The last two are ``unreclaimable_bytes`` and ``reclaimable_bytes`` of the last reading of ``memory.stat``.
    """

    __slots__ = (
        "_at",
        "_charged",
        "_charged_path",
        "_clock",
        "_counts",
        "_files",
        "_inactive_file",
        "_inode",
        "_keys",
        "_rates",
        "_reclaim",
        "_rest",
        "_stat_path",
        "_usage",
        "_version",
    )

    def __init__(self, tree: Tree, cgroup: str, files: KeptFiles, clock: Clock, phase: int) -> None:
        self._files, self._clock = files, clock
        self._version = tree.version
        self._keys = _V1_MEMORY if tree.version == 1 else _V2_MEMORY
        self._stat_path = path_of(tree, cgroup, "memory.stat")
        self._charged_path = path_of(tree, cgroup, "memory.current")
        self._inode, self._at, self._rest = 0, 0, phase
        self._usage = self._reclaim = _UNKNOWN
        self._charged = self._inactive_file = -1
        self._counts, self._rates = _NO_COUNTS, _UNKNOWN

    @property
    def paths(self) -> tuple[str, ...]:
        return self._stat_path, self._charged_path

    def sample(self) -> tuple[float, float, float, float, float, float, float]:
        """Returns the figures, NaN for missing ones. Faults are per second between the last two readings."""
        text = self._files.read(self._charged_path)
        if (inode := self._files.inode(self._charged_path)) != self._inode:
            self._inode = inode
            self.forget()
        charged = -1 if text is None else int(text)
        self._rest = (self._rest or REFRESH_TICKS) - 1
        if self._rest == 0 or self._charged < 0 or abs(charged - self._charged) > self._charged >> 6:
            self._charged = charged
            self._take(self._files.read(self._stat_path))
        known = charged >= 0 and self._inactive_file >= 0
        working_set = float(max(0, charged - self._inactive_file)) if known else NO_SAMPLE
        return (*self._usage, working_set, *self._rates, *self._reclaim)

    def forget(self) -> None:
        """Forgets the last reading, so that the next one is a first one."""
        self._usage = self._reclaim = _UNKNOWN
        self._charged = self._inactive_file = -1
        self._counts, self._rates = _NO_COUNTS, _UNKNOWN

    def _take(self, text: bytes | None) -> None:
        """Takes the figures of ``text``, and the rates since the text before it."""
        was, self._at = self._at, self._clock()
        numbers = None if text is None else self._keys.numbers(text)
        if numbers is None:
            self.forget()
            return
        inactive_anon, active_anon, self._inactive_file, active_file, unevictable, major_faults, *more = numbers
        refaults, (dirty, writeback, swap_cache, slab) = more[:-4], [max(each, 0) for each in more[-4:]]
        usage, file = inactive_anon + active_anon + unevictable, self._inactive_file + active_file
        self._usage = (float(usage), float(usage + file))
        is_known = self._version == 1 or self._charged >= 0
        stays = unreclaimable_bytes(self._version, self._charged, usage, file, slab, swap_cache)
        at_once = reclaimable_bytes(file, dirty + writeback, slab, swap_cache)
        self._reclaim = (float(stays) if is_known else NO_SAMPLE, float(at_once))
        before, self._counts = self._counts, (_sum_of_refaults(*refaults), major_faults)
        elapsed = self._at - was
        self._rates = _rate(before[0], self._counts[0], elapsed), _rate(before[1], self._counts[1], elapsed)


def unreclaimable_bytes(version: int, charged: int, usage: int, file: int, slab: int, swap_cache: int) -> int:
    """Returns the charged memory of a cgroup that the kernel cannot reclaim by itself; at least 0.

        v2  memory.current - active_file - inactive_file - slab_reclaimable - swapcached
        v1  total_inactive_anon + total_active_anon + total_unevictable - total_swapcached

    Of memory.stat, as the kernel's Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/memory.rst describe it.
    slab_reclaimable (``slab``) is dentries and inodes. Dirty file pages are not in it: the kernel writes them and takes
    them back then, and they stay charged when their writer is killed. v1's memory.stat does not tell which part of
    memory.kmem.usage_in_bytes is reclaimable, so all of that is left out. ``usage`` and ``file``: the anonymous with
    the unevictable pages, and the file pages.
    """
    return max(0, (usage if version == 1 else charged - file - slab) - swap_cache)


def reclaimable_bytes(file: int, unwritten: int, slab: int, swap_cache: int) -> int:
    """Returns the memory that the kernel can reclaim at once: file pages that are neither dirty nor under writeback,
    slab_reclaimable (``slab``, 0 on v1) and swap cache."""
    return max(0, file - unwritten) + slab + swap_cache


def _rate(before: int, now: int, elapsed_ns: int) -> float:
    """Returns the growth per second; NaN if either number is unknown (-1)."""
    return per_second(before, now, elapsed_ns) if before >= 0 and now >= 0 else NO_SAMPLE


def _sum_of_refaults(anon: int, file: int, all_of_them: int) -> int:
    """Returns all refaults; -1 if this kernel has none of the keys."""
    return all_of_them if anon < 0 and file < 0 else max(anon, 0) + max(file, 0)

"""The reading side of resctrl (Documentation/filesystems/resctrl.rst): what it can do, who has which part, who uses it.

Control groups are directories with ``schemata``; ``mon_groups`` below them only count. Domains are found by the
pattern of their directories' names, so cache ids may have gaps and there may be other resources than L3. Counters
that say ``Error`` or ``Unavailable`` are absent for now (None). Everything ends in a newline. An absent mount is an
absent Info, never an error; a text of unknown form is a ParseError.

The masks and bandwidths of percentages are pure functions, with Koordinator's rounding.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from koord.host.cgroup import ReadError, read_number, read_text
from koord.host.kernelfile import GROUP_NAME, ParseError, readable

_RESERVED = frozenset({"info", "mon_groups", "mon_data"})
_GROUP_NAME = re.compile(GROUP_NAME, re.ASCII)
_DOMAIN = re.compile(r"mon_(L[0-9]+(?:CODE|DATA)?)_([0-9]+)", re.ASCII)
_ABSENT = frozenset({"Error", "Unavailable", "Unassigned"})
LLC_OCCUPANCY, MBM_TOTAL, MBM_LOCAL = "llc_occupancy", "mbm_total_bytes", "mbm_local_bytes"
AMD_UNLIMITED_MB = 2048
_AMD_MB_AT_100_PERCENT = 160


@dataclass(frozen=True, slots=True)
class CacheInfo:
    """What ``info/L3`` (with CDP: L3CODE, L3DATA) admits: the full mask, the fewest bits of one, how many groups."""

    cbm_mask: int
    min_cbm_bits: int
    num_closids: int
    sparse: bool

    @property
    def ways(self) -> int:
        return self.cbm_mask.bit_length()


@dataclass(frozen=True, slots=True)
class BandwidthInfo:
    """What ``info/MB`` admits: the least value, the step, the number of groups; ``linear``: is it percent?

    ``in_mbps``: settings are MB/s instead, as the mount option ``mba_MBps`` has it, whatever ``info/MB`` says.
    """

    minimum: int
    step: int
    num_closids: int
    linear: bool
    in_mbps: bool = False


@dataclass(frozen=True, slots=True)
class Info:
    """What this mount can do. ``features``: the monitoring files there are (``llc_occupancy``, …)."""

    caches: Mapping[str, CacheInfo]
    bandwidth: BandwidthInfo | None
    features: frozenset[str]
    num_rmids: int


@dataclass(frozen=True, slots=True)
class Counter:
    """One monitoring file: ``resource`` and ``domain`` of the directory, ``feature`` of the file; bytes."""

    resource: str
    domain: int
    feature: str
    path: Path


Schemata = Mapping[str, Mapping[int, int]]
"""By resource and domain: a capacity mask (L2, L3, L3CODE, L3DATA), or a bandwidth (MB, SMBA)."""


def info(root: Path, mountinfo: str = "") -> Info | None:
    """What the resctrl mount at ``root`` can do; None if there is none. ``mountinfo``: proc_pid_mountinfo(5)."""
    if not (root / "schemata").is_file():
        return None
    caches = {path.name: found for path in _directories(root / "info") if (found := _cache(path)) is not None}
    features = read_text(root / "info/L3_MON/mon_features") or ""
    rmids = read_number(root / "info/L3_MON/num_rmids", 0)
    return Info(caches, _bandwidth(root / "info/MB", is_in_mbps(mountinfo)), frozenset(features.split()), rmids)


def _cache(directory: Path) -> CacheInfo | None:
    mask = read_text(directory / "cbm_mask")
    if mask is None:
        return None
    try:
        value = int(mask, 16)
    except ValueError as error:
        raise ParseError(str(directory / "cbm_mask"), mask, error) from error
    sparse = read_number(directory / "sparse_masks", 0) == 1
    return CacheInfo(
        value, read_number(directory / "min_cbm_bits", 1), read_number(directory / "num_closids", 1), sparse
    )


def is_in_mbps(mountinfo: str) -> bool:
    """Is resctrl mounted so that bandwidths are MB/s?"""
    mounts = (line.partition(" - ")[2].split() for line in mountinfo.splitlines())
    return any(words[0] == "resctrl" and "mba_MBps" in words[2].split(",") for words in mounts if len(words) > 2)


def _bandwidth(directory: Path, in_mbps: bool) -> BandwidthInfo | None:
    if read_text(directory / "min_bandwidth") is None:
        return None
    return BandwidthInfo(
        read_number(directory / "min_bandwidth", 0),
        read_number(directory / "bandwidth_gran", 1),
        read_number(directory / "num_closids", 1),
        read_number(directory / "delay_linear", 1) == 1,
        in_mbps,
    )


def schemata(root: Path, group: str = "") -> Schemata | None:
    """The schemata of control group ``group`` ("" = the root group); None if there is no such group."""
    file = root / group / "schemata"
    text = read_text(file)
    return None if text is None else parse_schemata(text, str(file))


def parse_schemata(text: str, file: str = "schemata") -> Schemata:
    """``    L3:0=7ff;1=7ff`` and ``    MB:0= 100;1= 100``; a line that cannot be read costs its resource only."""
    return dict(readable(file, [line.strip() for line in text.splitlines() if line.strip()], _resource))


def _resource(line: str) -> tuple[str, dict[int, int]]:
    resource, colon, domains = line.partition(":")
    if not colon:
        raise ValueError("has no colon")
    base = 16 if resource.startswith("L") else 10
    pairs = (item.split("=", 1) for item in domains.split(";") if item.strip())
    return resource, {int(domain): int(setting, base) for domain, setting in pairs}


def format_domains(settings: Mapping[int, int], hexadecimal: bool) -> str:
    """``0=3f;1=3f``: the canonical value of row ``resctrl.schemata``; masks are hexadecimal, bandwidths decimal."""
    return ";".join(f"{domain}={settings[domain]:{'x' if hexadecimal else 'd'}}" for domain in sorted(settings))


def groups(root: Path) -> list[str]:
    """The control groups below the root group, by name; [] without a mount."""
    return sorted(path.name for path in _directories(root) if path.name not in _RESERVED and (path / "tasks").exists())


def is_group_name(name: str) -> bool:
    """May a control group be called so? What the kernel keeps there itself, a path and a hidden name may not."""
    return _GROUP_NAME.fullmatch(name) is not None and name not in _RESERVED


def tasks_file(root: Path, group: str = "") -> Path:
    """The file that lists the tasks of control group ``group``, and takes them, one id per write."""
    return root / group / "tasks"


def tasks(root: Path, group: str = "") -> frozenset[int] | None:
    """The thread ids in control group ``group``, those of its monitoring groups included; None without such a group."""
    file = tasks_file(root, group)
    text = read_text(file)
    return None if text is None else parse_tasks(text, str(file))


def parse_tasks(text: str | bytes, file: str) -> frozenset[int]:
    """One thread id per line. A 0 stands for a thread that this process cannot see, and is left out."""
    try:
        return frozenset(map(int, text.split())) - {0}
    except ValueError:
        lines = text.decode("ascii", "replace") if isinstance(text, bytes) else text
        return frozenset(readable(file, lines.splitlines(), int)) - {0}


def mon_groups(root: Path, group: str = "") -> list[str]:
    """The monitoring groups of control group ``group``."""
    return sorted(path.name for path in _directories(root / group / "mon_groups"))


def counters(root: Path, group: str = "", mon_group: str = "") -> list[Counter]:
    """The monitoring files of ``group``, or of one of its ``mon_group``s; [] where this CPU counts nothing."""
    base = root / group / "mon_groups" / mon_group if mon_group else root / group
    return list(_counters(base / "mon_data"))


def _counters(mon_data: Path) -> Iterator[Counter]:
    for directory in _directories(mon_data):
        named = _DOMAIN.fullmatch(directory.name)
        if named is not None:
            for feature in (LLC_OCCUPANCY, MBM_LOCAL, MBM_TOTAL):
                if (directory / feature).exists():
                    yield Counter(named.group(1), int(named.group(2)), feature, directory / feature)


def parse_counter(text: str | bytes, file: str) -> int | None:
    """Bytes; None while the hardware cannot say (``Error``, ``Unavailable``, or an unassigned counter)."""
    word = (text.decode("ascii", "replace") if isinstance(text, bytes) else text).strip()
    if word in _ABSENT:
        return None
    try:
        return int(word)
    except ValueError as error:
        raise ParseError(file, text, error) from error


def last_status(root: Path) -> str:
    """Why the kernel refused the last write ("ok" if it did not); "" if it does not say."""
    return read_text(root / "info/last_cmd_status") or ""


def cache_mask(cache: CacheInfo, start_percent: int, end_percent: int) -> int:
    """The contiguous mask of ways ``ceil(ways·start/100)`` to ``ceil(ways·end/100)``.

    Grown to ``min_cbm_bits`` where the range is too narrow for the kernel, upwards as long as there is room. Raises
    ValueError unless ``0 <= start < end <= 100``, and for a cache whose ways are not numbered from 0 without a gap.
    """
    if cache.cbm_mask <= 0 or cache.cbm_mask & (cache.cbm_mask + 1):
        raise ValueError(f"cbm_mask {cache.cbm_mask:x} is not a row of ways from the lowest bit on")
    if not 0 <= start_percent < end_percent <= 100:
        raise ValueError(f"cache range {start_percent}..{end_percent} is not within 0..100 or is empty")
    ways = cache.ways
    first = -(-ways * start_percent // 100)
    last = max(-(-ways * end_percent // 100), first + cache.min_cbm_bits)
    if last > ways:
        first, last = max(ways - max(last - first, cache.min_cbm_bits), 0), ways
    return (1 << last) - (1 << first)


def bandwidth(percent: int, limits: BandwidthInfo, vendor: str) -> int:
    """The MB setting of ``percent`` (1..100, else ValueError). Where settings are MB/s there is none: ValueError.

    AMD counts 1/8 GB/s (100 % = unlimited, else 160 · percent / 100); all others percent, rounded up to the step.
    """
    if not 1 <= percent <= 100:
        raise ValueError(f"memory bandwidth {percent} % is not in 1..100")
    if limits.in_mbps:
        raise ValueError(f"memory bandwidth {percent} %: resctrl is mounted with mba_MBps, so settings are MB/s")
    if vendor == "AuthenticAMD":
        return AMD_UNLIMITED_MB if percent == 100 else max(_AMD_MB_AT_100_PERCENT * percent // 100, limits.minimum)
    step = max(limits.step, 1)
    return max(min(-(-percent // step) * step, 100), limits.minimum)


def _directories(parent: Path) -> list[Path]:
    try:
        return sorted(path for path in parent.iterdir() if path.is_dir())
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise ReadError(error.errno, f"cannot list: {error.strerror}", str(parent)) from error

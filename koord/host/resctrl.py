"""The reading side of resctrl (Documentation/filesystems/resctrl.rst): its groups, their tasks and their counters.

Control groups are directories with ``schemata``; ``mon_groups`` below them only count. Domains are found by the
pattern of their directories' names, so cache ids may have gaps and there may be other resources than L3. Counters
that say ``Error`` or ``Unavailable`` are absent for now (None). Everything ends in a newline. A mount that is absent
has no groups and no counters, which is no error; a text of unknown form is a ParseError.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from koord.host.cgroup import ReadError, read_text
from koord.host.kernelfile import ParseError, readable

_RESERVED = frozenset({"info", "mon_groups", "mon_data"})
_DOMAIN = re.compile(r"mon_(L[0-9]+(?:CODE|DATA)?)_([0-9]+)", re.ASCII)
_ABSENT = frozenset({"Error", "Unavailable", "Unassigned"})
LLC_OCCUPANCY, MBM_TOTAL, MBM_LOCAL = "llc_occupancy", "mbm_total_bytes", "mbm_local_bytes"


@dataclass(frozen=True, slots=True)
class MonitoringFile:
    """One monitoring file: ``resource`` and ``domain`` of the directory, ``feature`` of the file; bytes."""

    resource: str
    domain: int
    feature: str
    path: Path


def l3_mask(root: Path) -> int:
    """Returns the ways of the L3 cache that groups can have, as a mask; 0 without a mount or without such ways."""
    file = root / "info/L3/cbm_mask"
    mask = read_text(file) if (root / "schemata").is_file() else None
    if mask is None:
        return 0
    try:
        return int(mask, 16)
    except ValueError as error:
        raise ParseError(str(file), mask, error) from error


def is_in_mbps(mountinfo: str) -> bool:
    """Is resctrl mounted so that bandwidths are MB/s?"""
    mounts = (line.partition(" - ")[2].split() for line in mountinfo.splitlines())
    return any(words[0] == "resctrl" and "mba_MBps" in words[2].split(",") for words in mounts if len(words) > 2)


def groups(root: Path) -> list[str]:
    """The control groups below the root group, by name; [] without a mount."""
    return sorted(path.name for path in _directories(root) if path.name not in _RESERVED and (path / "tasks").exists())


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


def counters(root: Path, group: str = "", mon_group: str = "") -> list[MonitoringFile]:
    """The monitoring files of ``group``, or of one of its ``mon_group``s; [] where this CPU counts nothing."""
    base = root / group / "mon_groups" / mon_group if mon_group else root / group
    return list(_counters(base / "mon_data"))


def _counters(mon_data: Path) -> Iterator[MonitoringFile]:
    for directory in _directories(mon_data):
        named = _DOMAIN.fullmatch(directory.name)
        if named is not None:
            for feature in (LLC_OCCUPANCY, MBM_LOCAL, MBM_TOTAL):
                if (directory / feature).exists():
                    yield MonitoringFile(named.group(1), int(named.group(2)), feature, directory / feature)


def parse_counter(text: str | bytes, file: str) -> int | None:
    """Returns bytes; None while the hardware cannot tell (``Error``, ``Unavailable``, or an unassigned counter)."""
    word = (text.decode("ascii", "replace") if isinstance(text, bytes) else text).strip()
    if word in _ABSENT:
        return None
    try:
        return int(word)
    except ValueError as error:
        raise ParseError(file, text, error) from error


def last_status(root: Path) -> str:
    """Returns why the kernel refused the last write ("ok" if it did not); "" if it does not tell."""
    return read_text(root / "info/last_cmd_status") or ""


def _directories(parent: Path) -> list[Path]:
    try:
        return sorted(path for path in parent.iterdir() if path.is_dir())
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise ReadError(error.errno, f"cannot list: {error.strerror}", str(parent)) from error

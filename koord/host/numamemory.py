"""The memory of each NUMA node, and how much of it huge pages reserve.

Source: Documentation/ABI/stable/sysfs-devices-node, Documentation/admin-guide/mm/hugetlbpage.rst. Numbers may have
gaps, and a node without memory has 0 bytes; a kernel without NUMA has node 0, which is the machine. Memory comes and
goes by hotplug, huge pages by a sysctl, both seldom. Fails with ReadError or ParseError.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from koord.host import proc
from koord.host.cgroup import read_number, read_text
from koord.host.topology import children

_NODE = re.compile(r"node([0-9]+)", re.ASCII)
_SIZE = re.compile(r"hugepages-([0-9]+)kB", re.ASCII)


@dataclass(frozen=True, slots=True)
class NUMAMemory:
    """One NUMA node. ``huge_bytes``: the bytes in huge pages, by the size of such a page in bytes."""

    node: int
    total_bytes: int
    huge_bytes: Mapping[int, int]

    @property
    def plain_bytes(self) -> int:
        """The bytes without huge pages, which pods request as another resource."""
        return max(0, self.total_bytes - sum(self.huge_bytes.values()))


def read(sys: Path, proc_root: Path) -> tuple[NUMAMemory, ...]:
    """The memory below ``sys`` (``/sys``) by node, ascending; ``proc_root`` (``/proc``) tells it without NUMA."""
    nodes = _numbered(sys / "devices/system/node", _NODE)
    if not nodes:
        return (NUMAMemory(0, _total_bytes(proc_root / "meminfo"), _huge_bytes(sys / "kernel/mm/hugepages")),)
    return tuple(
        NUMAMemory(number, _total_bytes(path / "meminfo"), _huge_bytes(path / "hugepages"))
        for number, path in nodes.items()
    )


def _total_bytes(meminfo: Path) -> int:
    text = read_text(meminfo)
    return 0 if text is None else proc.meminfo_bytes(text.encode(), b"MemTotal", str(meminfo))


def _huge_bytes(directory: Path) -> Mapping[int, int]:
    sizes = {kilobytes << 10: path for kilobytes, path in _numbered(directory, _SIZE).items()}
    return {size: size * read_number(path / "nr_hugepages", 0) for size, path in sizes.items()}


def _numbered(directory: Path, named: re.Pattern[str]) -> Mapping[int, Path]:
    """The entries whose names match, ascending by the number in them."""
    found = {int(match.group(1)): path for path in children(directory, named) if (match := named.fullmatch(path.name))}
    return {number: found[number] for number in sorted(found)}

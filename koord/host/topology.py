"""Which CPUs share a core, a last-level cache, a socket, a memory node: read from sysfs, never from a tool's output.

Source: Documentation/ABI/stable/sysfs-devices-system-cpu and -node. Numbers may have gaps everywhere: CPUs go offline,
memory nodes may lack CPUs (CXL) or memory. Invariant: a Topology is immutable, holds online CPUs only, in ascending
order, and two that are equal describe the same machine. A CPU that goes offline while it is read counts as offline.
Fails with ReadError or ParseError if not even the list of online CPUs is there.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from koord.host.cgroup import ReadError, read_number, read_text
from koord.host.kernelfile import ParseError
from koord.model import cpuset
from koord.model.cpuset import CPUSet

NO_L3 = -1
_NODE = re.compile(r"node([0-9]+)", re.ASCII)
_INDEX = re.compile(r"index[0-9]+", re.ASCII)


@dataclass(frozen=True, slots=True)
class CPU:
    """One online logical CPU.

    ``core`` is unique on the whole machine: the lowest online CPU of that core. ``l3`` is the kernel's id of the L3
    cache (resctrl's domain), where it gives none the lowest CPU that shares the cache, and NO_L3 without one.
    """

    id: int
    core: int
    socket: int
    node: int
    l3: int


@dataclass(frozen=True, slots=True)
class MemoryNode:
    """One NUMA node: its online CPUs (perhaps none), and whether it has memory."""

    id: int
    cpus: CPUSet
    has_memory: bool


@dataclass(frozen=True)
class Topology:
    """The machine's CPUs and memory nodes, each ascending by id. ``offline``: CPUs present but switched off."""

    cpus: tuple[CPU, ...] = ()
    nodes: tuple[MemoryNode, ...] = ()
    offline: CPUSet = cpuset.EMPTY

    @cached_property
    def online(self) -> CPUSet:
        return CPUSet.of(cpu.id for cpu in self.cpus)

    @cached_property
    def by_id(self) -> Mapping[int, CPU]:
        return {cpu.id: cpu for cpu in self.cpus}

    @cached_property
    def cores(self) -> Mapping[int, CPUSet]:
        """The online CPUs of each core, by the core's id."""
        found: dict[int, CPUSet] = {}
        for cpu in self.cpus:
            found[cpu.core] = found.get(cpu.core, cpuset.EMPTY) | CPUSet.of((cpu.id,))
        return found

    @cached_property
    def smt(self) -> bool:
        """Does any core run more than one CPU?"""
        return len(self.cores) < len(self.cpus)


def read(sys: Path) -> Topology:
    """The topology below ``sys`` (``/sys``)."""
    cpu_root, node_root = sys / "devices/system/cpu", sys / "devices/system/node"
    online = _list(cpu_root / "online")
    if not online:
        raise ParseError(str(cpu_root / "online"), "", "names no CPU")
    present = _list(cpu_root / "present") or online
    members = _memory_nodes(node_root)
    node_of = {cpu: node for node, cpus in members.items() for cpu in cpus}
    cpus = [_cpu(cpu_root / f"cpu{cpu}", cpu, node_of.get(cpu, 0)) for cpu in online]
    alive = _list(cpu_root / "online") or online
    kept = tuple(cpu for cpu in cpus if cpu.id in alive)
    return Topology(kept, _nodes(node_root, members, CPUSet.of(cpu.id for cpu in kept)), present - alive)


def _cpu(directory: Path, cpu: int, node: int) -> CPU:
    topology = directory / "topology"
    siblings = _list(topology / "core_cpus_list") or _list(topology / "thread_siblings_list")
    socket = max(read_number(topology / "physical_package_id", 0), 0)
    return CPU(cpu, min(siblings, default=cpu), socket, node, _l3(directory / "cache"))


def _l3(cache: Path) -> int:
    for index in children(cache, _INDEX):
        if read_text(index / "level") == "3":
            shared = min(_list(index / "shared_cpu_list"), default=NO_L3)
            return read_number(index / "id", shared)
    return NO_L3


def _memory_nodes(root: Path) -> dict[int, CPUSet]:
    """The CPUs (also offline ones, as far as the kernel lists them) of each memory node; {} on a kernel without."""
    found = {int(path.name[4:]): _list(path / "cpulist") for path in children(root, _NODE)}
    return {node: found[node] for node in sorted(found)}


def _nodes(root: Path, members: Mapping[int, CPUSet], online: CPUSet) -> tuple[MemoryNode, ...]:
    if not members:
        return (MemoryNode(0, online, True),)
    with_memory = read_text(root / "has_memory") or read_text(root / "has_normal_memory")
    memory = CPUSet.of(members) if with_memory is None else _parse(root / "has_memory", with_memory)
    return tuple(MemoryNode(node, cpus & online, node in memory) for node, cpus in members.items())


def children(directory: Path, named: re.Pattern[str]) -> list[Path]:
    """The entries of ``directory`` whose names match, by name; none if there is no such directory."""
    try:
        return sorted(path for path in directory.iterdir() if named.fullmatch(path.name))
    except FileNotFoundError:
        return []
    except OSError as error:
        raise ReadError(error.errno, f"cannot list: {error.strerror}", str(directory)) from error


def _list(file: Path) -> CPUSet:
    """The CPU list in ``file``; empty if there is no such file."""
    text = read_text(file)
    return cpuset.EMPTY if text is None else _parse(file, text)


def _parse(file: Path, text: str) -> CPUSet:
    try:
        return cpuset.parse(text)
    except cpuset.CPUSetError as error:
        raise ParseError(str(file), text, error.why) from error

"""Which CPUs share a core, a last-level cache, a socket, a memory node: read from sysfs, never from a tool's output.

Source: Documentation/ABI/stable/sysfs-devices-system-cpu and -node. Numbers may have gaps everywhere: CPUs go offline,
memory nodes may lack CPUs (CXL) or memory. Invariant: a Topology is immutable, holds online CPUs only, in ascending
order, and two that are equal describe the same machine. A CPU that goes offline while it is read counts as offline.
What cannot be read is as if it were not there, and a problem: sockets, caches and memory nodes are optional, and which
CPUs are online other files tell as well. Fails with ParseError if none of them does.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from koord.host.cgroup import ReadError, read_text
from koord.host.kernelfile import ParseError
from koord.model import cpuset
from koord.model.cpuset import CPUSet

NO_L3 = -1
_NODE = re.compile(r"node([0-9]+)", re.ASCII)
_CPU = re.compile(r"cpu([0-9]+)", re.ASCII)
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
    """The machine's CPUs and memory nodes, each ascending by id. ``offline``: CPUs present but switched off.

    ``isolated``: online CPUs to which the kernel balances no load (``isolcpus``). ``problems``: what could not be read.
    """

    cpus: tuple[CPU, ...] = ()
    nodes: tuple[MemoryNode, ...] = ()
    offline: CPUSet = cpuset.EMPTY
    isolated: CPUSet = cpuset.EMPTY
    problems: tuple[str, ...] = field(default=(), compare=False)

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
    looked = _Reader()
    cpu_root, node_root = sys / "devices/system/cpu", sys / "devices/system/node"
    online = _online(cpu_root, looked)
    present = looked.cpus(cpu_root / "present") or online
    members = {int(path.name[4:]): looked.cpus(path / "cpulist") for path in looked.children(node_root, _NODE)}
    node_of = {cpu: node for node, cpus in members.items() for cpu in cpus}
    cpus = [_cpu(cpu_root / f"cpu{cpu}", cpu, node_of.get(cpu, 0), looked) for cpu in online]
    alive = looked.cpus(cpu_root / "online") or online
    kept = tuple(cpu for cpu in cpus if cpu.id in alive)
    still = CPUSet.of(cpu.id for cpu in kept)
    return Topology(
        kept,
        _nodes(node_root, {node: members[node] for node in sorted(members)}, still, looked),
        present - alive,
        looked.cpus(cpu_root / "isolated") & still,
        tuple(dict.fromkeys(looked.problems)),
    )


class _Reader:
    """Reads optional files: one that cannot be read is a problem, and counts as not there."""

    def __init__(self) -> None:
        self.problems: list[str] = []

    def text(self, file: Path) -> str | None:
        try:
            return read_text(file)
        except ReadError as error:
            self.problems.append(str(error))
            return None

    def cpus(self, file: Path) -> CPUSet:
        """The CPU list in ``file``; empty if there is none."""
        text = self.text(file)
        try:
            return cpuset.EMPTY if text is None else cpuset.parse(text)
        except cpuset.CPUSetError as error:
            self.problems.append(
                str(ParseError(str(file), error.text if isinstance(error.text, str) else "", error.why))
            )
            return cpuset.EMPTY

    def number(self, file: Path, missing: int) -> int:
        text = self.text(file)
        try:
            return missing if text is None else int(text)
        except ValueError as error:
            self.problems.append(str(ParseError(str(file), text or "", error)))
            return missing

    def children(self, directory: Path, named: re.Pattern[str]) -> list[Path]:
        try:
            return children(directory, named)
        except ReadError as error:
            self.problems.append(str(error))
            return []


def _online(root: Path, looked: _Reader) -> CPUSet:
    """Returns the CPUs that are online; where no list tells them, those that are present and not switched off."""
    online = looked.cpus(root / "online")
    if online:
        return online
    found = CPUSet.of(int(path.name[3:]) for path in looked.children(root, _CPU))
    present = looked.cpus(root / "present") or found
    if not present:
        raise ParseError(str(root / "online"), "", "names no CPU, nor does present, and there is no directory cpu0")
    looked.problems.append(f"{root}/online names no CPU: those that are present and not switched off count as online")
    return CPUSet.of(cpu for cpu in present if looked.text(root / f"cpu{cpu}/online") != "0")


def _cpu(directory: Path, cpu: int, node: int, looked: _Reader) -> CPU:
    topology = directory / "topology"
    siblings = looked.cpus(topology / "core_cpus_list") or looked.cpus(topology / "thread_siblings_list")
    socket = max(looked.number(topology / "physical_package_id", 0), 0)
    return CPU(cpu, min(siblings, default=cpu), socket, node, _l3(directory / "cache", looked))


def _l3(cache: Path, looked: _Reader) -> int:
    for index in looked.children(cache, _INDEX):
        if looked.text(index / "level") == "3":
            shared = min(looked.cpus(index / "shared_cpu_list"), default=NO_L3)
            return looked.number(index / "id", shared)
    return NO_L3


def _nodes(root: Path, members: Mapping[int, CPUSet], online: CPUSet, looked: _Reader) -> tuple[MemoryNode, ...]:
    """Returns the CPUs of each memory node, offline ones too, as far as the kernel lists them."""
    if not members:
        return (MemoryNode(0, online, True),)
    with_memory = looked.cpus(root / "has_memory") or looked.cpus(root / "has_normal_memory") or CPUSet.of(members)
    return tuple(MemoryNode(node, cpus & online, node in with_memory) for node, cpus in members.items())


def children(directory: Path, named: re.Pattern[str]) -> list[Path]:
    """The entries of ``directory`` whose names match, by name; none if there is no such directory."""
    try:
        return sorted(path for path in directory.iterdir() if named.fullmatch(path.name))
    except FileNotFoundError:
        return []
    except OSError as error:
        raise ReadError(error.errno, f"cannot list: {error.strerror}", str(directory)) from error

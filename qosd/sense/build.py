"""The collectors of a node, in the order in which they need each other's samples."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from koord.host.cgroup import Tree
from koord.host.reader import KeptFiles
from qosd.sense.besteffort import BestEffort
from qosd.sense.cycles import Counters, Cycles
from qosd.sense.devices import Disks, Network
from qosd.sense.groups import Groups
from qosd.sense.limits import Limits
from qosd.sense.meters import Clock
from qosd.sense.node import Node
from qosd.sense.pressure import NodePressure, Pressure
from qosd.sense.rdt import Resctrl
from qosd.sense.reclaim import Reclaim
from qosd.sense.runqueue import RunQueue
from qosd.sense.sampler import Sampler
from qosd.sense.stalls import Stalls
from qosd.sense.store import Store
from qosd.sense.system import System
from qosd.sense.table import PANELS
from qosd.sense.tick import Collector


@dataclass(frozen=True, slots=True)
class Host:
    """Where this node's files are and what its units are. ``cpus``: asked for the CPUs that are online now."""

    tree: Tree
    cpus: Callable[[], Sequence[int]]
    ticks_per_s: int
    page_bytes: int

    @property
    def proc(self) -> Path:
        return self.tree.proc

    @property
    def sys(self) -> Path:
        return self.tree.sys


@dataclass(frozen=True, slots=True)
class Sense:
    """All of sensing, put together. ``system`` names the pods that could not be read."""

    sampler: Sampler
    store: Store
    system: System


def standard(host: Host, files: KeptFiles, clock: Clock, system: System) -> tuple[Collector, ...]:
    """Every collector of the metric table; ``clock`` is monotonic nanoseconds."""
    tree = host.tree
    return (
        Node(files, clock, host.proc, host.sys, host.ticks_per_s),
        Groups(tree, files, clock),
        system,
        BestEffort(tree, files),
        NodePressure(files, clock, host.proc),
        Reclaim(files, clock, host.proc),
        Limits(tree, files),
        Pressure(tree, files, clock, host.proc),
        Stalls(tree, files, clock, host.proc),
        RunQueue(tree, files, clock, host.proc),
        Disks(files, clock, host.proc, host.sys),
        Network(files, clock, host.proc, host.sys),
        Resctrl(tree.resctrl, clock),
        Cycles(tree, Counters(host.cpus), clock),
    )


def build(host: Host, files: KeptFiles, clock: Clock, disabled: frozenset[str] = frozenset()) -> Sense:
    """All of sensing, without the collectors that are ``disabled`` by name."""
    store, system = Store(PANELS), System(host.tree, files, host.page_bytes)
    collectors = [one for one in standard(host, files, clock, system) if one.name not in disabled]
    return Sense(Sampler(collectors, store, clock), store, system)

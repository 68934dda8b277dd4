"""The host as collectors need it: the places of its files, their reader, the clock and the kernel's units."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from koord.host.cgroup import Tree
from koord.host.reader import KeptFiles

Clock = Callable[[], int]
"""Monotonic nanoseconds."""


@dataclass(frozen=True, slots=True)
class CollectorHost:
    """``cpus``: the CPUs that are online now; ``ticks_per_s`` is CLK_TCK."""

    tree: Tree
    files: KeptFiles
    clock: Clock
    cpus: Callable[[], Sequence[int]]
    ticks_per_s: int
    page_bytes: int

    @property
    def proc(self) -> Path:
        return self.tree.proc

    @property
    def sys(self) -> Path:
        return self.tree.sys

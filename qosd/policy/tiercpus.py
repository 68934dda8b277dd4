"""The CPUs that kubelet's BestEffort tier leaves to new containers, where they are fewer than those of the pods' root.

Koord gives a tier no CPU set, but another agent may have, or still do. On cgroup v1 the kernel refuses a CPU set that
is not within the parent's, so no container would start with more. A pod that was made below a narrow tier keeps these
CPUs when the tier has all again, until ``Leftovers`` widens it too: so the pods' own count, at the start and as long as
one of them is narrow. Two files are read at each tick, through kept descriptors. Invariant: an unreadable file bounds
no container.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from functools import reduce

from koord.host.cgroup import ReadError, Tree, effective_value
from koord.host.files import ROWS, Target
from koord.host.kernelfile import ParseError
from koord.host.order import CPUS
from koord.host.reader import KeptFiles
from koord.model import cpuset
from koord.model.cpuset import EMPTY, CPUSet
from koord.model.qos import KubeQoS

_FILES = 2


class TierCPUs:
    """The CPUs of tiers in ``tree``; for one thread at a time. Pods count in the first ``look_for_s`` seconds."""

    def __init__(self, tree: Tree, look_for_s: float) -> None:
        self._tree = tree
        self._look_for_ns = int(look_for_s * 1e9)
        self._files = KeptFiles(_FILES, lambda problem: None)
        self._is_anyone_narrow = True  # until the first look
        self._until_ns: int | None = None

    def close(self) -> None:
        self._files.close()

    def read(self, tiers: Mapping[KubeQoS, str], now_ns: int) -> str:
        """Returns the CPUs that new containers may have; "" = no bound: as many as all pods, or cgroup v2.

        ``now_ns`` of the monotonic clock.
        """
        if self._tree.version != 1 or not tiers:
            return ""
        if self._until_ns is None:
            self._until_ns = now_ns + self._look_for_ns
        cgroup = tiers[KubeQoS.BEST_EFFORT]
        tier, root = cpuset.parse(self._of(cgroup)), cpuset.parse(self._of(tiers[KubeQoS.GUARANTEED]))
        most = EMPTY if root <= tier else tier
        if self._is_anyone_narrow and not most:
            most = self._of_pods(cgroup, root) if now_ns <= self._until_ns else EMPTY
        self._is_anyone_narrow = bool(most)
        return str(most) if most else ""

    def _of_pods(self, tier: str, root: CPUSet) -> CPUSet:
        """Returns the CPUs that every narrow pod of the tier has; EMPTY: there is no such pod, or they share no CPU."""
        narrow = [cpus for cpus in self._pods(tier) if cpus and not root <= cpus]
        return reduce(CPUSet.__and__, narrow) if narrow else EMPTY

    def _pods(self, tier: str) -> Iterator[CPUSet]:
        try:
            with os.scandir(self._tree.directory(tier, "cpuset")) as entries:
                names = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
        except OSError:
            return
        for name in names:
            yield cpuset.parse(str(effective_value(self._tree, Target(f"{tier}/{name}", CPUS)) or ""))

    def _of(self, cgroup: str) -> str:
        path = self._tree.path(Target(cgroup, CPUS))
        try:
            text = None if path is None else self._files.read(str(path))
            return "" if text is None else str(ROWS[CPUS].parse(text.decode("ascii", "replace"), 1))
        except (ReadError, ParseError):
            return ""

"""The CPUs of kubelet's BestEffort tier, where they are fewer than those of the pods' root.

Koord gives a tier no CPU set, but another agent may have, or still do. On cgroup v1 the kernel refuses a CPU set that
is not within the parent's, so no container would start with more. Two files are read at each tick, through kept
descriptors. Invariant: what cannot be read bounds nobody.
"""

from __future__ import annotations

from collections.abc import Mapping

from koord.host.cgroup import ReadError, Tree
from koord.host.files import ROWS, Target
from koord.host.kernelfile import ParseError
from koord.host.order import CPUS
from koord.host.reader import KeptFiles
from koord.model import cpuset
from koord.model.qos import KubeQoS

_FILES = 2


class TierCPUs:
    """Of ``tree``; for one thread at a time."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._files = KeptFiles(_FILES, lambda problem: None)

    def close(self) -> None:
        self._files.close()

    def read(self, tiers: Mapping[KubeQoS, str]) -> str:
        """The tier's CPUs; "" = no fewer than all pods have, or the cgroup version lets a cgroup have more."""
        if self._tree.version != 1 or not tiers:
            return ""
        tier, root = self._of(tiers[KubeQoS.BEST_EFFORT]), self._of(tiers[KubeQoS.GUARANTEED])
        return tier if not cpuset.parse(root) <= cpuset.parse(tier) else ""

    def _of(self, cgroup: str) -> str:
        path = self._tree.path(Target(cgroup, CPUS))
        try:
            text = None if path is None else self._files.read(str(path))
            return "" if text is None else str(ROWS[CPUS].parse(text.decode("ascii", "replace"), 1))
        except (ReadError, ParseError):
            return ""

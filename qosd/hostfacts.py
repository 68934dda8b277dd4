"""What the hooks need to know of the host, looked up once per rules load.

Missing files are facts too: no resctrl mount means no groups, an unreadable /proc/meminfo means size unknown (0).
"""

from __future__ import annotations

import re
from pathlib import Path

from koord.host.cgroup import Tree
from qosd.hooks.rules import HostFacts

RESCTRL_CLASSES = ("LSR", "LS", "BE")
_GROUP_IDENTITY_FILE = "cpu.bvt_warp_ns"
_KUBE_ROOTS = ("kubepods.slice", "kubepods")


def look(tree: Tree, resctrl_root: Path, meminfo: str, page_bytes: int) -> HostFacts:
    """The facts of this host; ``meminfo`` is the text of /proc/meminfo."""
    return HostFacts(
        cgroup_version=tree.version,
        has_group_identity=_has_group_identity(tree),
        resctrl_groups=frozenset(name for name in RESCTRL_CLASSES if (resctrl_root / name / "schemata").is_file()),
        memory_total_bytes=memory_total_bytes(meminfo),
        page_bytes=page_bytes,
    )


def memory_total_bytes(meminfo: str) -> int:
    found = re.search(r"^MemTotal:\s+(\d+) kB$", meminfo, re.MULTILINE)
    return int(found.group(1)) * 1024 if found else 0


def _has_group_identity(tree: Tree) -> bool:
    """The file exists in every cgroup but the root, so any of kubelet's shows it."""
    directory = tree.root if tree.version == 2 else tree.controllers.get("cpu", tree.root / "cpu")
    return any((directory / root / _GROUP_IDENTITY_FILE).is_file() for root in _KUBE_ROOTS)

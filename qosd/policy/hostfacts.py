"""The facts of the host that hooks go by: looked up with each load of the rules file, and when one has changed.

Missing files are facts too: no resctrl mount means no resctrl groups, an unreadable /proc/meminfo means size unknown
(0).
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from koord.host import granted, support
from koord.host.cgroup import ReadError, Tree, read_text
from koord.host.files import ROWS, Target
from koord.host.support import Support
from koord.model import version
from qosd.model.policy import HostFacts

RESCTRL_CLASSES = ("LSR", "LS", "BE")
FEATURES = "sched_features"


def look(tree: Tree, tiers: Iterable[str], meminfo: str, page_bytes: int, has_task_slices: bool = False) -> HostFacts:
    """Returns the facts of this host; ``meminfo`` is the text of /proc/meminfo, ``tiers`` kubelet's cgroups."""
    cgroups = list(tiers)
    found = support.survey(tree, cgroups)
    present = frozenset(name for name, answer in found.items() if answer is Support.PRESENT)
    outside = frozenset(name for name in present if ROWS[name].system is not None)
    return HostFacts(
        cgroup_version=tree.version,
        resctrl_groups=frozenset(name for name in RESCTRL_CLASSES if has_resctrl_group(tree, name)),
        memory_total_bytes=memory_total_bytes(meminfo),
        page_bytes=page_bytes,
        files=present if any(map(tree.exists, cgroups)) else None,
        has_task_slices=has_task_slices,
        system_files=outside | _sched_features(tree),
        lacking=granted.lacking(tree),
        kernel=version.numbers(_kernel_release(tree)),
        swap_total_bytes=_in_bytes(meminfo, "SwapTotal"),
    )


def _sched_features(tree: Tree) -> frozenset[str]:
    """Returns a target's name for each feature of the scheduler that the kernel lists, be it on or off."""
    words = text_of(tree, Target("", FEATURES)).split()
    return frozenset(f"{FEATURES}@{word.removeprefix('NO_')}" for word in words)


def has_resctrl_group(tree: Tree, name: str) -> bool:
    return (tree.resctrl / name / "schemata").is_file()


def memory_total_bytes(meminfo: str) -> int:
    return _in_bytes(meminfo, "MemTotal")


def _in_bytes(meminfo: str, field: str) -> int:
    found = re.search(rf"^{field}:\s+(\d+) kB$", meminfo, re.MULTILINE)
    return int(found.group(1)) * 1024 if found else 0


def _kernel_release(tree: Tree) -> str:
    try:
        return read_text(tree.proc / "sys/kernel/osrelease") or ""
    except ReadError:
        return ""


def text_of(tree: Tree, target: Target) -> str:
    """Returns the content of ``target``; "" if it cannot be read."""
    file = tree.path(target)
    try:
        return "" if file is None else read_text(file) or ""
    except ReadError:
        return ""

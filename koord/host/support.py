"""Which kernel files this node has: looked for where they are used, each time anew.

Most optional files are missing in the root cgroup, kubelet's own cgroups may not be there yet, and the target's
controller may be switched on later. So nothing is remembered, and "not there yet" (UNKNOWN) is not "not supported".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum

from koord.host.cgroup import Tree
from koord.host.files import ROWS, KernelFile, Probe, Target, row


class Support(StrEnum):
    PRESENT = "present"
    ABSENT = "absent"
    """This kernel (too old, or the controller is off) lacks what mainline has."""
    VENDOR = "vendor"
    """Absent, because only vendor kernels have it on this cgroup version."""
    UNKNOWN = "unknown"
    """No directory exists yet in which the file could be."""
    OTHER_VERSION = "other version"
    """The other cgroup version has it."""


def of(tree: Tree, name: str, cgroups: Iterable[str]) -> Support:
    """Returns whether the file of row ``name`` is there in any of ``cgroups``, or else what is known of its absence.
    Raises UnknownRow.

    ``cgroups``: the one that is to be written where the row's probe is TARGET, else kubelet's tiers. They do not matter
    for a system file.
    """
    found = row(name)
    missing = Support.VENDOR if tree.version in found.vendor_on else Support.ABSENT
    if found.system is not None:
        path = tree.path(Target("", name))
        return Support.UNKNOWN if path is None else Support.PRESENT if path.exists() else missing
    answer = Support.UNKNOWN
    for cgroup in cgroups:
        path = tree.path(Target(cgroup, name))
        if path is None:
            return Support.OTHER_VERSION
        if path.exists():
            return Support.PRESENT
        if path.parent.is_dir():
            answer = missing
        elif tree.exists(cgroup):
            answer = Support.ABSENT  # the cgroup is there, the controller is not
    return answer


def survey(tree: Tree, kubelet_cgroups: Sequence[str]) -> Mapping[str, Support]:
    """Returns the support of every row whose probe is not ASSUMED, by name, for ``koordctl doctor``; io.cost.* is
    looked for in the root cgroup.

    A partition counts as there only where a remote one can be made: below kubelet's tree, whose cgroups are no
    partitions, no other can.
    """
    found = {
        one.name: of(tree, one.name, _cgroups_of(one, kubelet_cgroups))
        for one in ROWS.values()
        if one.probe is not Probe.ASSUMED and one.takes not in ("pid", "group/resource")
    }
    return {**found, "cpuset.cpus.partition": found["cpuset.cpus.exclusive"]}


def _cgroups_of(row: KernelFile, kubelet_cgroups: Sequence[str]) -> Sequence[str]:
    return ("/",) if row.name.startswith("io.cost.") else kubelet_cgroups

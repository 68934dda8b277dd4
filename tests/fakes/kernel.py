"""The kernel's refusals, modelled: which write to which group it accepts, and what the file holds afterwards.

Source: kernel/sched/core.c (tg_set_cfs_bandwidth, tg_cfs_schedulable_down) and fair.c (sched_group_set_idle),
kernel/cgroup/cpuset.c and cpuset-v1.c (validate_change), mm/memcontrol-v1.c (mem_cgroup_resize_max) of Linux 6.x;
kernel/sched/fair.c of Anolis OS 6.6 (sched_group_identity_enable_handler, update_bvt_warp_ns) for group identity.
That the model agrees with the kernel is tested in integration/host, but for what only vendor kernels have.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator, Mapping
from types import MappingProxyType

from koord.host.files import Target, Value
from koord.model import cpuset

PAGE_BYTES = 4096
MIN_US, MAX_PERIOD_US = 1_000, 1_000_000
NEW_GROUP: Mapping[str, Value] = MappingProxyType(
    {
        "cpu_quota": -1,
        "cpu_period": 100_000,
        "cpu.max.burst": 0,
        "cpu.idle": 0,
        "cpu_shares": 1024,
        "cpuset_cpus": "",
        "cpuset_mems": "",
        "memory_limit_in_bytes": -1,
        "memory_swap_limit_in_bytes": -1,
    }
)
"""What a group holds when it is made (cgroup.clone_children off)."""
CORE_SCHED = Target("", "kernel.sched_core")
GROUP_IDENTITY = Target("", "kernel.sched_group_identity_enabled")
IDENTITY = "cpu.bvt_warp_ns"
_BANDWIDTH = ("cpu_quota", "cpu_period", "cpu.max.burst")


class KernelModel:
    """A tree of ``groups`` (paths), below others that have all of ``cpus`` and ``mems`` and no limits.

    ``populated``: groups with processes; they count for the groups above them as well.
    """

    def __init__(
        self,
        version: int,
        groups: tuple[str, ...],
        cpus: str,
        mems: str,
        values: Mapping[Target, Value] = MappingProxyType({}),
        populated: frozenset[str] = frozenset(),
    ) -> None:
        self.version, self.groups, self._populated = version, groups, populated
        self._all = {"cpuset_cpus": cpuset.parse(cpus), "cpuset_mems": cpuset.parse(mems)}
        self._values = {Target(cgroup, name): value for cgroup in groups for name, value in NEW_GROUP.items()}
        self._values.update(values)

    def read(self, target: Target) -> Value:
        return self._values[target]

    def write(self, target: Target, value: Value) -> None:
        """Raises OSError with the kernel's errno, and changes nothing then."""
        if target.name in _BANDWIDTH:
            self._set_bandwidth(target, int(value))
        elif target.name in self._all:
            self._set_cpuset(target, cpuset.parse(str(value)))
        elif target.name == "cpu.idle":
            self._set_idle(target, int(value))
        elif target.name == "cpu_shares":
            self._set_shares(target, int(value))
        elif target in (CORE_SCHED, GROUP_IDENTITY):
            self._switch(target, int(value))
        elif target.name == IDENTITY:
            self._values[target] = value
        else:
            self._set_memory(target, int(value))

    def _switch(self, target: Target, value: int) -> None:
        """Only one of the two is on. A switch of group identity clears the identities of all cgroups."""
        other = CORE_SCHED if target == GROUP_IDENTITY else GROUP_IDENTITY
        if value and self._values.get(other):
            raise OSError(errno.EBUSY, f"{target} <- {value}")
        if target == GROUP_IDENTITY and value != self._values[target]:
            self._values.update({each: 0 for each in self._values if each.name == IDENTITY})
        self._values[target] = value

    def _set_bandwidth(self, target: Target, value: int) -> None:
        if target.name == "cpu_quota":
            value = max(value, -1)
        old = self._values[target]
        self._values[target] = value
        if not self._bandwidth_is_legal(target.cgroup):
            self._values[target] = old
            raise OSError(errno.EINVAL, f"{target} <- {value}")

    def _bandwidth_is_legal(self, cgroup: str) -> bool:
        quota, period, burst = (int(self._values[Target(cgroup, name)]) for name in _BANDWIDTH)
        if not MIN_US <= period <= MAX_PERIOD_US or burst < 0:
            return False
        if quota != -1 and (quota < MIN_US or burst > quota):
            return False
        return self.version == 2 or all(self._within_ancestors(below) for below in self.groups)

    def _within_ancestors(self, cgroup: str) -> bool:
        """Does a limited group have no higher ratio than its nearest limited ancestor?"""
        ratio = self.ratio(cgroup)
        above = (self.ratio(one) for one in ancestors(cgroup) if one in self.groups)
        nearest = next((known for known in above if known is not None), None)
        return ratio is None or nearest is None or ratio <= nearest

    def ratio(self, cgroup: str) -> int | None:
        """quota / period in 2^-20; None if unlimited."""
        quota, period = (int(self._values[Target(cgroup, name)]) for name in ("cpu_quota", "cpu_period"))
        return None if quota == -1 else (quota << 20) // period

    def _set_cpuset(self, target: Target, wanted: cpuset.CPUSet) -> None:
        if not wanted <= self._all[target.name]:
            raise OSError(errno.EINVAL, f"{target} <- {wanted}")
        held = self._cpus(target)
        if wanted == held:
            return
        if self.version == 1:
            children = (cgroup for cgroup in self.groups if parent(cgroup) == target.cgroup)
            if any(not self._cpus(Target(child, target.name)) <= wanted for child in children):
                raise OSError(errno.EBUSY, f"{target} <- {wanted}")
            above = parent(target.cgroup)
            if above in self.groups and not wanted <= self._cpus(Target(above, target.name)):
                raise OSError(errno.EACCES, f"{target} <- {wanted}")
        if held and not wanted and self._is_populated(target.cgroup):
            raise OSError(errno.ENOSPC, f"{target} <- {wanted}")
        self._values[target] = str(wanted)

    def _cpus(self, target: Target) -> cpuset.CPUSet:
        return cpuset.parse(str(self._values[target]))

    def _is_populated(self, cgroup: str) -> bool:
        return any(one == cgroup or cgroup in ancestors(one) for one in self._populated)

    def _set_idle(self, target: Target, value: int) -> None:
        if value not in (0, 1):
            raise OSError(errno.EINVAL, f"{target} <- {value}")
        if value != self._values[target]:
            self._values[target] = value
            self._values[Target(target.cgroup, "cpu_shares")] = 3 if value else 1024

    def _set_shares(self, target: Target, value: int) -> None:
        if self._values[Target(target.cgroup, "cpu.idle")] == 1:
            raise OSError(errno.EINVAL, f"{target} <- {value}")
        self._values[target] = max(2, min(262_144, value))

    def _set_memory(self, target: Target, value: int) -> None:
        size = value if value == -1 else value // PAGE_BYTES * PAGE_BYTES
        sizes = {name: self._values[Target(target.cgroup, name)] for name in NEW_GROUP if name.startswith("memory")}
        sizes[target.name] = size
        limit, with_swap = (_unlimited(sizes[f"memory{swap}_limit_in_bytes"]) for swap in ("", "_swap"))
        if limit > with_swap:
            raise OSError(errno.EINVAL, f"{target} <- {value}")
        self._values[target] = size


class ProtectionModel:
    """The effective ``memory.min``, or ``memory.low``, of a tree, ``values`` by cgroup: each at most its parent's.

    Source: mm/page_counter.c (effective_protection) of Linux 6.x, without the share that siblings have to divide.
    """

    def __init__(self, values: Mapping[str, int]) -> None:
        self.values = dict(values)

    def protected(self, cgroup: str) -> int:
        return min(self.values[one] for one in (cgroup, *ancestors(cgroup)) if one in self.values)


def parent(cgroup: str) -> str:
    """The group above; "" for one right below the root."""
    return cgroup.rpartition("/")[0]


def ancestors(cgroup: str) -> Iterator[str]:
    """The groups above, nearest first, without the root."""
    while cgroup := parent(cgroup):
        yield cgroup


def _unlimited(value: Value) -> float:
    return float("inf") if value == -1 else float(value)

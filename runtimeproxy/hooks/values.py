"""Knows the values that a runtime (containerd or CRI-O, with runc or crun) or the kernel under it takes.

The bounds are the kernel's (sched_group_set_shares, tg_set_cfs_bandwidth, MAX_ARG_STRLEN), those of the OCI runtime
specification, and runc's. What depends on the node or on the pod (which CPUs there are, whether it has cgroup v2, a
quota above the parent's, swap below memory) is not checked. In CRI 0 and "" mean "not set", in an update "leave alone",
so they are always taken. Invariant: a value that is refused here would fail the pod's start, or mean something else to
another runtime.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from koord.model import cpuset
from koord.model.cfs import MAX_PERIOD_US, MAX_SHARES, MIN_QUOTA_US, MIN_SHARES, UNLIMITED
from runtimeproxy.hooks.edits import CPUSETS, ENVS, HUGEPAGE_LIMITS, RESOURCE_INTS, UNIFIED, Slot, Value

NOT_SET = 0
MIN_PERIOD_US = 1_000
MAX_QUOTA_US = (1 << 44) - 1
MIN_MEMORY_BYTES = 3 << 20  # runc's first process, which is charged to the container, needs 2.4 to 2.8 MB
INT64_MAX = (1 << 63) - 1
MAX_VARIABLE_BYTES = 128 * 1024 - 2  # of name and value: "=" and NUL count as well
_MEMORY = range(MIN_MEMORY_BYTES, INT64_MAX + 1)
_INTEGERS: Mapping[str, tuple[range, bool]] = {  # and whether -1 stands for "no limit"
    "cpu_period": (range(MIN_PERIOD_US, MAX_PERIOD_US + 1), False),
    "cpu_quota": (range(MIN_QUOTA_US, MAX_QUOTA_US + 1), True),
    "cpu_shares": (range(MIN_SHARES, MAX_SHARES + 1), False),
    "memory_limit_in_bytes": (_MEMORY, True),
    "memory_swap_limit_in_bytes": (_MEMORY, True),
    "oom_score_adj": (range(-1000, 1000 + 1), False),
}
_CPU_LIST = re.compile(r"[0-9,-]*", re.ASCII)  # no strides and blanks: systemd's cgroup driver cannot read them
_PAGE_SIZE = re.compile(r"[1-9][0-9]{0,8}[KMG]B", re.ASCII)
_CGROUP_FILE = re.compile(r"[a-z0-9_]+\.[A-Za-z0-9_.-]+", re.ASCII)  # controller and parameter


def acceptable(slot: Slot, value: Value) -> bool:
    """Returns whether a runtime takes this value for this field. ``value``: None deletes a map's entry."""
    if slot.field in RESOURCE_INTS:
        return _is_integer_of(slot.field, value)
    if slot.field in CPUSETS:
        return isinstance(value, str) and _is_cpu_list(value)
    if slot.field == ENVS:
        return _is_variable(slot.key, value)
    if slot.field == HUGEPAGE_LIMITS:
        return _PAGE_SIZE.fullmatch(slot.key) is not None and isinstance(value, int) and value >= 0
    if slot.field == UNIFIED:
        return value is None or (_CGROUP_FILE.fullmatch(slot.key) is not None and "\0" not in str(value))
    return True


def _is_integer_of(field: str, value: Value) -> bool:
    if not isinstance(value, int):
        return False
    bounds, unlimited = _INTEGERS[field]
    return value == NOT_SET or (value == UNLIMITED and unlimited) or value in bounds


def _is_cpu_list(text: str) -> bool:
    try:
        cpuset.parse(text)
    except cpuset.CPUSetError:
        return False
    return _CPU_LIST.fullmatch(text) is not None


def _is_variable(name: str, value: Value) -> bool:
    if not name or "=" in name or "\0" in name:
        return False
    if value is None:
        return True
    size = len(name.encode("utf-8", "surrogateescape")) + (len(value) if isinstance(value, bytes) else 0)
    return isinstance(value, bytes) and b"\0" not in value and size <= MAX_VARIABLE_BYTES

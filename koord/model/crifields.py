"""The resource fields of CRI that hooks may edit, one row each: the only place that knows what their values mean.

A row is named as CRI's LinuxContainerResources names the field; so do the hook protocol and the table of kernel files.
``path`` is the place in ``linux.resources`` of an OCI specification, which NRI's LinuxResources mirrors. In all of them
0 and "" (an absent key, an absent message) request nothing, and an update leaves alone what is there. CRI's limit of
swap has no row, because a runtime makes it of that of memory, nor has what is no file of a cgroup. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Self

from koord.model import cpuset
from koord.model.cfs import MAX_SHARES, MIN_SHARES, PERIOD_US, UNLIMITED
from koord.model.lattice import Value


class Field(StrEnum):
    """What a hook may edit. The two without a path are maps, of which each key is edited for itself.

    ``kind``: a number, or the text of a CPU set (of memory nodes, too). ``nothing``: what the kernel's file holds where
    nothing is requested; None: what a new cgroup holds, in which nodes differ. ``bounds``: how far runtimes take it.
    """

    CPU_SHARES = "cpu_shares", int, ("cpu", "shares"), None, (MIN_SHARES, MAX_SHARES)
    CPU_QUOTA = "cpu_quota", int, ("cpu", "quota"), UNLIMITED  # us per cpu_period; -1 = no limit
    CPU_PERIOD = "cpu_period", int, ("cpu", "period"), PERIOD_US  # us
    MEMORY_LIMIT = "memory_limit_in_bytes", int, ("memory", "limit"), UNLIMITED  # -1 = no limit
    CPUSET_CPUS = "cpuset_cpus", str, ("cpu", "cpus"), ""  # "" = the parent's
    CPUSET_MEMS = "cpuset_mems", str, ("cpu", "mems"), ""
    UNIFIED = "unified", str  # keyed by the cgroup v2 file
    ANNOTATION = "annotation", str  # keyed

    _value_: str
    kind: type[int] | type[str]
    path: tuple[str, ...]
    nothing: Value | None
    bounds: tuple[int, int] | None
    is_cpuset: bool

    def __new__(
        cls,
        name: str,
        kind: type[int] | type[str],
        path: tuple[str, ...] = (),
        nothing: Value | None = None,
        bounds: tuple[int, int] | None = None,
    ) -> Self:
        field = str.__new__(cls, name)
        field._value_, field.kind, field.path, field.nothing, field.bounds = name, kind, path, nothing, bounds
        field.is_cpuset = bool(path) and kind is str
        return field

    def put(self, message: object, value: Value) -> None:
        """Set it in a LinuxContainerResources of CRI's or the hook protocol's, an explicit 0 or "" included."""
        setattr(message, self, self.kind(value))

    def kernel_value(self, requested: Value | None) -> Value | None:
        """Returns the value of the kernel's file by ``requested``: ``nothing`` by nothing. Raises CPUSetError."""
        if not requested:
            return self.nothing
        if self.is_cpuset:
            return str(cpuset.parse(str(requested)))
        number = int(requested)
        if number < 0:
            return self.nothing
        return number if self.bounds is None else max(self.bounds[0], min(self.bounds[1], number))

    def same(self, value: Value | None, other: Value | None) -> bool:
        """Returns whether both mean the same. A set can be spelled in more than one way."""
        if value == other or not self.is_cpuset:
            return value == other
        try:
            return cpuset.parse(str(value)) == cpuset.parse(str(other))
        except cpuset.CPUSetError:
            return False


SCALARS = tuple(field for field in Field if field.path)
NUMBERS = tuple(field for field in SCALARS if not field.is_cpuset)
CPUSETS = tuple(field for field in SCALARS if field.is_cpuset)
BY_NAME: Mapping[str, Field] = {field.value: field for field in SCALARS}

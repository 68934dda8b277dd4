"""What systemd keeps of a cgroup's values: the unit that has the cgroup, and the properties that stand for its files.

systemd writes all that it knows of a unit to the unit's cgroup again whenever one property of the unit is set (by
kubelet, the runtime, an operator), and for every unit on ``daemon-reload`` and ``daemon-reexec``. A value that was
written without systemd is lost then, so Koord tells systemd as well. Two kinds of files survive without that: systemd
does not know ``cpu.max.burst``, and touches single devices in ``io.max`` only if it was told of one.
``memory.oom.group`` does not survive, and systemd cannot be told: it makes the file 0 for every unit without
``OOMPolicy=kill``, and slices (with systemd 252 scopes, too) cannot have that.

Pure. Invariant: of a cgroup that systemd does not own (below a container's own, say) nothing is told. Source of the
properties: org.freedesktop.systemd1(5) and systemd.resource-control(5).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from koord.host.files import Value
from koord.host.weights import Weights
from koord.model import cpuset
from koord.model.cfs import PERIOD_US, UNLIMITED
from koord.model.slices import SLICE, expand_slice

INFINITY = (1 << 64) - 1
ALWAYS_WRITTEN = "memory.oom.group"
"""The row that systemd writes along with any property of a unit, though no property stands for it."""
IDLE_WEIGHT = 0
"""``CPUWeight=idle``, of systemd 252 and newer: a systemd that was not told it clears ``cpu.idle``."""
PERIOD_PROPERTY = "CPUQuotaPeriodUSec"
"""Of systemd 242 and newer: older ones give every quota a period of 100 ms."""
_LEAVES = (".scope", ".service")
_PER_S_US = 1_000_000
_PERCENT_US = 10_000


@dataclass(frozen=True, slots=True)
class Setting:
    """One property: its name and type on the bus, and ``directive``, its name in the unit's drop-in file."""

    name: str
    signature: str
    value: int | bytes
    directive: str

    def __str__(self) -> str:
        shown = self.value.hex() if isinstance(self.value, bytes) else self.value
        return f"{self.name}={'infinity' if shown == INFINITY else shown}"


Values = Mapping[str, Value]
"""What a cgroup's files hold now, by row."""
_Setter = Callable[[Values, Weights], tuple[Setting, ...]]


def unit_of(cgroup: str) -> str:
    """Returns the name of the unit that has ``cgroup``; "" if no unit of this host's systemd has it."""
    path = "/" + cgroup.strip("/")
    above, _, name = path.rpartition("/")
    if name.startswith("_"):  # how systemd escapes a name that the kernel would take for a file
        return ""
    if name.endswith(SLICE):
        return name if expand_slice(name) == path else ""
    parent = above.rpartition("/")[2]
    in_slice = not above or (parent.endswith(SLICE) and expand_slice(parent) == above)
    return name if name.endswith(_LEAVES) and in_slice else ""


def without_period(settings: tuple[Setting, ...]) -> tuple[Setting, ...]:
    """Returns the properties for a systemd that does not know the period of quotas; () where it would give the quota
    another period."""
    if any(each.name == PERIOD_PROPERTY and each.value != PERIOD_US for each in settings):
        return ()
    return tuple(each for each in settings if each.name != PERIOD_PROPERTY)


def keeps(row: str, version: int) -> bool:
    """Does systemd keep the value of this row, on this cgroup version?"""
    return row in _SETTERS[version]


def undoes(row: str, cgroup: str, value: Value) -> bool:
    """Returns whether systemd writes ``value`` to a file of ``cgroup`` of which it cannot be told."""
    return row == ALWAYS_WRITTEN and value == 0 and bool(unit_of(cgroup))


def rows_with(row: str, version: int) -> tuple[str, ...]:
    """The rows whose values make up the property of ``row``, itself included."""
    return next((together for together in _TOGETHER if row in together), (row,)) if keeps(row, version) else ()


def settings(values: Values, version: int, weights: Weights) -> tuple[Setting, ...]:
    """Returns the properties that stand for ``values``; rows that systemd does not keep are left out.

    ``weights``: the mapping by which shares stand for ``cpu.weight``.
    """
    setters = dict.fromkeys(setter for row, setter in _SETTERS[version].items() if row in values)
    return tuple(setting for setter in setters for setting in setter(values, weights))


def kept_quota_us(quota_us: int, period_us: int) -> int:
    """Returns the quota that systemd writes for ``quota_us``: it keeps whole percents of a CPU, here rounded up as by
    the runtimes."""
    if quota_us == UNLIMITED:
        return UNLIMITED
    return _per_second_us(quota_us, period_us) * period_us // _PER_S_US


def _per_second_us(quota_us: int, period_us: int) -> int:
    """Returns a quota as systemd wants it, in whole percents: its drop-in files have no fractions, and lose quotas
    below 1 %."""
    return -(-quota_us * _PER_S_US // (period_us * _PERCENT_US)) * _PERCENT_US


def _weight(values: Values, weights: Weights) -> tuple[Setting, ...]:
    if values.get("cpu.idle") == 1:
        return (Setting("CPUWeight", "t", IDLE_WEIGHT, "CPUWeight"),)
    if "cpu_shares" not in values:
        return ()
    return (Setting("CPUWeight", "t", weights.weight(int(values["cpu_shares"])), "CPUWeight"),)


def _shares(values: Values, _weights: Weights) -> tuple[Setting, ...]:
    if "cpu_shares" not in values or values.get("cpu.idle") == 1:
        return ()
    return (Setting("CPUShares", "t", int(values["cpu_shares"]), "CPUShares"),)


def _quota(values: Values, _weights: Weights) -> tuple[Setting, ...]:
    if "cpu_quota" not in values or "cpu_period" not in values:
        return ()
    quota_us, period_us = int(values["cpu_quota"]), int(values["cpu_period"])
    per_second_us = INFINITY if quota_us == UNLIMITED else _per_second_us(quota_us, period_us)
    return (
        Setting("CPUQuotaPerSecUSec", "t", per_second_us, "CPUQuota"),
        Setting(PERIOD_PROPERTY, "t", period_us, "CPUQuotaPeriodSec"),
    )


def _cpus(row: str, name: str) -> _Setter:
    def setter(values: Values, _weights: Weights) -> tuple[Setting, ...]:
        mask = cpuset.parse(str(values[row])).mask
        return (Setting(name, "ay", mask.to_bytes((mask.bit_length() + 7) // 8, "little"), name),)

    return setter


def _number(row: str, name: str) -> _Setter:
    def setter(values: Values, _weights: Weights) -> tuple[Setting, ...]:
        value = values[row]
        return (Setting(name, "t", INFINITY if value == UNLIMITED else int(value), name),)

    return setter


_TOGETHER = (("cpu.idle", "cpu_shares"), ("cpu_quota", "cpu_period"))
_SETTERS: Mapping[int, Mapping[str, _Setter]] = {
    1: {
        "cpu.idle": _shares,
        "cpu_shares": _shares,
        "cpu_quota": _quota,
        "cpu_period": _quota,
        "memory_limit_in_bytes": _number("memory_limit_in_bytes", "MemoryLimit"),
        "pids.max": _number("pids.max", "TasksMax"),
    },
    2: {
        "cpu.idle": _weight,
        "cpu_shares": _weight,
        "cpu_quota": _quota,
        "cpu_period": _quota,
        "cpuset_cpus": _cpus("cpuset_cpus", "AllowedCPUs"),
        "cpuset_mems": _cpus("cpuset_mems", "AllowedMemoryNodes"),
        "memory_limit_in_bytes": _number("memory_limit_in_bytes", "MemoryMax"),
        "memory.min": _number("memory.min", "MemoryMin"),
        "memory.low": _number("memory.low", "MemoryLow"),
        "memory.high": _number("memory.high", "MemoryHigh"),
        "memory.swap.max": _number("memory.swap.max", "MemorySwapMax"),
        "pids.max": _number("pids.max", "TasksMax"),
        "io.weight": _number("io.weight", "IOWeight"),
    },
}

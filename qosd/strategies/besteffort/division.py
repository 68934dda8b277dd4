"""Divides a sum of CPU time among containers, where no cgroup holds all of them and no others.

Max-min fair: a container that needs less than an equal part gets what it needs, and the others share the rest; what no
container needs is shared out equally, so that it is there when it is needed. A container needs somewhat more than it
uses, and the whole sum while its quota throttles it. A division holds until the sum or the set of containers changes;
else for ``STANDS_NS`` at least, and until some container could get clearly more: quotas that follow every sample would
only cost writes.

Invariants: pure; each container gets at least ``least_milli`` of its period, the least quota that the kernel takes and
that a container needs to end in order; the parts add up to no more than the sum, unless the least parts do.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType

import msgspec

from koord.model import cfs
from qosd.model.metric import Scope
from qosd.model.snapshot import ContainerView, NodeSnapshot, PodView
from qosd.sense.usage import USAGE

FLOOR_MILLI = 10
STANDS_NS = 5_000_000_000
_HEADROOM = 1.25
_CPU, _THROTTLED = USAGE[Scope.CONTAINER].cpu_usage_cores, USAGE[Scope.CONTAINER].cpu_throttled_ratio
Parts = Mapping[str, int]
"""The part of each container, by its cgroup, in thousandths of a CPU."""


class Division(msgspec.Struct, frozen=True, eq=False):
    """The parts of ``total_milli``, as it was divided at ``since_ns``."""

    parts: Parts = MappingProxyType({})
    total_milli: int = 0
    since_ns: int = 0


def divide(
    node: NodeSnapshot, total_milli: int, containers: Sequence[tuple[PodView, ContainerView]], before: Division
) -> Division:
    """Divides ``total_milli`` among ``containers``, each with its pod; returns ``before`` itself while it holds."""
    least = {container.cgroup: least_milli(container.requested.quota_period_us) for _, container in containers}
    is_same = before.total_milli == total_milli and before.parts.keys() == least.keys()
    if is_same and node.monotonic_ns - before.since_ns < STANDS_NS:
        return before
    floor = max(least.values(), default=FLOOR_MILLI)
    parts = fair(total_milli, {cgroup: _need_milli(node, cgroup, total_milli) for cgroup in least}, floor)
    if is_same and not any(parts[cgroup] * 8 > before.parts[cgroup] * 9 for cgroup in least):
        return before  # no container would get more than an eighth more
    return Division(parts, total_milli, node.monotonic_ns)


def least_milli(period_us: int) -> int:
    """Returns the least part of a container with a quota of ``period_us``."""
    return max(FLOOR_MILLI, math.ceil(cfs.MIN_QUOTA_US * 1000 / period_us))


def fair(total: int, needs: Mapping[str, int], floor: int = FLOOR_MILLI) -> Mapping[str, int]:
    """Returns max-min fair parts of ``total`` by name, each at least ``floor``; a rest goes to all equally."""
    needs = {name: max(floor, need) for name, need in needs.items()}
    parts, left = dict[str, int](), total
    for place, (name, need) in enumerate(sorted(needs.items(), key=lambda item: (item[1], item[0]))):
        parts[name] = min(need, max(0, left) // (len(needs) - place))
        left -= parts[name]
    spare = max(0, left) // len(parts) if parts else 0
    return {name: max(floor, part + spare) for name, part in parts.items()}


def _need_milli(node: NodeSnapshot, cgroup: str, total_milli: int) -> int:
    """Returns what the container needs: the whole sum while it is throttled or not measured yet."""
    cores, throttled = node.value(_CPU, cgroup), node.value(_THROTTLED, cgroup)
    if cores is None or not math.isfinite(cores) or (throttled or 0) > 0:
        return total_milli
    return min(total_milli, math.ceil(cores * 1000 * _HEADROOM))

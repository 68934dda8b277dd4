"""The fields of CRI requests that hooks may change: where each is, and how it is changed on the wire.

This is the only place that knows. INT, STRING and MAP are appended: protobuf merges a later value over an earlier
one, and containerd's decoders (gogo in 1.6, golang/protobuf in 2.x) do so too. Lists are edited where they stand,
because appending would add a second entry: containerd concatenates hugepage limits and hands both variables on.
Deletions from a map are made in place as well. v1 and v1alpha2 have the same numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from runtimeproxy.cri import methods
from runtimeproxy.hooks.edits import ANNOTATIONS, CGROUP_PARENT, CPUSETS, ENVS, HUGEPAGE_LIMITS, LABELS, UNIFIED
from runtimeproxy.wire.protowire import Path


class How(Enum):
    INT = "append an integer"
    STRING = "append a string"
    MAP = "append an entry, delete in place"
    BYTES_LIST = "in place: messages of key and bytes value"
    INT_LIST = "in place: messages of key and integer value"


@dataclass(frozen=True, slots=True)
class Owned:
    """``path``: field numbers from the request down to the field itself."""

    path: Path
    how: How


Table = Mapping[str, Owned]

_RESOURCE_NUMBERS = {
    "cpu_period": 1, "cpu_quota": 2, "cpu_shares": 3, "memory_limit_in_bytes": 4, "oom_score_adj": 5,
    "cpuset_cpus": 6, "cpuset_mems": 7, HUGEPAGE_LIMITS: 8, UNIFIED: 9, "memory_swap_limit_in_bytes": 10,
}
_RESOURCE_HOW = {HUGEPAGE_LIMITS: How.INT_LIST, UNIFIED: How.MAP, **dict.fromkeys(CPUSETS, How.STRING)}


def _resources(*path: int) -> dict[str, Owned]:
    """The fields of the LinuxContainerResources at ``path``."""
    return {field: Owned((*path, number), _RESOURCE_HOW.get(field, How.INT))
            for field, number in _RESOURCE_NUMBERS.items()}


TABLES: Mapping[str, Table] = {
    methods.RUN_POD: {
        LABELS: Owned((1, 6), How.MAP),
        ANNOTATIONS: Owned((1, 7), How.MAP),
        CGROUP_PARENT: Owned((1, 8, 1), How.STRING),
        **_resources(1, 8, 5),
    },
    methods.CREATE: {
        ANNOTATIONS: Owned((2, 10), How.MAP),
        ENVS: Owned((2, 6), How.BYTES_LIST),
        CGROUP_PARENT: Owned((3, 8, 1), How.STRING),
        **_resources(2, 15, 1),
    },
    methods.UPDATE: {
        ANNOTATIONS: Owned((4,), How.MAP),
        **_resources(2),
    },
    methods.UPDATE_POD: _resources(3),
}

OWNED: Mapping[str, frozenset[str]] = {method: frozenset(table) for method, table in TABLES.items()}
"""The fields alone, by method."""

SANDBOX_OF_CREATE: Table = {
    ANNOTATIONS: Owned((3, 7), How.MAP),
    CGROUP_PARENT: Owned((3, 8, 1), How.STRING),
}
"""What was done to a sandbox and is repeated in the ``sandbox_config`` of each CreateContainer."""

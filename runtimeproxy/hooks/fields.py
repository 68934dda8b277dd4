"""Tables from a field's name to its place in a message, and to how it is changed there.

INT, STRING and the maps are appended: protobuf merges a later value over an earlier one, and containerd's decoders
(gogo in 1.6, golang/protobuf in 2.x) do so too. Lists are edited where they stand, because appending would add a
second entry: containerd concatenates hugepage limits and hands both variables on. Deletions from a map are made in
place as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from runtimeproxy.hooks.edits import CPUSETS, HUGEPAGE_LIMITS, UNIFIED
from runtimeproxy.wire.protowire import Path


class FieldForm(Enum):
    INT = "append an integer"
    STRING = "append a string"
    MAP = "append an entry, delete in place"
    BYTES_MAP = "append an entry with a bytes value, delete in place"
    BYTES_LIST = "in place: messages of key and bytes value"
    INT_LIST = "in place: messages of key and integer value"


@dataclass(frozen=True, slots=True)
class EditableField:
    """A field's place and form. ``path``: field numbers from the top-level message down to the field itself."""

    path: Path
    form: FieldForm


FieldTable = Mapping[str, EditableField]

_RESOURCE_NUMBERS = {
    "cpu_period": 1,
    "cpu_quota": 2,
    "cpu_shares": 3,
    "memory_limit_in_bytes": 4,
    "oom_score_adj": 5,
    "cpuset_cpus": 6,
    "cpuset_mems": 7,
    HUGEPAGE_LIMITS: 8,
    UNIFIED: 9,
    "memory_swap_limit_in_bytes": 10,
}
_RESOURCE_HOW = {
    HUGEPAGE_LIMITS: FieldForm.INT_LIST,
    UNIFIED: FieldForm.MAP,
    **dict.fromkeys(CPUSETS, FieldForm.STRING),
}


def resources(*path: int) -> dict[str, EditableField]:
    """Returns the fields of the LinuxContainerResources at ``path``, CRI's or the hook protocol's."""
    return {
        field: EditableField((*path, number), _RESOURCE_HOW.get(field, FieldForm.INT))
        for field, number in _RESOURCE_NUMBERS.items()
    }

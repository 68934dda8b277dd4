"""Edits as a flat map from field to value, the same for pods and containers, requests and answers.

A ``Slot`` names one thing that a hook may set: a scalar by its field, an entry of a map or list by field and key.
Field names are CRI's own; ``pod_cgroup_parent`` and ``container_*`` of the hook protocol lose their prefixes.
Invariant: a map that has no entry for a slot means "untouched", never "empty"; deletion is the explicit ``None``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

LABELS = "labels"
ANNOTATIONS = "annotations"
ENVS = "envs"
CGROUP_PARENT = "cgroup_parent"
HUGEPAGE_LIMITS = "hugepage_limits"
UNIFIED = "unified"

KUBELET_PREFIX = "io.kubernetes."  # of the keys of annotations and labels that are kubelet's

RESOURCE_INTS = (
    "cpu_period",
    "cpu_quota",
    "cpu_shares",
    "memory_limit_in_bytes",
    "oom_score_adj",
    "memory_swap_limit_in_bytes",
)
CPUSETS = ("cpuset_cpus", "cpuset_mems")
RESOURCE_SCALARS = (*RESOURCE_INTS, *CPUSETS)
RESOURCE_FIELDS = (*RESOURCE_SCALARS, HUGEPAGE_LIMITS, UNIFIED)

Value = int | str | bytes | None
"""An integer (microseconds, bytes, shares as CRI has them), a string, an environment value; None: no such key."""


class Slot(NamedTuple):
    """One thing to set. ``key`` is the map key, variable name or page size; empty for scalars."""

    field: str
    key: str = ""


Edits = dict[Slot, Value]

_UNSET: Mapping[str, Value] = {**dict.fromkeys(RESOURCE_INTS, 0), **dict.fromkeys((*CPUSETS, CGROUP_PARENT), "")}

SCALARS = tuple(map(Slot, RESOURCE_SCALARS))
"""The slots of resources that are there once, made once."""


def name(slot: Slot) -> str:
    """Returns ``field`` or ``field[key]``."""
    return f"{slot.field}[{slot.key}]" if slot.key else slot.field


def unset(slot: Slot) -> Value:
    """Returns what an absent field reads as: 0 or "" for a scalar, None for a map entry."""
    return _UNSET.get(slot.field)


def value(state: Mapping[Slot, Value], slot: Slot) -> Value:
    return state[slot] if slot in state else unset(slot)


def changes(edits: Mapping[Slot, Value], state: Mapping[Slot, Value]) -> Edits:
    """Returns those of ``edits`` that would change ``state``."""
    return {slot: new for slot, new in edits.items() if new != value(state, slot)}

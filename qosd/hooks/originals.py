"""What kubelet requested where hooks had a container get something else, in the terms of the kernel's files.

CRI's "nothing" (0, "", an absent key) is what the runtime and the kernel make of it then: no quota, no memory limit, no
CPU set of its own, a new group's shares, a file's default. A runtime makes the limit of swap of that of memory, so
whoever edits the one changes the other. Pure.

An update says less than a creation: what a proxy shows us of it is the request laid over what the container has, our
own values included. So a value that we gave before is nobody's wish, and the older one still counts.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from types import MappingProxyType

import msgspec
from msgspec.structs import replace

from koord.host.files import ROWS, Value
from koord.host.originals import Original, Pending
from koord.host.weights import Weights
from koord.model import cpuset
from koord.model.cfs import MAX_SHARES, MIN_SHARES, UNLIMITED
from qosd.hooks.edits import Edits, Field
from qosd.hooks.table import ROWS_OF_HOOKS

CPUS, SWAP_V1, SWAP_V2 = "cpuset_cpus", "memory_swap_limit_in_bytes", "memory.swap.max"
_DEFAULT_SHARES, _DEFAULT_WEIGHT = 1024, 100
_DEFAULTS: Mapping[str, Value] = MappingProxyType(
    {name: default for name in sorted(ROWS_OF_HOOKS) if (default := ROWS[name].default) is not None}
)
"""Of the files that ``unified`` is edited for, what a new cgroup holds."""
_NOTHING: Mapping[str, str] = MappingProxyType({})


class RequestedResources(msgspec.Struct, frozen=True):
    """A container's resources in CRI's terms. ``swap_follows``: the runtime makes the limit of swap from memory's."""

    cpus: str = ""
    shares: int = 0
    quota_us: int = 0
    memory_bytes: int = 0
    swap_bytes: int = 0
    unified: Mapping[str, str] = _NOTHING
    swap_follows: bool = True

    def edited(self, edits: Edits) -> RequestedResources:
        """The request as ``edits`` leave it."""
        found = self
        for edit in edits.items:
            if edit.field is Field.UNIFIED:
                found = replace(found, unified={**found.unified, edit.key: str(edit.value)})
            elif edit.field is Field.CPUSET_CPUS:
                found = replace(found, cpus=str(edit.value))
            elif edit.field is Field.CPU_SHARES:
                found = replace(found, shares=int(edit.value))
            elif edit.field is Field.CPU_QUOTA:
                found = replace(found, quota_us=int(edit.value))
            elif edit.field is Field.MEMORY_LIMIT:
                found = replace(found, memory_bytes=int(edit.value))
        return found


def of_creation(
    requested: RequestedResources, edited: RequestedResources, version: int, weights: Weights
) -> dict[str, Original]:
    """By row, what a container that is made by ``edited`` would hold by ``requested``."""
    without, with_us = _rows(requested, edited, version, weights), _rows(edited, requested, version, weights)
    return {
        name: Original(value, with_us[name], Pending.CREATED)
        for name, value in without.items()
        if name in with_us and value != with_us[name]
    }


def of_update(
    known: Mapping[str, Original],
    requested: RequestedResources,
    edited: RequestedResources,
    version: int,
    weights: Weights,
) -> dict[str, Original]:
    """The same after an update; ``known``: before it. ``requested`` is laid over what the container has."""
    without, with_us = _rows(requested, edited, version, weights), _rows(edited, requested, version, weights)
    after = {name: original for name, original in known.items() if name not in without}
    for name, value in without.items():
        if name in with_us and (original := _updated(name, known.get(name), value, with_us[name])) is not None:
            after[name] = original
    return after


def _updated(name: str, known: Original | None, requested: Value, edited: Value) -> Original | None:
    if known is not None and requested == known.edited:
        requested = known.requested
    elif requested == edited:
        return None
    if name == CPUS and edited == "":  # an update cannot empty a set: the runtime leaves what is there
        edited = "" if known is None else known.edited
    if known is not None and (requested, edited) == (known.requested, known.edited):
        return known
    return None if requested == edited else Original(requested, edited, Pending.UPDATED)


def _rows(request: RequestedResources, other: RequestedResources, version: int, weights: Weights) -> dict[str, Value]:
    """What the files hold by ``request``; of ``unified`` those rows that it or ``other`` names."""
    default_shares = _DEFAULT_SHARES if version == 1 else weights.shares(_DEFAULT_WEIGHT)
    found: dict[str, Value] = {
        "cpu_shares": max(MIN_SHARES, min(MAX_SHARES, request.shares)) if request.shares > 0 else default_shares,
        "cpu_quota": _limit(request.quota_us),
        "memory_limit_in_bytes": _limit(request.memory_bytes),
    }
    with contextlib.suppress(cpuset.CPUSetError):
        found[CPUS] = str(cpuset.parse(request.cpus))
    if request.swap_follows and not (version == 2 and SWAP_V2 in request.unified):
        found[SWAP_V1 if version == 1 else SWAP_V2] = _swap(request, version)
    for key, default in _DEFAULTS.items():
        if (key in request.unified or key in other.unified) and ROWS[key].file_name(version, for_write=True):
            with contextlib.suppress(ValueError):
                found[key] = ROWS[key].parse(request.unified[key], 2) if key in request.unified else default
    return found


def _limit(amount: int) -> int:
    return amount if amount > 0 else UNLIMITED


def _swap(request: RequestedResources, version: int) -> int:
    """v1 limits memory and swap together, v2 swap alone."""
    together = _limit(request.swap_bytes or request.memory_bytes)
    if version == 1 or together == UNLIMITED:
        return together
    return max(0, together - max(0, request.memory_bytes))

"""What kubelet asked for where hooks had a container get something else, in the terms of the kernel's files.

CRI's "not asked" (0, "", an absent key) is what the runtime and the kernel make of it then: no quota, no memory limit,
no CPU set of its own, a new group's shares, a file's default. A runtime makes the limit of swap of that of memory, so
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

from koord.host.asked import Given, News
from koord.host.files import ROWS, Value
from koord.host.weights import Weights
from koord.model import cpuset
from koord.model.cfs import MAX_SHARES, MIN_SHARES
from qosd.hooks.edits import UNLIMITED, Edits, Field

CPUS, SWAP_V1, SWAP_V2 = "cpuset_cpus", "memory_swap_limit_in_bytes", "memory.swap.max"
_DEFAULT_SHARES, _DEFAULT_WEIGHT = 1024, 100
_DEFAULTS: Mapping[str, Value] = MappingProxyType(
    {"memory.min": 0, "memory.low": 0, "memory.high": UNLIMITED, "cpu.idle": 0, "cpu.bvt_warp_ns": 0}
)
"""Of the files that ``unified`` is edited for, what a new group holds."""
_NOTHING: Mapping[str, str] = MappingProxyType({})


class Request(msgspec.Struct, frozen=True):
    """A container's resources in CRI's terms. ``swap_follows``: the runtime makes the limit of swap from memory's."""

    cpus: str = ""
    shares: int = 0
    quota_us: int = 0
    memory_bytes: int = 0
    swap_bytes: int = 0
    unified: Mapping[str, str] = _NOTHING
    swap_follows: bool = True

    def edited(self, edits: Edits) -> Request:
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


def of_creation(asked: Request, given: Request, version: int, weights: Weights) -> dict[str, Given]:
    """By row, what a container that is made by ``given`` would hold by ``asked``."""
    wanted, made = _rows(asked, given, version, weights), _rows(given, asked, version, weights)
    return {
        name: Given(value, made[name], News.CREATED)
        for name, value in wanted.items()
        if name in made and value != made[name]
    }


def of_update(
    known: Mapping[str, Given], asked: Request, given: Request, version: int, weights: Weights
) -> dict[str, Given]:
    """The same after an update; ``known``: before it. ``asked`` is laid over what the container has."""
    wanted, made = _rows(asked, given, version, weights), _rows(given, asked, version, weights)
    found = {name: one for name, one in known.items() if name not in wanted}
    for name, value in wanted.items():
        if name in made and (one := _updated(name, known.get(name), value, made[name])) is not None:
            found[name] = one
    return found


def _updated(name: str, known: Given | None, asked: Value, given: Value) -> Given | None:
    if known is not None and asked == known.given:
        asked = known.asked
    elif asked == given:
        return None
    if name == CPUS and given == "":  # an update cannot empty a set: the runtime leaves what is there
        given = "" if known is None else known.given
    if known is not None and (asked, given) == (known.asked, known.given):
        return known
    return None if asked == given else Given(asked, given, News.UPDATED)


def _rows(request: Request, other: Request, version: int, weights: Weights) -> dict[str, Value]:
    """What the files hold by ``request``; of ``unified`` those rows that it or ``other`` names."""
    unasked = _DEFAULT_SHARES if version == 1 else weights.shares(_DEFAULT_WEIGHT)
    found: dict[str, Value] = {
        "cpu_shares": max(MIN_SHARES, min(MAX_SHARES, request.shares)) if request.shares > 0 else unasked,
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


def _limit(asked: int) -> int:
    return asked if asked > 0 else UNLIMITED


def _swap(request: Request, version: int) -> int:
    """v1 limits memory and swap together, v2 swap alone."""
    together = _limit(request.swap_bytes or request.memory_bytes)
    if version == 1 or together == UNLIMITED:
        return together
    return max(0, together - max(0, request.memory_bytes))

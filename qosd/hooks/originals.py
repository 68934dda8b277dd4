"""kubelet's requested values that hooks had replaced in a container, as the kernel's files spell them.

CRI's "nothing" (0, "", an absent key) stands for what the runtime and the kernel make of it: no quota, no memory limit,
no CPU set of its own, a new cgroup's shares, a file's default. A runtime makes the limit of swap of that of memory, so
an edit of the one changes the other. Pure.

An update says less than a creation: a proxy shows us the request laid over the container's values, our own included. So
a value that we gave before was not requested, and the older one still counts.
"""

from __future__ import annotations

import contextlib
from collections.abc import Container, Mapping
from types import MappingProxyType

import msgspec

from koord.host.files import ROWS, Value
from koord.host.originals import Original, Pending
from koord.host.weights import Weights
from koord.model.cfs import UNLIMITED
from koord.model.cpuset import CPUSetError
from koord.model.crifields import BY_NAME, SCALARS, Field
from qosd.hooks.edits import Edits
from qosd.hooks.table import ROWS_OF_HOOKS

SWAP_V1, SWAP_V2 = "memory_swap_limit_in_bytes", "memory.swap.max"
_DEFAULT_SHARES, _DEFAULT_WEIGHT = 1024, 100
_DEFAULTS: Mapping[str, Value] = MappingProxyType(
    {name: default for name in sorted(ROWS_OF_HOOKS) if (default := ROWS[name].default) is not None}
)
"""The content of a new cgroup's files that ``unified`` is edited for."""
_NO_VALUES: Mapping[Field, Value] = MappingProxyType({})
_NO_KEYS: Mapping[str, str] = MappingProxyType({})


class RequestedResources(msgspec.Struct, frozen=True):
    """A container's resources in CRI's terms. ``swap_follows``: the runtime makes the limit of swap from memory's."""

    values: Mapping[Field, Value] = _NO_VALUES
    unified: Mapping[str, str] = _NO_KEYS
    swap_bytes: int = 0
    swap_follows: bool = True

    def edited(self, edits: Edits) -> RequestedResources:
        """Returns the request as ``edits`` leave it."""
        values, unified = {**self.values}, {**self.unified}
        for edit in edits.items:
            if edit.field.path:
                values[edit.field] = edit.field.kind(edit.value)
            elif edit.field is Field.UNIFIED:
                unified[edit.key] = str(edit.value)
        return RequestedResources(values, unified, self.swap_bytes, self.swap_follows)

    def updated(self, by: RequestedResources) -> RequestedResources:
        """Returns the request with the values of ``by`` in its place; 0 and "" leave a value."""
        values = {**self.values, **{field: value for field, value in by.values.items() if value}}
        return RequestedResources(values, {**self.unified, **by.unified}, self.swap_bytes, self.swap_follows)


def of_creation(
    requested: RequestedResources,
    edited: RequestedResources,
    version: int,
    weights: Weights,
    pending: Pending = Pending.CREATED,
) -> dict[str, Original]:
    """Returns by row what a container that is made by ``edited`` would hold by ``requested``."""
    pairs = _pairs(requested, edited, version, weights)
    return {name: Original(*pair, pending) for name, pair in pairs.items() if pair[0] != pair[1]}


def of_update(
    known: Mapping[str, Original],
    requested: RequestedResources,
    edited: RequestedResources,
    version: int,
    weights: Weights,
) -> dict[str, Original]:
    """Returns by row the originals after an update; ``known``: before it. ``requested`` lies over the container's
    values."""
    pairs = _pairs(requested, edited, version, weights, known)
    after = {name: original for name, original in known.items() if name not in pairs}
    for name, pair in pairs.items():
        if (original := _updated(name, known.get(name), *pair)) is not None:
            after[name] = original
    return after


def _updated(name: str, known: Original | None, requested: Value, edited: Value) -> Original | None:
    if known is not None and known.pending is Pending.STARTED and requested == edited:
        return Original(requested, known.edited, Pending.STARTED)  # no call carries it
    if known is not None and requested == known.edited:
        requested = known.requested
    elif requested == edited:
        return None
    if edited == "" and name in BY_NAME:  # an update cannot empty a CPU set: the runtime leaves what is there
        edited = "" if known is None else known.edited
    if known is not None and (requested, edited) == (known.requested, known.edited):
        return known
    return None if requested == edited else Original(requested, edited, Pending.UPDATED)


def _pairs(
    requested: RequestedResources,
    edited: RequestedResources,
    version: int,
    weights: Weights,
    known: Container[str] = (),
) -> dict[str, tuple[Value, Value]]:
    """Returns by row what the files hold by either request, where they differ or the row is ``known``.

    Values that cannot be parsed are in no file. ``edited`` names all that ``requested`` names.
    """
    found: dict[str, tuple[Value, Value]] = {}
    for field in SCALARS:
        before, after = requested.values.get(field), edited.values.get(field)
        if (before != after or field in known) and ROWS[field].file_name(version, for_write=True):
            try:
                found[str(field)] = _value(field, before, version, weights), _value(field, after, version, weights)
            except CPUSetError:
                continue
    if requested.swap_follows and not (version == 2 and SWAP_V2 in edited.unified):
        found[SWAP_V1 if version == 1 else SWAP_V2] = _swap(requested, version), _swap(edited, version)
    for key in _DEFAULTS:
        if key in edited.unified and ROWS[key].file_name(version, for_write=True):
            with contextlib.suppress(ValueError):
                found[key] = _entry(key, requested), _entry(key, edited)
    return found


def _value(field: Field, requested: Value | None, version: int, weights: Weights) -> Value:
    value = field.kernel_value(requested)
    if value is not None:
        return value
    return _DEFAULT_SHARES if version == 1 else weights.shares(_DEFAULT_WEIGHT)


def _entry(key: str, request: RequestedResources) -> Value:
    return ROWS[key].parse(request.unified[key], 2) if key in request.unified else _DEFAULTS[key]


def _swap(request: RequestedResources, version: int) -> int:
    """Returns the limit of swap: v1 limits memory and swap together, v2 swap alone."""
    memory_bytes = int(request.values.get(Field.MEMORY_LIMIT, 0))
    together = request.swap_bytes or memory_bytes
    if together <= 0:
        return UNLIMITED
    return together if version == 1 else max(0, together - max(0, memory_bytes))

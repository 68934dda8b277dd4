"""The hook protocol's messages as flat slots, and back.

Pods and containers have the same kinds of fields under different names; ``Shape`` lists the names once. Only
attributes of the generated messages are used, so that importing this module does not import protobuf.
Invariant: ``flatten`` yields exactly what is present in the message, an explicit zero included. It makes an object
per entry, so whoever needs only some fields (a request has dozens of variables) says which.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from runtimeproxy.hooks.edits import (
    ANNOTATIONS,
    CGROUP_PARENT,
    ENVS,
    HUGEPAGE_LIMITS,
    LABELS,
    RESOURCE_FIELDS,
    SCALARS,
    UNIFIED,
    Edits,
    Slot,
)

if TYPE_CHECKING:
    from koord.pb.hooks import api_pb2 as hooks

    HookRequest = hooks.PodSandboxHookRequest | hooks.ContainerResourceHookRequest
    HookResponse = hooks.PodSandboxHookResponse | hooks.ContainerResourceHookResponse

ALL_FIELDS = frozenset((LABELS, ANNOTATIONS, ENVS, CGROUP_PARENT, *RESOURCE_FIELDS))


@dataclass(frozen=True, slots=True)
class Shape:
    """Attribute names in both request and response; ``removed`` in the response only."""

    maps: tuple[tuple[str, str], ...]
    removed: tuple[tuple[str, str], ...]
    cgroup_parent: str
    resources: str


POD = Shape(
    maps=((LABELS, "labels"), (ANNOTATIONS, "annotations")),
    removed=((ANNOTATIONS, "removed_annotations"),),
    cgroup_parent="cgroup_parent",
    resources="resources",
)
CONTAINER = Shape(
    maps=((ANNOTATIONS, "container_annotations"), (ENVS, "container_envs")),
    removed=((ANNOTATIONS, "removed_container_annotations"), (ENVS, "removed_container_envs")),
    cgroup_parent="pod_cgroup_parent",
    resources="container_resources",
)


def flatten(message: HookRequest | HookResponse, shape: Shape, fields: Container[str] = ALL_FIELDS) -> Edits:
    """What ``message`` sets of ``fields``, by slot."""
    state: Edits = {}
    for field, attribute in shape.maps:
        if field in fields:
            _flatten_map(state, field, getattr(message, attribute))
    parent = getattr(message, shape.cgroup_parent)
    if parent and CGROUP_PARENT in fields:
        state[Slot(CGROUP_PARENT)] = parent
    if message.HasField(shape.resources):
        state |= flatten_resources(getattr(message, shape.resources), fields)
    return state


def flatten_resources(resources: Any, fields: Container[str] = ALL_FIELDS) -> Edits:
    """The same for a LinuxContainerResources, CRI's or the hook protocol's."""
    state: Edits = {}
    for slot in SCALARS:
        if slot.field in fields and resources.HasField(slot.field):
            state[slot] = getattr(resources, slot.field)
    if HUGEPAGE_LIMITS in fields:
        for limit in resources.hugepage_limits:
            state[Slot(HUGEPAGE_LIMITS, limit.page_size)] = limit.limit
    if UNIFIED in fields:
        _flatten_map(state, UNIFIED, resources.unified)
    return state


def _flatten_map(state: Edits, field: str, entries: Any) -> None:
    for key in entries:
        state[Slot(field, key)] = entries[key]


def removals(response: HookResponse, shape: Shape) -> Edits:
    """The keys that ``response`` asks to delete."""
    return {Slot(field, key): None for field, attribute in shape.removed for key in getattr(response, attribute)}


def apply(request: HookRequest, shape: Shape, edits: Edits) -> None:
    """Make ``request`` what it is after ``edits``, for the next server to see."""
    maps = dict(shape.maps)
    for slot, value in edits.items():
        if slot.field in maps:
            _set_entry(getattr(request, maps[slot.field]), slot.key, value)
        elif slot.field == CGROUP_PARENT:
            setattr(request, shape.cgroup_parent, value)
        elif slot.field in RESOURCE_FIELDS:
            apply_resource(getattr(request, shape.resources), slot, value)


def apply_resource(resources: Any, slot: Slot, value: Any) -> None:
    """Set one field of a LinuxContainerResources."""
    if slot.field == UNIFIED:
        _set_entry(resources.unified, slot.key, value)
    elif slot.field == HUGEPAGE_LIMITS:
        known = [limit for limit in resources.hugepage_limits if limit.page_size == slot.key]
        for limit in known or [resources.hugepage_limits.add(page_size=slot.key)]:
            limit.limit = value
    else:
        setattr(resources, slot.field, value)


def _set_entry(entries: Any, key: str, value: Any) -> None:
    if value is None:
        entries.pop(key, None)
    else:
        entries[key] = value

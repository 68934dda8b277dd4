"""Resources in the JSON of a runtime's verbose status: CRI's own form and the OCI runtime specification's.

Invariant: what is missing or of another type than expected reads as not set; nothing here raises.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeGuard

from koord.model.crifields import SCALARS
from runtimeproxy.hooks.edits import HUGEPAGE_LIMITS, RESOURCE_INTS, RESOURCE_SCALARS, UNIFIED, Slot
from runtimeproxy.hooks.messages import apply_resource

INT64, UINT64 = range(-(1 << 63), 1 << 63), range(1 << 64)
_OCI = (*[(*field.path, field.value) for field in SCALARS], ("memory", "swap", "memory_swap_limit_in_bytes"))


def mapping(parent: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """The object at ``key``, empty if there is none."""
    value = parent.get(key)
    return value if isinstance(value, dict) else {}


def text(parent: Mapping[str, Any], key: str) -> str:
    """The string at ``key``, empty if there is none; JSON's lone surrogates are none, protobuf cannot hold them."""
    value = parent.get(key)
    return value if _is_text(value) else ""


def _is_text(value: object) -> TypeGuard[str]:
    return isinstance(value, str) and not any("\ud800" <= character <= "\udfff" for character in value)


def _is_integer(value: object, within: range) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and value in within


def resources_from_cri(source: Mapping[str, Any], request: Any, attribute: str) -> None:
    """Fill ``request.attribute`` from CRI's LinuxContainerResources as Go writes it to JSON."""
    if not source:
        return
    target = getattr(request, attribute)
    target.SetInParent()
    for field in RESOURCE_SCALARS:
        _set(target, Slot(field), source.get(field))
    _hugepages(target, source.get(HUGEPAGE_LIMITS), "page_size")
    for key, value in mapping(source, UNIFIED).items():
        _set(target, Slot(UNIFIED, key), value)


def oci_resources(spec: Mapping[str, Any], target: Any) -> None:
    """Fill ``target`` from an OCI runtime spec."""
    resources = mapping(mapping(spec, "linux"), "resources")
    target.SetInParent()
    for group, key, field in _OCI:
        _set(target, Slot(field), mapping(resources, group).get(key))
    _set(target, Slot("oom_score_adj"), mapping(spec, "process").get("oomScoreAdj"))
    _hugepages(target, resources.get("hugepageLimits"), "pageSize")
    for key, value in mapping(resources, UNIFIED).items():
        _set(target, Slot(UNIFIED, key), value)


def _hugepages(target: Any, limits: object, size_key: str) -> None:
    for limit in limits if isinstance(limits, list) else ():
        if isinstance(limit, dict) and text(limit, size_key):
            value = limit.get("limit", 0)
            if _is_integer(value, UINT64):
                apply_resource(target, Slot(HUGEPAGE_LIMITS, text(limit, size_key)), value)


def _set(target: Any, slot: Slot, value: object) -> None:
    if slot.field in RESOURCE_INTS:
        if _is_integer(value, INT64) and value:
            apply_resource(target, slot, value)
    elif _is_text(value) and _is_text(slot.key) and value:
        apply_resource(target, slot, value)

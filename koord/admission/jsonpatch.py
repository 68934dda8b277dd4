"""The difference of two JSON documents as a JSON Patch (RFC 6902), which is how a webhook changes an object.

Objects are compared by key and lists by index: what is longer is added at the end, what is shorter is removed from
there. Only ``add``, ``remove`` and ``replace`` are used. A number, a text and a truth value are never equal to each
other, so ``1``, ``1.0`` and ``true`` differ.

Invariant: the patch, applied in its order, makes ``after`` of ``before``; equal documents have an empty one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

_MANY = 16
"""Members of an object or list, most of which are equal as a rule: encoding both finds that out much sooner."""
Operation = dict[str, Any]
"""With ``op``, ``path`` and, unless it removes, ``value``."""


def diff(before: object, after: object) -> list[Operation]:
    """The operations that turn ``before`` into ``after``, in the order of keys and indexes."""
    return list(_diff(before, after, ""))


def _diff(before: object, after: object, path: str) -> Iterator[Operation]:
    if _are_large_and_equal(before, after):
        return
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        yield from _diff_objects(before, after, path)
    elif isinstance(before, list) and isinstance(after, list):
        yield from _diff_lists(before, after, path)
    elif type(before) is not type(after) or before != after:
        yield {"op": "replace", "path": path, "value": after}


def _diff_objects(before: Mapping[str, Any], after: Mapping[str, Any], path: str) -> Iterator[Operation]:
    for key in sorted(before.keys() | after.keys()):
        place = f"{path}/{_escaped(key)}"
        if key not in after:
            yield {"op": "remove", "path": place}
        elif key not in before:
            yield {"op": "add", "path": place, "value": after[key]}
        else:
            yield from _diff(before[key], after[key], place)


def _diff_lists(before: list[Any], after: list[Any], path: str) -> Iterator[Operation]:
    common = min(len(before), len(after))
    for index in range(common):
        yield from _diff(before[index], after[index], f"{path}/{index}")
    for index in range(common, len(after)):
        yield {"op": "add", "path": f"{path}/{index}", "value": after[index]}
    for index in reversed(range(common, len(before))):
        yield {"op": "remove", "path": f"{path}/{index}"}


def _are_large_and_equal(before: object, after: object) -> bool:
    """Returns True only for equal objects or lists of at least ``_MANY`` members. It may miss some: it compares
    their texts, and so the order of keys.
    """
    if not (isinstance(before, Mapping | list) and isinstance(after, Mapping | list)) or len(before) < _MANY:
        return False
    return len(before) == len(after) and msgspec.json.encode(before) == msgspec.json.encode(after)


def _escaped(key: str) -> str:
    """Returns the key as one step of a JSON Pointer (RFC 6901)."""
    return key.replace("~", "~0").replace("/", "~1")

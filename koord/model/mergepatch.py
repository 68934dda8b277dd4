"""JSON merge patches (RFC 7386) that make one document of another.

Invariant: applying ``diff(before, after)`` to ``before`` gives ``after``, where ``after`` holds no null, which a merge
patch cannot say; members of ``before`` that ``after`` lacks are removed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Patch = dict[str, Any]


def diff(before: Mapping[str, Any], after: Mapping[str, Any]) -> Patch:
    """The patch; empty if there is no difference. Lists are replaced whole."""
    patch: Patch = {key: None for key in before if key not in after}
    for key, value in after.items():
        old = before.get(key)
        if isinstance(value, Mapping) and isinstance(old, Mapping):
            if inner := diff(old, value):
                patch[key] = inner
        elif key not in before or not _is_same(old, value):
            patch[key] = _whole(value)
    return patch


def _is_same(one: Any, other: Any) -> bool:
    """Compares as JSON, at any depth: 0, 0.0 and false are equal in Python and three values there."""
    if type(one) is not type(other):
        return False
    if isinstance(one, Mapping):
        return not diff(one, other)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(_is_same, one, other))
    return bool(one == other)


def _whole(value: Any) -> Any:
    """An empty object in place of what is no object is itself, not "no change"."""
    return dict(value) if isinstance(value, Mapping) else value

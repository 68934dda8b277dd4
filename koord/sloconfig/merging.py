"""How one level of ``slo-controller-config`` is laid over the one below: defaults, cluster, node, annotation.

    objects merge field by field, to any depth; maps by key, each value replaced whole, but for extensions with fields
    numbers, booleans, choices and lists are replaced; false and 0 are values like others
    what is not set (absent, null, "") leaves the level below

This works on decoded structs and not on JSON, since only a field's type tells an object from a map, and since the
decoder has by then folded the case of keys and taken null for absent. ``schema.overlay`` is not it: there maps are
replaced. Upstream merges lists by index, so a block device could keep limits that its override does not mention; here
a list is replaced.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from koord.model import slo_extensions

T = TypeVar("T", bound=msgspec.Struct)
_EXTENSIONS = "extensions"


def laid_over(base: T, over: T) -> T:
    """Returns ``base`` with everything that ``over`` sets."""
    changes: dict[str, Any] = {}
    for name in base.__struct_fields__:
        value = getattr(over, name)
        if value is not None and value != "":
            member = slo_extensions.merged if name == _EXTENSIONS else _member
            changes[name] = member(getattr(base, name), value)
    return msgspec.structs.replace(base, **changes)


def _member(base: object, over: object) -> object:
    if isinstance(base, msgspec.Struct) and isinstance(over, msgspec.Struct):
        return laid_over(base, over)
    if isinstance(base, Mapping) and isinstance(over, Mapping):
        return {**base, **over}
    return over

"""Equal parts of many objects, of which one is kept: replicas have their labels, containers and owners in common.

The cheap way is to know what an object is probably like, ``intern_like``: it is compared with the last one of the same
key, such as the owner's UID, and takes over each part that is equal. That costs comparisons, which end at the first
difference. What has no predecessor is looked up by value, ``intern``, which encodes it.

Invariants: what is returned equals what was given, as Python has it (1 and 1.0 are one number); at most so many parts,
and so many keys, are known as was said. Those that were not met for longest are forgotten, and found anew, which costs
memory and nothing else.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, TypeVar, cast

import msgspec

from koord.kube.recent import Recent

MAX_PARTS = 20_000
Part = TypeVar("Part")


class Interner:
    """What is interned is never changed afterwards."""

    def __init__(self, most: int = MAX_PARTS) -> None:
        self._parts = Recent[Hashable, Any](most)
        self._last = Recent[Hashable, Any](most)

    def __len__(self) -> int:
        return max(len(self._parts), len(self._last))

    def intern(self, part: Part) -> Part:
        """Returns the first of all that are equal."""
        key: Hashable = part if type(part) is str else (type(part), hash(msgspec.json.encode(part)))
        known = self._parts.get(key)
        if known is None or known != part:
            self._parts.put(key, part)
            return part
        return cast(Part, known)

    def intern_like(self, key: Hashable, struct: Part) -> Part:
        """Returns ``struct`` with the equal parts of the last one of ``key``; a first one's by value."""
        place = (type(struct), key)
        last = self._last.get(place)
        interned = self._by_parts(struct) if last is None else shared(struct, last)
        self._last.put(place, interned)
        return cast(Part, interned)

    def _by_parts(self, struct: Any) -> Any:
        parts = [
            self._by_parts(part) if isinstance(part, msgspec.Struct)
            else self.intern(part) if part and isinstance(part, tuple | dict)
            else part
            for part in msgspec.structs.astuple(struct)
        ]  # fmt: skip
        return type(struct)(*parts)


def shared(value: Part, like: Part) -> Part:
    """Returns ``value`` made of the parts of ``like`` as far as they are equal: ``like`` itself if all of them are.

    Structs are compared field by field and mappings value by value, at any depth; tuples and texts as a whole.
    """
    if value == like:
        return like
    if isinstance(value, msgspec.Struct) and isinstance(like, type(value)):
        parts = zip(msgspec.structs.astuple(value), msgspec.structs.astuple(like), strict=True)
        return cast(Part, type(value)(*[their if our == their else shared(our, their) for our, their in parts]))
    if isinstance(value, dict) and isinstance(like, dict):
        return cast(Part, _shared_mapping(value, like))
    return value


def _shared_mapping(value: dict[Any, Any], like: dict[Any, Any]) -> dict[Any, Any]:
    """Keys come in order, so those of two of a kind mostly stand beside each other."""
    parts = {
        theirs: (known if known == part else part)
        for (theirs, known), (ours, part) in zip(like.items(), value.items(), strict=False)
        if theirs == ours
    }
    return parts if len(parts) == len(value) else value

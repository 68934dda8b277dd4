"""Equal parts of many objects, of which one is kept.

Invariant: at most ``MAX_PARTS`` are known at a time; beyond that they are found anew, which costs memory and nothing
else.
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

MAX_PARTS = 20_000
Part = TypeVar("Part")


class Parts:
    def __init__(self, most: int = MAX_PARTS) -> None:
        self._most = most
        self._parts: dict[tuple[type, bytes], Any] = {}

    def __len__(self) -> int:
        return len(self._parts)

    def one(self, part: Part) -> Part:
        """The first of all that are equal; ``part`` is never changed afterwards."""
        key = type(part), msgspec.json.encode(part)
        known = self._parts.get(key)
        if known is None:
            if len(self._parts) >= self._most:
                self._parts.clear()
            known = self._parts[key] = part
        return known

"""A map that keeps what was met lately: bounded, without a look at its age at each access.

Invariant: at most so many values as were said, and a value that is read or written again within half as many others is
never forgotten. What is forgotten goes by halves, so that no access costs more than another for long.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Recent(Generic[K, V]):
    """Values by key, ``most`` of them at most (and at least one)."""

    def __init__(self, most: int) -> None:
        self._half = max(1, most // 2)
        self._young: dict[K, V] = {}
        self._old: dict[K, V] = {}

    def __len__(self) -> int:
        return len(self._young) + len(self._old)

    def get(self, key: K) -> V | None:
        value = self._young.get(key)
        if value is None and (value := self._old.get(key)) is not None:
            self.put(key, value)
        return value

    def put(self, key: K, value: V) -> None:
        if len(self._young) >= self._half and key not in self._young:
            self._old, self._young = self._young, {}
        self._old.pop(key, None)
        self._young[key] = value

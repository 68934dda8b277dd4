"""Objects by key, and by whatever else they are looked up by.

Invariant: an index holds exactly what its function says of the objects that are there now.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Generic

from koord.kube.kind import Key, T

Index = Callable[[T], Iterable[str]]
"""The values under which an object is found: a pod's node. Pure; it does not fail."""


class ObjectStore(Generic[T]):
    def __init__(self, indexes: Mapping[str, Index[T]]) -> None:
        self._objects: dict[Key, T] = {}
        self._indexes = dict(indexes)
        self._indexed: dict[str, dict[str, dict[Key, T]]] = {name: {} for name in indexes}

    @property
    def objects(self) -> Mapping[Key, T]:
        """A live view."""
        return MappingProxyType(self._objects)

    def indexed(self, index: str, value: str) -> tuple[T, ...]:
        """The objects that ``index`` has under ``value``."""
        return tuple(self._indexed[index].get(value, {}).values())

    def put(self, key: Key, value: T) -> T | None:
        """Returns the object that had the key before."""
        before = self._objects.get(key)
        self._objects[key] = value
        for name, index in self._indexes.items():
            values, texts = self._indexed[name], tuple(index(value))
            if before is not None:
                for text in index(before):
                    if text not in texts:
                        self._forget(values, text, key)
            for text in texts:
                values.setdefault(text, {})[key] = value
        return before

    def remove(self, key: Key) -> T | None:
        before = self._objects.pop(key, None)
        if before is not None:
            for name, index in self._indexes.items():
                for text in index(before):
                    self._forget(self._indexed[name], text, key)
        return before

    @staticmethod
    def _forget(values: dict[str, dict[Key, T]], text: str, key: Key) -> None:
        found = values.get(text, {})
        found.pop(key, None)
        if not found:
            values.pop(text, None)

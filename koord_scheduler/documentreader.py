"""Reads the parts of a document and collects all that is wrong with them, each with its path and value."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TypeVar

import msgspec

from koord.model import schema
from koord.model.problem import Problem
from koord.model.schema import SchemaError

T = TypeVar("T", bound=msgspec.Struct)
_STEP = re.compile(r"([A-Za-z0-9_-]+)|\[(\d+)\]")


class DocumentReader:
    """``problems``: what is wrong. ``notes``: what is right and has no effect; ``missing``: plugins that there are not
    yet, in the order in which they are named.
    """

    def __init__(self) -> None:
        self.problems: list[Problem] = []
        self.notes: list[str] = []
        self.missing: dict[str, None] = {}

    def wrong(self, path: str, value: object, why: str) -> None:
        """Says what is wrong with a value; of one that could not be read, which counts as absent, that was said."""
        if all(each.path != path for each in self.problems):
            self.problems.append(schema.wrong(path, value, why))

    def read(self, cls: type[T], document: object, path: str) -> T:
        """Returns the document as ``cls``; of one that cannot be read at all, what an empty one says.

        A member that cannot be read counts as absent if its default is None.
        """
        found = self.read_or_none(cls, document, path)
        return cls() if found is None else found

    def read_or_none(self, cls: type[T], document: object, path: str) -> T | None:
        """Returns the document as ``cls``; None where it cannot be read at all."""

        def unknown(place: str) -> None:
            value = _at(document, place[len(path) :])
            self.problems.append(Problem(place, f"{schema.clip(value)} has no meaning: there is no such field"))

        try:
            return schema.read(cls, {} if document is None else document, path, unknown, self.problems.append)
        except SchemaError as error:
            self.problems.append(error.problem)
            return None

    def items(self, document: object, path: str) -> list[tuple[str, object]]:
        """Returns the items of a list, each with its path."""
        if document is None:
            return []
        if not isinstance(document, list):
            self.wrong(path, document, "is not a list")
            return []
        return [(f"{path}[{index}]", item) for index, item in enumerate(document)]

    def no_effect(self, path: str, value: object, why: str) -> None:
        """Notes what was said for nothing, if anything was."""
        if value is not None:
            self.notes.append(f"{path}: {schema.clip(value)} has no effect: {why}")


def _at(document: object, path: str) -> object:
    """Returns the value at ``path``; None for one that is not found so."""
    for key, index in _STEP.findall(path):
        if key:
            document = document.get(key) if isinstance(document, Mapping) else None
        else:
            document = document[int(index)] if isinstance(document, list) else None
    return document

"""Finds members of documents of which nothing is checked: YAML or JSON, as people or programs wrote it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def at(document: Any, *path: str) -> Any:
    """Returns the value at ``path``; None if anything on the way is missing or no object."""
    for key in path:
        document = document.get(key) if isinstance(document, Mapping) else None
    return document


def mapping(document: Any, *path: str) -> Mapping[str, Any]:
    """Returns the object at ``path``; {} if there is none."""
    found = at(document, *path)
    return found if isinstance(found, Mapping) else {}

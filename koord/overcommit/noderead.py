"""How one annotation of a node is read: its value, and a sentence for each thing in it that is wrong."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from koord.model.annotations.codecs import Key
from koord.model.annotations.decode import Bad
from koord.model.schema import clip

T = TypeVar("T")


def annotation(annotations: Mapping[str, str], key: Key, kind: type[T], bad: Bad) -> T | None:
    """The ``kind`` that ``key`` has; None if there is no annotation, or nothing of it can be read."""
    text = annotations.get(key.name)
    if text is None:
        return None
    value, problems = key.decoded(text)
    for problem in problems:
        bad(f"annotation {key.name}: {clip(text, 60)}: {problem}")
    return value if isinstance(value, kind) else None

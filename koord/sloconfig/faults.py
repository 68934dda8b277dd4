"""What is wrong at one place of a ConfigMap or of a node's labels and annotations, as a plain value."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from koord.model.schema import SchemaError


@dataclass(frozen=True, slots=True)
class Fault:
    """``message`` is a sentence that begins with ``path``, the place of the wrong value."""

    path: str
    message: str

    @classmethod
    def of(cls, error: SchemaError) -> Fault:
        return cls(error.path, str(error))

    @classmethod
    def in_text(cls, place: str, error: SchemaError) -> Fault:
        """``error`` is about the text at ``place`` as a whole."""
        return cls(place, f"{place}: {error}")


def collector(faults: list[Fault]) -> Callable[[SchemaError], None]:
    """A ``schema.Bad`` that appends to ``faults``."""
    return lambda error: faults.append(Fault.of(error))

"""A value of a document that is wrong, as a plain value: the one form in which readers of documents report it. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple


class Problem(NamedTuple):
    """The value at ``path`` is wrong; ``message`` says why, without the path. As text: ``path: message``."""

    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message


Bad = Callable[[Problem], None]
"""Takes a wrong value that counts as absent, for a caller that uses the rest of the document."""

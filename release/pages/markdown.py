"""Markdown tables and the code's values in them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

NONE = "–"


def table(header: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    rows = [header, ["---"] * len(header), *lines]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def code(words: Iterable[object]) -> str:
    """Returns each word as code, once; "" for none."""
    return ", ".join(dict.fromkeys(f"`{word}`" for word in words))

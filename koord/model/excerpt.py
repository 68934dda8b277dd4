"""The first few of many, for a sentence that people read. Invariant: what is left out is counted in it. Pure."""

from __future__ import annotations

from collections.abc import Sequence


def few(items: Sequence[str], most: int, noun: str = "more", prefix: str = "") -> tuple[str, ...]:
    """All of them if they are no more than ``most``; else so many, and ``<prefix>and 3 <noun>`` of the others."""
    left_out = len(items) - most
    return (*items[:most], f"{prefix}and {left_out} {noun}") if left_out > 0 else tuple(items)

"""Shortens a list for a sentence that people read. Invariant: what is left out is counted in it. Pure."""

from __future__ import annotations

from collections.abc import Sequence


def shorten_list(items: Sequence[str], most: int, noun: str = "more", prefix: str = "") -> tuple[str, ...]:
    """Returns all items if they are no more than ``most``; else ``most`` of them, and ``<prefix>and 3 <noun>``."""
    left_out = len(items) - most
    return (*items[:most], f"{prefix}and {left_out} {noun}") if left_out > 0 else tuple(items)

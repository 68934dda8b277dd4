"""Columns for people: aligned, no lines, no colours, no trailing blanks; the last column is free to be long."""

from __future__ import annotations

from collections.abc import Sequence

_GAP = "  "


def align(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """``header`` and ``rows`` (all of one length) as text, each column as wide as its widest cell."""
    lines = [header, *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    return "\n".join(
        _GAP.join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )

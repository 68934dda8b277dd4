"""Lays out columns for people: aligned, no lines, no colours, no trailing blanks; the last column is free to be long.

Where a width is given, a table fits it: long identifiers lose their middle, then the widest columns do, and the last
column goes on below itself. Nothing of the last column is lost.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence

_GAP = "  "
_IDENTIFIER = re.compile(
    r"(?<![0-9A-Za-z])(pod|cri-containerd-|crio-|docker-)?([0-9a-f]{8})[0-9a-f_-]{8,}(?![0-9A-Za-z])"
)
"""A UID or the id of a container, as cgroup paths have them."""

_LEAST, _LEAST_LAST = 12, 24


def align(header: Sequence[str], rows: Sequence[Sequence[str]], width: int | None = None) -> str:
    """Returns ``header`` and ``rows`` (all of one length) as text, each column as wide as its widest cell.

    ``width``: of a terminal; None: as wide as it is.
    """
    lines = [list(header), *map(list, rows)]
    if width is not None and _width(lines) > width:
        lines = _fitted([[_IDENTIFIER.sub(r"\1\2…", cell) for cell in line] for line in lines], width)
    widths = _widths(lines)
    return "\n".join(
        _GAP.join(cell.ljust(size) for cell, size in zip(line, widths, strict=True)).rstrip() for line in lines
    )


def _fitted(lines: list[list[str]], width: int) -> list[list[str]]:
    """Returns the rows with cells cut and the last column wrapped, as far as that is needed."""
    widths = _widths(lines)
    least_last = min(widths[-1], _LEAST_LAST)
    while sum(widths[:-1]) + len(_GAP) * (len(widths) - 1) + least_last > width:
        widest = max(range(len(widths) - 1), key=lambda column: widths[column], default=None)
        if widest is None or widths[widest] <= _LEAST:
            break
        widths[widest] -= 1
    room = max(least_last, width - sum(widths[:-1]) - len(_GAP) * (len(widths) - 1))
    made = list[list[str]]()
    for line in lines:
        *cells, last = line
        parts = textwrap.wrap(last, room, break_on_hyphens=False) or [""]
        made.append([*(shorten(cell, size) for cell, size in zip(cells, widths, strict=False)), parts[0]])
        made.extend([*[""] * len(cells), part] for part in parts[1:])
    return made


def shorten(text: str, width: int) -> str:
    """Returns at most ``width`` characters, the middle left out: both ends of a path tell what it is."""
    if len(text) <= width:
        return text
    head = (width - 1) // 3
    return f"{text[:head]}…{text[len(text) - (width - 1 - head) :]}"


def _widths(lines: Sequence[Sequence[str]]) -> list[int]:
    return [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]


def _width(lines: Sequence[Sequence[str]]) -> int:
    return sum(_widths(lines)) + len(_GAP) * (len(lines[0]) - 1)

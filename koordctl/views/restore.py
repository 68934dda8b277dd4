"""What restoring will do, or did, file by file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from koord.host.files import Value
from koord.host.undo import Outcome, Restored
from koordctl.table import align
from koordctl.views.values import NONE

PLAN = ("FILE", "HOLDS", "BASE", "TO DO")
DONE = ("FILE", "HELD", "BASE", "DONE")
_TO_DO = {Outcome.RESTORED: "put back", Outcome.ALREADY_BASE: "nothing", Outcome.GONE: "nothing: gone"}


def table(header: tuple[str, ...], lines: Sequence[Restored]) -> str:
    """One line per file; ``header`` is PLAN or DONE."""
    if not lines:
        return "Koord holds no file."
    return align(header, [_row(line, header is PLAN) for line in lines])


def plain(line: Restored) -> dict[str, Any]:
    """One file for programs."""
    found = {"path": line.path, "group": line.target.group, "name": line.target.name, "outcome": str(line.outcome)}
    return {**found, "base": line.base, "before": line.before, "after": line.after, "why": line.why}


def _row(line: Restored, planned: bool) -> tuple[str, ...]:
    outcome = _TO_DO.get(line.outcome, str(line.outcome)) if planned else str(line.outcome)
    return line.path, _text(line.before), _text(line.base), f"{outcome}: {line.why}" if line.why else outcome


def _text(value: Value | None) -> str:
    return NONE if value is None else str(value) or '""'

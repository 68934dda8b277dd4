"""Shows what restoring will do, or did: file by file, then container by container at the runtime."""

from __future__ import annotations

from typing import Any

from koord.host.files import Value
from koord.host.undoable import Restored, RestoreOutcome
from koordctl.restoring import RestoreReport, Spec
from koordctl.table import align
from koordctl.values import NONE

_PLAN = ("FILE", "HOLDS", "BASE", "TO DO")
_DONE = ("FILE", "HELD", "BASE", "DONE")
_TO_DO = {
    RestoreOutcome.RESTORED: "put back",
    RestoreOutcome.ALREADY_BASE: "nothing",
    RestoreOutcome.GONE: "nothing: gone",
}


def table(report: RestoreReport, planned: bool) -> str:
    """Renders one line per file; a second table for containers if the runtime made any of them with values of ours."""
    if not report.files and not report.specs:
        return "Koord holds no file."
    parts = []
    if report.files:
        rows = [(line.path, _text(line.before), _text(line.base), _outcome(line, planned)) for line in report.files]
        parts.append(align(_PLAN if planned else _DONE, rows))
    if report.specs:
        header = ("CONTAINER, AT THE RUNTIME", "TO DO" if planned else "DONE")
        parts.append(align(header, [(spec.container, _outcome(spec, planned)) for spec in report.specs]))
    return "\n\n".join(parts)


def plain(report: RestoreReport) -> dict[str, Any]:
    """Returns the report for programs."""
    document: dict[str, Any] = {"files": [_plain(line) for line in report.files]}
    if report.specs:
        document["containers"] = [
            {"container": spec.container, "outcome": str(spec.outcome), "why": spec.why} for spec in report.specs
        ]
    return document


def _plain(line: Restored) -> dict[str, Any]:
    document = {"path": line.path, "cgroup": line.target.cgroup, "name": line.target.name, "outcome": str(line.outcome)}
    return {**document, "base": line.base, "before": line.before, "after": line.after, "why": line.why}


def _outcome(line: Restored | Spec, planned: bool) -> str:
    outcome = _TO_DO.get(line.outcome, str(line.outcome)) if planned else str(line.outcome)
    return f"{outcome}: {line.why}" if line.why else outcome


def _text(value: Value | None) -> str:
    return NONE if value is None else str(value) or '""'

"""Shows what ``koordctl lint`` finds, one line each, and what it did not look at."""

from __future__ import annotations

from typing import Any

from koord.admission import ObjectProblem
from koord.model.readable import shorten_list
from koordctl.fields import Listing, ListingField, ListingLayout
from koordctl.linting import LintReport

_MOST = 10
FINDINGS: Listing[ObjectProblem] = Listing(
    "findings",
    (
        ListingField("object", "OBJECT"),
        ListingField("path", "PATH", value="problem.path"),
        ListingField("sentence", "FOUND", value="problem.message"),
    ),
)


def page(report: LintReport, layout: ListingLayout[ObjectProblem]) -> str:
    """Renders the report, without a final line break."""
    lines = [layout.table(report.findings) if report.findings else _approval(report)]
    if report.passed_over:
        lines.append(f"Not looked at: {', '.join(shorten_list(report.passed_over, _MOST))}.")
    return "\n".join(lines)


def document(report: LintReport, layout: ListingLayout[ObjectProblem]) -> dict[str, Any]:
    """Returns the same for programs."""
    return {
        "findings": layout.objects(report.findings),
        "examined": list(report.examined),
        "passed_over": list(report.passed_over),
    }


def _approval(report: LintReport) -> str:
    count = len(report.examined)
    if not count:
        return "There is nothing in it that Koord reads."
    return f"Nothing to say against {', '.join(shorten_list(report.examined, _MOST))}."

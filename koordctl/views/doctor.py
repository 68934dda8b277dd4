"""Renders the doctor's findings as aligned lines; the remedy follows its sentence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from koordctl.doctor import CheckResult, CheckStatus
from koordctl.fields import Listing, ListingField, ListingLayout, Visibility

RECORDED = "recorded: these are the files of another node, or of another time"


def _is_bad(finding: CheckResult) -> bool:
    return finding.status in (CheckStatus.WARN, CheckStatus.FAIL)


def sentence(finding: CheckResult) -> str:
    """Returns what was found, and what to do about it."""
    to_do = f". To do: {finding.remedy}" if _is_bad(finding) and finding.remedy else ""
    return f"{finding.sentence}{to_do}"


FINDINGS: Listing[CheckResult] = Listing(
    "findings",
    (
        ListingField(
            "status",
            "STATUS",
            lambda finding: finding.status.upper() if _is_bad(finding) else str(finding.status),
            value=lambda finding: str(finding.status),
        ),
        ListingField("check", "CHECK"),
        ListingField("sentence", "FOUND", sentence),
        ListingField("remedy", "TO DO", visibility=Visibility.NAMED),
    ),
)


def page(
    findings: Sequence[CheckResult],
    reasons: Sequence[CheckResult],
    layout: ListingLayout[CheckResult],
    is_recorded: bool,
) -> str:
    """Renders one line per check, sums, and why Koord must not be installed; first, whether it is a recording."""
    parts = [layout.table(findings), _sums(findings), _installation(findings, reasons)]
    return "\n\n".join([RECORDED, *parts] if is_recorded else parts)


def document(
    findings: Sequence[CheckResult],
    reasons: Sequence[CheckResult],
    layout: ListingLayout[CheckResult],
    is_recorded: bool,
) -> dict[str, object]:
    """Returns all of it for programs."""
    return {
        "source": "recorded" if is_recorded else "live",
        "findings": layout.objects(findings),
        "blockers": layout.objects(reasons),
    }


def _installation(findings: Sequence[CheckResult], reasons: Sequence[CheckResult]) -> str:
    """Renders the reasons against an installation; one that the table says already is only named again."""
    if not reasons:
        return "installation: possible"
    lines = [f"  {each.check}: {'see above' if each in findings else sentence(each)}" for each in reasons]
    return "\n".join(("installation: refused", *lines))


def failed(findings: Sequence[CheckResult]) -> bool:
    return any(each.status is CheckStatus.FAIL for each in findings)


def _sums(findings: Sequence[CheckResult]) -> str:
    counted = Counter(each.status for each in findings)
    return ", ".join(f"{counted[status]} {status}" for status in CheckStatus)

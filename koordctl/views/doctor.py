"""The doctor's findings as aligned lines; the remedy follows its sentence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from koord.host.doctor.finding import Finding, Status
from koordctl.table import align


def table(findings: Sequence[Finding]) -> str:
    """One line per check, and a line of sums."""
    rows = [(each.status.upper() if _bad(each) else each.status, each.check, _said(each)) for each in findings]
    return f"{align(('STATUS', 'CHECK', 'FOUND'), rows)}\n\n{_sums(findings)}"


def plain(finding: Finding) -> dict[str, str]:
    """One finding for programs."""
    return {
        "check": finding.check,
        "status": str(finding.status),
        "sentence": finding.sentence,
        "remedy": finding.remedy,
    }


def failed(findings: Sequence[Finding]) -> bool:
    return any(each.status is Status.FAIL for each in findings)


def _bad(finding: Finding) -> bool:
    return finding.status in (Status.WARN, Status.FAIL)


def _said(finding: Finding) -> str:
    return f"{finding.sentence}. To do: {finding.remedy}" if _bad(finding) and finding.remedy else finding.sentence


def _sums(findings: Sequence[Finding]) -> str:
    counted = Counter(each.status for each in findings)
    return ", ".join(f"{counted[status]} {status}" for status in Status)

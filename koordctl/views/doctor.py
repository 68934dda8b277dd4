"""The doctor's findings as aligned lines; the remedy follows its sentence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from koord.host.doctor.finding import Finding, Status
from koordctl.table import align

_RECORDED = "recorded: these are the files of another node, or of another time"


def table(findings: Sequence[Finding], reasons: Sequence[Finding] = (), *, recorded: bool = False) -> str:
    """One line per check, a line of sums, and why Koord must not be installed; ``recorded`` is said first."""
    rows = [(each.status.upper() if _bad(each) else each.status, each.check, _said(each)) for each in findings]
    parts = [align(("STATUS", "CHECK", "FOUND"), rows), _sums(findings), _installation(findings, reasons)]
    return "\n\n".join([_RECORDED, *parts] if recorded else parts)


def plain(findings: Sequence[Finding], reasons: Sequence[Finding], *, recorded: bool) -> dict[str, object]:
    """All of it for programs."""
    return {
        "source": "recorded" if recorded else "live",
        "findings": [_plain(each) for each in findings],
        "blockers": [_plain(each) for each in reasons],
    }


def _plain(finding: Finding) -> dict[str, str]:
    return {
        "check": finding.check,
        "status": str(finding.status),
        "sentence": finding.sentence,
        "remedy": finding.remedy,
    }


def _installation(findings: Sequence[Finding], reasons: Sequence[Finding]) -> str:
    """What the table says already is only named again."""
    if not reasons:
        return "installation: possible"
    lines = [f"  {each.check}: {'see above' if each in findings else _said(each)}" for each in reasons]
    return "\n".join(("installation: refused", *lines))


def failed(findings: Sequence[Finding]) -> bool:
    return any(each.status is Status.FAIL for each in findings)


def _bad(finding: Finding) -> bool:
    return finding.status in (Status.WARN, Status.FAIL)


def _said(finding: Finding) -> str:
    return f"{finding.sentence}. To do: {finding.remedy}" if _bad(finding) and finding.remedy else finding.sentence


def _sums(findings: Sequence[Finding]) -> str:
    counted = Counter(each.status for each in findings)
    return ", ".join(f"{counted[status]} {status}" for status in Status)

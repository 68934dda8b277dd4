"""Why a quota may use what it may use, in words: for koord-scheduler, which decides, and koordctl, which explains."""

from __future__ import annotations

from collections.abc import Iterator

from koord.quota import names
from koord.quota.forest import Level
from koord.quota.spec import text


def why(level: Level, resource: str) -> str:
    """Returns how the quota comes by its share of what its parent has, as a formula with its numbers."""
    claim, share, summary = level.claim, level.share, level.summary

    def amount(units: int) -> str:
        return text(resource, units)

    least = f"min {amount(claim.minimum)}"
    if summary.is_scaled:
        scaled = claim.minimum * max(summary.total, 0) // summary.minima
        least = (
            f"min {amount(claim.minimum)} x {amount(summary.total)} / {amount(summary.minima)} = {amount(scaled)}, as "
            "all minima come to more than there is"
        )
    if claim.guarantee and share.minimum == claim.guarantee:
        least = f"{amount(claim.guarantee)}, which is guaranteed"
    if not share.needs:
        if not claim.lends:
            return f"{least}, which it does not lend"
        return f"request {amount(claim.request)}, within {least}; the rest is lent"
    if share.gain == share.needs:
        return f"all that it requests: {least}, and {amount(share.gain)} more"
    if not share.gain:
        return f"{least}; of {amount(max(summary.left, 0))} that is left it gets nothing{_no_weight(level)}"
    return (
        f"{least}, and {amount(share.gain)} of {amount(summary.left)} that is left, by weight "
        f"{amount(claim.weight)} of {amount(summary.weights)}; it requests {amount(share.needs - share.gain)} more"
    )


def _no_weight(level: Level) -> str:
    return ", having no weight" if not level.claim.weight else ""


def line(level: Level, resource: str) -> str:
    """Returns the quota's share of what its parent has, and why."""
    parent = "the tree" if level.parent == names.ROOT else level.parent
    share, total = text(resource, level.share.runtime), text(resource, level.summary.total)
    return f"{share} of {total} {resource} of {parent}: {why(level, resource)}"


def lines(levels: list[Level], resource: str) -> Iterator[str]:
    """Yields a line for each quota on the way down."""
    for level in levels:
        yield f"{level.quota}: {line(level, resource)}"

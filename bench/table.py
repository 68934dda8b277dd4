"""Rows that a measurement prints, and its last line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bench.stats import Estimate


@dataclass(frozen=True, slots=True)
class Line:
    """One row; ``met`` is None where there is no target, or where the figure is too uncertain to say.

    What follows a semicolon in ``figure`` is for the row only, not for the last line.
    """

    label: str
    figure: str
    target: str = ""
    met: bool | None = None

    @property
    def verdict(self) -> str:
        return {None: "not resolved", True: "met", False: "MISSED"}[self.met] if self.target else ""

    def text(self) -> str:
        return f"{self.label:<60} {self.figure:<62} {self.target:<26} {self.verdict}".rstrip()


def meets(estimate: Estimate, at_most: float, resolution: float) -> bool | None:
    """Does the figure keep within ``at_most``? None if its interval is wider than ``resolution`` either way."""
    return None if estimate.half_width > resolution else estimate.value <= at_most


def summary(program: str, lines: Sequence[Line]) -> str:
    """Every figure that has a target, and which of them are not met."""
    aimed = [line for line in lines if line.target]
    figures = "; ".join(f"{line.label}: {line.figure.partition(';')[0]}" for line in aimed)
    open_ones = [f"{verdict}: {names}" for verdict in ("MISSED", "not resolved") if (names := _names(aimed, verdict))]
    return f"{program}: {figures} | {', '.join(open_ones) or 'all targets met'}"


def _names(lines: Sequence[Line], verdict: str) -> str:
    return ", ".join(line.label for line in lines if line.verdict == verdict)

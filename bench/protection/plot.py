"""The figures as a picture: p99 by that alone, with intervals, for each policy and storm."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.protection.campaign import Measured
from bench.protection.report import ratio
from bench.protection.turns import BASELINES, KINDS

HEIGHT = 0.8
WIDTH_INCHES, INCHES_A_POLICY = 11.0, 0.75
MOST = 5.0
"""Ratios beyond are cut off, and written beside their bar."""


def draw(found: Sequence[Measured], file: Path) -> None:
    """One picture beside the other for each baseline. Needs matplotlib, of the extra ``bench``."""
    from matplotlib.figure import Figure  # noqa: PLC0415

    figure = Figure(figsize=(WIDTH_INCHES, 1.2 + INCHES_A_POLICY * len(found)), layout="constrained")
    many = figure.subplots(1, len(BASELINES), sharey=True, squeeze=False)[0]
    for axes, baseline in zip(many, BASELINES, strict=True):
        _bars(axes, found, baseline)
        axes.set_xlabel(f"by that alone, CPUs awake by {baseline}")
    many[0].set_yticks(range(len(found)), [each.policy.name for each in found])
    many[0].invert_yaxis()
    many[-1].legend(title="best-effort storm")
    figure.suptitle("p99 of the latency-sensitive service (95 % intervals)")
    figure.savefig(file, metadata={"Date": None})


def _bars(axes: Any, found: Sequence[Measured], baseline: str) -> None:
    for place, kind in enumerate(KINDS):
        estimates = [ratio(each, kind, baseline) for each in found]
        rows = [index + HEIGHT * (place - 1) / len(KINDS) for index in range(len(found))]
        values = [min(estimate.value, MOST) for estimate in estimates]
        below = [max(0.0, value - min(estimate.low, MOST)) for value, estimate in zip(values, estimates, strict=True)]
        above = [max(0.0, min(estimate.high, MOST) - value) for value, estimate in zip(values, estimates, strict=True)]
        axes.barh(rows, values, HEIGHT / len(KINDS), xerr=[below, above], label=kind, capsize=2)
        for row, estimate in zip(rows, estimates, strict=True):
            if estimate.value > MOST:
                axes.text(MOST, row, f" {estimate.value:.0f}", va="center")
    axes.axvline(1.0, color="black", linewidth=1)

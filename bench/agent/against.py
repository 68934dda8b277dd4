"""The node daemons of two versions, measured in turn on the same pods.

Two of them cannot act on one node at a time, so each has it for ``SETTLE_S`` and ``MEASURE_S``, and they take turns to
be first, so that other load on the machine slows both.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from bench import versions
from bench.agent import cost
from bench.agent.node import Node
from bench.agent.settings import ALL_STRATEGIES, BY_DEFAULT, SETTLE_S, Setting
from bench.table import Line

MEASURE_S = 30.0
AT_MOST = 1.05
"""New over old."""


@dataclass(frozen=True, slots=True)
class _Sample:
    cores: float
    rss_mib: float


def against(commit: str, beside: Node, directory: Path, kubelet: str, rounds: int) -> list[Line]:
    """New over old: medians of ``rounds`` turns of each version. Raises HarnessError."""
    trees = {"old": versions.checked_out(commit, directory / "trees"), "new": versions.REPOSITORY}
    lines = []
    for setting in (BY_DEFAULT, ALL_STRATEGIES):
        samples: dict[str, list[_Sample]] = {name: [] for name in trees}
        for number in range(rounds):
            for name in sorted(trees, reverse=number % 2 == 1):
                place = directory / f"{setting.name}-{number}-{name}".replace(" ", "-")
                samples[name].append(_sample(trees[name], beside, place, setting, kubelet))
        lines += _compared(setting, samples)
    return lines


def _sample(tree: Path, beside: Node, directory: Path, setting: Setting, kubelet: str) -> _Sample:
    flags = setting.flags(kubelet)
    with versions.measuring(tree, beside.runtime, directory, SETTLE_S, setting.rules, flags) as (pid, containers):
        beside.check_measured(containers, str(tree))
        return _Sample(cost.cores_of(pid, MEASURE_S), cost.rss_mib(pid))


def _compared(setting: Setting, samples: Mapping[str, list[_Sample]]) -> list[Line]:
    cores = {name: [sample.cores for sample in each] for name, each in samples.items()}
    rss_mib = {name: [sample.rss_mib for sample in each] for name, each in samples.items()}
    return [
        _line(f"CPU, {setting.name}, new over old", cores, "{:.4f}"),
        _line(f"memory, {setting.name}, new over old", rss_mib, "{:.1f}"),
    ]


def _line(label: str, found: Mapping[str, list[float]], form: str) -> Line:
    old, new = (statistics.median(found[name]) for name in ("old", "new"))
    each = ", ".join(f"{name} {' '.join(map(form.format, values))}" for name, values in found.items())
    figure = f"{new / old:.2f} (old {form.format(old)}, new {form.format(new)}); {each}"
    return Line(label, figure, f"<= {AT_MOST}", new / old <= AT_MOST)

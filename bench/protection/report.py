"""The figures as a table, and as a last line."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from bench import stats
from bench.protection.campaign import ALONE, Measured
from bench.protection.turns import CPUS, KINDS, Turn
from bench.stats import Estimate

_COLUMNS = "{:<30}{:<8}{:>8}{:>8}{:>9}{:>22}{:>8}{:>6}{:>8}{:>7}{:>9}{:>10}"
_HEADS = (
    "policy", "storm", "req/s", "p50", "p99", "x alone [95 %]",
    "node %", "BE %", "work %", "waits", "rev/min", "steps s",
)  # fmt: skip


def text(record: Mapping[str, Sequence[Turn]], found: Sequence[Measured], repeated: int) -> str:
    """The table. Latencies in µs; ``x alone``: p99 by that of the turns alone of the same rounds, with its interval."""
    head = _COLUMNS.format(*_HEADS)
    lines = [
        f"{CPUS} CPUs; {repeated} turns repeated because the client was late",
        head,
        *[_line("none", name, turns, None, None, None) for name, turns in record.items()],
    ]
    base = _work(found)
    for each in found:
        alone = each.turns[ALONE]
        lines.append(_line(each.policy.name, ALONE, alone, None, None, None))
        for kind in KINDS:
            turns = each.turns[kind]
            lines.append(_line("", kind, turns, ratio(alone, turns), _percent(turns, base.get(kind)), each))
        if each.said:
            lines.append(f"    cpuSuppress: {each.said}")
    return "\n".join(lines)


def ratio(alone: Sequence[Turn], turns: Sequence[Turn]) -> Estimate:
    """p99 of all requests by that of those alone, rounds resampled together."""
    return stats.percentile_ratio([turn.latencies_us for turn in alone], [turn.latencies_us for turn in turns], 99)


def _line(
    policy: str, storm: str, turns: Sequence[Turn], by_alone: Estimate | None, work: float | None, of: Measured | None
) -> str:
    def middle(values: Sequence[float]) -> float:
        return statistics.median(values)

    everything = [latency for turn in turns for latency in turn.latencies_us]
    is_storm = by_alone is not None
    return _COLUMNS.format(
        policy,
        storm,
        f"{middle([turn.answered_per_s for turn in turns]):.0f}",
        f"{stats.percentile(everything, 50):.0f}",
        f"{stats.percentile(everything, 99):.0f}",
        f"{by_alone.value:.2f} [{by_alone.low:.2f}, {by_alone.high:.2f}]" if by_alone is not None else "",
        f"{100 * middle([turn.node_cpus for turn in turns]) / CPUS:.0f}",
        f"{100 * middle([turn.share_of_rest for turn in turns]):.0f}" if is_storm else "",
        f"{work:.0f}" if work is not None else "",
        f"{middle([turn.waited_ms for turn in turns]):.0f}",
        f"{of.reversals_per_minute:.1f}" if of is not None and of.reversals_per_minute is not None else "",
        _steps(of) if of is not None and storm == "cpu" else "",
    ).rstrip()


def _steps(of: Measured) -> str:
    if of.steps is None:
        return ""
    return "/".join("-" if seconds is None else f"{seconds:.1f}" for seconds in (of.steps.shrinks_s, of.steps.grows_s))


def _work(found: Sequence[Measured]) -> dict[str, float]:
    """Rounds per second of each storm where nobody bounds it: what its work is compared with."""
    free = [each for each in found if each.policy.name == "none, batch in BestEffort"]
    return {kind: statistics.median([turn.rounds for turn in free[0].turns[kind]]) for kind in KINDS} if free else {}


def _percent(turns: Sequence[Turn], base: float | None) -> float | None:
    return 100 * statistics.median([turn.rounds for turn in turns]) / base if base else None


def last_line(found: Sequence[Measured]) -> str:
    """The figure that matters: how much p99 is of that alone, by policy and storm."""
    parts = []
    for each in found:
        figures = [ratio(each.turns[ALONE], each.turns[kind]) for kind in KINDS]
        shown = ", ".join(f"{kind} {figure.value:.2f}" for kind, figure in zip(KINDS, figures, strict=True))
        parts.append(f"{each.policy.name}: {shown}")
    return f"bench-protection: p99 by that alone: {'; '.join(parts)}"

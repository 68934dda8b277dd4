"""The figures as a table, and as a last line."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from bench import stats
from bench.protection.campaign import Measured
from bench.protection.turns import BASELINES, CPUS, KINDS, Turn
from bench.stats import Estimate

_COLUMNS = "{:<30}{:<9}{:>6}{:>6}{:>7}{:>20}{:>20}{:>8}{:>6}{:>8}{:>7}{:>9}{:>9}"
_HEADS = (
    "policy", "storm", "req/s", "p50", "p99", *(f"x {name} [95 %]" for name in ("spinners", "polling")),
    "node %", "BE %", "work %", "waits", "rev/min", "steps s",
)  # fmt: skip


def text(asleep: Sequence[Turn], found: Sequence[Measured], repeated: int) -> str:
    """The table. Latencies in µs; ``x``: p99 by that of the turns alone of the same rounds, with its interval."""
    head = _COLUMNS.format(*_HEADS)
    lines = [
        f"{CPUS} CPUs; {repeated} turns repeated because the client was late",
        head,
        _line("no batch", "asleep", asleep),
    ]
    base = _work(found)
    for each in found:
        names = (each.policy.name, *[""] * len(BASELINES))
        lines += [_line(name, alone, each.turns[alone]) for name, alone in zip(names, BASELINES, strict=False)]
        lines += [_line("", kind, each.turns[kind], each, base.get(kind)) for kind in KINDS]
        if each.said:
            lines.append(f"    cpuSuppress: {each.said}")
    return "\n".join(lines)


def ratio(of: Measured, kind: str, baseline: str) -> Estimate:
    """p99 of all requests beside a storm by that of those alone, rounds resampled together."""
    alone, beside = ([turn.latencies_us for turn in of.turns[name]] for name in (baseline, kind))
    return stats.percentile_ratio(alone, beside, 99)


def _line(
    policy: str, storm: str, turns: Sequence[Turn], of: Measured | None = None, free_per_s: float | None = None
) -> str:
    """``of``: the storm of these turns. ``free_per_s``: the storm's rounds without any bound."""

    def middle(values: Sequence[float]) -> float:
        return statistics.median(values)

    everything = [latency for turn in turns for latency in turn.latencies_us]
    work = _percent(turns, free_per_s)
    return _COLUMNS.format(
        policy,
        storm,
        f"{middle([turn.answered_per_s for turn in turns]):.0f}",
        f"{stats.percentile(everything, 50):.0f}",
        f"{stats.percentile(everything, 99):.0f}",
        *(_interval(of, storm, baseline) for baseline in ("spinners", "polling")),
        f"{100 * middle([turn.node_cpus for turn in turns]) / CPUS:.0f}",
        f"{100 * middle([turn.share_of_rest for turn in turns]):.0f}" if of is not None else "",
        f"{work:.0f}" if work is not None else "",
        f"{middle([turn.waited_ms for turn in turns]):.0f}",
        f"{of.reversals_per_minute:.1f}" if of is not None and of.reversals_per_minute is not None else "",
        _steps(of) if of is not None and storm == "cpu" else "",
    ).rstrip()


def _interval(of: Measured | None, storm: str, baseline: str) -> str:
    if of is None or baseline not in BASELINES:
        return ""
    by_alone = ratio(of, storm, baseline)
    return f"{by_alone.value:.2f} [{by_alone.low:.2f}, {by_alone.high:.2f}]"


def _steps(of: Measured) -> str:
    if of.steps is None:
        return ""
    return "/".join("-" if seconds is None else f"{seconds:.1f}" for seconds in (of.steps.shrinks_s, of.steps.grows_s))


def _work(found: Sequence[Measured]) -> dict[str, float]:
    """Rounds per second of each storm without any bound, to compare its work with."""
    free = [each for each in found if each.policy.name == "none, batch in BestEffort"]
    return {kind: statistics.median([turn.rounds for turn in free[0].turns[kind]]) for kind in KINDS} if free else {}


def _percent(turns: Sequence[Turn], base: float | None) -> float | None:
    return 100 * statistics.median([turn.rounds for turn in turns]) / base if base else None


def last_line(found: Sequence[Measured]) -> str:
    """The figure that matters: how much p99 is of that alone, by policy and storm."""
    parts = []
    for each in found:
        figures = {kind: [ratio(each, kind, baseline).value for baseline in BASELINES] for kind in KINDS}
        shown = ", ".join(f"{kind} {'/'.join(f'{value:.2f}' for value in by)}" for kind, by in figures.items())
        parts.append(f"{each.policy.name}: {shown}")
    return f"bench-protection: p99 by that alone ({'/'.join(BASELINES)}): {'; '.join(parts)}"

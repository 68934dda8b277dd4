"""Whether failures are more frequent through the proxy than directly, beyond chance.

Of kinds that a life shows or not, as kubelet's error lines: its own goroutines race and now and then log it, so that a
kind shows on one side only says little, and that it shows on both says nothing about how often. Each side has so many
lives; per kind, Fisher's exact test (one-sided) compares how many of them show it. Of counts in pairs of the same
occasion: an exact randomisation test, since either side could have had either count. Holm's step-down over all kinds
that were seen keeps the chance of any false alarm, over all of them, at most ``FALSE_ALARM``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from math import comb

FALSE_ALARM = 0.01


@dataclass(frozen=True, slots=True)
class Compared:
    """How often either side shows a kind; ``p`` is the chance of that, or more, if both are alike."""

    kind: str
    direct: int
    proxied: int
    p: float
    alarm: bool


def fisher(direct: int, direct_lives: int, proxied: int, proxied_lives: int) -> float:
    """The chance that, of all lives that show it, ``proxied`` or more are proxied ones (hypergeometric tail)."""
    shown, lives = direct + proxied, direct_lives + proxied_lives
    most = min(shown, proxied_lives)
    tail = sum(comb(proxied_lives, k) * comb(direct_lives, shown - k) for k in range(proxied, most + 1))
    return float(tail / comb(lives, shown))


def compare(direct: Sequence[AbstractSet[str]], proxied: Sequence[AbstractSet[str]]) -> list[Compared]:
    """Every kind that any life shows, the most suspicious first; each side is its lives' kinds."""
    kinds = sorted(set().union(*direct, *proxied))
    counts = [(kind, sum(kind in life for life in direct), sum(kind in life for life in proxied)) for kind in kinds]
    return _holm([(fisher(d, len(direct), p, len(proxied)), kind, d, p) for kind, d, p in counts])


def excess(pairs: Sequence[tuple[int, int]]) -> float:
    """The chance of so many on the second side of all pairs, or more, if each pair might as well be the other way."""
    sums = Counter({0: 1})
    for direct, proxied in pairs:
        sums = sum(
            (Counter({total + count: ways for total, ways in sums.items()}) for count in (direct, proxied)), Counter()
        )
    observed = sum(proxied for _, proxied in pairs)
    return float(sum(ways for total, ways in sums.items() if total >= observed) / 2 ** len(pairs))


def compare_counts(direct: Sequence[Counter[str]], proxied: Sequence[Counter[str]]) -> list[Compared]:
    """Every kind that was counted on any occasion, the most suspicious first; each side is its counts by occasion."""
    rows = []
    for kind in sorted(set().union(*direct, *proxied)):
        pairs = [(d[kind], p[kind]) for d, p in zip(direct, proxied, strict=True)]
        rows.append((excess(pairs), kind, sum(d for d, _ in pairs), sum(p for _, p in pairs)))
    return _holm(rows)


def _holm(rows: Sequence[tuple[float, str, int, int]]) -> list[Compared]:
    compared, alarm = [], True
    for rank, (chance, kind, direct, proxied) in enumerate(sorted(rows)):
        alarm = alarm and chance <= FALSE_ALARM / (len(rows) - rank)
        compared.append(Compared(kind, direct, proxied, chance, alarm))
    return compared


def power(rate: float, lives: int, kinds: int) -> float:
    """The chance of an alarm over a kind that shows in this share of proxied lives, and never directly."""
    enough = (k for k in range(1, lives + 1) if fisher(0, lives, k, lives) <= FALSE_ALARM / max(1, kinds))
    least = next(enough, lives + 1)
    return float(sum(comb(lives, k) * rate**k * (1 - rate) ** (lives - k) for k in range(least, lives + 1)))

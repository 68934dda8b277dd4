"""CPU shares and cgroup v2's ``cpu.weight``: two mappings are in use, and a node's runtime decides which.

``LINEAR`` is KEP-2254's line, in runc and crun until 2025; ``QUADRATIC`` is the curve of newer ones, through (2, 1),
(1024, 100) and (262144, 10000). Siblings must be mapped alike, or their proportions are wrong, so a writer uses the
runtime's own mapping; code that asks where a value came from accepts both. Invariant: ``weight(shares(w)) == w`` for
every weight, so a value read and written back is the same text.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable
from enum import StrEnum

from koord.model.cfs import MAX_SHARES, MAX_WEIGHT, MIN_SHARES, weight_linear


class Weights(StrEnum):
    LINEAR = "linear"
    QUADRATIC = "quadratic"

    def weight(self, cpu_shares: int) -> int:
        """``cpu.weight`` 1..10000 for ``cpu_shares``; shares beyond 2..262144 count as the nearer end."""
        return weight_linear(cpu_shares) if self is Weights.LINEAR else weight_quadratic(cpu_shares)

    def shares(self, weight: int) -> int:
        """The fewest shares that map to ``weight`` (upstream rounds down instead, and loses one weight in most)."""
        if self is Weights.LINEAR:
            return MIN_SHARES - (1 - weight) * (MAX_SHARES - MIN_SHARES) // (MAX_WEIGHT - 1)
        return bisect_left(range(MAX_SHARES), weight, lo=MIN_SHARES, hi=MAX_SHARES, key=weight_quadratic)


def weight_quadratic(cpu_shares: int) -> int:
    """``ceil(10^((l² + 125 l) / 612 − 7/34))`` with ``l = log2(shares)``: newer OCI runtimes' curve."""
    if cpu_shares <= MIN_SHARES:
        return 1
    if cpu_shares >= MAX_SHARES:
        return MAX_WEIGHT
    log = math.log2(cpu_shares)
    return math.ceil(10 ** ((log * log + 125 * log) / 612 - 7 / 34))


def mapping_of(pairs: Iterable[tuple[int, int]]) -> Weights | None:
    """The mapping that ``pairs`` pairs (shares asked for, weight found) speak for; None if they are no evidence."""
    linear = quadratic = 0
    for cpu_shares, weight in pairs:
        made = (Weights.LINEAR.weight(cpu_shares) == weight, Weights.QUADRATIC.weight(cpu_shares) == weight)
        linear += made == (True, False)
        quadratic += made == (False, True)
    if linear == quadratic:
        return None
    return Weights.LINEAR if linear > quadratic else Weights.QUADRATIC

"""When what a node shows may shrink and when it may grow, given an offer by averages and one by use of this second.

A burst of the services' use shows in the seconds-fresh offer at once, and in the averaged one a minute later and
diluted. So the lower of both counts, it is followed down at once, and up only by an averaged report that has come in
since the lower one last *held* the node: was not above what the node shows. That report has the burst in it.

Invariant: while both offers stay within the threshold of what is shown, nothing changes; what is shown never rises
above the lower offer. No resource waits for the other.
"""

from __future__ import annotations

from fractions import Fraction

import msgspec

from koord.overcommit import difference
from koord.overcommit.amounts import CPUMemory


class GrowthState(msgspec.Struct, frozen=True):
    """When the lower offer last held each resource, by the manager's clock; None: not since the manager started."""

    cpu_held_s: float | None = None
    memory_held_s: float | None = None


class Averaged(msgspec.Struct, frozen=True):
    batch: CPUMemory | None
    """None: to be removed."""
    arrival_s: float
    """When the report that it was computed from came in, by the manager's clock."""


def step(
    shown: CPUMemory | None,
    averaged: Averaged,
    fresh: CPUMemory | None,
    state: GrowthState,
    now_s: float,
    share: Fraction,
    is_due: bool = False,
) -> tuple[CPUMemory | None, GrowthState]:
    """What the node is to show, and the state after that.

    ``shown``: what it shows now. ``fresh``: None if there is no such report. ``share``: ``difference.threshold``.
    ``is_due``: the last write is so old that small differences count as well.
    """
    if averaged.batch is None:
        return None, GrowthState()
    low = averaged.batch if fresh is None else averaged.batch.meet(fresh)
    if shown is None:
        return low, GrowthState()
    after = GrowthState(
        now_s if low.cpu_milli <= shown.cpu_milli else state.cpu_held_s,
        now_s if low.memory_bytes <= shown.memory_bytes else state.memory_held_s,
    )
    reach = _reachable(shown, low, after, averaged.arrival_s)
    return (reach if is_due or _is_significant(shown, reach, share) else shown), after


def _reachable(shown: CPUMemory, low: CPUMemory, state: GrowthState, arrival_s: float) -> CPUMemory:
    """``low``, but of a resource that may not grow yet what is shown, if that is less."""
    least = shown.meet(low)
    return CPUMemory(
        low.cpu_milli if _may_grow(state.cpu_held_s, arrival_s) else least.cpu_milli,
        low.memory_bytes if _may_grow(state.memory_held_s, arrival_s) else least.memory_bytes,
    )


def _may_grow(held_s: float | None, arrival_s: float) -> bool:
    return held_s is None or arrival_s > held_s


def _is_significant(shown: CPUMemory, reach: CPUMemory, share: Fraction) -> bool:
    return difference.is_significant(shown.cpu_milli, reach.cpu_milli, share) or difference.is_significant(
        shown.memory_bytes, reach.memory_bytes, share
    )

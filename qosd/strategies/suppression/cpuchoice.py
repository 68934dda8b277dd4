"""Which CPUs best-effort pods get: from scratch as Koordinator chooses them, and then as few moves as
may be.

From scratch: CPUs that LSR pods own and the others are drawn from in proportion. In each part memory nodes (with their
sockets) take turns, the largest first; a turn takes two CPUs of one core, in the end single ones. A choice that exists
is only added to or taken from: every CPU that changes hands costs the tasks on it their caches. Siblings of CPUs that
are chosen already come first, and single CPUs of a core leave first.

Invariants: pure; all of ``count`` CPUs are candidates, or all candidates are chosen; where CPUs can stay, they do.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from koord.host.topology import Topology
from koord.model.cpuset import EMPTY, CPUSet


def choose(topology: Topology, lsr: CPUSet, others: CPUSet, count: int, before: CPUSet = EMPTY) -> CPUSet:
    """``count`` of the CPUs ``lsr`` and ``others``; ``before``: what was chosen last, EMPTY to choose from scratch."""
    total = len(lsr) + len(others)
    if count >= total:
        return lsr | others
    of_lsr = count * len(lsr) // total
    of_others = min(count - of_lsr, len(others))
    return _adjusted(topology, lsr, count - of_others, before) | _adjusted(topology, others, of_others, before)


def _adjusted(topology: Topology, bucket: CPUSet, count: int, before: CPUSet) -> CPUSet:
    kept, fresh = before & bucket, picked(topology, bucket, count)
    if len(kept) >= count:
        return CPUSet.of(_in_order_of_stay(topology, kept, fresh)[:count])
    chosen = kept
    for _ in range(count - len(kept)):
        chosen |= CPUSet.of([_next(topology, bucket - chosen, chosen, fresh)])
    return chosen


def _in_order_of_stay(topology: Topology, kept: CPUSet, fresh: Sequence[int]) -> list[int]:
    """Whole cores before single CPUs, and both as they would be chosen now."""
    places = {cpu: place for place, cpu in enumerate(fresh)}

    def rank(cpu: int) -> tuple[bool, int, int, int]:
        core = topology.by_id[cpu].core
        whole = topology.cores[core] <= kept
        return not whole, min(places.get(each, len(places)) for each in topology.cores[core]), core, cpu

    return sorted(kept, key=rank)


def _next(topology: Topology, free: CPUSet, chosen: CPUSet, fresh: Sequence[int]) -> int:
    """The CPU that is best added to ``chosen``."""
    siblings = (cpu for cpu in free if topology.cores[topology.by_id[cpu].core] & chosen)
    as_now = (cpu for cpu in fresh if cpu in free)
    by_core = sorted(free, key=lambda cpu: (topology.by_id[cpu].core, cpu))
    return next(chain(siblings, as_now, by_core))


def picked(topology: Topology, bucket: CPUSet, count: int) -> list[int]:
    """``count`` CPUs of ``bucket`` from scratch, in the order in which they are taken."""
    members: dict[tuple[int, int], list[int]] = {}
    for cpu in sorted((topology.by_id[cpu] for cpu in bucket), key=lambda cpu: (cpu.core, cpu.id)):
        members.setdefault((cpu.node, cpu.socket), []).append(cpu.id)
    groups = sorted(members.values(), key=lambda group: (-len(group), group[0]))
    taken: list[int] = []
    turn = _take(topology, groups, taken, count, size=2, turn=0)
    _take(topology, groups, taken, count, size=1, turn=turn)
    return taken


def _take(topology: Topology, groups: list[list[int]], taken: list[int], count: int, size: int, turn: int) -> int:
    """Turns that take ``size`` CPUs of one core each, until fewer are wanted or no group has any; the next turn."""
    misses = 0
    while count - len(taken) >= size and misses < len(groups):
        group = groups[turn % len(groups)]
        neighbours = _neighbours(topology, group, size)
        misses = 0 if neighbours else misses + 1
        for cpu in neighbours:
            group.remove(cpu)
        taken += neighbours
        turn += 1
    return turn


def _neighbours(topology: Topology, group: Sequence[int], size: int) -> list[int]:
    """The first ``size`` CPUs of ``group`` that follow each other and are of one core."""
    for start in range(len(group) - size + 1):
        found = group[start : start + size]
        if len({topology.by_id[cpu].core for cpu in found}) == 1:
            return list(found)
    return []

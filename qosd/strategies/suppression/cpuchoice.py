"""Chooses the CPUs of best-effort pods: from scratch as Koordinator does, later with as few changes as possible.

From scratch it takes CPUs from those that LSR pods own and from the others in proportion. In each part NUMA nodes (with
their sockets) take turns, the largest first; a turn takes two CPUs of one core, in the end single ones. To an earlier
choice it only adds, or takes away: each CPU that changes hands costs the tasks on it their caches. Siblings of chosen
CPUs are added first, and single CPUs of a core leave first.

Invariants: pure; all of ``count`` CPUs are candidates, or all candidates are chosen; where CPUs can stay, they do.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from koord.host.topology import Topology
from koord.model.cpuset import EMPTY, CPUSet


def choose(topology: Topology, lsr: CPUSet, others: CPUSet, count: int, before: CPUSet = EMPTY) -> CPUSet:
    """Chooses ``count`` of the CPUs ``lsr`` and ``others``. ``before``: the last choice; EMPTY: from scratch."""
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
    """Sorts ``kept``, the first to stay first: whole cores before single CPUs, each as it would be chosen now."""
    places = {cpu: place for place, cpu in enumerate(fresh)}

    def rank(cpu: int) -> tuple[bool, int, int, int]:
        core = topology.by_id[cpu].core
        whole = topology.cores[core] <= kept
        return not whole, min(places.get(each, len(places)) for each in topology.cores[core]), core, cpu

    return sorted(kept, key=rank)


def _next(topology: Topology, free: CPUSet, chosen: CPUSet, fresh: Sequence[int]) -> int:
    """Returns the CPU to add to ``chosen``: a sibling, else the next of a fresh choice."""
    siblings = (cpu for cpu in free if topology.cores[topology.by_id[cpu].core] & chosen)
    as_now = (cpu for cpu in fresh if cpu in free)
    by_core = sorted(free, key=lambda cpu: (topology.by_id[cpu].core, cpu))
    return next(chain(siblings, as_now, by_core))


def picked(topology: Topology, bucket: CPUSet, count: int) -> list[int]:
    """Takes ``count`` CPUs of ``bucket`` from scratch, and returns them in that order."""
    members: dict[tuple[int, int], list[int]] = {}
    for cpu in sorted((topology.by_id[cpu] for cpu in bucket), key=lambda cpu: (cpu.core, cpu.id)):
        members.setdefault((cpu.node, cpu.socket), []).append(cpu.id)
    groups = sorted(members.values(), key=lambda group: (-len(group), group[0]))
    taken: list[int] = []
    turn = _take(topology, groups, taken, count, size=2, turn=0)
    _take(topology, groups, taken, count, size=1, turn=turn)
    return taken


def _take(topology: Topology, groups: list[list[int]], taken: list[int], count: int, size: int, turn: int) -> int:
    """Takes ``size`` CPUs of one core a turn until fewer are wanted or no group has any; returns the next turn."""
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
    """Returns the first ``size`` adjacent CPUs of ``group`` that are of one core."""
    for start in range(len(group) - size + 1):
        found = group[start : start + size]
        if len({topology.by_id[cpu].core for cpu in found}) == 1:
            return list(found)
    return []

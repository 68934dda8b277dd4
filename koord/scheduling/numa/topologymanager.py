"""Which NUMA nodes a pod gets when several resources have a say: the topology manager, as kubelet has one.

Each provider, such as the CPUs or the devices of a node, says for every resource of its own from which sets of NUMA
nodes the pod could have it. The sets of all resources are intersected, in every combination of one for each; of the
intersections the best is taken, which the policy admits or does not. Sets of NUMA nodes are integers with a bit for
each.

Invariant: the result is that of going through all combinations, without doing so.
Source: Koordinator, pkg/scheduler/frameworkext/topologymanager; Kubernetes, pkg/kubelet/cm/topologymanager.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from koord.model.scheduling.numa import NUMATopologyPolicy
from koord.scheduling.numa.topology import members


class Hint(NamedTuple):
    """The resource can be had from these NUMA nodes. ``is_preferred``: it cannot be had from fewer of them.
    ``score``: 0 or more, the most first where all else is equal.
    """

    numa_nodes: int
    is_preferred: bool
    score: int = 0


Hints = Mapping[str, Sequence[Hint]]
"""Of one provider, by resource. No hint: the resource cannot be had; no resource: the provider has no say."""


class Keeping(NamedTuple):
    """The NUMA nodes that pods of one alone have CPUs of (``single``), and those that a pod across several has
    (``shared``).
    """

    single: int = 0
    shared: int = 0

    def lets(self, numa_nodes: int) -> bool:
        """Returns whether a pod on these may be beside the others: across several not beside one that is on one, on
        one not beside one across several.
        """
        return not numa_nodes & (self.single & ~self.shared if numa_nodes.bit_count() > 1 else self.shared)


class Affinity(NamedTuple):
    """``numa_nodes`` None: none are chosen, since there is only one."""

    numa_nodes: int | None
    is_preferred: bool = False
    score: int = 0


class Refusal(NamedTuple):
    reason: str


def admit(
    policy: NUMATopologyPolicy, providers: Iterable[Hints], every: int, keeping: Keeping | None = None
) -> Affinity | Refusal:
    """Returns the NUMA nodes for a pod, or why the policy, which is not ``NONE``, lets it have none.

    ``every``: all NUMA nodes of the node. ``keeping``: of a pod that keeps apart from others.
    """
    by_resource = [(name, hints) for each in providers for name, hints in each.items()]
    is_single = policy is NUMATopologyPolicy.SINGLE_NUMA_NODE
    if is_single:
        by_resource = [(name, [hint for hint in hints if _is_single(hint)]) for name, hints in by_resource]
    best = merge([hints for _, hints in by_resource], every, keeping)
    if policy is not NUMATopologyPolicy.BEST_EFFORT and not best.is_preferred:
        lacking = [name for name, hints in by_resource if not hints]
        if lacking:
            return Refusal(", ".join(f"Unsatisfied NUMA {name}" for name in lacking))
        return Refusal(f"Unaligned NUMA Hint cause [{' '.join(name for name, _ in by_resource)}]")
    return best._replace(numa_nodes=None) if is_single and best.numa_nodes == every else best


def merge(by_resource: Sequence[Sequence[Hint]], every: int, keeping: Keeping | None = None) -> Affinity:
    """Returns the best intersection: preferred, of fewest NUMA nodes, of the highest score, of the lowest numbers.

    It is preferred if all resources have one and the same set, which all prefer and ``keeping`` lets. Its score is
    the sum of those of hints that are the intersection itself. Where there is none it is every NUMA node.
    """
    best_by_resource = [_best_by_numa_nodes(hints) for hints in by_resource if hints]
    is_possible = len(best_by_resource) == len(by_resource)
    if not best_by_resource:
        return Affinity(every, is_possible and (keeping is None or keeping.lets(every)))
    common = set(best_by_resource[0]).intersection(*best_by_resource[1:])
    preferred = [
        Affinity(numa_nodes, True, sum(each[numa_nodes].score for each in best_by_resource))
        for numa_nodes in common
        if is_possible
        and all(each[numa_nodes].is_preferred for each in best_by_resource)
        and (keeping is None or keeping.lets(numa_nodes))
    ]
    if preferred:
        return min(preferred, key=_order)
    reachable = {every}
    for each in best_by_resource:
        reachable = {one & other for one in reachable for other in each} - {0}
    others = [
        Affinity(numa_nodes, False, sum(each[numa_nodes].score for each in best_by_resource if numa_nodes in each))
        for numa_nodes in reachable
    ]
    return min(others, key=_order, default=Affinity(every))


def _best_by_numa_nodes(hints: Iterable[Hint]) -> dict[int, Hint]:
    found: dict[int, Hint] = {}
    for hint in hints:
        before = found.get(hint.numa_nodes)
        if before is None or (before.is_preferred, before.score) < (hint.is_preferred, hint.score):
            found[hint.numa_nodes] = hint
    return found


def _is_single(hint: Hint) -> bool:
    return hint.is_preferred and hint.numa_nodes.bit_count() == 1


def _order(affinity: Affinity) -> tuple[int, int, tuple[int, ...]]:
    numa_nodes = affinity.numa_nodes or 0
    return numa_nodes.bit_count(), -affinity.score, tuple(members(numa_nodes))

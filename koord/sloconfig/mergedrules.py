"""What the fields of a merged strategy must be to each other: the node's own rules, applied before it gets them.

They are checked on what each node would have, cluster and node entry together, since either may be right alone. Network
requests depend on two keys, ``resource-qos-config`` and ``system-config``; there the pairs of entries are checked that
one node can have.

Invariants: besides the strategies of the cluster, only what a node can have is reported; what is wrong in the cluster's
strategy is reported there and not again for each entry. What this costs is bounded whatever the entries are: the list
of problems ends, and says so; pairs that are more than can be checked are a problem of their own, since what nobody has
checked must not pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from koord.model import slo_bandwidth, slo_rules
from koord.model.priority import CPU
from koord.model.problem import Problem
from koord.model.quantity import Quantity
from koord.model.slo import NodeSLOSpec, SystemStrategy
from koord.overcommit.ratios import ResourceAmplification
from koord.overcommit.strategy import CalculatePolicy, ColocationStrategy
from koord.sloconfig import nodeslo, selectors
from koord.sloconfig.config import NodeEntry, Section, SLOConfig
from koord.sloconfig.nodeslo import HostApplicationConfig
from koord.sloconfig.rows import KeyRow

MOST_PROBLEMS = 20
"""Of one key: a document with more need not be listed to its end."""
MOST_PAIRS = 40_000
"""Of a strategy that says something of the network and a bandwidth of ``system-config``: some microseconds each."""
MOST_EXAMPLES = 4000
"""Of nodes that would have two entries: whether they have is some tenths of a millisecond each."""
_NETWORK_USER = "resource_qos"
_Listed = Mapping[str, frozenset[str]]
"""`selectors.listed`."""


class _TooManyPairs(Exception):
    """The rest cannot be checked in the time that there is."""


class _Combination(NamedTuple):
    """The problems of the strategy at ``path`` and the system's beside it, and whether a node can have both: asked
    where it matters. ``problems``: at paths below the strategy's."""

    path: str
    problems: Sequence[Problem]
    can_be: Callable[[], bool] = lambda: True


def problems(row: KeyRow[Any], config: SLOConfig) -> list[Problem]:
    """Returns the problems of the strategies of ``row``'s key, each once; the last one says that there may be more."""
    found: dict[Problem, None] = {}
    of_cluster: set[Problem] = set()
    try:
        for path, every, can_be in _combinations(row, config):
            below = [each for each in every if each not in of_cluster]
            wrong = [Problem(f"{path}{each.path}", each.message) for each in below]
            if found.keys() >= set(wrong) or not can_be():
                continue
            if path == row.cluster_path:
                of_cluster.update(below)
            found |= dict.fromkeys(wrong)
            if len(found) > MOST_PROBLEMS:
                return [*list(found)[:MOST_PROBLEMS], Problem(row.key, "has more faults than are listed")]
    except _TooManyPairs as error:
        return [*found, Problem(row.key, str(error))]
    return list(found)


def _combinations(row: KeyRow[Any], config: SLOConfig) -> Iterator[_Combination]:
    """The cluster's first, and then those that can be wrong. Raises _TooManyPairs."""
    section: Section[Any] = getattr(config, row.section)
    if row.section == _NETWORK_USER:
        yield from _Pairs(config).combinations(row)
        return
    system = config.system.cluster
    yield _Combination(row.cluster_path, _problems(row, section.cluster, system))
    yield from (_Combination(entry.path, _problems(row, entry.strategy, system)) for entry in section.entries)


class _Pairs:
    """The strategies of ``resource-qos-config``, with each bandwidth that their nodes may have."""

    def __init__(self, config: SLOConfig) -> None:
        self._config = config
        self._pairs = self._examples = 0
        self._listed: dict[str, _Listed] = {}

    def combinations(self, row: KeyRow[Any]) -> Iterator[_Combination]:
        """Entries of ``system-config`` that say the same bandwidth are one. Raises _TooManyPairs."""
        config = self._config
        alike: dict[Quantity | None, list[NodeEntry[SystemStrategy] | None]] = {}
        for system in (None, *config.system.entries):
            strategy = config.system.cluster if system is None else system.strategy
            alike.setdefault(strategy.total_network_bandwidth, []).append(system)
        every: Sequence[NodeEntry[SystemStrategy] | None] = (None, *config.system.entries)
        for user in (None, *config.resource_qos.entries):
            asking = config.resource_qos.cluster if user is None else user.strategy
            path = row.cluster_path if user is None else user.path
            rest = slo_bandwidth.without_network(asking)
            yield _Combination(path, _problems(row, rest, config.system.cluster), partial(self._can_be, user, every))
            if rest == asking:
                continue
            for bandwidth, systems in alike.items():
                self._count_pair()
                known = None if bandwidth is None or bandwidth.nano < 0 else bandwidth
                if unmet := slo_bandwidth.unmet(asking, known):
                    yield _Combination(path, unmet, partial(self._can_be, user, systems))

    def _can_be(self, user: NodeEntry[Any] | None, systems: Sequence[NodeEntry[Any] | None]) -> bool:
        """Returns whether there can be a node of ``user`` and of one of ``systems``. None: of no entry. Raises
        _TooManyPairs.
        """
        config = self._config
        for system in systems:
            entries = [entry for entry in (user, system) if entry is not None and entry.selector is not None]
            if len(entries) == 2 and selectors.are_disjoint(*map(self._values, entries)):
                continue
            self._count_example()
            labels = selectors.example([entry.selector for entry in entries if entry.selector is not None])
            if labels is None:
                continue
            if config.resource_qos.entry(labels) is user and config.system.entry(labels) is system:
                return True
        return False

    def _values(self, entry: NodeEntry[Any]) -> _Listed:
        if entry.path not in self._listed:
            assert entry.selector is not None
            self._listed[entry.path] = selectors.listed(entry.selector)
        return self._listed[entry.path]

    def _count_pair(self) -> None:
        self._pairs += 1
        if self._pairs > MOST_PAIRS:
            raise _TooManyPairs(
                f"has networkQOS in entries that are, with the bandwidths of system-config, more than {MOST_PAIRS} "
                "pairs, the most that can be checked"
            )

    def _count_example(self) -> None:
        self._examples += 1
        if self._examples > MOST_EXAMPLES:
            raise _TooManyPairs(
                f"has entries that are wrong beside those of system-config, and more than {MOST_EXAMPLES} pairs of "
                "them might have a node together, the most that can be checked"
            )


def _problems(row: KeyRow[Any], strategy: Any, system: SystemStrategy) -> list[Problem]:
    return list(_found(row, strategy, system))


def _found(row: KeyRow[Any], strategy: Any, system: SystemStrategy) -> Iterator[Problem]:
    if isinstance(strategy, ColocationStrategy):
        if strategy.cpu_calculate_policy is CalculatePolicy.REQUEST:
            yield Problem(".cpuCalculatePolicy", "'request' is no policy for CPU: use usage or maxUsageRequest")
        return
    if isinstance(strategy, ResourceAmplification):
        ratios = strategy.resource_amplification_ratio or {}
        for resource in [each for each, ratio in ratios.items() if ratio < 1 and each != CPU]:
            yield Problem(f".resourceAmplificationRatio.{resource}", f"{ratios[resource]} is less than 1")
        return
    if not row.node_slo_field:
        return
    wrong: list[Problem] = []
    slo_rules.checked(_spec(row, strategy, system), bad=wrong.append)
    below, above = f"spec.{row.node_slo_field}", ".applications" if row.struct is HostApplicationConfig else ""
    for problem in wrong:
        if problem.path.startswith(below):
            message = problem.message.replace(below, above.lstrip("."))
            yield Problem(above + problem.path.removeprefix(below), message)


def _spec(row: KeyRow[Any], strategy: Any, system: SystemStrategy) -> NodeSLOSpec:
    members: dict[str, Any] = {"system": system, row.section: nodeslo.section_of(strategy)}
    return NodeSLOSpec(**members)

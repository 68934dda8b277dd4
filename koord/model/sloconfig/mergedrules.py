"""What the fields of a merged strategy must be to each other: the node's own rules, applied before it gets them.

They are checked on what each node would have, cluster and node entry together, since either may be right alone. Network
requests depend on two keys, ``resource-qos-config`` and ``system-config``; there the pairs of entries are checked that
one node can have.

Invariant: besides the strategies of the cluster, only what a node can have is reported; what is wrong in the cluster's
strategy is reported there and not again for each entry.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

from koord.model import slo_rules
from koord.model.overcommit.amplification import ResourceAmplification
from koord.model.overcommit.strategy import CalculatePolicy, ColocationStrategy
from koord.model.priority import CPU
from koord.model.quantity import Quantity
from koord.model.schema import SchemaError
from koord.model.slo import NodeSLOSpec, SystemStrategy
from koord.model.sloconfig import selectors
from koord.model.sloconfig.config import Entry, Section, SLOConfig
from koord.model.sloconfig.faults import Fault
from koord.model.sloconfig.rows import Row
from koord.model.sloconfig.structs import HostApplications, node_slo_section

_NETWORK_USER = "resource_qos"


class _Combination(NamedTuple):
    """A strategy at ``path``, with the system's beside it, and whether a node can have both: asked where it matters."""

    path: str
    strategy: Any
    system: SystemStrategy
    can_be: Callable[[], bool] = lambda: True


def faults(row: Row[Any], config: SLOConfig) -> list[Fault]:
    """What is wrong with the strategies of ``row``'s key, each once."""
    found: dict[Fault, None] = {}
    of_cluster: set[tuple[str, str, str]] = set()
    for path, strategy, system, can_be in _combinations(row, config):
        errors = list(_errors(row, strategy, system))
        if not errors or not can_be():
            continue
        for relative, value, why in errors:
            if path == row.cluster_path:
                of_cluster.add((relative, value, why))
            elif (relative, value, why) in of_cluster:
                continue
            place = f"{path}{relative}"
            found[Fault(place, f"{place}: {value} {why}")] = None
    return list(found)


def _combinations(row: Row[Any], config: SLOConfig) -> Iterator[_Combination]:
    """The cluster's first. Entries of ``system-config`` that say the same bandwidth are one."""
    section: Section[Any] = getattr(config, row.section)
    yield _Combination(row.cluster_path, section.cluster, config.system.cluster)
    if row.section != _NETWORK_USER:
        yield from (_Combination(entry.path, entry.strategy, config.system.cluster) for entry in section.entries)
        return
    alike: dict[Quantity | None, list[Entry[SystemStrategy] | None]] = {}
    for system in (None, *config.system.entries):
        strategy = config.system.cluster if system is None else system.strategy
        alike.setdefault(strategy.total_network_bandwidth, []).append(system)
    for bandwidth, systems in alike.items():
        of_system = SystemStrategy(total_network_bandwidth=bandwidth)
        for user in (None, *section.entries):
            path, strategy = (row.cluster_path, section.cluster) if user is None else (user.path, user.strategy)
            yield _Combination(path, strategy, of_system, partial(_can_be, config, user, systems))


def _can_be(config: SLOConfig, user: Entry[Any] | None, systems: Sequence[Entry[Any] | None]) -> bool:
    """Is there a node of the entry ``user`` of one key and of one of ``systems`` of the other? None: of no entry."""
    for system in systems:
        group = [entry.selector for entry in (user, system) if entry is not None and entry.selector is not None]
        labels = selectors.example(group)
        if labels is None:
            continue
        if config.resource_qos.entry(labels) is user and config.system.entry(labels) is system:
            return True
    return False


def _errors(row: Row[Any], strategy: Any, system: SystemStrategy) -> Iterator[tuple[str, str, str]]:
    """The place below the strategy, the value and what is wrong with it."""
    if isinstance(strategy, ColocationStrategy):
        if strategy.cpu_calculate_policy is CalculatePolicy.REQUEST:
            yield ".cpuCalculatePolicy", "'request'", "is no policy for CPU: use usage or maxUsageRequest"
        return
    if isinstance(strategy, ResourceAmplification):
        ratios = strategy.resource_amplification_ratio or {}
        for resource in [each for each, ratio in ratios.items() if ratio < 1 and each != CPU]:
            yield f".resourceAmplificationRatio.{resource}", str(ratios[resource]), "is less than 1"
        return
    if not row.node_slo_field:
        return
    errors: list[SchemaError] = []
    slo_rules.checked(_spec(row, strategy, system), bad=errors.append)
    below, above = f"spec.{row.node_slo_field}", ".applications" if row.struct is HostApplications else ""
    for error in errors:
        if error.path.startswith(below):
            yield above + error.path.removeprefix(below), error.value, error.why.replace(below, above.lstrip("."))


def _spec(row: Row[Any], strategy: Any, system: SystemStrategy) -> NodeSLOSpec:
    members: dict[str, Any] = {"system": system, row.section: node_slo_section(strategy)}
    return NodeSLOSpec(**members)

"""What the fields of a merged strategy must be to each other: the node's own rules, applied before it gets them.

They are checked on what each node would have, cluster and node entry together, since either may be right alone. Network
requests depend on two keys, ``resource-qos-config`` and ``system-config``; there the pairs of entries are checked that
one node can have.

Invariant: besides the strategies of the cluster, only what a node can have is reported; what is wrong in the cluster's
strategy is reported there and not again for each entry.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from koord.model import slo_rules
from koord.model.overcommit.amplification import ResourceAmplification
from koord.model.overcommit.strategy import CalculatePolicy, ColocationStrategy
from koord.model.priority import CPU
from koord.model.schema import SchemaError
from koord.model.slo import NodeSLOSpec, SystemStrategy
from koord.model.sloconfig import selectors
from koord.model.sloconfig.config import Section, SLOConfig
from koord.model.sloconfig.faults import Fault
from koord.model.sloconfig.rows import Row
from koord.model.sloconfig.structs import HostApplications, node_slo_section

_NETWORK_USER = "resource_qos"


def faults(row: Row[Any], config: SLOConfig) -> list[Fault]:
    """What is wrong with the strategies of ``row``'s key, each once."""
    found: dict[Fault, None] = {}
    of_cluster: set[tuple[str, str, str]] = set()
    for path, strategy, system in _combinations(row, config):
        for relative, value, why in _errors(row, strategy, system):
            if path == row.cluster_path:
                of_cluster.add((relative, value, why))
            elif (relative, value, why) in of_cluster:
                continue
            place = f"{path}{relative}"
            found[Fault(place, f"{place}: {value} {why}")] = None
    return list(found)


def _combinations(row: Row[Any], config: SLOConfig) -> Iterator[tuple[str, Any, SystemStrategy]]:
    """Path and strategy, the cluster's first, with the system's strategy that a node has beside it."""
    section: Section[Any] = getattr(config, row.section)
    yield row.cluster_path, section.cluster, config.system.cluster
    if row.section != _NETWORK_USER:
        yield from ((entry.path, entry.strategy, config.system.cluster) for entry in section.entries)
        return
    for labels in _label_sets(config):
        entry = section.entry(labels)
        path = row.cluster_path if entry is None else entry.path
        yield path, section.strategy(labels), config.system.strategy(labels)


def _label_sets(config: SLOConfig) -> Iterator[Mapping[str, str]]:
    """For each entry of either key, and for each two of them, the labels of a node that they match."""
    users = [entry.selector for entry in config.resource_qos.entries if entry.selector is not None]
    systems = [entry.selector for entry in config.system.entries if entry.selector is not None]
    groups = [*([each] for each in (*users, *systems)), *([user, system] for user in users for system in systems)]
    for group in groups:
        labels = selectors.example(group)
        if labels is not None:
            yield labels


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

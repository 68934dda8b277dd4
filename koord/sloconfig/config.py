"""``slo-controller-config`` in force: per key the cluster's strategy and those of the node entries, all merged.

Of one key the first entry in the order of the list that matches a node's labels is the node's; nothing else is
combined with it. An entry without a selector matches no node, one with an empty selector every node.

Invariant: immutable, and complete whatever the ConfigMap said: every method answers for every node. Configurations that
are equal mean the same for every node, so who compares them need not visit the nodes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import msgspec

from koord.model.nodemetric import CollectPolicy
from koord.model.problem import Problem
from koord.model.selector import LabelSelector
from koord.model.slo import CPUBurstStrategy, NodeSLOSpec, ResourceQOSStrategy, ResourceThresholds, SystemStrategy
from koord.model.slo_extensions import KoordExtension
from koord.overcommit.ratios import CPUNormalization, ResourceAmplification
from koord.overcommit.strategy import ColocationStrategy
from koord.sloconfig import colocation, nodeslo
from koord.sloconfig.nodeslo import HostApplicationConfig
from koord.sloconfig.rows import ROWS

T = TypeVar("T", bound=msgspec.Struct)
Labels = Mapping[str, str]
Annotations = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class NodeEntry(Generic[T]):
    """``path``: where it is in the ConfigMap. ``strategy``: over the cluster's."""

    path: str
    name: str
    selector: LabelSelector | None
    strategy: T

    def matches(self, labels: Labels) -> bool:
        return self.selector is not None and self.selector.matches(labels)


@dataclass(frozen=True, slots=True)
class Section(Generic[T]):
    """One key."""

    cluster: T
    entries: tuple[NodeEntry[T], ...] = ()

    def entry(self, labels: Labels) -> NodeEntry[T] | None:
        """Returns the entry of a node with ``labels``; None if the cluster's strategy is the node's."""
        return next((entry for entry in self.entries if entry.matches(labels)), None)

    def strategy(self, labels: Labels) -> T:
        entry = self.entry(labels)
        return self.cluster if entry is None else entry.strategy


@dataclass(frozen=True, slots=True)
class SLOConfig:
    """All keys; each row of ``rows.ROWS`` names its field."""

    colocation: Section[ColocationStrategy]
    thresholds: Section[ResourceThresholds]
    resource_qos: Section[ResourceQOSStrategy]
    cpu_burst: Section[CPUBurstStrategy]
    system: Section[SystemStrategy]
    host_applications: Section[HostApplicationConfig]
    extensions: Section[KoordExtension]
    cpu_normalization: Section[CPUNormalization]
    resource_amplification: Section[ResourceAmplification]

    @classmethod
    def defaults(cls) -> SLOConfig:
        """Returns what a ConfigMap without a key means."""
        sections: dict[str, Any] = {row.section: Section(row.default) for row in ROWS}
        return cls(**sections)

    def strategy(self, labels: Labels, annotations: Annotations) -> tuple[ColocationStrategy, tuple[Problem, ...]]:
        """Returns how the node is colocated, with the node's own annotation and labels on top.

        A cluster that does not ``enable`` colocation has it on no node, whatever an entry or a node says.
        """
        strategy, problems = colocation.of_node(self.colocation.strategy(labels), labels, annotations)
        enable = bool(self.colocation.cluster.enable and strategy.enable)
        return msgspec.structs.replace(strategy, enable=enable), problems

    def collect_policy(self, labels: Labels, annotations: Annotations) -> CollectPolicy:
        """NodeMetric's ``metricCollectPolicy``: there is one whether colocation is enabled or not."""
        return colocation.collect_policy(self.strategy(labels, annotations)[0])

    def node_slo(self, labels: Labels, annotations: Annotations) -> tuple[NodeSLOSpec, tuple[Problem, ...]]:
        """NodeSLO's spec, complete: what is None in it is to be absent from the object.

        Of ``extensions`` it has the cluster's own; those of others are no business of this configuration.
        """
        system, problems = nodeslo.system_of_node(self.system.strategy(labels), annotations)
        spec = NodeSLOSpec(
            thresholds=self.thresholds.strategy(labels),
            resource_qos=self.resource_qos.strategy(labels),
            cpu_burst=self.cpu_burst.strategy(labels),
            system=system,
            host_applications=nodeslo.section_of(self.host_applications.strategy(labels)),
            extensions=nodeslo.section_of(self.extensions.strategy(labels)),
        )
        return spec, problems

    def normalization(self, labels: Labels) -> CPUNormalization:
        """Returns it as configured; the node's label ``cpu-normalization-enabled`` is not looked at."""
        return self.cpu_normalization.strategy(labels)

    def amplification(self, labels: Labels) -> ResourceAmplification:
        return self.resource_amplification.strategy(labels)

"""The keys of ``slo-controller-config``, one row each.

To add a key, add its row here and its field to ``config.SLOConfig``; reading, merging and checking follow from the row.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Generic, TypeVar

import msgspec

from koord.model import schema, slo_defaults
from koord.model.problem import Bad
from koord.model.schema import Unknown
from koord.model.slo import CPUBurstStrategy, NodeSLOSpec, ResourceQOSStrategy, ResourceThresholds, SystemStrategy
from koord.model.slo_extensions import KoordExtension
from koord.overcommit.ratios import CPUNormalization, ResourceAmplification
from koord.overcommit.strategy import DEFAULTS, ColocationStrategy
from koord.sloconfig import colocation
from koord.sloconfig.nodeslo import HostApplicationConfig

T = TypeVar("T", bound=msgspec.Struct)


class EventReason(StrEnum):
    """Of the Warning event on the ConfigMap when a key cannot be used."""

    COLOCATION = "ColocationCfgUnmarshalFailed"
    SLO = "SLOCfgUnmarshalFailed"
    CPU_NORMALIZATION = "CPUNormalizationCfgUnmarshalFailed"
    RESOURCE_AMPLIFICATION = "ResourceAmplificationCfgUnmarshalFailed"


class KeyLayout(StrEnum):
    """Where a key's document has the cluster's strategy. Its value is the name of the list of node entries."""

    NESTED = "nodeStrategies"
    """Under ``clusterStrategy``."""
    FLAT = "nodeConfigs"
    """At the top."""


class Override(StrEnum):
    """What a node entry does to the cluster's strategy."""

    MERGE = "merge"
    REPLACE = "replace"


@dataclass(frozen=True, slots=True)
class KeyRow(Generic[T]):
    key: str
    section: str
    """The field of ``SLOConfig``; where the section goes into NodeSLO, also that of ``NodeSLOSpec``."""
    struct: type[T]
    default: T
    event_reason: EventReason
    layout: KeyLayout
    override: Override
    consumer: str
    """NodeSLO's section, or what else is made of it."""
    rules: Callable[[T, str, Bad, Unknown], T] | None = None
    """What must hold beyond the struct's bounds: the strategy without what is wrong, of which ``Bad`` is told."""

    def read(self, document: object, path: str, unknown: Unknown, bad: Bad) -> T:
        """The strategy in ``document``. Raises SchemaError for what is no single leaf."""
        strategy = schema.read(self.struct, document, path, unknown, bad)
        return strategy if self.rules is None else self.rules(strategy, path, bad, unknown)

    @property
    def cluster_path(self) -> str:
        """The path of the cluster's strategy, for messages."""
        return f"{self.key}.clusterStrategy" if self.layout is KeyLayout.NESTED else self.key

    def entry_path(self, index: int) -> str:
        return f"{self.key}.{self.layout}[{index}]"

    @property
    def node_slo_field(self) -> str:
        """The JSON name of the section of NodeSLO that is made of this; "" if none."""
        return _NODE_SLO_FIELDS.get(self.section, "")


_NODE_SLO_FIELDS = dict(zip(NodeSLOSpec.__struct_fields__, NodeSLOSpec.__struct_encode_fields__, strict=True))


def _node_slo(key: str, section: str, struct: type[T], default: T | None) -> KeyRow[T]:
    """A row whose strategies become a section of NodeSLO as they are."""
    base, consumer = struct() if default is None else default, f"NodeSLO {_NODE_SLO_FIELDS[section]}"
    return KeyRow(key, section, struct, base, EventReason.SLO, KeyLayout.NESTED, Override.MERGE, consumer)


_BUILT_IN = slo_defaults.defaults()

ROWS: tuple[KeyRow[Any], ...] = (
    KeyRow(
        key="colocation-config",
        section="colocation",
        struct=ColocationStrategy,
        default=DEFAULTS,
        event_reason=EventReason.COLOCATION,
        layout=KeyLayout.FLAT,
        override=Override.MERGE,
        consumer="batch and mid resources of Node; NodeMetric metricCollectPolicy",
        rules=colocation.checked,
    ),
    _node_slo("resource-threshold-config", "thresholds", ResourceThresholds, _BUILT_IN.thresholds),
    _node_slo("resource-qos-config", "resource_qos", ResourceQOSStrategy, None),
    _node_slo("cpu-burst-config", "cpu_burst", CPUBurstStrategy, _BUILT_IN.cpu_burst),
    _node_slo("system-config", "system", SystemStrategy, _BUILT_IN.system),
    KeyRow(
        key="host-application-config",
        section="host_applications",
        struct=HostApplicationConfig,
        default=HostApplicationConfig(),
        event_reason=EventReason.SLO,
        layout=KeyLayout.FLAT,
        override=Override.REPLACE,
        consumer="NodeSLO hostApplications",
    ),
    _node_slo("koord-config", "extensions", KoordExtension, None),
    KeyRow(
        key="cpu-normalization-config",
        section="cpu_normalization",
        struct=CPUNormalization,
        default=CPUNormalization(enable=False, ratio_model={}),
        event_reason=EventReason.CPU_NORMALIZATION,
        layout=KeyLayout.FLAT,
        override=Override.MERGE,
        consumer="Node annotation cpu-normalization-ratio",
    ),
    KeyRow(
        key="resource-amplification-config",
        section="resource_amplification",
        struct=ResourceAmplification,
        default=ResourceAmplification(enable=False),
        event_reason=EventReason.RESOURCE_AMPLIFICATION,
        layout=KeyLayout.FLAT,
        override=Override.MERGE,
        consumer="Node annotation resource-amplification-ratio",
    ),
)
"""``resource-qos-config`` has no default here: the node's agent has one of its own for each section that is enabled."""

"""The kinds that Koord owns, and which of their members a table has."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from koord.kube.client import Client
from koord.kube.kind import CLUSTER_COLOCATION_PROFILE, NODE_METRIC, NODE_SLO, Key, Kind, Unstructured
from koordctl.table import align
from koordctl.values import NONE

Object = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Column:
    """``path``: where the value is (``status.updateTime``); or ``text``, made of the object."""

    header: str
    path: str = ""
    text: Callable[[Object], str] | None = None

    def cell(self, item: Object) -> str:
        return _text(member(item, self.path)) if self.text is None else self.text(item)


@dataclass(frozen=True, slots=True)
class KindRow:
    kind: Kind[Any]
    columns: tuple[Column, ...]

    @property
    def names(self) -> tuple[str, str]:
        """As kubectl takes them."""
        return self.kind.plural, self.kind.name.lower()

    def table(self, items: Sequence[Object]) -> str:
        """Without a final line break."""
        if not items:
            return f"There are no {self.kind.plural}."
        columns = (Column("NAME", "metadata.name"), *self.columns)
        return align([each.header for each in columns], [[each.cell(item) for each in columns] for item in items])


def member(item: Any, path: str) -> Any:
    """The member at ``path``; None where there is none."""
    for name in path.split("."):
        item = item.get(name) if isinstance(item, Mapping) else None
    return item


def _text(value: Any) -> str:
    match value:
        case None | "":
            return NONE
        case bool():
            return "yes" if value else "no"
        case Mapping():
            return ",".join(f"{key}={each}" for key, each in value.items()) or NONE
        case _:
            return str(value)


def _count(path: str) -> Callable[[Object], str]:
    return lambda item: str(len(member(item, path) or ()))


_USAGE = "status.nodeMetric.nodeUsage.resources"
_SYSTEM = "status.nodeMetric.systemUsage.resources"
_THRESHOLDS = "spec.resourceUsedThresholdWithBE"
KINDS = (
    KindRow(
        NODE_METRIC,
        (
            Column("UPDATED", "status.updateTime"),
            Column("CPU", f"{_USAGE}.cpu"),
            Column("MEMORY", f"{_USAGE}.memory"),
            Column("SYSTEM-CPU", f"{_SYSTEM}.cpu"),
            Column("SYSTEM-MEMORY", f"{_SYSTEM}.memory"),
            Column("PODS", text=_count("status.podsMetric")),
        ),
    ),
    KindRow(
        NODE_SLO,
        (
            Column("SUPPRESS", f"{_THRESHOLDS}.enable"),
            Column("POLICY", f"{_THRESHOLDS}.cpuSuppressPolicy"),
            Column("CPU-THRESHOLD", f"{_THRESHOLDS}.cpuSuppressThresholdPercent"),
            Column("MEMORY-EVICT", f"{_THRESHOLDS}.memoryEvictThresholdPercent"),
            Column("CPU-BURST", "spec.cpuBurstStrategy.policy"),
        ),
    ),
    KindRow(
        CLUSTER_COLOCATION_PROFILE,
        (
            Column("QOS", "spec.qosClass"),
            Column("PRIORITY-CLASS", "spec.priorityClassName"),
            Column("SCHEDULER", "spec.schedulerName"),
            Column("PROBABILITY", "spec.probability"),
            Column("NAMESPACES", "spec.namespaceSelector.matchLabels"),
            Column("PODS", "spec.selector.matchLabels"),
        ),
    ),
)


def by_name(name: str) -> KindRow | None:
    """By its plural or singular, in any case."""
    return next((row for row in KINDS if name.lower() in row.names), None)


def names() -> list[str]:
    return [row.kind.plural for row in KINDS]


async def read(client: Client, row: KindRow, name: str) -> list[Object]:
    """The object ``name``, or all, by name. Raises KubeError."""
    kind = row.kind
    whole = Kind(kind.group, kind.version, kind.name, kind.plural, kind.namespaced, Unstructured)
    if name:
        return [(await client.get(whole, Key("", name))).content]
    page = await client.list(whole)
    items = [entry.object.content for entry in page.entries if entry.object is not None]
    return sorted(items, key=lambda item: str(member(item, "metadata.name")))

"""The kinds that Koord owns, and which of their members a table has."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from koord.kube.client import Client
from koord.kube.kind import CLUSTER_COLOCATION_PROFILE, ELASTIC_QUOTA, NODE_METRIC, NODE_SLO, Key, Kind, Unstructured
from koord.model.documents import at
from koord.quota import names as quota_names
from koordctl.fields import Listing, ListingField, ListingLayout
from koordctl.values import NONE

Object = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class KindRow:
    """``aliases``: names that kubectl does not know."""

    kind: Kind[Any]
    fields: tuple[ListingField[Object], ...]
    aliases: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """Returns its names as kubectl takes them, and others."""
        return self.kind.plural, self.kind.name.lower(), *self.aliases

    def table(self, items: Sequence[Object], width: int | None = None) -> str:
        """Renders objects, without a final line break. ``width``: of a terminal."""
        fields = (_field("NAME", "metadata.name"), *self.fields)
        return ListingLayout(Listing("items", fields, f"There are no {self.kind.plural}."), width=width).table(items)


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


def _field(header: str, path: str, text: Callable[[Any], str] = _text) -> ListingField[Object]:
    """``path``: where the value is (``status.updateTime``); ``text``: of it, for people."""
    return ListingField(path, header, lambda item: text(at(item, *path.split("."))))


def _annotated(header: str, key: str) -> ListingField[Object]:
    """An annotation that is a list of amounts."""

    def text(item: Object) -> str:
        value = (at(item, "metadata", "annotations") or {}).get(key)
        try:
            return _text(value and msgspec.json.decode(value, type=dict[str, Any]))
        except (msgspec.DecodeError, TypeError):
            return _text(value)

    return ListingField(key, header, text)


def _parent(item: Object) -> str:
    return (at(item, "metadata", "labels") or {}).get(quota_names.LABEL_PARENT) or NONE


_USAGE = "status.nodeMetric.nodeUsage.resources"
_SYSTEM = "status.nodeMetric.systemUsage.resources"
_THRESHOLDS = "spec.resourceUsedThresholdWithBE"
KINDS = (
    KindRow(
        NODE_METRIC,
        (
            _field("UPDATED", "status.updateTime"),
            _field("CPU", f"{_USAGE}.cpu"),
            _field("MEMORY", f"{_USAGE}.memory"),
            _field("SYSTEM-CPU", f"{_SYSTEM}.cpu"),
            _field("SYSTEM-MEMORY", f"{_SYSTEM}.memory"),
            _field("PODS", "status.podsMetric", lambda pods: str(len(pods or ()))),
        ),
    ),
    KindRow(
        NODE_SLO,
        (
            _field("SUPPRESS", f"{_THRESHOLDS}.enable"),
            _field("POLICY", f"{_THRESHOLDS}.cpuSuppressPolicy"),
            _field("CPU-THRESHOLD", f"{_THRESHOLDS}.cpuSuppressThresholdPercent"),
            _field("MEMORY-EVICT", f"{_THRESHOLDS}.memoryEvictThresholdPercent"),
            _field("CPU-BURST", "spec.cpuBurstStrategy.policy"),
        ),
    ),
    KindRow(
        CLUSTER_COLOCATION_PROFILE,
        (
            _field("QOS", "spec.qosClass"),
            _field("PRIORITY-CLASS", "spec.priorityClassName"),
            _field("SCHEDULER", "spec.schedulerName"),
            _field("PROBABILITY", "spec.probability"),
            _field("NAMESPACES", "spec.namespaceSelector.matchLabels"),
            _field("PODS", "spec.selector.matchLabels"),
        ),
    ),
    KindRow(
        ELASTIC_QUOTA,
        (
            _field("NAMESPACE", "metadata.namespace"),
            ListingField("parent", "PARENT", _parent),
            _field("MIN", "spec.min"),
            _field("MAX", "spec.max"),
            _annotated("REQUEST", quota_names.ANNOTATION_REQUEST),
            _field("USED", "status.used"),
            _annotated("RUNTIME", quota_names.ANNOTATION_RUNTIME),
        ),
        ("quotas", "quota"),
    ),
)


def by_name(name: str) -> KindRow | None:
    """Returns the row of a kind by its plural or singular, in any case; None if Koord has no such kind."""
    return next((row for row in KINDS if name.lower() in row.names), None)


def names() -> list[str]:
    return [row.kind.plural for row in KINDS]


async def read(client: Client, row: KindRow, name: str) -> list[Object]:
    """Returns the object ``name``, or all, sorted by name; where names are in namespaces, all of that name. Raises
    KubeError.
    """
    whole = row.kind.decoded_as(Unstructured)
    if name and not row.kind.namespaced:
        return [(await client.get(whole, Key("", name))).content]
    page = await client.list(whole)
    items = [entry.object.content for entry in page.entries if entry.object is not None]
    named = [item for item in items if not name or at(item, "metadata", "name") == name]
    return sorted(named, key=lambda item: str(at(item, "metadata", "name")))

"""NodeMetrics, packed: one with thirty pods takes five times the memory of its text, and is read once a minute."""

from __future__ import annotations

import msgspec

from koord.model.core import ObjectMeta
from koord.model.nodemetric import NodeMetric, NodeMetricSpec, NodeMetricStatus


class PackedMetric(msgspec.Struct, frozen=True, gc=False):
    metadata: ObjectMeta
    spec: NodeMetricSpec
    update_time: str | None
    status: bytes
    """As JSON."""

    def unpacked(self) -> NodeMetric:
        return NodeMetric(self.metadata, self.spec, msgspec.json.decode(self.status, type=NodeMetricStatus))


def packed(metric: NodeMetric) -> PackedMetric:
    return PackedMetric(metric.metadata, metric.spec, metric.status.update_time, msgspec.json.encode(metric.status))

"""Of a NodeResourceTopology the CPU model alone: all zones and allocations are for schedulers, and change with pods."""

from __future__ import annotations

import msgspec

from koord.model.core import ObjectMeta
from koord.model.noderesourcetopology import NodeResourceTopology
from koord.model.topologyannotations import CPU_BASIC_INFO


class CPUInfo(msgspec.Struct, frozen=True, gc=False):
    """``text``: the annotation ``cpu-basic-info``; None if there is none."""

    metadata: ObjectMeta
    text: str | None


def cpu_info(topology: NodeResourceTopology) -> CPUInfo:
    metadata = topology.metadata
    bare = msgspec.structs.replace(metadata, labels={}, annotations={})
    return CPUInfo(bare, metadata.annotations.get(CPU_BASIC_INFO))

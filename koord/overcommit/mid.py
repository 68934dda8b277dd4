"""The mid resources of a node: what prod pods request and, by the node's prediction, will not use.

    dynamic   min(reclaimable, unused) + unallocated * midUnallocatedPercent
    static    capacity * midStatic…ReservedPercent

each at most ``mid…ThresholdPercent`` of the capacity. Unused is 0 where the report does not have the node's use.
"""

from __future__ import annotations

import msgspec

from koord.overcommit.amounts import NOTHING, CPUMemory
from koord.overcommit.batch import required
from koord.overcommit.demand import Demand
from koord.overcommit.report import NodeFigures
from koord.overcommit.strategy import ColocationStrategy, MidReclaimMode


class MidTerms(msgspec.Struct, frozen=True, kw_only=True):
    limit: CPUMemory
    static: CPUMemory | None = None
    """None: the terms that follow apply instead."""
    reclaimable: CPUMemory = NOTHING
    unused: CPUMemory = NOTHING
    unallocated: CPUMemory = NOTHING
    """Of the capacity, beside the system and the requests of prod pods."""
    unallocated_share: CPUMemory = NOTHING

    def result(self) -> CPUMemory:
        if self.static is not None:
            return self.static.meet(self.limit)
        return (self.reclaimable.meet(self.unused).join(NOTHING) + self.unallocated_share).meet(self.limit)


def terms(
    total: CPUMemory, node_reserved: CPUMemory, figures: NodeFigures, demand: Demand, strategy: ColocationStrategy
) -> MidTerms:
    """``strategy``: complete. Raises ValueError if it is not."""
    limit = total.percent(required(strategy.mid_cpu_threshold_percent), required(strategy.mid_memory_threshold_percent))
    if strategy.mid_reclaim_mode is MidReclaimMode.STATIC:
        cpu, memory = strategy.mid_static_cpu_reserved_percent, strategy.mid_static_memory_reserved_percent
        return MidTerms(limit=limit, static=total.percent(required(cpu), required(memory)))
    percent = required(strategy.mid_unallocated_percent)
    system = (figures.system_usage + figures.prod_host_applications).join(node_reserved)
    unallocated = (total - system - demand.prod_request).join(NOTHING)
    return MidTerms(
        limit=limit,
        reclaimable=figures.prod_reclaimable,
        unused=NOTHING if figures.node_usage is None else (total - figures.node_usage).join(NOTHING),
        unallocated=unallocated,
        unallocated_share=unallocated.percent(percent, percent),
    )

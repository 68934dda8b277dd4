"""Whether the batch pods on a node hold more than the node offers by now, which Kubernetes itself does not notice.

Where a strategy does not cover running pods, allocatable may shrink below what is allocated: nothing new is placed
then, but nothing leaves either, and a kubelet that restarts ends pods until the rest fits. So it is said, with the
amount.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from koord.model.core import Pod
from koord.overcommit import demand
from koord.overcommit.amounts import NOTHING, CPUMemory
from koord.overcommit.units import cpu, memory


@dataclass(frozen=True, slots=True)
class OverAllocation:
    allocated: CPUMemory
    excess: CPUMemory
    """What of it is not offered."""
    sentence: str


def allocated(pods: Iterable[Pod]) -> CPUMemory:
    """What pods on a node hold of its batch resources. A request that cannot be read counts as 0."""
    return sum((demand.batch_request(pod).filled() for pod in pods), NOTHING)


def overallocation(held: CPUMemory, offered: CPUMemory | None) -> OverAllocation | None:
    """None: all that is held is offered. ``offered``: None if nothing is."""
    excess = (held - (offered or NOTHING)).join(NOTHING)
    if excess == NOTHING:
        return None
    parts = []
    if excess.cpu_milli:
        parts.append(f"{cpu(excess.cpu_milli)} of the {cpu(held.cpu_milli)} batch-cpu")
    if excess.memory_bytes:
        parts.append(f"{memory(excess.memory_bytes)} of the {memory(held.memory_bytes)} batch-memory")
    return OverAllocation(
        held,
        excess,
        f"batch over-allocated: {' and '.join(parts)} that pods hold is not offered: a kubelet that restarts ends some",
    )

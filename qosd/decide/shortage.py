"""A shortage: the resource that the node lacks, how much of it, and which pods may be made to give it, in which order.

Strategies state shortages and never victims: one engine (``qosd.decide.relief``) takes steps for all of them together,
so that no two strategies free twice what lacks once.
"""

from __future__ import annotations

from enum import IntEnum, StrEnum

import msgspec

from koord.model import readable
from koord.model.formulas import NO_INPUTS, Inputs
from koord.model.priority import PriorityClass
from koord.model.qos import QoSClass
from qosd.model.snapshot import Window


class Resource(StrEnum):
    """A resource that lacks: CPU in thousandths of a CPU, memory in bytes."""

    CPU_MILLI = "cpu"
    MEMORY_BYTES = "memory"

    def said(self, amount: int) -> str:
        """Returns an amount of the resource as text."""
        return readable.cpus(amount) if self is Resource.CPU_MILLI else readable.memory(amount)


class Measure(StrEnum):
    """How a victim's part is measured: by its usage, or by its request of the extended resource (batch-cpu, mid-memory
    …; else native)."""

    USAGE = "usage"
    REQUEST = "request"


class ReliefStep(IntEnum):
    """The steps of relief, mildest first: reclaim idle memory, throttle, freeze, and at last evict."""

    RECLAIM = 0
    THROTTLE = 1
    FREEZE = 2
    EVICT = 3


class OrderKey(StrEnum):
    """The keys by which victims are ordered, one after the other: the lowest goes first, of amounts the largest.

    ``AMOUNT``: at most the need, so that all pods that cover the need by themselves are equal. ``OWNER``: the pods of
    one controller (ReplicaSet, Job …) take turns with those of others. ``LOST_WORK``: the CPU time that the pod has
    had, and that is likely to be spent again.
    """

    EVICTION_PRIORITY = "eviction priority"
    PRIORITY = "priority"
    SUB_PRIORITY = "sub-priority"
    AMOUNT = "amount"
    USE_OF_REQUEST = "use of request"
    OWNER = "owner"
    LOST_WORK = "lost work"


_OF_PRIORITY = frozenset({OrderKey.PRIORITY, OrderKey.SUB_PRIORITY})


class Victims(msgspec.Struct, frozen=True):
    """The pods that may be made to give: with a label of one of ``classes`` (None: any label, or none), of one of
    ``bands`` (None: any) and of at most ``priority_at_most`` (None: any).

    ``gate``: the feature gate by which a pod's ``eviction-policy`` may forbid it. ``is_opt_in``: only pods labelled
    ``eviction-enabled``. ``with_static``: also pods that kubelet does not have from the API. SYSTEM pods and those in a
    virtual machine of their own (Kata) are never among them.
    """

    classes: frozenset[QoSClass] | None
    gate: str
    priority_at_most: int | None = None
    is_opt_in: bool = False
    bands: frozenset[PriorityClass] | None = None
    with_static: bool = False


class Shortage(msgspec.Struct, frozen=True):
    """``amount`` of ``resource`` must be given back, in the resource's unit, above 0. ``steps``: those that may be
    taken.

    ``extended_resource``: the one whose requests count; "" = the pods' own, else native. ``sampled_ns``: the
    instant of the oldest samples that it rests on, None: those of the snapshot. ``left_s``: the seconds until it is too
    late; then no step with a later effect is waited for, and pods that grow by the window ``growth`` are stopped too;
    None: unknown.
    """

    resource: Resource
    amount: int
    victims: Victims
    order: tuple[OrderKey, ...]
    why: str
    measure: Measure = Measure.USAGE
    steps: frozenset[ReliefStep] = frozenset(ReliefStep)
    inputs: Inputs = NO_INPUTS
    extended_resource: str = ""
    sampled_ns: int | None = None
    left_s: float | None = None
    growth: Window | None = None

    @property
    def counts_priority(self) -> bool:
        """Does a pod's priority decide whether, or when, it is chosen?"""
        return self.victims.priority_at_most is not None or not _OF_PRIORITY.isdisjoint(self.order)


Key = tuple[str, Resource, str]
"""The strategy, the resource, and the extended resource."""


class ShortageClaim(msgspec.Struct, frozen=True):
    """A shortage with the strategy that states it."""

    strategy: str
    shortage: Shortage

    @property
    def key(self) -> Key:
        return self.strategy, self.shortage.resource, self.shortage.extended_resource

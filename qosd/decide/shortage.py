"""A shortage: what the node lacks, how much of it, and who may be made to give it up, in which order.

Strategies state shortages and never victims: one engine (``qosd.decide.relief``) makes steps of all of them together,
so that no two strategies take twice what was lacking once.
"""

from __future__ import annotations

from enum import IntEnum, StrEnum

import msgspec

from koord.model.formulas import NO_INPUTS, Inputs
from koord.model.qos import QoSClass


class Resource(StrEnum):
    """What lacks: CPU in thousandths of a CPU, memory in bytes."""

    CPU_MILLI = "cpu"
    MEMORY_BYTES = "memory"


class Measure(StrEnum):
    """A victim's part: what it uses, or what it requests of its band (batch, mid, native)."""

    USAGE = "usage"
    REQUEST = "request"


class Rung(IntEnum):
    """The steps, mildest first: what is idle is reclaimed, what grows is throttled, frozen, and at last evicted."""

    RECLAIM = 0
    THROTTLE = 1
    FREEZE = 2
    EVICT = 3


class OrderKey(StrEnum):
    """By what victims are ordered, one key after the other: the lowest goes first, of amounts the largest."""

    EVICTION_PRIORITY = "eviction priority"
    PRIORITY = "priority"
    SUB_PRIORITY = "sub-priority"
    AMOUNT = "amount"
    USE_OF_REQUEST = "use of request"


class Victims(msgspec.Struct, frozen=True):
    """Which pods may be made to give: those of ``classes`` with at most ``priority_at_most`` (None: any).

    ``gate``: the feature gate by which a pod's ``eviction-policy`` may forbid it. ``is_opt_in``: only pods
    labelled ``eviction-enabled``.
    """

    classes: frozenset[QoSClass]
    gate: str
    priority_at_most: int | None = None
    is_opt_in: bool = False


class Shortage(msgspec.Struct, frozen=True):
    """``amount`` of ``resource`` must be given back, in the resource's unit, above 0. ``rungs``: what may be done."""

    resource: Resource
    amount: int
    victims: Victims
    order: tuple[OrderKey, ...]
    why: str
    measure: Measure = Measure.USAGE
    rungs: frozenset[Rung] = frozenset(Rung)
    inputs: Inputs = NO_INPUTS


Key = tuple[str, Resource]
"""Who lacks what."""


class Claim(msgspec.Struct, frozen=True):
    """A shortage, and the strategy that states it."""

    strategy: str
    shortage: Shortage

    @property
    def key(self) -> Key:
        return self.strategy, self.shortage.resource

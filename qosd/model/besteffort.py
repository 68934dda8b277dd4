"""The limits of best-effort pods: decided by strategies at each tick, and no part of the policy.

The policy says whether best-effort pods are held back; a strategy decides from the node's load how far. Hooks and the
strategies that write kernel files follow the limits, for running pods and for pods to come: hooks have them before the
tick that decided them writes anything. Immutable.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import msgspec

from qosd.model.policy import Pool


class BestEffortScheduling(msgspec.Struct, frozen=True):
    """The CPU limits of best-effort pods (``PodContext.is_best_effort``) by one strategy.

    ``cpus``: a list of CPUs of their pool ("" = all of it). ``cpu_milli``: the CPU time of all of them together (0 = no
    limit). ``has_lowest_weight``: do they have the lowest weight beside other pods? ``is_idle``: do they run only when
    no other task would (``cpu.idle``)? ``slice_us``: the time slice of their tasks (0 = the kernel's own).
    ``on_trial``: the field whose value is an experiment with an end; "" = none.
    """

    why: str
    cpus: str = ""
    cpu_milli: int = 0
    has_lowest_weight: bool = False
    is_idle: bool = False
    slice_us: int = 0
    on_trial: str = ""

    @property
    def lasting(self) -> BestEffortScheduling:
        """The limits without the one on trial."""
        if not self.on_trial:
            return self
        return msgspec.structs.replace(self, **{self.on_trial: getattr(UNBOUNDED, self.on_trial)}, on_trial="")


UNBOUNDED = BestEffortScheduling("")
_NOTHING: Mapping[str, BestEffortScheduling] = MappingProxyType({})


class BestEffortLimits(msgspec.Struct, frozen=True):
    """The limits of best-effort pods by all strategies together, for the node's present pods and CPUs.

    ``pools``: what they may use of the BE pool. ``tier_milli``: the CPU time of kubelet's BestEffort tier, with room
    for its pods that suppression does not cover; 0 = no limit. ``below_tier_milli``: the largest quota possible below
    the tier on cgroup v1; 0 = all that the tier has. ``tier_cpus``: the CPU set of the tier on cgroup v1 if another
    agent made it smaller than that of the pods' root; else "". ``by_strategy``: the limits of each strategy, from
    which the others are made.
    """

    scheduling: BestEffortScheduling = UNBOUNDED
    pools: tuple[Pool, ...] = ()
    tier_milli: int = 0
    below_tier_milli: int = 0
    tier_cpus: str = ""
    by_strategy: Mapping[str, BestEffortScheduling] = _NOTHING


NO_LIMITS = BestEffortLimits()

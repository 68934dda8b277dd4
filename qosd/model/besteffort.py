"""What strategies leave to best-effort pods: a decision of the newest tick, beside the policy and none of its rules.

The policy says whether best-effort pods are held back; how far, a strategy decides from what the node does. Hooks and
the strategies that write kernel files go by it, for the pods that run and for those that come: it holds for hooks
before the tick that decided it writes anything. Immutable.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import msgspec

from qosd.model.policy import Pool


class BestEffortScheduling(msgspec.Struct, frozen=True):
    """What one strategy leaves to best-effort pods (``PodContext.is_best_effort``) of the CPU, and how they run on it.

    ``cpus``: of their pool these (a list; "" = all of it). ``cpu_milli``: so much CPU time for all of them together
    (0 = as much as there is). ``has_lowest_weight``: beside others they have next to none. ``is_idle``: they run when
    no other task would (``cpu.idle``). ``slice_us``: how long a task of theirs runs before another's turn (0 = the
    kernel's own). ``on_trial``: the field whose value is an experiment with an end, "" = none is.
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
        """It without what is on trial."""
        if not self.on_trial:
            return self
        return msgspec.structs.replace(self, **{self.on_trial: getattr(UNBOUNDED, self.on_trial)}, on_trial="")


UNBOUNDED = BestEffortScheduling("")
_NOTHING: Mapping[str, BestEffortScheduling] = MappingProxyType({})


class BestEffortLimits(msgspec.Struct, frozen=True):
    """What all strategies together leave to best-effort pods on this node, with its pods and CPUs as they are now.

    ``pools``: what they may use of the BE pool. ``tier_milli``: what kubelet's BestEffort tier may use, with those of
    its pods that suppression does not cover; 0 = as much as there is. ``below_tier_milli``: the largest quota that
    stands below the tier on cgroup v1; 0 = all that the tier has. ``tier_cpus``: the CPU set of the tier on cgroup v1
    where another agent made it smaller than that of the pods' root; else "". ``by_strategy``: what each leaves, of
    which all this is made.
    """

    scheduling: BestEffortScheduling = UNBOUNDED
    pools: tuple[Pool, ...] = ()
    tier_milli: int = 0
    below_tier_milli: int = 0
    tier_cpus: str = ""
    by_strategy: Mapping[str, BestEffortScheduling] = _NOTHING


NO_LIMITS = BestEffortLimits()

"""Upstream's two policies: best-effort pods get what the formula leaves, as whole CPUs or as CPU time.

    cpuset     ceil(allowance) CPUs, at least 2; at most a tenth of the node more than before
    cfsQuota   the allowance, at least 2 ms of each 100; changes below a hundredth of the node are ignored, and growth
               is a tenth of the node at most; after "no limit" the first value counts as it is

Both shrink at once. "Before" is what best-effort pods have now, also from an earlier run, so a daemon that starts again
goes on from there. Growth steps are a second apart, however often the node is sampled. Pure.

The allowance moves with every sample of the others' load, and quotas and CPU sets that follow it cost a write each
time. So they follow a ``Steady`` allowance: less counts at once, more only after ``STEADY_NS``.
"""

from __future__ import annotations

import math

import msgspec

from koord.model import cpuset
from koord.model.cpuset import EMPTY, CPUSet
from koord.model.qos import QoSClass
from qosd.model.policy import join
from qosd.model.snapshot import NodeSnapshot, live
from qosd.strategies.suppression import cpuchoice

LEAST_CPUS = 2
LEAST_MILLI = 20
"""2,000 µs of a period."""
_STEP, _DEAD_BAND = 10, 100
"""Growth is at most, and a change at least, this part of the node (one tenth, one hundredth)."""
STEADY_NS = 5_000_000_000


class Steady(msgspec.Struct, frozen=True):
    """An allowance, in thousandths of a CPU, without short rises. Invariant: it exceeds the newest by one band at most.

    ``above_ns``: since when the allowance has been above ``milli``, 0: it is not; ``least_milli``: its least since.
    """

    milli: int
    least_milli: int = 0
    above_ns: int = 0

    def fed(self, allowance_milli: int, capacity_milli: int, now_ns: int) -> Steady:
        """Returns the steady allowance after one more sample."""
        band_milli = math.ceil(capacity_milli / _DEAD_BAND)
        if allowance_milli <= self.milli - band_milli:
            return Steady(allowance_milli)
        if allowance_milli < self.milli + band_milli:
            return Steady(self.milli)
        if not self.above_ns:
            return Steady(self.milli, allowance_milli, now_ns)
        least_milli = min(self.least_milli, allowance_milli)
        is_early = now_ns - self.above_ns < STEADY_NS
        return Steady(self.milli, least_milli, self.above_ns) if is_early else Steady(least_milli)


def cpus(snapshot: NodeSnapshot, allowance_milli: int, before: str, may_grow: bool = True) -> CPUSet:
    """Returns the CPUs of best-effort pods, EMPTY without a pool. ``before``: what they have now, "" = all of the pool.

    Growth counts from all of ``before``, also from CPUs that have left the pool.
    """
    pool = cpuset.parse(join(snapshot.policy.node.be_pools))
    if not pool:
        return EMPTY
    had = cpuset.parse(before) or pool
    count = max(LEAST_CPUS, math.ceil(allowance_milli / 1000))
    most = len(had) + (math.ceil(len(snapshot.topology.cpus) / _STEP) if may_grow else 0)
    owned = _of_lsr(snapshot) & pool
    stays = had & pool if before else EMPTY
    return cpuchoice.choose(snapshot.topology, owned, pool - owned, min(count, most), stays)


def _of_lsr(snapshot: NodeSnapshot) -> CPUSet:
    """Returns the CPUs that LSR pods are bound to: best-effort pods may share them."""
    owned = EMPTY
    for pod in snapshot.pods:
        if pod.context.raw_qos is QoSClass.LSR and pod.context.bound_cpus and live(pod):
            owned |= cpuset.parse(pod.context.bound_cpus)
    return owned


def time_milli(capacity_milli: int, allowance_milli: int, before_milli: int, may_grow: bool = True) -> int:
    """Returns the CPU time of best-effort pods in thousandths of a CPU. ``before_milli``: now, 0 = no limit."""
    wanted = max(LEAST_MILLI, allowance_milli)
    if not before_milli:
        return wanted
    node_milli = math.ceil(capacity_milli / 1000) * 1000
    if abs(wanted - before_milli) * _DEAD_BAND < node_milli and wanted != LEAST_MILLI:
        return before_milli
    if wanted > before_milli and not may_grow:
        return before_milli
    return min(wanted, before_milli + node_milli // _STEP)

"""Tells whether the node has CPU for bursts, by the use of the CPUs that pods without CPUs of their own share.

    total   online CPUs - requests of LSE and LSR pods
    used    use of the node - use of LSE, LSR and BE pods: what the system and unlabelled pods use stays in
    state   overload from the threshold on, cooling from nine tenths of it on, idle below

Uses are averages over ``OVER_S``. A pod without a sample counts as using nothing, so its use stays in. Invariants:
classes are those of the labels, as in upstream; a node without a sample is unknown, one without shared CPUs overloaded.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from koord.model import cpuset
from koord.model.qos import QoSClass
from qosd.model.metric import Scope
from qosd.model.snapshot import NodeSnapshot, PodView, Window, live
from qosd.sense.node import NodeRow
from qosd.sense.usage import USAGE

OVER_S = 5.0
NODE_USAGE = Window(NodeRow.cpu_usage_cores, OVER_S)
POD_USAGE = Window(USAGE[Scope.POD].cpu_usage_cores, OVER_S)
_OWN_CPUS = (QoSClass.LSE, QoSClass.LSR)
_OUTSIDE = (*_OWN_CPUS, QoSClass.BE)


class PoolState(StrEnum):
    IDLE = "idle"
    COOLING = "cooling"
    OVERLOAD = "overloaded"
    UNKNOWN = "unknown"


class SharePool(msgspec.Struct, frozen=True):
    """``used_percent``: the use of the shared CPUs; None: unknown."""

    state: PoolState
    threshold_percent: int
    used_percent: float | None = None


def share_pool(snapshot: NodeSnapshot, threshold_percent: int) -> SharePool:
    """Returns the pool, from the snapshot's windows."""
    node = snapshot.window(NODE_USAGE)
    if node is None:
        return SharePool(PoolState.UNKNOWN, threshold_percent)
    used_cores, total_milli = node.mean, snapshot.capacity_cpu_milli
    for pod in snapshot.pods:
        qos = pod.context.raw_qos
        if qos in _OUTSIDE:
            usage = snapshot.window(POD_USAGE, pod.cgroup)
            used_cores -= 0.0 if usage is None else usage.mean
        if qos in _OWN_CPUS:
            total_milli -= _request_milli(pod)
    used_percent = max(0.0, used_cores) * 100_000 / total_milli if total_milli > 0 else 100.0
    return SharePool(_state(used_percent, threshold_percent), threshold_percent, used_percent)


def _request_milli(pod: PodView) -> int:
    """Returns the pod's CPU request; if kubelet does not tell it, the CPUs that are bound for the pod."""
    if not live(pod):
        return 0
    if pod.cpu_request_milli is not None:
        return pod.cpu_request_milli
    return 1000 * len(cpuset.parse(pod.context.bound_cpus))


def _state(used_percent: float, threshold_percent: int) -> PoolState:
    if used_percent >= threshold_percent:
        return PoolState.OVERLOAD
    return PoolState.COOLING if used_percent * 10 >= threshold_percent * 9 else PoolState.IDLE

"""One node with three best-effort pods, of which the first uses most: what most tests of relief are about."""

from __future__ import annotations

from typing import Any

from qosd.decide.reliefsteps import FREEZE_WAIT_NS, RECLAIM_WAIT_NS, THROTTLE_WAIT_NS
from qosd.decide.shortage import ReliefStep
from qosd.model.snapshot import EvictionPhase, NodeSnapshot
from tests.qosd.decide.scenes import MIB, be, node

RECLAIM, THROTTLE, FREEZE, EVICT = ReliefStep
STOPPING, STOPPED, RESTARTED, FAILED = EvictionPhase
A, B, C = be("a"), be("b"), be("c")
USES = {"a": 300 * MIB, "b": 200 * MIB, "c": 100 * MIB}
CPU_USES = {"a": 3000, "b": 2000, "c": 1000}
NEWEST_NS = max(RECLAIM_WAIT_NS, THROTTLE_WAIT_NS, FREEZE_WAIT_NS)


def at(at_s: float, **said: Any) -> NodeSnapshot:
    return node(at_s, [A, B, C], USES, CPU_USES, **said)

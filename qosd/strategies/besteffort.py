"""The quota of kubelet's BestEffort tier: what strategies leave to it of the CPU time.

They say so in their decisions, and the rules carry it (``qosd.policy.pools``): so the quotas of the containers below,
which the hooks bound by the same rules, are lowered in the same tick, and before the tier's, as cgroup v1 wants it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, ClassVar

from koord.host.files import Target
from koord.model import cfs
from koord.model.formulas import FORMULA, Inputs
from koord.model.qos import KubeQoS
from koord.model.quantity import MilliCPU
from qosd.decide.decision import Decision, Opinion, Stage, Strategy
from qosd.model.rules import Rules
from qosd.model.snapshot import NodeSnapshot
from qosd.strategies.memo import Memo, decide_anew

QUOTA = "cpu_quota"


class BestEffortTier(Strategy):
    """The strategy ``bestEffortTier``."""

    name: ClassVar[str] = "bestEffortTier"
    stage: ClassVar[Stage] = Stage.SUPPRESSION
    rows: ClassVar[frozenset[str]] = frozenset({QUOTA})
    needs: ClassVar[Mapping[str, float]] = MappingProxyType({})

    def enabled(self, snapshot: NodeSnapshot) -> bool:
        """Always: where nothing is left out, nothing is bounded."""
        return True

    def decide(self, snapshot: NodeSnapshot, memory: Any) -> tuple[Decision, Memo]:
        inputs = (snapshot.rules, snapshot.tiers)
        return decide_anew(memory, inputs, partial(_decision, *inputs))


def _decision(rules: Rules, tiers: Mapping[KubeQoS, str]) -> Decision:
    left_milli, tier = rules.node.be_cpu_milli, tiers.get(KubeQoS.BEST_EFFORT)
    if not left_milli or not tier:
        return Decision("the BestEffort tier has as much CPU time as there is")
    value = cfs.quota_us(MilliCPU(left_milli))
    fed: Inputs = {FORMULA: "cpu_quota", "limit_milli": left_milli, "period_us": cfs.PERIOD_US}
    opinion = Opinion.at_most(value, rules.node.be_cpu_why, fed)
    return Decision(f"the BestEffort tier has {left_milli} milli-CPU", {Target(tier, QUOTA): opinion})

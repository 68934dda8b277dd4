"""No quota below kubelet's BestEffort tier is more than the tier itself has.

While strategies leave the tier less CPU time than its containers were given, cgroup v1 starts none of these (EINVAL),
and takes no lower quota of the tier. Under the tier's quota the bound takes nothing from anybody.
"""

from __future__ import annotations

from msgspec.structs import replace

from koord.model import cfs
from koord.model.cfs import UNLIMITED
from koord.model.crifields import Field
from koord.model.formulas import FORMULA, Inputs
from koord.model.qos import KubeQoS
from koord.model.quantity import MilliCPU
from qosd.hooks.edits import Edits
from qosd.model.pod import PodContext
from qosd.model.rules import Rules


def bounded(edits: Edits, pod: PodContext, rules: Rules) -> Edits:
    """``edits`` with the quota that the hooks give, bounded."""
    left_milli = rules.node.be_cpu_milli
    edit = edits.get(Field.CPU_QUOTA) if left_milli and pod.kube_qos is KubeQoS.BEST_EFFORT else None
    if edit is None or not isinstance(edit.value, int) or edit.value == UNLIMITED:
        return edits
    period_us = pod.requested.cpu_period_us or cfs.PERIOD_US
    most_us = cfs.quota_us(MilliCPU(left_milli), period_us)
    if edit.value <= most_us:
        return edits
    fed: Inputs = {FORMULA: "cpu_quota", "limit_milli": left_milli, "period_us": period_us}
    why = f"{edit.why}; no more than the BestEffort tier has ({rules.node.be_cpu_why})"
    less = replace(edit, value=most_us, why=why, computed=fed)
    return replace(edits, items=tuple([less if each is edit else each for each in edits.items]))

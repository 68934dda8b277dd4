"""CPU normalization of pods' own cgroups: divides kubelet's pod quota like the quotas of the pod's containers.

No CRI call has kubelet's pod quota, and the sum of the containers that run now may be less than the next init container
needs. So the quota is not set but scaled: what kubelet wrote, divided by the ratio. A pod without quota stays without.
Pods whose quota the hooks set (bound CPUs, batch and mid resources) are not touched.

On cgroup v2 only: v1 refuses a container's quota that exceeds its pod's, so under a scaled one no container could start
with the quota that kubelet asks for, which is what the runtime writes when no hook edits it. There the scaled quotas of
the containers limit the pod.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from types import MappingProxyType
from typing import ClassVar

from koord.host.files import Target
from koord.model.crifields import Field
from koord.model.formulas import FORMULA
from qosd.decide.decision import Decision, Opinion, Stage, Strategy
from qosd.hooks import engine, normalization
from qosd.model.policy import EffectivePolicy
from qosd.model.snapshot import PODS_MAX_AGE_S, NodeSnapshot, PodView, live
from qosd.strategies.perpod import PodMemo, PodOpinions, decide_each
from qosd.strategies.reconciler import pod_cgroup

HOOK = "cpuNormalization"


class PodNormalization(Strategy[PodMemo]):
    """The strategy ``cpuNormalization``, on with the hook of that name and a ratio above 1."""

    name: ClassVar[str] = HOOK
    stage: ClassVar[Stage] = Stage.NORMALIZATION
    rows: ClassVar[frozenset[str]] = frozenset({Field.CPU_QUOTA.value})
    needs: ClassVar[Mapping[str, float]] = MappingProxyType({"pods": PODS_MAX_AGE_S})

    def enabled(self, snapshot: NodeSnapshot) -> bool:
        ratio = snapshot.policy.native_ratio
        return snapshot.policy.enabled(HOOK) and ratio is not None and ratio > 1

    def decide(self, snapshot: NodeSnapshot, last: PodMemo | None) -> tuple[Decision, PodMemo]:
        return decide_each(snapshot, last, partial(of_pod, policy=snapshot.policy))


def of_pod(pod: PodView, policy: EffectivePolicy) -> PodOpinions:
    """Returns the factor of the pod's own quota, if that is kubelet's."""
    ratio = normalization.ratio_of(pod.context, policy)
    if ratio is None or policy.host.cgroup_version == 1 or not pod.cgroup or not live(pod):
        return PodOpinions()
    if engine.decide(pod_cgroup(pod), policy).concern(Field.CPU_QUOTA):
        return PodOpinions()
    why = f"kubelet's quota of the pod, divided by the CPU normalization ratio {float(ratio):g}"
    inputs = {FORMULA: "cpu_quota_normalized", "ratio": str(ratio)}
    return PodOpinions({Target(pod.cgroup, Field.CPU_QUOTA.value): Opinion.scale(1 / ratio, why, inputs, pod.key)})

"""CPU normalization: on a faster CPU model the same work needs a smaller CFS quota.

For LS and unlabelled pods without bound CPUs: ``ceil(quota / ratio)`` for ratio > 1. BE pods are scaled where their
quota is made (``batch``); free pods keep what they requested.

A proxy that merges an update over its own copy (Koordinator's does) sends our scaled quota back to us. So the container
carries the pair "spec/scaled" as an annotation, and a quota equal to the scaled one counts as the spec's: no quota is
ever scaled twice. Where only kubelet's pod list tells of the limit, kubelet may have made another quota of it, or none:
so the value in the cgroup's file is scaled.
"""

from __future__ import annotations

from fractions import Fraction

from koord.model import cfs
from koord.model.crifields import Field
from koord.model.formulas import FORMULA, Inputs
from koord.model.qos import QoSClass
from qosd.hooks.edits import Edit, Edits
from qosd.model.besteffort import BestEffortLimits
from qosd.model.pod import PodContext
from qosd.model.policy import EffectivePolicy

ANNOTATION = "qosd.koord.sh/cpu-quota-spec-and-scaled"


def decide(pod: PodContext, policy: EffectivePolicy, limits: BestEffortLimits) -> Edits:
    ratio = ratio_of(pod, policy)
    spec_us = spec_quota_us(pod)
    if ratio is None or spec_us <= 0:
        return Edits()
    scaled_us = cfs.normalize_quota_us(spec_us, ratio)
    if pod.requested.is_assumed:
        why = f"kubelet's quota, divided by the CPU normalization ratio {float(ratio):g}"
        fed: Inputs = {FORMULA: "cpu_quota_normalized", "ratio": str(ratio)}
        return Edits((Edit(Field.CPU_QUOTA, scaled_us, why, computed=fed, factor=1 / ratio),))
    fed = {FORMULA: "cpu_quota_normalized", "quota_us": spec_us, "ratio": str(ratio)}
    why = f"{spec_us} us requested, divided by the CPU normalization ratio {float(ratio):g}"
    return Edits(
        (
            Edit(Field.CPU_QUOTA, scaled_us, why, computed=fed),
            Edit(Field.ANNOTATION, f"{spec_us}/{scaled_us}", "so that the quota is not scaled twice", key=ANNOTATION),
        )
    )


def ratio_of(pod: PodContext, policy: EffectivePolicy) -> Fraction | None:
    """Returns the ratio > 1 that divides the pod's native CFS quotas; None = they stay."""
    ratio = policy.native_ratio
    applies = pod.raw_qos in (QoSClass.LS, None) and not pod.bound_cpus and not pod.is_free
    return ratio if applies and ratio is not None and ratio > 1 else None


def spec_quota_us(pod: PodContext) -> int:
    """Returns the quota as kubelet requested it: undoes our own scaling if that is what came back; 0 = none."""
    requested_us = pod.requested.cpu_quota_us or 0
    spec, _, scaled = (pod.request.container_annotations or {}).get(ANNOTATION, "").partition("/")
    if spec.isdecimal() and scaled.isdecimal() and int(scaled) == requested_us:
        return int(spec)
    return requested_us

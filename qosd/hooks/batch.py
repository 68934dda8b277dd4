"""Batch and mid resources: kubelet knows nothing of them, so their shares, quota and memory limit are made here.

The annotation ``extended-resource-spec`` has the amounts, per container. Batch counts for pods labelled BE, mid for any
pod that has mid amounts; a container without either keeps kubelet's values, as do free pods, whose limits are native.
Formulas are Koordinator's (shares, quota, -1 where a limit is missing, ``ceil(quota / ratio)`` under normalization); a
limit stays while suppression works by CFS quota, where upstream takes it away (``tierquota``). A mid container keeps
kubelet's value of a resource without a mid amount. ``batchpod`` makes the values of the pod's own cgroup.
"""

from __future__ import annotations

from koord.model import cfs
from koord.model.cfs import UNLIMITED
from koord.model.crifields import Field
from koord.model.formulas import FORMULA, Inputs
from koord.model.quantity import MilliCPU
from qosd.hooks import batchpod
from qosd.hooks.edits import Edit, Edits
from qosd.model.besteffort import BestEffortLimits
from qosd.model.pod import MID, ExtendedAmounts, PodContext
from qosd.model.policy import EffectivePolicy


def decide(pod: PodContext, policy: EffectivePolicy, limits: BestEffortLimits) -> Edits:
    if not pod.is_container:
        return batchpod.decide(pod, policy)
    amounts = pod.amounts_of(pod.container)
    return Edits() if amounts is None else Edits((*_cpu(amounts, pod, policy), *_memory(amounts)))


def _cpu(amounts: ExtendedAmounts, pod: PodContext, policy: EffectivePolicy) -> tuple[Edit, ...]:
    if not amounts.decides_cpu:
        return ()
    request_milli = MilliCPU(amounts.cpu_request_milli)
    why = f"{amounts.kind}-cpu request {request_milli}m at {cfs.SHARES_PER_CPU} shares per CPU"
    fed: Inputs = {FORMULA: "cpu_shares", "request_milli": request_milli}
    return (Edit(Field.CPU_SHARES, cfs.shares(request_milli), why, computed=fed), _quota(amounts, pod, policy))


def _quota(amounts: ExtendedAmounts, pod: PodContext, policy: EffectivePolicy) -> Edit:
    kind, limit_milli = amounts.kind, MilliCPU(amounts.cpu_limit_milli)
    if not limit_milli:
        return Edit(Field.CPU_QUOTA, UNLIMITED, f"no {kind}-cpu limit")
    period_us = pod.requested.quota_period_us
    quota_us = cfs.quota_us(limit_milli, period_us)
    why = f"{kind}-cpu limit {limit_milli}m"
    fed: Inputs = {FORMULA: "cpu_quota", "limit_milli": limit_milli, "period_us": period_us}
    ratio = batchpod.ratio_of(kind, policy)
    if ratio is not None:
        why = f"{why}, divided by the CPU normalization ratio {float(ratio):g}"
        fed = {**fed, FORMULA: "cpu_quota_normalized", "ratio": str(ratio)}
        quota_us = cfs.normalize_quota_us(quota_us, ratio)
    return Edit(Field.CPU_QUOTA, quota_us, why, computed=fed)


def _memory(amounts: ExtendedAmounts) -> tuple[Edit, ...]:
    if amounts.memory_limit_bytes:
        return (Edit(Field.MEMORY_LIMIT, amounts.memory_limit_bytes, f"{amounts.kind}-memory limit"),)
    if amounts.kind == MID:
        return ()
    return (Edit(Field.MEMORY_LIMIT, UNLIMITED, f"no {amounts.kind}-memory limit"),)

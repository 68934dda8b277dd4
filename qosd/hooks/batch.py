"""Batch and mid resources: kubelet knows nothing of them, so their shares, quota and memory limit are made here.

Source of the amounts is the annotation ``extended-resource-spec``, per container; pod sums at pod stages. Batch
counts for pods labelled BE, mid for any pod that has mid amounts; a container without either keeps what kubelet
sent, as do free pods, whose limits are native. Formulas: node-qos §10.3 (shares, quota, -1 where a limit is
missing, ``ceil(quota / ratio)`` under normalization, no quota while suppression works by CFS quota). A mid pod
keeps kubelet's value of a resource of which it has no mid amount.
"""

from __future__ import annotations

from collections.abc import Sequence

from koord.model import cfs
from koord.model.formulas import FORMULA, Inputs
from koord.model.quantity import MilliCPU
from qosd.hooks.context import BATCH, MID, Amounts, PodContext
from qosd.hooks.edits import UNLIMITED, Edit, Edits, Field
from qosd.hooks.rules import Rules


def decide(pod: PodContext, rules: Rules) -> Edits:
    found = [pod.amounts_of(name) for name in _containers(pod)]
    chosen = [amounts for amounts in found if amounts is not None]
    if not chosen:
        return Edits()
    return Edits((*_cpu(chosen, pod, rules), *_memory(chosen)))


def _containers(pod: PodContext) -> Sequence[str]:
    return (pod.container,) if pod.is_container else tuple(pod.extended)


def _cpu(chosen: Sequence[Amounts], pod: PodContext, rules: Rules) -> tuple[Edit, ...]:
    kind = chosen[0].kind
    if kind == MID and not any(amounts.cpu_request_milli or amounts.cpu_limit_milli for amounts in chosen):
        return ()
    request_milli = MilliCPU(sum(amounts.cpu_request_milli for amounts in chosen))
    shares_why = f"{kind}-cpu request {request_milli}m at {cfs.SHARES_PER_CPU} shares per CPU"
    fed: Inputs = {FORMULA: "cpu_shares", "request_milli": request_milli}
    return (Edit(Field.CPU_SHARES, cfs.shares(request_milli), shares_why, computed=fed), _quota(chosen, pod, rules))


def _quota(chosen: Sequence[Amounts], pod: PodContext, rules: Rules) -> Edit:
    kind = chosen[0].kind
    limits = [amounts.cpu_limit_milli for amounts in chosen if amounts.cpu_limit_milli]
    if len(limits) < len(chosen):
        return Edit(Field.CPU_QUOTA, UNLIMITED, f"no {kind}-cpu limit")
    if kind == BATCH and rules.suppresses_by_quota:
        return Edit(Field.CPU_QUOTA, UNLIMITED, "CPU suppression works by the BE tier's CFS quota")
    period_us = pod.asked.cpu_period_us or cfs.PERIOD_US
    quota_us = cfs.quota_us(MilliCPU(sum(limits)), period_us)
    why = f"{kind}-cpu limit {sum(limits)}m"
    fed: Inputs = {FORMULA: "cpu_quota", "limit_milli": sum(limits), "period_us": period_us}
    ratio = rules.node.cpu_normalization_ratio
    if kind == BATCH and ratio is not None and ratio > 1:
        why = f"{why}, divided by the CPU normalization ratio {float(ratio):g}"
        fed = {**fed, FORMULA: "cpu_quota_normalized", "ratio": str(ratio)}
        quota_us = cfs.normalize_quota_us(quota_us, ratio)
    return Edit(Field.CPU_QUOTA, quota_us, why, computed=fed)


def _memory(chosen: Sequence[Amounts]) -> tuple[Edit, ...]:
    kind = chosen[0].kind
    limits = [amounts.memory_limit_bytes for amounts in chosen if amounts.memory_limit_bytes]
    if len(limits) == len(chosen):
        return (Edit(Field.MEMORY_LIMIT, sum(limits), f"{kind}-memory limit"),)
    if kind == MID:
        return ()
    return (Edit(Field.MEMORY_LIMIT, UNLIMITED, f"no {kind}-memory limit"),)

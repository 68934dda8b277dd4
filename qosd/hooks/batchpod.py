"""The values of the own cgroup of a pod with batch or mid resources: sums over all of its containers, or nothing.

A container that the annotation does not name (an injected sidecar) counts with its native amounts, as kubelet sums
them. A pod's limit below a container's is worse than none: on cgroup v1 that container cannot start, on v2 all of them
share what was meant for one. So a value is given only where every container is known: from kubelet's pod list, or in
kubelet's BestEffort tier, where no container has native amounts. A container without limit leaves the pod without; a
resource that the overhead of the pod's runtime does not mention needs no overhead.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from koord.model import cfs, podtotal
from koord.model.cfs import UNLIMITED
from koord.model.crifields import Field
from koord.model.formulas import FORMULA, Inputs
from koord.model.podtotal import Role
from koord.model.qos import KubeQoS
from koord.model.quantity import MilliCPU
from koord.model.requirements import ContainerAmounts
from qosd.hooks.edits import Abstention, Edit, Edits
from qosd.model.pod import BATCH, OVERHEAD, ExtendedAmounts, PodContext, SpecContainer
from qosd.model.policy import EffectivePolicy

NATIVE = "native"
_NOTHING = ContainerAmounts()


@dataclass(frozen=True, slots=True)
class _Container:
    """One container's values, of any kind of resource; a limit of 0 = none."""

    name: str
    role: Role
    cpu_kind: str
    cpu_request_milli: int
    cpu_limit_milli: int
    memory_kind: str
    memory_limit_bytes: int


def decide(pod: PodContext, policy: EffectivePolicy) -> Edits:
    names = (*pod.extended_init, *pod.extended)
    ours = [amounts for name in names if (amounts := pod.amounts_of(name)) is not None]
    if not ours:
        return Edits()
    spec = _spec_containers(pod)
    if spec is None:
        return Edits(abstentions=_abstentions(pod, ours))
    containers = [_container(one, pod) for one in spec]
    cpu = _cpu(containers, pod, policy) if any(each.decides_cpu for each in ours) else ()
    memory = _memory(containers) if any(each.decides_memory for each in ours) else ()
    return Edits((*cpu, *memory))


def ratio_of(kind: str, policy: EffectivePolicy) -> Fraction | None:
    """Returns the ratio > 1 that divides quotas of this kind; None = they stay."""
    ratio = policy.node.cpu_normalization_ratio
    return ratio if kind == BATCH and ratio is not None and ratio > 1 else None


def _spec_containers(pod: PodContext) -> Sequence[SpecContainer] | None:
    """Returns every container of the pod; None if some may be missing.

    The annotation does not say which init container is a sidecar, so each counts as one, which is the larger sum.
    """
    if pod.spec_containers is not None:
        return pod.spec_containers
    if pod.kube_qos is not KubeQoS.BEST_EFFORT:
        return None
    roles = dict.fromkeys((*pod.extended, *pod.seen_containers), Role.MAIN) | dict.fromkeys(
        pod.extended_init, Role.SIDECAR
    )
    return [SpecContainer(name, role, _NOTHING) for name, role in roles.items()]


def _abstentions(pod: PodContext, amounts: Sequence[ExtendedAmounts]) -> tuple[Abstention, ...]:
    cpu = (Field.CPU_SHARES, Field.CPU_QUOTA) if any(each.decides_cpu for each in amounts) else ()
    memory = (Field.MEMORY_LIMIT,) if any(each.decides_memory for each in amounts) else ()
    others = [name for name in pod.seen_containers if pod.amounts_of(name) is None]
    whose = f"of {', '.join(others)}" if others else "of containers that extended-resource-spec may not name"
    why = f"left alone: the native amounts {whose} are unknown, kubelet's pod list tells them (--kubelet-endpoint)"
    return tuple([Abstention(field, why, stays=not others) for field in (*cpu, *memory)])


def _container(spec: SpecContainer, pod: PodContext) -> _Container:
    amounts, native = pod.amounts_of(spec.name), spec.native
    by_annotation = amounts is not None and amounts.decides_cpu
    cpu = (
        (amounts.kind, amounts.cpu_request_milli, amounts.cpu_limit_milli)
        if amounts is not None and by_annotation
        else (NATIVE, native.cpu_request or native.cpu_limit or 0, native.cpu_limit or 0)
    )
    memory = (
        (amounts.kind, amounts.memory_limit_bytes)
        if amounts is not None and amounts.decides_memory
        else (NATIVE, native.memory_limit or 0)
    )
    return _Container(spec.name, spec.role, *cpu, *memory)


def _cpu(containers: Sequence[_Container], pod: PodContext, policy: EffectivePolicy) -> tuple[Edit, ...]:
    request_milli = MilliCPU(podtotal.total([(one.role, one.cpu_request_milli) for one in containers]))
    kinds = _kinds(one.cpu_kind for one in containers)
    shares_why = f"{kinds}-cpu request {request_milli}m at {cfs.SHARES_PER_CPU} shares per CPU"
    fed: Inputs = {FORMULA: "cpu_shares", "request_milli": request_milli}
    shares = Edit(Field.CPU_SHARES, cfs.shares(request_milli), shares_why, computed=fed)
    return (shares, _quota(containers, pod, policy))


def _quota(containers: Sequence[_Container], pod: PodContext, policy: EffectivePolicy) -> Edit:
    free = next((one for one in containers if not one.cpu_limit_milli and one.name != OVERHEAD), None)
    if free is not None:
        return Edit(Field.CPU_QUOTA, UNLIMITED, f"no {free.cpu_kind}-cpu limit of container {free.name}")
    kinds = _kinds(one.cpu_kind for one in containers)
    ratio = ratio_of(BATCH, policy) if BATCH in kinds else None
    same_kind = all(one.cpu_kind == BATCH for one in containers)
    divided = None if ratio is None or same_kind else ratio
    limits = [(one.role, _milli(one, divided)) for one in containers]
    limit_milli, period_us = MilliCPU(podtotal.total(limits)), pod.requested.quota_period_us
    fed: Inputs = {FORMULA: "cpu_quota", "limit_milli": limit_milli, "period_us": period_us}
    quota_us, why = cfs.quota_us(limit_milli, period_us), f"{kinds}-cpu limit {limit_milli}m"
    if ratio is not None:
        whose = "" if same_kind else "the batch part "
        why = f"{why}, {whose}divided by the CPU normalization ratio {float(ratio):g}"
    if ratio is not None and same_kind:
        fed = {**fed, FORMULA: "cpu_quota_normalized", "ratio": str(ratio)}
        quota_us = cfs.normalize_quota_us(quota_us, ratio)
    return Edit(Field.CPU_QUOTA, quota_us, why, computed=fed)


def _milli(container: _Container, ratio: Fraction | None) -> int:
    """Returns the limit, its batch part divided by ``ratio``."""
    divided = ratio is not None and container.cpu_kind == BATCH
    return math.ceil(container.cpu_limit_milli / ratio) if ratio is not None and divided else container.cpu_limit_milli


def _memory(containers: Sequence[_Container]) -> tuple[Edit, ...]:
    free = next((one for one in containers if not one.memory_limit_bytes and one.name != OVERHEAD), None)
    if free is not None:
        why = f"no {free.memory_kind}-memory limit of container {free.name}"
        return (Edit(Field.MEMORY_LIMIT, UNLIMITED, why),)
    limit_bytes = podtotal.total([(one.role, one.memory_limit_bytes) for one in containers])
    return (Edit(Field.MEMORY_LIMIT, limit_bytes, f"{_kinds(one.memory_kind for one in containers)}-memory limit"),)


def _kinds(kinds: Iterable[str]) -> str:
    return " + ".join(sorted(set(kinds)))

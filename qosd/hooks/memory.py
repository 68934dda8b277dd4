"""Memory QoS: ``memory.min``, ``memory.low`` and, of containers only, ``memory.high`` (CRI's ``unified``; v2 only).

Formulas of node-qos §6, in whole bytes:
    min  = request * minLimitPercent / 100
    low  = request * lowLimitPercent / 100, at least min if it is not 0
    high = floor((request + (L - request) * throttlingPercent / 100) / page) * page, at least min; 0 % = "max"
with L the limit, or the node's allocatable memory. CRI does not carry requests: a Guaranteed container's is its
limit, a BE container's is its batch-memory, a Burstable one's is unknown. (Kubelet's own ``memory.min`` would show it,
but an update may bring ours back in its place.) A pod's is its batch-memory, else what kubelet's pod list says. Where
the request is unknown, only what needs none is decided.
"""

from __future__ import annotations

from koord.model import schema, slo_defaults
from koord.model.annotations.values import MemoryPolicy
from koord.model.crifields import Field
from koord.model.formulas import FORMULA, Inputs
from koord.model.qos import KubeQoS
from koord.model.qos_settings import MemoryQOS
from qosd.hooks.edits import Edit, Edits
from qosd.model.pod import PodContext
from qosd.model.rules import Rules

MIN, LOW, HIGH = "memory.min", "memory.low", "memory.high"
_MAX = "max"


def decide(pod: PodContext, rules: Rules) -> Edits:
    chosen = _settings(pod, rules) if rules.host.cgroup_version == 2 else None
    if chosen is None:
        return Edits()
    settings, source = chosen
    request, limit = _request_and_limit(pod)
    minimum = _share(request, settings.min_limit_percent)
    low = _share(request, settings.low_limit_percent)
    if low and minimum:
        low = max(low, minimum)
    found = [_protection(MIN, minimum, request, settings.min_limit_percent, 0, source)]
    found.append(_protection(LOW, low, request, settings.low_limit_percent, minimum or 0, source))
    if pod.is_container:
        ceiling = limit or rules.allocatable_memory_bytes
        found.append(_throttling(request, ceiling, minimum, settings.throttling_percent, rules, source))
    return Edits(tuple([edit for edit in found if edit is not None]))


def _protection(
    file: str, value: int | None, request: int | None, percent: int | None, floor: int, source: str
) -> Edit | None:
    if value is None:
        return None
    computed: Inputs = {
        FORMULA: "memory_share",
        "request_bytes": request or 0,
        "percent": percent,
        "floor_bytes": floor,
    }
    why = f"{percent} % of the memory request {request}, {source}"
    return Edit(Field.UNIFIED, str(value), why, key=file, computed=computed)


def _throttling(
    request: int | None, ceiling: int, minimum: int | None, percent: int | None, rules: Rules, source: str
) -> Edit | None:
    page = rules.host.page_bytes
    high = _high(request, ceiling, minimum, percent, page)
    if high is None:
        return None
    computed: Inputs = {
        FORMULA: "memory_high",
        "request_bytes": request,
        "ceiling_bytes": ceiling,
        "percent": percent,
        "page_bytes": page,
        "floor_bytes": minimum or 0,
    }
    why = f"throttling from {percent} % between request and limit on, {source}"
    return Edit(Field.UNIFIED, str(high), why, key=HIGH, computed={} if high == _MAX else computed)


def _settings(pod: PodContext, rules: Rules) -> tuple[MemoryQOS, str] | None:
    """The settings that apply and who set them; None = nobody asks for memory QoS."""
    qos = pod.treated_as(rules.node.derivation)
    of_class = rules.class_settings(qos).memory_qos or slo_defaults.neutral_memory()
    own = pod.memory_qos
    if own is None:
        return (of_class, f"memoryQOS of {qos}") if of_class.enable else None
    if own.policy is MemoryPolicy.NONE:
        return slo_defaults.neutral_memory(), "switched off by annotation memoryQOS"
    base = of_class
    if own.policy is MemoryPolicy.AUTO:
        defaults = slo_defaults.defaults().resource_qos
        base = (defaults and (defaults.of(qos) or rules.class_settings(qos)).memory_qos) or of_class
    return schema.overlay(base, own), "annotation memoryQOS"


def _request_and_limit(pod: PodContext) -> tuple[int | None, int | None]:
    """Bytes; None = unknown request, no limit."""
    amounts = [pod.amounts_of(name) for name in ((pod.container,) if pod.is_container else pod.extended)]
    chosen = [one for one in amounts if one is not None and (one.memory_request_bytes or one.memory_limit_bytes)]
    if chosen:
        limits = sum(one.memory_limit_bytes for one in chosen)
        return sum(one.memory_request_bytes for one in chosen), limits or None
    limit = pod.requested.memory_limit_bytes
    limit = limit if limit is not None and limit > 0 else None
    if pod.requested.memory_request_bytes is not None:
        return pod.requested.memory_request_bytes, limit
    if pod.kube_qos is KubeQoS.GUARANTEED:
        return limit, limit
    if pod.kube_qos is KubeQoS.BEST_EFFORT:
        return 0, limit
    return None, limit


def _share(request: int | None, percent: int | None) -> int | None:
    if percent is None or (percent and request is None):
        return None
    return (request or 0) * percent // 100


def _high(request: int | None, ceiling: int, minimum: int | None, percent: int | None, page: int) -> int | str | None:
    if percent is None:
        return None
    if percent == 0:
        return _MAX
    if request is None or not ceiling:
        return None
    # One division at the end: the percentage must not lose a fraction before the rounding to pages.
    high = (request * 100 + max(0, ceiling - request) * percent) // (100 * page) * page
    return max(high, minimum or 0)

"""Memory QoS of a container: ``memory.min``, ``memory.low``, ``memory.high`` through CRI's ``unified`` map (v2 only).

Formulas of node-qos §6, in whole bytes:
    min  = request * minLimitPercent / 100
    low  = request * lowLimitPercent / 100, at least min if it is not 0
    high = floor((request + (L - request) * throttlingPercent / 100) / page) * page, at least min; 0 % = "max"
with L the limit, or the node's allocatable memory. CRI does not carry requests: a Guaranteed container's is its
limit, a BE container's is its batch-memory, a Burstable one's is unknown. (Kubelet's own ``memory.min`` would show it,
but an update may bring ours back in its place.) Where the request is unknown, only what needs none is decided.
"""

from __future__ import annotations

from koord.model import schema, slo_defaults
from koord.model.annotations.values import MemoryPolicy
from koord.model.qos import KubeQoS
from koord.model.strategies import MemoryQOS
from qosd.hooks.context import PodContext
from qosd.hooks.edits import Edit, Edits, Field
from qosd.hooks.rules import Rules

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
    high = _high(request, limit, minimum, settings.throttling_percent, rules)
    found = (
        (MIN, minimum, f"{settings.min_limit_percent} % of the memory request {request}, {source}"),
        (LOW, low, f"{settings.low_limit_percent} % of the memory request {request}, {source}"),
        (HIGH, high, f"throttling from {settings.throttling_percent} % between request and limit on, {source}"),
    )
    decided = ((file, value, why) for file, value, why in found if value is not None)
    return Edits(tuple(Edit(Field.UNIFIED, str(value), why, key=file) for file, value, why in decided))


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
    amounts = pod.amounts_of(pod.container)
    if amounts is not None and (amounts.memory_request_bytes or amounts.memory_limit_bytes):
        return amounts.memory_request_bytes, amounts.memory_limit_bytes or None
    limit = pod.asked.memory_limit_bytes
    limit = limit if limit is not None and limit > 0 else None
    if pod.kube_qos is KubeQoS.GUARANTEED:
        return limit, limit
    if pod.kube_qos is KubeQoS.BEST_EFFORT:
        return 0, limit
    return None, limit


def _share(request: int | None, percent: int | None) -> int | None:
    if percent is None or (percent and request is None):
        return None
    return (request or 0) * percent // 100


def _high(
    request: int | None, limit: int | None, minimum: int | None, percent: int | None, rules: Rules
) -> int | str | None:
    if percent is None:
        return None
    if percent == 0:
        return _MAX
    ceiling = limit or rules.node.allocatable_memory_bytes or rules.host.memory_total_bytes
    if request is None or not ceiling:
        return None
    page = rules.host.page_bytes
    # One division at the end: the percentage must not lose a fraction before the rounding to pages.
    high = (request * 100 + max(0, ceiling - request) * percent) // (100 * page) * page
    return max(high, minimum or 0)

"""Memory QoS of one pod or container: the settings that apply, and the amounts that follow from request and limit.

The hook, the strategies that see to tiers and to reclaim, and what people are shown all take them from here, so that a
tier protects just what its pods are given. Koordinator's formulas, in whole bytes:
    min  = request * minLimitPercent / 100
    low  = request * lowLimitPercent / 100, at least min if it is not 0
    high = floor((request + (L - request) * throttlingPercent / 100) / page) * page, at least low; 0 % = no throttling
with L the limit, or the node's allocatable memory. Between request and limit background reclaim starts and ends by
    mark = B * wmarkRatio / 100, low mark = B * (wmarkRatio / 100 - wmarkScalePermill / 1000), B = min(high, limit)

CRI does not carry requests: a Guaranteed container's is its limit, a BE container's is its batch-memory, any other's is
in kubelet's pod list alone. (Kubelet's own ``memory.min`` would show it, but an update may bring ours back in its
place.) Invariants: pure; where the request is unknown, only amounts that need none are decided; a setting that is not
set is None, and is not written.
"""

from __future__ import annotations

import msgspec

from koord.model import schema, slo_defaults
from koord.model.annotations.values import MemoryPolicy
from koord.model.cfs import UNLIMITED
from koord.model.qos import KubeQoS
from koord.model.qos_settings import MemoryQOS
from qosd.model.pod import PodContext
from qosd.model.policy import EffectivePolicy

GATE = "CgroupReconcile"


class Marks(msgspec.Struct, frozen=True):
    """The charges in bytes between which a group is reclaimed in the background: from above ``high`` to ``low``."""

    high: int
    low: int


class MemoryCase(msgspec.Struct, frozen=True):
    """A pod's or container's settings with the amounts that they are percents of; ``source``: the place of the
    settings, for people.

    ``request_bytes`` None: it is not known. ``limit_bytes`` None: there is none.
    """

    settings: MemoryQOS
    source: str
    request_bytes: int | None
    limit_bytes: int | None

    @property
    def min_bytes(self) -> int | None:
        return self._share(self.settings.min_limit_percent)

    @property
    def low_bytes(self) -> int | None:
        low, least = self._share(self.settings.low_limit_percent), self.min_bytes
        return max(low, least) if low and least else low

    def high_bytes(self, policy: EffectivePolicy) -> int | None:
        """Returns ``memory.high``; -1 = no throttling."""
        percent, request, ceiling = self.settings.throttling_percent, self.request_bytes, self.ceiling_bytes(policy)
        if percent == 0:
            return UNLIMITED
        if percent is None or request is None or not ceiling:
            return None
        page = policy.host.page_bytes
        # One division at the end: the percentage must not lose a fraction before the rounding to pages.
        high = (request * 100 + max(0, ceiling - request) * percent) // (100 * page) * page
        return max(high, self.floor_bytes)

    def ceiling_bytes(self, policy: EffectivePolicy) -> int:
        """Returns the bytes up to which usage may grow; 0 = not known."""
        return self.limit_bytes or policy.allocatable_memory_bytes

    @property
    def floor_bytes(self) -> int:
        """Returns the protected bytes, below which nothing throttles."""
        return max(self.min_bytes or 0, self.low_bytes or 0)

    def marks(self, policy: EffectivePolicy) -> Marks | None:
        """Returns the marks; None without background reclaim, or without a bound that they are percents of."""
        ratio, scale = self.settings.wmark_ratio or 0, self.settings.wmark_scale_permill or 0
        high = self.high_bytes(policy)
        bounds = [each for each in (high, self.limit_bytes) if each is not None and each > 0]
        if not ratio or not bounds:
            return None
        bound = min(bounds)
        return Marks(bound * ratio // 100, max(0, bound * (ratio * 10 - scale) // 1000))

    @property
    def page_cache_bytes(self) -> int | None:
        """Returns the limit of file pages, at most that of the pod; 0 = none. None: it is not set."""
        size, percent = self.settings.page_cache_limit_size, self.settings.page_cache_limit_percent
        if size is None and percent is None:
            return None if self.settings.page_cache_enable is None else 0
        if size is not None:
            return min(size, self.limit_bytes or size)
        return (self.limit_bytes or 0) * (percent or 0) // 100

    @property
    def limits_page_cache(self) -> bool:
        by_itself = self.settings.page_cache_enable
        return bool(self.page_cache_bytes) if by_itself is None else by_itself

    def _share(self, percent: int | None) -> int | None:
        if percent is None or (percent and self.request_bytes is None):
            return None
        return (self.request_bytes or 0) * percent // 100


def of(pod: PodContext, policy: EffectivePolicy) -> MemoryCase | None:
    """Returns the case of a pod, or of the container that its context is about; None: memory QoS is not enabled, or the
    pod's own annotation switches it off.
    """
    chosen = _settings(pod, policy)
    return None if chosen is None else MemoryCase(*chosen, *_request_and_limit(pod))


def policy_of(policy: EffectivePolicy) -> tuple[object, ...]:
    """Returns all that ``of`` and its amounts take from the policy, which changes more often, as with CPU pools."""
    node = policy.node
    facts = (policy.allocatable_memory_bytes, node.cpu_manager_policy, node.guaranteed_is_lsr)
    return policy.slo, policy.host, node.hooks, node.features, policy.gate_flags, facts


def is_same(policy: tuple[object, ...], other: tuple[object, ...]) -> bool:
    """Returns whether both are equal. Policies share large parts, so those are compared by identity first."""
    return all(a is b or a == b for a, b in zip(policy, other, strict=True))


def _settings(pod: PodContext, policy: EffectivePolicy) -> tuple[MemoryQOS, str] | None:
    """Returns the settings that apply and who sets them."""
    qos = pod.treated_as(policy.node.derivation)
    of_class = policy.class_settings(qos).memory_qos or slo_defaults.neutral_memory()
    own = pod.memory_qos
    if own is None:
        return (of_class, f"memoryQOS of {qos}") if of_class.enable else None
    if own.policy is MemoryPolicy.NONE:
        return None
    base = of_class
    if own.policy is MemoryPolicy.AUTO:
        defaults = slo_defaults.defaults().resource_qos
        base = (defaults and (defaults.of(qos) or policy.class_settings(qos)).memory_qos) or of_class
    return schema.overlay(base, own), "annotation memoryQOS"


def _request_and_limit(pod: PodContext) -> tuple[int | None, int | None]:
    amounts = [pod.amounts_of(name) for name in ((pod.container,) if pod.is_container else pod.extended)]
    chosen = [one for one in amounts if one is not None and (one.memory_request_bytes or one.memory_limit_bytes)]
    if chosen:
        limits = [one.memory_limit_bytes for one in chosen]
        return sum(one.memory_request_bytes for one in chosen), sum(limits) if all(limits) else None
    limit = pod.requested.memory_limit_bytes
    limit = limit if limit is not None and limit > 0 else None
    if pod.requested.memory_request_bytes is not None:
        return pod.requested.memory_request_bytes, limit
    if pod.kube_qos is KubeQoS.GUARANTEED:
        return limit, limit
    if pod.kube_qos is KubeQoS.BEST_EFFORT:
        return 0, limit
    return None, limit

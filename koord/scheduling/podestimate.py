"""What a pod is going to use, before anybody has measured it: a part of what it asks for.

Source: Koordinator, pkg/scheduler/plugins/loadaware/estimator/default_estimator.go.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from koord.model.priority import BATCH_CPU, BATCH_MEMORY, CPU, MEMORY, PriorityClass, resource_name
from koord.model.quantity import QuantityError
from koord.scheduling.loadsettings import LoadSettings
from koord.scheduling.podinfo import PodInfo

_FACTORS = "scheduling.koordinator.sh/load-estimated-scaling-factors"
_SECONDS_AFTER_SCHEDULED = "scheduling.koordinator.sh/load-estimated-seconds-after-pod-scheduled"
_SECONDS_AFTER_INITIALIZED = "scheduling.koordinator.sh/load-estimated-seconds-after-initialized"
"""Of a pod: what replaces the plugin's arguments for it."""
_LEAST = {CPU: 250, BATCH_CPU: 250, MEMORY: 200 << 20, BATCH_MEMORY: 200 << 20}
"""What a pod is going to use that requests nothing and has no limit."""


class Estimate(NamedTuple):
    """What a pod is going to use, in the order of the settings' resources, and for how long that counts."""

    amounts: tuple[int, ...]
    seconds_after_scheduled: int | None
    seconds_after_initialized: int | None


def of(pod: PodInfo, settings: LoadSettings) -> Estimate:
    """A part of what it requests or may use at most, whichever is more: round(amount * factor / 100), at most its
    limit. Amounts of batch and mid pods are those of their own resources.
    """
    factors, annotations = dict(settings.factors), pod.pod.metadata.annotations
    seconds = settings.seconds_after_scheduled, settings.seconds_after_initialized
    if settings.may_be_customized:
        factors = {**factors, **_custom_factors(annotations)}
        seconds = (
            _custom_seconds(annotations, _SECONDS_AFTER_SCHEDULED, seconds[0]),
            _custom_seconds(annotations, _SECONDS_AFTER_INITIALIZED, seconds[1]),
        )
    try:
        limits, priority = pod.limits, pod.priority_class
    except QuantityError:  # beside a request that can be read
        limits, priority = {}, PriorityClass.PROD
    return Estimate(
        tuple([_amount(pod.requests, limits, priority, each, factors.get(each, 0)) for each in settings.resources]),
        *seconds,
    )


def _amount(
    requests: Mapping[str, int], limits: Mapping[str, int], priority: PriorityClass, resource: str, factor: int
) -> int:
    if priority is PriorityClass.FREE and resource in (CPU, MEMORY):
        return 0
    name = resource_name(resource, priority)
    limit = limits.get(name, 0)
    most = max(requests.get(name, 0), limit)
    if not most:
        return _LEAST.get(name, 0)
    estimated = (2 * most * factor + 100) // 200
    return min(estimated, limit) if limit else estimated


def _custom_factors(annotations: Mapping[str, str]) -> dict[str, int]:
    """What the pod says itself; what cannot be read of it is as if it was not said."""
    text = annotations.get(_FACTORS)
    if text is None:
        return {}
    try:
        said = msgspec.json.decode(text, type=dict[str, int])
    except msgspec.DecodeError:
        return {}
    return {name: factor for name, factor in said.items() if 0 < factor <= 1000}


def _custom_seconds(annotations: Mapping[str, str], key: str, default: int | None) -> int | None:
    text = annotations.get(key, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else default

"""What two fields of NodeSLO must be to each other, beyond the bounds of each: lower limits below upper ones, pairs.

A pair that is wrong counts as not set, so its defaults apply or its feature has nothing to work by; the other fields
count. The rules are those of the cluster's webhook, which is off by default.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from koord.model import schema, slo_defaults
from koord.model.qos_settings import ResctrlQOS
from koord.model.schema import Bad, SchemaError, json_name
from koord.model.slo import NodeSLOSpec, ResourceQOS, ResourceThresholds


@dataclass(frozen=True, slots=True)
class _Pair:
    """``is_whole``: neither makes sense without the other; else ``lower`` is dropped, and derived from ``upper``."""

    lower: str
    upper: str
    is_whole: bool


_THRESHOLDS = (
    _Pair("cpu_evict_be_satisfaction_lower_percent", "cpu_evict_be_satisfaction_upper_percent", is_whole=True),
    _Pair("memory_allocatable_evict_lower_percent", "memory_allocatable_evict_threshold_percent", is_whole=True),
    _Pair("cpu_allocatable_evict_lower_percent", "cpu_allocatable_evict_threshold_percent", is_whole=True),
    _Pair("memory_evict_lower_percent", "memory_evict_threshold_percent", is_whole=False),
    _Pair("cpu_evict_lower_percent", "cpu_evict_threshold_percent", is_whole=False),
)
_CACHE = _Pair("cat_range_start_percent", "cat_range_end_percent", is_whole=True)
_CLASSES = ("lsr_class", "ls_class", "be_class", "system_class")


def checked(spec: NodeSLOSpec, path: str = "spec", bad: Bad | None = None) -> NodeSLOSpec:
    """``spec`` without the pairs that are wrong, of which ``bad`` is told. Without ``bad``, raises SchemaError."""
    merged = schema.overlay(slo_defaults.defaults(), spec)
    told = bad or _raise
    thresholds = _thresholds(spec.thresholds, merged.thresholds, f"{path}.resourceUsedThresholdWithBE", told)
    strategy = spec.resource_qos
    if strategy is not None and merged.resource_qos is not None:
        where = f"{path}.resourceQOSStrategy"
        said, in_all = strategy, merged.resource_qos
        classes = {
            name: _class(getattr(said, name), getattr(in_all, name), f"{where}.{json_name(name)}", told)
            for name in _CLASSES
        }
        strategy = msgspec.structs.replace(strategy, **classes)
    return msgspec.structs.replace(spec, thresholds=thresholds, resource_qos=strategy)


def _thresholds(
    stated: ResourceThresholds | None, merged: ResourceThresholds | None, path: str, bad: Bad
) -> ResourceThresholds | None:
    if stated is None or merged is None:
        return stated
    dropped = [name for pair in _THRESHOLDS for name in _dropped(pair, merged, path, bad)]
    return msgspec.structs.replace(stated, **dict.fromkeys(dropped))


def _class(stated: ResourceQOS | None, merged: ResourceQOS | None, path: str, bad: Bad) -> ResourceQOS | None:
    if stated is None or stated.resctrl_qos is None or merged is None:
        return stated
    dropped = _dropped(_CACHE, merged.resctrl_qos or ResctrlQOS(), f"{path}.resctrlQOS", bad)
    rest = msgspec.structs.replace(stated.resctrl_qos, **dict.fromkeys(dropped))
    return msgspec.structs.replace(stated, resctrl_qos=rest)


def _dropped(pair: _Pair, merged: msgspec.Struct, path: str, bad: Bad) -> tuple[str, ...]:
    """The fields of the pair that do not count."""
    lower, upper = getattr(merged, pair.lower), getattr(merged, pair.upper)
    both = (pair.lower, pair.upper)
    if lower is None and upper is None:
        return ()
    if lower is None or upper is None:
        if not pair.is_whole:
            return ()
        given, missing = both if upper is None else both[::-1]
        bad(SchemaError(f"{path}.{json_name(given)}", getattr(merged, given), f"needs {json_name(missing)} too"))
        return both
    if lower < upper:
        return ()
    why = f"is not less than {json_name(pair.upper)}, {upper}"
    bad(SchemaError(f"{path}.{json_name(pair.lower)}", lower, why))
    return both if pair.is_whole else (pair.lower,)


def _raise(error: SchemaError) -> None:
    raise error

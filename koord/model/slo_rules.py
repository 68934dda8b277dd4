"""What fields of NodeSLO must be to each other, beyond the bounds of each: lower limits below upper ones, pairs, sums.

A pair that is wrong counts as not set, so its defaults apply or its feature has nothing to work by; the other fields
count. A host application that cannot be told from another is left out whole. The rules are those of the cluster's
webhook, which is off by default, and those by which upstream's node agent would leave a feature alone.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from koord.model import priority, schema, slo_bandwidth, slo_defaults
from koord.model.priority import PriorityClass
from koord.model.problem import Bad, Problem
from koord.model.qos import QoSClass
from koord.model.qos_settings import ResctrlQOS
from koord.model.schema import SchemaError, json_name, wrong
from koord.model.slo import (
    HostApplication,
    NodeSLOSpec,
    ResourceQOS,
    ResourceQOSStrategy,
    ResourceThresholds,
    SystemStrategy,
)


@dataclass(frozen=True, slots=True)
class FieldPair:
    """Two fields of one object, of which ``lower`` must be less, or (``may_equal``) not more.

    ``is_whole``: neither makes sense without the other; else ``lower`` alone is dropped, and derived from ``upper``.
    """

    lower: str
    upper: str
    is_whole: bool
    may_equal: bool = False


THRESHOLDS = (
    FieldPair("cpu_suppress_min_percent", "cpu_suppress_threshold_percent", is_whole=False),
    FieldPair(
        "cpu_evict_be_satisfaction_lower_percent",
        "cpu_evict_be_satisfaction_upper_percent",
        is_whole=True,
        may_equal=True,
    ),
    FieldPair("memory_allocatable_evict_lower_percent", "memory_allocatable_evict_threshold_percent", is_whole=True),
    FieldPair("cpu_allocatable_evict_lower_percent", "cpu_allocatable_evict_threshold_percent", is_whole=True),
    FieldPair("memory_evict_lower_percent", "memory_evict_threshold_percent", is_whole=False),
    FieldPair("cpu_evict_lower_percent", "cpu_evict_threshold_percent", is_whole=False),
)
"""Of ``resourceUsedThresholdWithBE``."""

CACHE = FieldPair("cat_range_start_percent", "cat_range_end_percent", is_whole=True)
"""Of ``resctrlQOS``."""

_CLASSES = ("lsr_class", "ls_class", "be_class", "system_class")


def checked(
    spec: NodeSLOSpec, path: str = "spec", bad: Bad | None = None, below: NodeSLOSpec | None = None
) -> NodeSLOSpec:
    """Returns ``spec`` without what is wrong, and tells ``bad`` of it. Without ``bad``, raises SchemaError.

    ``below``: what ``spec`` is laid over, itself checked; then a pair may have its other half there, and what ``below``
    says stays, whatever ``spec`` makes of it.
    """
    told = bad or _raise
    spec = msgspec.structs.replace(spec, system=_system(spec.system, f"{path}.systemStrategy", told))
    base = slo_defaults.defaults()
    merged = schema.overlay(base if below is None else schema.overlay(base, below), spec)
    return msgspec.structs.replace(
        spec,
        thresholds=_thresholds(spec.thresholds, merged.thresholds, f"{path}.resourceUsedThresholdWithBE", told),
        resource_qos=_strategy(spec.resource_qos, merged, f"{path}.resourceQOSStrategy", told),
        host_applications=_applications(spec.host_applications, f"{path}.hostApplications", told),
    )


def _system(stated: SystemStrategy | None, path: str, bad: Bad) -> SystemStrategy | None:
    total = None if stated is None else stated.total_network_bandwidth
    if stated is None or total is None or total.nano >= 0:
        return stated
    bad(wrong(f"{path}.totalNetworkBandwidth", str(total), "is negative"))
    return msgspec.structs.replace(stated, total_network_bandwidth=None)


def _thresholds(
    stated: ResourceThresholds | None, merged: ResourceThresholds | None, path: str, bad: Bad
) -> ResourceThresholds | None:
    if stated is None or merged is None:
        return stated
    dropped = [name for pair in THRESHOLDS for name in _dropped(pair, stated, merged, path, bad)]
    return msgspec.structs.replace(stated, **dict.fromkeys(dropped))


def _strategy(
    stated: ResourceQOSStrategy | None, merged: NodeSLOSpec, path: str, bad: Bad
) -> ResourceQOSStrategy | None:
    in_all, system = merged.resource_qos, merged.system
    if stated is None or in_all is None:
        return stated
    classes = {
        name: _class(getattr(stated, name), getattr(in_all, name), f"{path}.{json_name(name)}", bad)
        for name in _CLASSES
    }
    total = None if system is None else system.total_network_bandwidth
    return slo_bandwidth.checked(msgspec.structs.replace(stated, **classes), total, path, bad)


def _class(stated: ResourceQOS | None, merged: ResourceQOS | None, path: str, bad: Bad) -> ResourceQOS | None:
    if stated is None or stated.resctrl_qos is None or merged is None:
        return stated
    dropped = _dropped(CACHE, stated.resctrl_qos, merged.resctrl_qos or ResctrlQOS(), f"{path}.resctrlQOS", bad)
    rest = msgspec.structs.replace(stated.resctrl_qos, **dict.fromkeys(dropped))
    return msgspec.structs.replace(stated, resctrl_qos=rest)


def _dropped(pair: FieldPair, stated: msgspec.Struct, merged: msgspec.Struct, path: str, bad: Bad) -> tuple[str, ...]:
    """The fields of the pair that do not count, if ``stated`` has any of them."""
    lower, upper = getattr(merged, pair.lower), getattr(merged, pair.upper)
    both = (pair.lower, pair.upper)
    if all(getattr(stated, name) is None for name in (both if pair.is_whole else both[:1])):
        return ()
    if lower is None and upper is None:
        return ()
    if lower is None or upper is None:
        if not pair.is_whole:
            return ()
        given, missing = both if upper is None else both[::-1]
        bad(wrong(f"{path}.{json_name(given)}", getattr(merged, given), f"needs {json_name(missing)} too"))
        return both
    if lower < upper or (pair.may_equal and lower == upper):
        return ()
    why = "is more than" if pair.may_equal else "is not less than"
    bad(wrong(f"{path}.{json_name(pair.lower)}", lower, f"{why} {json_name(pair.upper)}, {upper}"))
    return both if pair.is_whole else (pair.lower,)


def _applications(
    stated: tuple[HostApplication, ...] | None, path: str, bad: Bad
) -> tuple[HostApplication, ...] | None:
    """Returns those that have a name of their own, by which they are measured and shown."""
    if stated is None:
        return None
    kept: dict[str, HostApplication] = {}
    places: dict[str, str] = {}
    for index, application in enumerate(stated):
        place = f"{path}[{index}]"
        if not application.name:
            bad(wrong(f"{place}.name", "", "is no name"))
        elif application.name in kept:
            bad(wrong(f"{place}.name", application.name, f"is the name of {places[application.name]} too"))
        else:
            kept[application.name], places[application.name] = _application(application, place, bad), place
    return tuple(kept.values())


def _application(stated: HostApplication, path: str, bad: Bad) -> HostApplication:
    """Returns the application without words that mean no class."""
    if stated.qos and stated.qos_class is None:
        bad(wrong(f"{path}.qos", stated.qos, f"is not one of {', '.join(QoSClass)}"))
        stated = msgspec.structs.replace(stated, qos="")
    if stated.priority and priority.parse(stated.priority) is None:
        bad(wrong(f"{path}.priority", stated.priority, f"is not one of {', '.join(PriorityClass)}"))
        stated = msgspec.structs.replace(stated, priority="")
    return stated


def _raise(problem: Problem) -> None:
    raise SchemaError.of(problem)

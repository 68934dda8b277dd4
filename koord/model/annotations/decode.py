"""One function per kind of text from it to its value. Each raises ``BadValue`` with the reason, and nothing else.

Those with ``bad`` hand it each leaf that is wrong and return the rest; without it a bad leaf is a ``BadValue`` of the
whole. JSON keys count in any case and unknown ones are ignored, as in the Go programs that write
these annotations.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from koord.model import priority, qos, quantity, schema
from koord.model.annotations import values
from koord.model.annotations.values import (
    ContainerResources,
    CoreSchedPolicy,
    DeviceAllocation,
    ExtendedResourceSpec,
    OOMScoreAdj,
    PodNetworkQOS,
    PodResctrl,
    ResctrlResource,
    ResourceStatus,
)
from koord.model.featuregates import GATES
from koord.model.priority import PriorityClass
from koord.model.problem import Bad, Problem
from koord.model.qos import QoSClass

T = TypeVar("T")
S = TypeVar("S", bound=msgspec.Struct)

_DEVICE_ID = re.compile(r"(?:[0-9A-Za-z][0-9A-Za-z:._-]{0,127})?", re.ASCII)
"""GPU UUID or PCI address: it ends up in paths below /sys, so it has no slash and does not start with a dot."""
_INTEGER = re.compile(r"[+-]?[0-9]{1,19}", re.ASCII)


class BadValue(ValueError):
    """Why the text of one key has no meaning."""


class _Devices(msgspec.Struct, frozen=True):
    of_type: Mapping[str, tuple[DeviceAllocation, ...]]


class _Scores(msgspec.Struct, frozen=True):
    by_container: Mapping[str, OOMScoreAdj]


class _Names(msgspec.Struct, frozen=True):
    items: tuple[str, ...]


def qos_class(text: str) -> QoSClass | None:
    """Label ``qosClass``; "" is no class."""
    return _choice(text, qos.parse, QoSClass)


def priority_class(text: str) -> PriorityClass | None:
    """Label ``priority-class``; "" is no class."""
    return _choice(text, priority.parse, PriorityClass)


def int32(text: str) -> int:
    """A decimal integer of 32 bits with an optional sign and nothing around it."""
    return _integer(text, -(2**31), 2**31 - 1)


def oom_score_adj(text: str) -> int:
    return _integer(text, -1000, 1000)


def eviction_enabled(text: str) -> bool:
    """Label ``eviction-enabled``; only "true" enables."""
    if text not in ("true", "false"):
        raise BadValue("is neither true nor false")
    return text == "true"


def core_sched_policy(text: str) -> CoreSchedPolicy | None:
    """Label ``core-sched-policy``; "" is the default policy."""
    return _choice(text, _core_sched_policy, CoreSchedPolicy)


def plain(text: str) -> str:
    """A label whose text is the value."""
    return text


def eviction_policy(text: str, bad: Bad | None = None) -> tuple[str, ...]:
    """The feature gates behind which a strategy must stand to evict the pod."""
    gates = []
    for index, name in enumerate(_wrapped(_Names, "items", text).items):
        if name in GATES:
            gates.append(name)
        else:
            _wrong(schema.wrong(f"[{index}]", name, "is no feature gate"), bad)
    return tuple(gates)


def network_qos(text: str, bad: Bad | None = None) -> PodNetworkQOS:
    """Limits in bits per second, not negative."""
    found = read(PodNetworkQOS, text, bad)
    given = {"ingressLimit": found.ingress_limit, "egressLimit": found.egress_limit}
    good = _good_amounts("", {name: amount for name, amount in given.items() if amount is not None}, bad)
    return PodNetworkQOS(ingress_limit=good.get("ingressLimit"), egress_limit=good.get("egressLimit"))


def oom_score_adj_spec(text: str, bad: Bad | None = None) -> Mapping[str, int]:
    """The score of each container named."""
    return _wrapped(_Scores, "by_container", text, bad).by_container


def resctrl(text: str, bad: Bad | None = None) -> PodResctrl:
    """Shares of cache and bandwidth; a range is two percentages, from < to."""
    found = read(PodResctrl, text, bad)
    return PodResctrl(llc=_good_shares("llc", found.llc, bad), mb=_good_shares("mb", found.mb, bad))


def extended_resource_spec(text: str, bad: Bad | None = None) -> ExtendedResourceSpec:
    """Requests and limits per container, none negative."""
    found = read(ExtendedResourceSpec, text, bad)
    return ExtendedResourceSpec(
        containers=_good_containers("containers", found.containers, bad),
        init_containers=_good_containers("initContainers", found.init_containers, bad),
    )


def _good_containers(
    list_name: str, containers: Mapping[str, ContainerResources], bad: Bad | None
) -> Mapping[str, ContainerResources]:
    good = {}
    for name, container in containers.items():
        path = schema.child(list_name, name)
        good[name] = ContainerResources(
            requests=_good_amounts(f"{path}.requests", container.requests, bad),
            limits=_good_amounts(f"{path}.limits", container.limits, bad),
        )
    return good


def resource_status(text: str, bad: Bad | None = None) -> ResourceStatus:
    """The CPU set and the amounts by NUMA node, none negative."""
    found = read(ResourceStatus, text, bad)
    nodes = [
        replace(numa, resources=_good_amounts(f"numaNodeResources[{index}].resources", numa.resources, bad))
        for index, numa in enumerate(found.numa_node_resources)
    ]
    return replace(found, numa_node_resources=tuple(nodes))


def device_allocated(text: str) -> Mapping[str, tuple[DeviceAllocation, ...]]:
    """The allocations by device type ("gpu", "rdma", …)."""
    found = _wrapped(_Devices, "of_type", text).of_type
    for kind, allocations in found.items():
        for index, allocation in enumerate(allocations):
            path = f"{schema.child('', kind)}[{index}]"
            _good_amounts(f"{path}.resources", allocation.resources, None)
            for name in (allocation.id, *(function.bus_id for function in allocation.extension.vfs)):
                if _DEVICE_ID.fullmatch(name) is None:
                    raise BadValue(f"{path}: {schema.clip(name)} is not a device id")
    return found


def _choice(text: str, parse: Callable[[str], T | None], choices: Iterable[str]) -> T | None:
    chosen = parse(text)
    if chosen is None and text:
        raise BadValue(f"is not one of {', '.join(choices)}")
    return chosen


def _integer(text: str, low: int, high: int) -> int:
    if _INTEGER.fullmatch(text) is None:
        raise BadValue("is not a decimal integer")
    number = int(text)
    if not low <= number <= high:
        raise BadValue(f"is not in {low}..{high}")
    return number


def _json(text: str) -> object:
    try:
        return schema.parse_json(text)
    except schema.SchemaError as error:
        raise BadValue(error.why) from error


def read(cls: type[S], text: str, bad: Bad | None = None) -> S:
    """A document that is an object at its top; null is an empty one."""
    document = _json(text)
    try:
        return schema.read(cls, {} if document is None else document, bad=bad)
    except schema.SchemaError as error:
        raise BadValue(str(error)) from error


def _wrapped(cls: type[S], field: str, text: str, bad: Bad | None = None) -> S:
    """A document that is a list or a map at its top, read as the only field of ``cls``."""
    document = _json(text)
    try:
        return cls(**{field: schema.read_member(cls, field, document, bad=bad)})
    except schema.SchemaError as error:
        raise BadValue(str(error)) from error


def _core_sched_policy(text: str) -> CoreSchedPolicy | None:
    return next((policy for policy in CoreSchedPolicy if policy.value == text), None)


def _wrong(problem: Problem, bad: Bad | None) -> None:
    """Hands a wrong leaf to ``bad``; without it, the whole is wrong."""
    if bad is None:
        raise BadValue(str(problem))
    bad(problem)


def _good_amounts(
    path: str, resources: Mapping[str, quantity.Quantity], bad: Bad | None
) -> dict[str, quantity.Quantity]:
    good = {}
    for name, amount in resources.items():
        wrong = values.problem_of(path, name, amount)
        if wrong is None:
            good[name] = amount
        else:
            _wrong(wrong, bad)
    return good


def _good_shares(name: str, resource: ResctrlResource | None, bad: Bad | None) -> ResctrlResource | None:
    """Returns the resource without ranges that are none."""
    if resource is None:
        return None
    schemata = resource.schemata
    if schemata is not None and not _is_range(schemata.range, f"{name}.schemata", bad):
        schemata = replace(schemata, range=None)
    caches = [
        each if _is_range(each.range, f"{name}.schemataPerCache[{i}]", bad) else replace(each, range=None)
        for i, each in enumerate(resource.schemata_per_cache)
    ]
    return ResctrlResource(schemata=schemata, schemata_per_cache=tuple(caches))


def _is_range(bounds: Sequence[int] | None, path: str, bad: Bad | None) -> bool:
    if bounds is None or (len(bounds) == 2 and bounds[0] < bounds[1]):
        return True
    _wrong(Problem(f"{path}.range", f"{list(bounds[:4])} is not [from, to] with from < to"), bad)
    return False

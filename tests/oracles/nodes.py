"""Nodes as an API server might serve them, odd ones included: made from a seed, for the product and its oracle alike.

``documents(seed)`` makes one node, its pods, its NodeMetric, the strategy for it and the time. Same seed, same
documents. Amounts are in proportion to the node, so that sums come out above and below what it has.

Invariant: every document is one that ``koord.model.core`` can read; what is odd are the texts inside of it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from random import Random
from typing import Any

from tests.oracles.amounts import resources, resources_or_odd
from tests.oracles.objects import BATCH, CPU, LABEL_CLASS, LABEL_QOS, MEMORY, MID, Document

Documents = tuple[Document, list[Document], Document | None, Document, float]
"""node, pods, metric, strategy, now_s"""

NOW_S = 1_764_100_000.0
NODE = "node.koordinator.sh/"
QOS = ("LSE", "LSR", "LS", "BE", "SYSTEM", "ls", "", "Guaranteed")
CLASSES = ("koord-prod", "koord-mid", "koord-batch", "koord-free", "", "prod", "none")
PRIORITIES = (
    *(9000, 9500, 9999, 7000, 7999, 5000, 5500, 5999, 3000, 3999),
    *(2999, 4000, 4999, 6000, 6999, 8000, 8999, 10000, 0, -1, 2_000_000_000),
)
PHASES = ("Running", "Running", "Running", "Running", "Pending", "Pending", "Succeeded", "Failed", "Unknown", "")


def documents(seed: int) -> Documents:
    rng = Random(seed)
    size = rng.randint(1_000, 128_000), rng.randint(1 << 30, 1 << 39)
    node = _node(rng, size)
    pods = [_pod(rng, size, number) for number in range(rng.choice((0, 1, 2, 3, 5, 8, 13)))]
    return node, pods, _metric(rng, size, pods), _strategy(rng), NOW_S + rng.choice((0, 0.25, 0.999))


def _sometimes(rng: Random, document: Document, key: str, share: float, make: Callable[[], Any]) -> None:
    """A member that may be absent, and now and then is null."""
    drawn = rng.random()
    if drawn < share:
        document[key] = make()
    elif drawn > 0.98:
        document[key] = None


# Node


def _node(rng: Random, size: tuple[int, int]) -> Document:
    status: Document = {"capacity": resources(rng, size)}
    if rng.random() < 0.01:
        status["capacity"].pop(rng.choice((CPU, MEMORY)))
    kept = rng.uniform(0, 0.2), rng.uniform(0, 0.2)
    allocatable = tuple(int(amount * (1 - share)) for amount, share in zip(size, kept, strict=True))
    _sometimes(rng, status, "allocatable", 0.93, lambda: _some(rng, resources_or_odd(rng, allocatable), 0.97))
    metadata: Document = {"name": "n"}
    _sometimes(rng, metadata, "annotations", 0.85, lambda: _node_annotations(rng, size))
    return {"metadata": metadata, "status": status}


def _some(rng: Random, amounts: Document, share: float) -> Document:
    return {name: amount for name, amount in amounts.items() if rng.random() < share}


def _part(rng: Random, size: tuple[int, int], most: float) -> tuple[int, int]:
    return int(size[0] * rng.uniform(0, most)), int(size[1] * rng.uniform(0, most))


def _node_annotations(rng: Random, size: tuple[int, int]) -> Document:
    makers: Sequence[tuple[str, float, Callable[[], Any]]] = (
        ("reservation", 0.4, lambda: _reservation(rng, size)),
        ("raw-allocatable", 0.25, lambda: _some(rng, resources_or_odd(rng, _part(rng, size, 1)), 0.8)),
        ("resource-amplification-ratio", 0.3, lambda: _ratios(rng)),
        ("thirdPartyAllocations", 0.3, lambda: _third_party(rng, size)),
    )
    broken = ("", "{", "[]", "null", '"8"', "12")
    return {
        NODE + name: rng.choice(broken) if rng.random() < 0.08 else json.dumps(make())
        for name, share, make in makers
        if rng.random() < share
    }


def _reservation(rng: Random, size: tuple[int, int]) -> Document:
    reservation: Document = {}
    _sometimes(
        rng, reservation, "resources", 0.7, lambda: _some(rng, resources_or_odd(rng, _part(rng, size, 0.3)), 0.8)
    )
    last = rng.randint(1, 1 + size[0] // 4000)
    cpus = ("0", f"0-{last}", f"0,{last}", f"0-{last},{last}-{last + 1}", "", "x", "3-1", "0-")
    _sometimes(rng, reservation, "reservedCPUs", 0.5, lambda: rng.choice(cpus))
    _sometimes(rng, reservation, "applyPolicy", 0.3, lambda: rng.choice(("Default", "ReservedCPUsOnly")))
    return reservation


def _ratios(rng: Random) -> Document:
    ratios: Document = {}
    choices = (1, 1.0, 1.2, 1.25, 1.5, 1.33, 2, 3.07, 0.5, 0, -1.5, "2", True)
    for resource in (CPU, MEMORY):
        _sometimes(rng, ratios, resource, 0.8, lambda: rng.choice(choices))
    return ratios


def _third_party(rng: Random, size: tuple[int, int]) -> Document:
    def allocation() -> Document:
        amounts = resources_or_odd(rng, _part(rng, size, 0.2), BATCH)
        return {"name": "yarn", "priority": rng.choice(CLASSES[1:4]), "resources": _some(rng, amounts, 0.9)}

    return {"allocations": [allocation() for _ in range(rng.randint(0, 3))]}


# Pod


def _pod(rng: Random, size: tuple[int, int], number: int) -> Document:
    names = {CPU: CPU, MEMORY: MEMORY} if rng.random() < 0.75 else rng.choice((MID, BATCH))
    odd = rng.random() < 0.06
    spec: Document = {"containers": [_container(rng, size, names, odd) for _ in range(rng.choice((1, 1, 1, 2, 3)))]}
    _sometimes(rng, spec, "initContainers", 0.3, lambda: _init_containers(rng, size, names))
    _sometimes(rng, spec, "overhead", 0.15, lambda: resources(rng, _part(rng, size, 0.02), names))
    _sometimes(rng, spec, "resources", 0.1, lambda: _requirements(rng, size, {CPU: CPU, MEMORY: MEMORY}, False))
    _sometimes(rng, spec, "priority", 0.75, lambda: rng.choice(PRIORITIES))
    metadata: Document = {"name": f"p{number}", "namespace": rng.choice(("default", "batch"))}
    _sometimes(rng, metadata, "labels", 0.8, lambda: _labels(rng))
    status: Document = {"phase": rng.choice(PHASES)}
    _sometimes(rng, status, "startTime", 0.7, lambda: "2026-11-23T09:00:00Z")
    classes = ("Guaranteed", "Burstable", "BestEffort")
    _sometimes(rng, status, "qosClass", 0.7, lambda: rng.choice(classes))
    return {"metadata": metadata, "spec": spec, "status": status}


def _labels(rng: Random) -> Document:
    labels: Document = {}
    if rng.random() < 0.6:
        labels[LABEL_QOS] = rng.choice(QOS)
    if rng.random() < 0.3:
        labels[LABEL_CLASS] = rng.choice(CLASSES)
    return labels


def _init_containers(rng: Random, size: tuple[int, int], names: Document) -> list[Document]:
    inits = [_container(rng, size, names, False) for _ in range(rng.randint(1, 3))]
    for init in inits:
        _sometimes(rng, init, "restartPolicy", 0.5, lambda: "Always")
    return inits


def _container(rng: Random, size: tuple[int, int], names: Document, odd: bool) -> Document:
    container: Document = {"name": "c"}
    _sometimes(rng, container, "resources", 0.9, lambda: _requirements(rng, size, names, odd))
    return container


def _requirements(rng: Random, size: tuple[int, int], names: Document, odd: bool) -> Document:
    make = resources_or_odd if odd else resources
    requirements: Document = {}
    for kind, share in (("requests", 0.85), ("limits", 0.4)):
        _sometimes(rng, requirements, kind, share, lambda: _some(rng, make(rng, _part(rng, size, 0.08), names), 0.85))
    return requirements


# NodeMetric


def _metric(rng: Random, size: tuple[int, int], pods: list[Document]) -> Document | None:
    if rng.random() < 0.03:
        return None
    metric: Document = {"metadata": {"name": "n"}, "spec": {}}
    _sometimes(rng, metric, "status", 0.98, lambda: _metric_status(rng, size, pods))
    return metric


def _metric_status(rng: Random, size: tuple[int, int], pods: list[Document]) -> Document:
    status: Document = {}
    _sometimes(rng, status, "updateTime", 0.96, lambda: _update_time(rng))
    _sometimes(rng, status, "nodeMetric", 0.96, lambda: _node_usage(rng, size))
    _sometimes(rng, status, "podsMetric", 0.9, lambda: _entries(rng, size, pods))
    _sometimes(rng, status, "hostApplicationMetric", 0.4, lambda: _hosts(rng, size))
    _sometimes(rng, status, "prodReclaimableMetric", 0.8, lambda: {"resource": _usage(rng, size, 0.6)})
    return status


def _update_time(rng: Random) -> str:
    ages = (-86_400, -60, -1, 0, *range(9), 59, 60, 61, 299, 300, 301, 899, 900, 901, 100_000)
    time = datetime.fromtimestamp(NOW_S - rng.choice(ages), UTC)
    return "yesterday" if rng.random() < 0.03 else rng.choice((time.strftime("%Y-%m-%dT%H:%M:%SZ"), time.isoformat()))


def _node_usage(rng: Random, size: tuple[int, int]) -> Document:
    usage: Document = {}
    _sometimes(rng, usage, "nodeUsage", 0.95, lambda: _usage(rng, size, 1.1))
    _sometimes(rng, usage, "systemUsage", 0.95, lambda: _usage(rng, size, 0.2))
    return usage


def _usage(rng: Random, size: tuple[int, int], most: float) -> Document:
    usage: Document = {}
    make = resources_or_odd if rng.random() < 0.1 else resources
    _sometimes(rng, usage, "resources", 0.97, lambda: _some(rng, make(rng, _part(rng, size, most)), 0.96))
    return usage


def _entries(rng: Random, size: tuple[int, int], pods: list[Document]) -> list[Document]:
    keys = [(pod["metadata"]["namespace"], pod["metadata"]["name"]) for pod in pods if rng.random() < 0.8]
    keys += [("default", f"gone{number}") for number in range(rng.choice((0, 0, 1, 2)))]
    rng.shuffle(keys)
    return [_entry(rng, size, *key) for key in keys]


def _entry(rng: Random, size: tuple[int, int], namespace: str, name: str) -> Document:
    entry: Document = {"namespace": namespace, "name": name}
    _sometimes(rng, entry, "podUsage", 0.97, lambda: _usage(rng, size, 0.1))
    _sometimes(rng, entry, "priority", 0.8, lambda: rng.choice(CLASSES))
    return entry


def _hosts(rng: Random, size: tuple[int, int]) -> list[Document]:
    def host(number: int) -> Document:
        application: Document = {"name": f"host{number}"}
        _sometimes(rng, application, "usage", 0.95, lambda: _usage(rng, size, 0.1))
        _sometimes(rng, application, "priority", 0.9, lambda: rng.choice(CLASSES))
        return application

    return [host(number) for number in range(rng.randint(0, 4))]


# strategy


def _strategy(rng: Random) -> Document:
    """``enable`` is always there: what is offered is asked of nodes that take part."""
    percents = (0, 10, 33, 100)
    choices: Sequence[tuple[str, float, Sequence[Any]]] = (
        ("cpuReclaimThresholdPercent", 0.7, (0, 1, 33, 60, 65, 99, 100, 101, 150, 250)),
        ("memoryReclaimThresholdPercent", 0.7, (0, 1, 33, 60, 65, 99, 100, 101, 150, 250)),
        ("cpuCalculatePolicy", 0.7, ("usage", "request", "maxUsageRequest", "")),
        ("memoryCalculatePolicy", 0.7, ("usage", "request", "maxUsageRequest", "")),
        ("degradeTimeMinutes", 0.4, (1, 5, 15, 60)),
        ("batchCPUThresholdPercent", 0.3, (0, 7, 33, 50, 100, 130)),
        ("batchMemoryThresholdPercent", 0.3, (0, 7, 33, 50, 100, 130)),
        ("midReclaimMode", 0.4, ("static", "static", "")),
        ("midCPUThresholdPercent", 0.5, percents),
        ("midMemoryThresholdPercent", 0.5, percents),
        ("midUnallocatedPercent", 0.6, percents),
        ("midStaticCPUReservedPercent", 0.5, percents),
        ("midStaticMemoryReservedPercent", 0.5, percents),
        ("extensions", 0.4, (*({"koord": {"coverRunningPods": each}} for each in (True, False, None)), {"koord": {}})),
    )
    strategy: Document = {"enable": True}
    for key, share, values in choices:
        _sometimes(rng, strategy, key, share, partial(rng.choice, values))
    return strategy

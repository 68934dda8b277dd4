"""Rules of Kubernetes and Koordinator on plain JSON, as oracles need them: amounts, pod requests, classes.

Written without anything of ``koord``: what the product reads with its structs, this reads
with dicts and fractions. Slow and obvious.

Invariant: a member that is null counts as absent.
Fails with ``Unreadable`` where an amount follows no grammar or is negative.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from fractions import Fraction
from math import ceil
from typing import Any

Document = dict[str, Any]
AmountOf = Callable[[Document, str], Fraction | None]

CPU, MEMORY = "cpu", "memory"
BATCH = {CPU: "kubernetes.io/batch-cpu", MEMORY: "kubernetes.io/batch-memory"}
MID = {CPU: "kubernetes.io/mid-cpu", MEMORY: "kubernetes.io/mid-memory"}
LABEL_QOS, LABEL_CLASS = "koordinator.sh/qosClass", "koordinator.sh/priority-class"
QOS_CLASSES = ("LSE", "LSR", "LS", "BE", "SYSTEM")
BANDS = {
    "koord-prod": range(9000, 10000),
    "koord-mid": range(7000, 8000),
    "koord-batch": range(5000, 6000),
    "koord-free": range(3000, 4000),
}

_QUANTITY = re.compile(r"(-?)\+?([0-9]+\.?[0-9]*|\.[0-9]+)([numkMGTPE]|[KMGTPE]i|[eE][+-]?[0-9]+|)")
_SUFFIXES = {
    **{suffix: Fraction(10) ** power for suffix, power in zip("num", (-9, -6, -3), strict=True)},
    **{suffix: Fraction(1000) ** power for power, suffix in enumerate("kMGTPE", 1)},
    **{f"{suffix}i": Fraction(1024) ** power for power, suffix in enumerate("KMGTPE", 1)},
    "": Fraction(1),
}


class Unreadable(ValueError):
    """The amount is none."""


def at(document: Any, *path: str) -> Any:
    """The member at ``path``; None if it, or one on the way, is absent or null."""
    for key in path:
        document = (document or {}).get(key)
    return document


# amounts


def quantity(value: Any) -> Fraction:
    """Kubernetes keeps billionths and rounds up what is finer."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise Unreadable(value)
    match = _QUANTITY.fullmatch(value if isinstance(value, str) else repr(value))
    if match is None or match[1]:
        raise Unreadable(value)
    suffix = match[3]
    scale = _SUFFIXES[suffix] if suffix in _SUFFIXES else Fraction(10) ** int(suffix[1:])
    return Fraction(ceil(Fraction(match[2]) * scale * 10**9), 10**9)


def units(resource: str, amount: Fraction) -> int:
    """Native CPU in thousandths, all else in whole units, rounded up."""
    return ceil(amount * 1000) if resource == CPU else ceil(amount)


def read(amounts: Document | None, resource: str) -> int | None:
    """``units`` of ``resource`` in a resource list; None if it is absent or unreadable."""
    value = at(amounts, resource)
    try:
        return None if value is None else units(resource, quantity(value))
    except Unreadable:
        return None


# a pod's requests and limits


def request(pod: Document, resource: str) -> Fraction:
    """PodRequests. A request that is absent is the limit, as the API server writes it."""
    whole = _of_pod(pod, resource)
    amount = _amount(at(whole, "requests"), resource)
    if amount is None:
        amount = _of_containers(pod, resource, _request_of)
    if amount is None:
        amount = _amount(at(whole, "limits"), resource)
    return (amount or Fraction(0)) + (_amount(at(pod, "spec", "overhead"), resource) or 0)


def limit(pod: Document, resource: str) -> Fraction | None:
    """PodLimits; None if nothing in the pod has a limit."""
    amount = _amount(at(_of_pod(pod, resource), "limits"), resource)
    if amount is None:
        amount = _of_containers(pod, resource, _limit_of)
    return amount + (_amount(at(pod, "spec", "overhead"), resource) or 0) if amount else amount


def _amount(amounts: Document | None, resource: str) -> Fraction | None:
    value = at(amounts, resource)
    return None if value is None else quantity(value)


def _of_pod(pod: Document, resource: str) -> Document | None:
    """Resources of the pod as a whole exist for CPU, memory and huge pages."""
    return at(pod, "spec", "resources") if resource in (CPU, MEMORY) else None


def _of_containers(pod: Document, resource: str, amount_of: AmountOf) -> Fraction | None:
    containers, inits = at(pod, "spec", "containers") or [], at(pod, "spec", "initContainers") or []
    if all(amount_of(container, resource) is None for container in containers + inits):
        return None
    running = sum(amount_of(container, resource) or 0 for container in containers)
    sidecars = peak = Fraction(0)
    for init in inits:
        if init.get("restartPolicy") == "Always":
            sidecars += amount_of(init, resource) or 0
        else:
            peak = max(peak, sidecars + (amount_of(init, resource) or 0))
    return max(running + sidecars, peak)


def _request_of(container: Document, resource: str) -> Fraction | None:
    amount = _amount(at(container, "resources", "requests"), resource)
    return _limit_of(container, resource) if amount is None else amount


def _limit_of(container: Document, resource: str) -> Fraction | None:
    return _amount(at(container, "resources", "limits"), resource)


# classes


def labels(pod: Document) -> Document:
    return at(pod, "metadata", "labels") or {}


def raw_qos(pod: Document) -> str | None:
    text = labels(pod).get(LABEL_QOS)
    return text if text in QOS_CLASSES else None


def raw_class(pod: Document) -> str | None:
    if LABEL_CLASS in labels(pod):
        text = labels(pod)[LABEL_CLASS]
        return text if text in BANDS else None
    priority = at(pod, "spec", "priority")
    return next((name for name, band in BANDS.items() if priority in band), None)


def effective_class(pod: Document) -> str:
    """A pod without QoS label counts as LS, or as BE if it is BestEffort, hence as prod or batch."""
    said = raw_class(pod)
    if said is not None:
        return said
    is_best_effort = raw_qos(pod) == "BE" if raw_qos(pod) else is_kube_best_effort(pod)
    return "koord-batch" if is_best_effort else "koord-prod"


def is_kube_best_effort(pod: Document) -> bool:
    """Neither CPU nor memory is requested or limited anywhere; an amount that cannot be read might be one."""
    said = at(pod, "status", "qosClass")
    if said:
        return bool(said == "BestEffort")
    spec = at(pod, "spec") or {}
    parts = [spec, *(spec.get("containers") or []), *(spec.get("initContainers") or [])]
    lists = [at(part, "resources", kind) for part in parts for kind in ("requests", "limits")]
    amounts = [(at(each, name), read(each, name)) for each in lists for name in (CPU, MEMORY)]
    return all(text is None or amount == 0 for text, amount in amounts)

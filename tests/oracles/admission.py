"""What admission makes of a pod and says to it, written a second time.

Plain and obvious, on pods as JSON. Profiles apply always or never here; a lot in between is nothing that two readers
could agree on. Where Koord differs from Koordinator:

* with the gate RequireEqualCPULimits an LSE or LSR pod's limit of CPU is its request, in each container, or in the pod
  as a whole if it has amounts;
* an update that leaves classes and resources as they were is not judged by them again;
* a mapping of a key that a pod lacks does nothing;
* amounts of a pod as a whole do not become batch or mid ones: where the containers say the same they go, and such a
  pod is refused otherwise.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from tests.oracles.objects import (
    BATCH,
    CPU,
    LABEL_QOS,
    MEMORY,
    MID,
    Document,
    at,
    effective_class,
    labels,
    limit,
    quantity,
    raw_class,
    raw_qos,
    request,
    units,
)

LABEL_SUB_PRIORITY = "koordinator.sh/priority"
SKIP_RESOURCES = "config.koordinator.sh/skip-update-resources"
PRIORITY_CLASSES = {"koord-prod": 9000, "koord-mid": 7000, "koord-batch": 5000, "koord-free": 3000}
PREEMPTION = "PreemptLowerPriority"

A, X = True, False
MATRIX = {  # raw QoS by raw priority class
    "LSE": {"koord-prod": A, "koord-mid": A, "koord-batch": A, "koord-free": A, None: A},
    "LSR": {"koord-prod": A, "koord-mid": X, "koord-batch": X, "koord-free": X, None: X},
    "LS": {"koord-prod": A, "koord-mid": A, "koord-batch": A, "koord-free": A, None: A},
    "BE": {"koord-prod": X, "koord-mid": A, "koord-batch": A, "koord-free": A, None: X},
    "SYSTEM": {"koord-prod": A, "koord-mid": A, "koord-batch": A, "koord-free": A, None: A},
    None: {"koord-prod": A, "koord-mid": A, "koord-batch": A, "koord-free": A, None: A},
}


class Refused(ValueError):
    """The pod cannot become what its profiles want."""


# validation


def admitted(pod: Document, old: Document | None = None, equal_limits: bool = False) -> bool:
    """``old``: what an update changes; None: the pod is new. ``equal_limits``: the gate."""
    if old is not None and _identity(pod) != _identity(old):
        return False
    if old is not None and _resources(pod) == _resources(old):
        return True
    wants_batch = any(request(pod, name) > 0 for name in BATCH.values())
    if wants_batch and raw_qos(pod) != "BE":
        return False
    if not MATRIX[raw_qos(pod)][raw_class(pod)]:
        return False
    return raw_qos(pod) not in ("LSE", "LSR") or _has_whole_cpus(pod, equal_limits)


def _identity(pod: Document) -> tuple[str | None, str | None, str | None]:
    return raw_qos(pod), raw_class(pod), labels(pod).get(LABEL_SUB_PRIORITY)


def _resources(pod: Document) -> list[Any]:
    spec = pod["spec"]
    lists = [spec, *(spec.get("containers") or []), *(spec.get("initContainers") or [])]
    return [spec.get("overhead"), *(part.get("resources") for part in lists)]


def _has_whole_cpus(pod: Document, equal_limits: bool) -> bool:
    milli, spec = units(CPU, request(pod, CPU)), pod["spec"]
    if milli <= 0 or milli % 1000 or not equal_limits:
        return milli > 0 and milli % 1000 == 0
    said = at(spec, "resources") or {}
    if any(CPU in (said.get(kind) or {}) for kind in ("requests", "limits")):
        parts = [spec]
    else:
        parts = [*(spec.get("containers") or []), *(spec.get("initContainers") or [])]
    return all(_is_limited_to_request(part) for part in parts)


def _is_limited_to_request(part: Document) -> bool:
    limits, requests = at(part, "resources", "limits") or {}, at(part, "resources", "requests") or {}
    limited = quantity(limits.get(CPU, 0))
    return limited == quantity(requests.get(CPU, limits.get(CPU, 0)))


# mutation


def mutated(pod: Document, profiles: list[Document], namespace_labels: Document) -> Document:
    """``pod`` as its profiles make it; the one that was submitted if none matches. Raises Refused."""
    matching = sorted((p for p in profiles if _matches(p, pod, namespace_labels)), key=lambda p: p["metadata"]["name"])
    if not matching:
        return pod
    made = deepcopy(pod)
    for profile in matching:
        if at(profile, "spec", "probability") not in (0, "0%"):
            _inject(made, profile["spec"])
    skips = any(SKIP_RESOURCES in (at(profile, "metadata", "annotations") or {}) for profile in matching)
    return made if skips else translated(made)


def _matches(profile: Document, pod: Document, namespace_labels: Document) -> bool:
    spec = profile["spec"]
    return _selects(at(spec, "namespaceSelector"), namespace_labels) and _selects(at(spec, "selector"), labels(pod))


def _selects(selector: Document | None, texts: Document) -> bool:
    """Nothing said selects everything."""
    exact = at(selector, "matchLabels") or {}
    return all(texts.get(key) == text for key, text in exact.items()) and all(
        _holds(expression, texts) for expression in at(selector, "matchExpressions") or []
    )


def _holds(expression: Document, texts: Document) -> bool:
    text, values = texts.get(expression["key"]), expression.get("values") or []
    return {
        "In": text is not None and text in values,
        "NotIn": text is None or text not in values,
        "Exists": text is not None,
        "DoesNotExist": text is None,
    }[expression["operator"]]


def _inject(pod: Document, profile: Document) -> None:
    metadata, spec = pod.setdefault("metadata", {}), pod.setdefault("spec", {})
    for kind in ("labels", "annotations"):
        metadata[kind] = {**(metadata.get(kind) or {}), **(profile.get(kind) or {})}
    for kind, mapping in (("labels", "labelKeysMapping"), ("annotations", "annotationKeysMapping")):
        for source, target in (profile.get(mapping) or {}).items():
            if source in metadata[kind]:
                metadata[kind][target] = metadata[kind][source]
    for key, suffix in (profile.get("labelSuffixes") or {}).items():
        if key in metadata["labels"]:
            metadata["labels"][key] += suffix
    if profile.get("schedulerName"):
        spec["schedulerName"] = profile["schedulerName"]
    if profile.get("qosClass"):
        metadata["labels"][LABEL_QOS] = profile["qosClass"]
    if profile.get("priorityClassName"):
        name = profile["priorityClassName"]
        spec.update(priorityClassName=name, priority=PRIORITY_CLASSES[name], preemptionPolicy=PREEMPTION)
    if profile.get("koordinatorPriority") is not None:
        metadata["labels"][LABEL_SUB_PRIORITY] = str(profile["koordinatorPriority"])
    _merge(pod, profile.get("patch") or {})


def _merge(target: Document, patch: Document) -> None:
    """Of a strategic merge as much as these oracles use: objects merge, null deletes, all else replaces."""
    for key, value in patch.items():
        if value is None:
            target.pop(key, None)
        elif isinstance(value, dict):
            target[key] = target.get(key) or {}
            _merge(target[key], value)
        else:
            target[key] = value


def translated(pod: Document) -> Document:
    """Native resources of a pod of batch or mid become those of its class; any other pod stays as it is.

    So does the overhead, which has to be that of the RuntimeClass. Raises Refused.
    """
    names = {"koord-batch": BATCH, "koord-mid": MID}.get(effective_class(pod))
    if names is None:
        return pod
    made = _without_pod_level(pod)
    for container in [*(at(made, "spec", "initContainers") or []), *(at(made, "spec", "containers") or [])]:
        if container.get("resources"):
            container["resources"] = _translated(container["resources"], names)
    return made


def _without_pod_level(pod: Document) -> Document:
    made = deepcopy(pod)
    whole = made["spec"].pop("resources", None) or {}
    for resource in {name for kind in ("requests", "limits") for name in (whole.get(kind) or {})}:
        if (request(made, resource), limit(made, resource)) != (request(pod, resource), limit(pod, resource)):
            raise Refused(resource)
    return made


def _translated(requirements: Document, names: dict[str, str]) -> Document:
    limits = _renamed(requirements.get("limits") or {}, names)
    requests = _renamed(requirements.get("requests") or {}, names)
    requests.update({name: limits[name] for name in names.values() if name in limits and name not in requests})
    return {**requirements, "requests": requests, "limits": limits}


def _renamed(amounts: Document, names: dict[str, str]) -> Document:
    made = {name: amount for name, amount in amounts.items() if name not in names}
    if amounts.get(CPU) is not None:
        made[names[CPU]] = units(CPU, quantity(amounts[CPU]))
    if amounts.get(MEMORY) is not None:
        made[names[MEMORY]] = amounts[MEMORY]
    return made


# extended-resource-spec


def extended_resource_spec(pod: Document) -> Document | None:
    """What the annotation says as an object, its amounts as numbers; None if no container has batch resources."""
    containers = {}
    for container in at(pod, "spec", "containers") or []:
        lists: Document = {}
        for kind in ("limits", "requests"):
            amounts = at(container, "resources", kind) or {}
            found: dict[str, Any] = {name: quantity(amounts[name]) for name in BATCH.values() if name in amounts}
            if found:
                lists[kind] = found
        if lists:
            containers[container["name"]] = lists
    return {"containers": containers} if containers else None

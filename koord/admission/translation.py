"""Native CPU and memory of a pod become those of its priority class: ``batch-cpu`` and ``batch-memory``, or mid's.

``cpu`` becomes whole thousandths ("1500m" is 1500), rounded up; ``memory`` stays the amount that it is. That is done
to containers and init containers (sidecars among them). A container with a limit and no request gets that limit as its
request, as the API server did for ``cpu`` itself. Pods of prod and free keep what they have.

The overhead stays native: the API server refuses a pod whose overhead is not that of its RuntimeClass. (Koordinator
translates it, so there no batch or mid pod can have such a RuntimeClass.) The pod's Kubernetes QoS class ignores it.

Amounts of the pod as a whole (``spec.resources``) have no counterpart: the API server takes only native resources
there. If they say no more than the containers add up to, they are removed; if they say anything else, the pod is
refused, since to drop them would let it run on more, or less, than it requests. (Koordinator leaves them in place:
such a pod requests its CPU twice and is no best-effort pod to kubelet.) Ephemeral containers have no resources.

Invariant: every amount is as much after as before; other resources stay untouched.
Fails with TranslationError, which names path and value.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from koord.admission import documents, priorityclasses
from koord.admission.documents import Document
from koord.admission.errors import TranslationError
from koord.model import podrequests, priority, quantity
from koord.model.core import Pod, PodSpec, ResourceRequirements
from koord.model.priority import CPU, MEMORY, PriorityClass
from koord.model.quantity import QuantityError

_NATIVE = (CPU, MEMORY)
_NO_RESOURCES = ResourceRequirements()
_REQUESTS, _LIMITS = "requests", "limits"


def has_own_resources(cls: PriorityClass) -> bool:
    """Returns whether pods of the class run on other resources than native CPU and memory."""
    return priority.resource_name(CPU, cls) != CPU


def translate(pod: Document, cls: PriorityClass) -> Document:
    """The pod with the resources of ``cls`` in place of the native ones. Raises TranslationError, UnreadableError."""
    if not has_own_resources(cls):
        return pod
    translated = documents.copy(pod)
    _drop_pod_level(translated)
    for container in documents.containers(translated):
        _translate_container(container.document, cls, f"{container.path}.resources")
    return translated


def untranslated(pod: Pod) -> tuple[str, ...]:
    """The native resources that a pod has although its priority class has its own. Raises QuantityError."""
    if not has_own_resources(priorityclasses.effective(pod)):
        return ()
    names = _names(pod.spec)
    return tuple(name for name in _NATIVE if name in names)


def double_counted(pod: Pod) -> str:
    """Returns a sentence about the native resources that a pod has beside those of its priority class; "" = there are
    none.

    A LimitRange does that: its defaults come again after the translation, where the API server misses native amounts.
    Raises QuantityError.
    """
    native, cls, names = " and ".join(untranslated(pod)), priorityclasses.effective(pod), _names(pod.spec)
    if not native or not any(priority.resource_name(name, cls) in names for name in _NATIVE):
        return ""
    return (
        f"has {native} beside the resources that they were translated to, and is no BestEffort pod: take {native} out "
        "of the defaults of the namespace's LimitRange"
    )


def _names(spec: PodSpec) -> set[str]:
    """Returns the names of the resources of the pod and its containers."""
    lists = [each.resources for each, _ in podrequests.in_order(spec)]
    return {name for each in (*lists, spec.resources) for name in (*each.requests, *each.limits)}


def _translate_container(container: Document, cls: PriorityClass, path: str) -> None:
    resources = container.get("resources") or {}
    for kind in (_REQUESTS, _LIMITS):
        _translate_amounts(resources.get(kind), cls, f"{path}.{kind}")
    limits = resources.get(_LIMITS) or {}
    for native in _NATIVE:
        name = priority.resource_name(native, cls)
        if name in limits:
            documents.editable(resources, _REQUESTS).setdefault(name, limits[name])


def _translate_amounts(amounts: Document | None, cls: PriorityClass, path: str) -> None:
    """Puts the native part of ``amounts`` in the place of what may be there already."""
    for native in _NATIVE:
        if amounts and amounts.get(native) is not None:
            amounts[priority.resource_name(native, cls)] = _text(native, amounts.pop(native), path)


def _text(native: str, amount: Any, path: str) -> str:
    """The canonical text of the amount as one of an extended resource."""
    try:
        parsed = quantity.from_json(amount)
    except QuantityError as error:
        raise TranslationError(f"{path}.{native}", str(error)) from error
    return str(quantity.of(parsed.milli_value()) if native == CPU else parsed)


def _drop_pod_level(pod: Document) -> None:
    """Native amounts of the pod as a whole go, if its containers say the same."""
    resources = documents.member(pod, "spec").get("resources")
    if not resources:
        return
    spec = documents.typed(pod).spec
    for kind in (_REQUESTS, _LIMITS):
        amounts = resources.get(kind) or {}
        for native in _NATIVE:
            if amounts.get(native) is not None:
                _check_sum(spec, native, f"spec.resources.{kind}.{native}", amounts[native])
                del amounts[native]
        if not amounts:
            resources.pop(kind, None)
    if not resources:
        del pod["spec"]["resources"]


def _check_sum(spec: PodSpec, native: str, path: str, amount: Any) -> None:
    """Raises TranslationError if the pod requests or may use another amount than its containers."""
    containers = replace(spec, resources=_NO_RESOURCES)
    try:
        same = all(of(spec, native) == of(containers, native) for of in (podrequests.request, podrequests.limit))
    except QuantityError as error:
        raise TranslationError(path, str(error)) from error
    if not same:
        why = f"{amount!r} for the pod as a whole has no counterpart among batch and mid resources"
        raise TranslationError(path, f"{why}: write the amounts on its containers instead, and leave this out")

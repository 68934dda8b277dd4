"""What a pod may not say: a reserved annotation, QoS classes with other priority classes, and changes of either.

The rules are Koordinator's and go by what the pod says itself (raw QoS class, raw priority class). Beyond them,
``equal_limits`` wants request = limit for the CPU of each container of LSE and LSR pods that has any, so that the CPUs
they own are all that they use; without it that is a doubt (``unequal_limits``).

Invariant: an update is judged by what it changes: a pod that was let in before a rule existed can be updated for ever.
All errors of a group are told at once, and the first group that has one is the last.
Fails with UnreadableError for amounts that are none.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from koord.admission import priorityclasses
from koord.admission.errors import UnreadableError
from koord.model import podrequests, priority, qos
from koord.model.annotations.pod import KEYS
from koord.model.core import Amounts, Pod, ResourceRequirements
from koord.model.priority import BATCH_CPU, BATCH_MEMORY, CPU, LABEL_PRIORITY_CLASS, CombinationVerdict, PriorityClass
from koord.model.problem import Problem
from koord.model.qos import LABEL_QOS, QoSClass
from koord.model.quantity import QuantityError
from koord.model.schema import clip

RESERVED_ANNOTATION = "scheduling.koordinator.sh/reserve-pod"
"""Marks the scheduler's stand-ins for reservations, which are no pods of the API."""
_SUB_PRIORITY = KEYS["priority"].name
_OWNERS = (QoSClass.LSE, QoSClass.LSR)
"""The classes whose pods own CPUs."""


class ErrorType(StrEnum):
    """As Kubernetes' field errors."""

    REQUIRED = "Required value"
    INVALID = "Invalid value"
    FORBIDDEN = "Forbidden"
    IMMUTABLE = "Immutable"


@dataclass(frozen=True, slots=True)
class FieldError:
    """A value that is not accepted, in the form of Kubernetes' field errors; ``problem`` says what to write instead."""

    problem: Problem
    type: ErrorType
    value: str = ""

    def __str__(self) -> str:
        field, message = self.problem
        if self.type in (ErrorType.INVALID, ErrorType.IMMUTABLE):
            return f"{field}: {ErrorType.INVALID}: {clip(self.value)}: {message}"
        return f"{field}: {self.type}: {message}"


class _Judged(NamedTuple):
    """All that the combination rules look at."""

    qos: QoSClass | None
    priority_class: PriorityClass | None
    containers: tuple[ResourceRequirements, ...]
    whole: ResourceRequirements
    overhead: Amounts


def validate(
    pod: Pod, old: Pod | None = None, *, may_change_sub_priority: bool = False, equal_limits: bool = False
) -> tuple[FieldError, ...]:
    """Returns what is wrong with a pod that is created, or with an update of ``old``. Raises UnreadableError."""
    if reserved := _reserved(pod, old):
        return reserved
    try:
        combined = () if old is not None and _judged(pod) == _judged(old) else combination_errors(pod, equal_limits)
    except QuantityError as error:
        raise UnreadableError("pod", str(error)) from error
    changes = () if old is None else _changes(pod, old, may_change_sub_priority)
    return (*changes, *combined)


def combination_errors(pod: Pod, equal_limits: bool = False) -> tuple[FieldError, ...]:
    """Returns what in the pod does not go together. Raises QuantityError."""
    raw_qos, raw_class = qos.labelled(pod.metadata.labels), priorityclasses.raw(pod)
    unequal = unequal_limits(pod) if equal_limits else ()
    return (*_batch_needs_be(pod, raw_qos), *_class_pair(raw_qos, raw_class), *unequal, *_owned_cpus(pod, raw_qos))


def unequal_limits(pod: Pod) -> tuple[FieldError, ...]:
    """The CPU limits of an LSE or LSR pod that requests CPUs, where they are not its requests. Raises QuantityError.

    Amounts of the pod as a whole count instead of those of its containers.
    """
    raw_qos = qos.labelled(pod.metadata.labels)
    if raw_qos not in _OWNERS or not podrequests.request(pod.spec, CPU):
        return ()
    if podrequests.for_pod(pod.spec, CPU):
        amounts = [("spec.resources", pod.spec.resources)]
    else:
        lists = (("initContainers", pod.spec.init_containers), ("containers", pod.spec.containers))
        amounts = [
            (f"spec.{name}[{index}].resources", container.resources)
            for name, containers in lists
            for index, container in enumerate(containers)
        ]
    return tuple(error for path, resources in amounts for error in _unequal_cpu(resources, path, raw_qos))


def text(errors: tuple[FieldError, ...]) -> str:
    """One message for all of them, as Kubernetes aggregates errors."""
    return str(errors[0]) if len(errors) == 1 else f"[{', '.join(str(error) for error in errors)}]"


def _reserved(pod: Pod, old: Pod | None) -> tuple[FieldError, ...]:
    value = pod.metadata.annotations.get(RESERVED_ANNOTATION)
    if value is None or (old is not None and old.metadata.annotations.get(RESERVED_ANNOTATION) == value):
        return ()
    why = "it is reserved for the scheduler: leave it out"
    return (FieldError(Problem(f"annotations.{RESERVED_ANNOTATION}", why), ErrorType.FORBIDDEN),)


def _judged(pod: Pod) -> _Judged:
    spec = pod.spec
    containers = tuple(each.resources for each, _ in podrequests.in_order(spec))
    raw_qos = qos.labelled(pod.metadata.labels)
    return _Judged(raw_qos, priorityclasses.raw(pod), containers, spec.resources, spec.overhead)


def _changes(pod: Pod, old: Pod, may_change_sub_priority: bool) -> tuple[FieldError, ...]:
    """Returns the changes of what stays for all of a pod's life; to add it or to take it away is a change."""
    labels, old_labels = pod.metadata.labels, old.metadata.labels
    facts = [
        (f"labels.{LABEL_QOS}", qos.labelled(labels), qos.labelled(old_labels)),
        ("spec.priority", priorityclasses.raw(pod), priorityclasses.raw(old)),
    ]
    errors = [_immutable(field, new, before) for field, new, before in facts if new != before]
    sub, old_sub = labels.get(_SUB_PRIORITY), old_labels.get(_SUB_PRIORITY)
    if sub != old_sub and not may_change_sub_priority:
        errors.append(_immutable(f"labels.{_SUB_PRIORITY}", sub, old_sub))
    return tuple(errors)


def _immutable(field: str, new: str | None, before: str | None) -> FieldError:
    kept = f"keep {str(before)!r}" if before is not None else "leave it out"
    why = f"field is immutable: {kept}, or create the pod again"
    return FieldError(Problem(field, why), ErrorType.IMMUTABLE, str(new or ""))


def _batch_needs_be(pod: Pod, raw_qos: QoSClass | None) -> tuple[FieldError, ...]:
    names = [name for name in (BATCH_CPU, BATCH_MEMORY) if podrequests.request(pod.spec, name)]
    if not names or raw_qos is QoSClass.BE:
        return ()
    why = f"a pod that requests {' and '.join(names)} must have the label {LABEL_QOS}: {QoSClass.BE}"
    return (FieldError(Problem(f"labels.{LABEL_QOS}", why), ErrorType.REQUIRED),)


def _class_pair(raw_qos: QoSClass | None, raw_class: PriorityClass | None) -> tuple[FieldError, ...]:
    if raw_qos is None or priority.combination(raw_qos, raw_class) is not CombinationVerdict.REJECTED:
        return ()
    possible = [cls for cls in PriorityClass if priority.combination(raw_qos, cls) is not CombinationVerdict.REJECTED]
    why = (
        f"{LABEL_QOS}={raw_qos} and priorityClass={raw_class or 'none'} cannot be used in combination: "
        f"write priorityClassName: {' or '.join(possible)} (or that value of the label {LABEL_PRIORITY_CLASS}), "
        f"or another {LABEL_QOS}"
    )
    return (FieldError(Problem(f"labels.{LABEL_QOS}", why), ErrorType.FORBIDDEN),)


def _owned_cpus(pod: Pod, raw_qos: QoSClass | None) -> tuple[FieldError, ...]:
    """LSE and LSR: whole CPUs for the pod."""
    if raw_qos not in _OWNERS:
        return ()
    request_milli = podrequests.request(pod.spec, CPU)
    field = "spec.containers[*].resources.requests.cpu"
    if not request_milli:
        why = f"{raw_qos} pods must request CPUs: write cpu requests and equal limits that make whole CPUs"
        return (FieldError(Problem(field, why), ErrorType.REQUIRED),)
    if not request_milli % 1000:
        return ()
    why = f"the CPU request of {raw_qos} pods must be a whole number: write such as 1, 2 or 4 for the pod in all"
    return (FieldError(Problem(field, why), ErrorType.INVALID, f"{request_milli}m"),)


def _unequal_cpu(resources: ResourceRequirements, path: str, raw_qos: QoSClass) -> tuple[FieldError, ...]:
    request_milli = podrequests.container_request(resources, CPU)
    limit_milli = podrequests.container_limit(resources, CPU)
    if request_milli == limit_milli:
        return ()
    wanted = f"{raw_qos} pods need a CPU limit equal to the request: write {request_milli}m"
    if not limit_milli:
        return (FieldError(Problem(f"{path}.limits.cpu", wanted), ErrorType.REQUIRED),)
    return (FieldError(Problem(f"{path}.limits.cpu", wanted), ErrorType.INVALID, f"{limit_milli}m"),)

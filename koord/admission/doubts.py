"""What a pod says that is accepted and probably not meant: the webhook warns of it, and ``koordctl lint`` finds it.

Amounts of ``batch-cpu`` that were written in CPUs, amounts of memory that no container can run in, labels and
annotations that cannot be read and therefore count as absent, best-effort pods without bounds, and pods that own CPUs
and may use more.

Invariant: each place is judged alone, so one that cannot be read hides no other. Nothing here raises.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator

from koord.admission import priorityclasses, validation
from koord.model import priority, qos, quantity
from koord.model.annotations import PodAnnotations
from koord.model.annotations.pod import LABELS as LABEL_KEYS
from koord.model.core import Amount, Container, Pod, PodSpec, ResourceRequirements
from koord.model.priority import BATCH_CPU, BATCH_MEMORY, CPU, MEMORY, MID_CPU, MID_MEMORY, PriorityClass
from koord.model.problem import Problem
from koord.model.qos import LABEL_QOS, QoSClass
from koord.model.quantity import Quantity, QuantityError
from koord.model.schema import child

LEAST_LIKELY_MILLI = 100
"""Less of ``batch-cpu`` or ``mid-cpu`` than this was probably written in CPUs."""

LEAST_LIKELY_BYTES = 1 << 20
"""Less memory than this was probably written in MiB: the runtime's own process in a new container needs more."""

_THOUSANDTHS = (BATCH_CPU, MID_CPU)
_MEMORY = (MEMORY, BATCH_MEMORY, MID_MEMORY)
_JUDGED = (*_THOUSANDTHS, *_MEMORY, CPU)
_NUMBER = re.compile(r"([0-9]{1,9})(m|[kK]i?|)", re.ASCII)
"""An amount of memory that may have been meant in MiB, and its suffix."""

_MOST_MIB = 1 << 16
"""A number without a suffix up to this, 64 GiB, may have been meant in MiB."""


def of_pod(pod: Pod) -> tuple[Problem, ...]:
    """Returns all doubts, in the order of the document: metadata, amounts, bounds."""
    return (*_texts(pod), *_amounts(pod.spec), *_unbounded(pod), *_unequal_limits(pod))


def _texts(pod: Pod) -> Iterator[Problem]:
    """Labels and annotations that cannot be read."""
    metadata = pod.metadata
    for each in PodAnnotations.read(metadata.labels, metadata.annotations).problems:
        parent = "metadata.labels" if each.key in LABEL_KEYS else "metadata.annotations"
        effect = ", so the pod has no QoS class of its own" if each.key == LABEL_QOS else ""
        yield Problem(child(parent, each.key), f"{each.value} {each.why}{effect}")


def _amounts(spec: PodSpec) -> Iterator[Problem]:
    for path, container in _containers(spec):
        yield from _of_requirements(f"{path}.resources", container.resources)
    yield from _of_requirements("spec.resources", spec.resources)


def _containers(spec: PodSpec) -> Iterator[tuple[str, Container]]:
    """Yields each container with its path."""
    for name, containers in (("initContainers", spec.init_containers), ("containers", spec.containers)):
        for index, container in enumerate(containers):
            yield f"spec.{name}[{index}]", container


def _of_requirements(path: str, resources: ResourceRequirements) -> Iterator[Problem]:
    for kind, amounts in (("requests", resources.requests), ("limits", resources.limits)):
        for resource in _JUDGED:
            if resource in amounts and (sentence := _of_amount(resource, amounts[resource])):
                yield Problem(f"{path}.{kind}.{resource}", sentence)


def _of_amount(resource: str, amount: Amount) -> str:
    """Returns the doubt about an amount; "" if there is none."""
    try:
        parsed = quantity.from_json(amount)
    except QuantityError as error:
        return str(error)
    if resource in _THOUSANDTHS:
        return _of_thousandths(resource, amount, parsed)
    return _of_memory(amount, parsed) if resource in _MEMORY else ""


def _of_thousandths(resource: str, amount: Amount, parsed: Quantity) -> str:
    value, milli = parsed.value(), parsed.milli_value()
    if str(amount).endswith("m") or value * 1000 != milli:
        return f"{amount!r} counts as {value}: {resource} is in thousandths of a CPU, write {milli}"
    if 0 < value < LEAST_LIKELY_MILLI:
        return f"{amount!r} is {value} thousandths of a CPU: write {value * 1000} if {value} CPUs are meant"
    return ""


def _of_memory(amount: Amount, parsed: Quantity) -> str:
    value = parsed.value()
    shown = "1 byte" if value == 1 else f"{value} bytes"
    number, suffix = match.groups() if (match := _NUMBER.fullmatch(str(amount))) else ("", "")
    if suffix == "m":
        return f"{amount!r} counts as {shown}, since m is thousandths: write {number}Mi"
    if not 0 < value < LEAST_LIKELY_BYTES:
        return ""
    if number and int(number) <= _MOST_MIB:
        return f"{amount!r} is {shown}: write {number}Mi if {number} MiB are meant"
    return f"{amount!r} counts as {shown}: write an amount with Mi or Gi"


def _unbounded(pod: Pod) -> Iterator[Problem]:
    """Yields the bounds that a best-effort pod lacks."""
    spec, said = pod.spec, priorityclasses.raw(pod)
    if qos.labelled(pod.metadata.labels) is not QoSClass.BE and said not in (PriorityClass.BATCH, PriorityClass.FREE):
        return
    lists = [spec.resources, *(container.resources for _, container in _containers(spec))]
    if not any(name in (*each.requests, *each.limits) for each in lists for name in _JUDGED):
        why = "the scheduler puts any number of such pods on a node, and nothing but eviction bounds their memory"
        yield Problem("spec.containers", f"the pod requests neither CPU nor memory: {why}")
    elif not _limits_memory(spec.resources):
        resource = priority.resource_name(MEMORY, said)
        for path, container in _containers(spec):
            if not _limits_memory(container.resources):
                why = f"without a limit nothing but eviction bounds the memory of container {container.name}"
                yield Problem(f"{path}.resources.limits.{resource}", why)


def _limits_memory(resources: ResourceRequirements) -> bool:
    """Kubernetes takes 0 for no limit; what cannot be read is a doubt of its own."""
    return any(str(resources.limits.get(name, "0")) != "0" for name in _MEMORY)


def _unequal_limits(pod: Pod) -> Iterator[Problem]:
    """Yields the CPU limits of a pod that owns CPUs that are not its requests, where all its amounts can be read."""
    with contextlib.suppress(QuantityError):
        yield from [error.problem for error in validation.unequal_limits(pod)]

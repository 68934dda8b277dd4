"""How a list of pods is shown to people: a table of pods, or (wide) one line per value.

A value differs if a hook has an opinion, the kernel has the file, and the two texts are not the same; qosd has
already given both in one spelling.
"""

from __future__ import annotations

from collections.abc import Sequence

from koord.pb.koord import inspect_pb2 as inspect
from koordctl.table import align
from koordctl.views.values import human

_HEADER = (
    "NAMESPACE",
    "POD",
    "QOS",
    "PRIORITY",
    "CONTAINER",
    "STATE",
    "CPUS",
    "QUOTA(us)",
    "SHARES",
    "MEMORY",
    "AS DESIRED",
)
_WIDE_HEADER = ("NAMESPACE", "POD", "QOS", "CONTAINER", "VALUE", "DESIRED", "ACTUAL", "", "WHY", "FILE")
_COLUMNS = ("cpuset_cpus", "cpu_quota", "cpu_shares", "memory_limit_in_bytes")
_NONE = "-"
NO_PODS = "No pods."


def differs(value: inspect.Value) -> bool:
    """Does the kernel hold something else than the hooks want?"""
    return value.HasField("desired") and value.HasField("actual") and value.desired != value.actual


def table(answer: inspect.ListPodsResponse) -> str:
    """One line per container, without a final line break."""
    if not answer.pods:
        return NO_PODS
    rows: list[tuple[str, ...]] = []
    notes: list[str] = []
    for pod in answer.pods:
        head = (pod.namespace, pod.name, pod.qos_class, pod.priority_class or _NONE)
        rows.extend((*head, *_container_cells(container)) for container in pod.containers)
        if not pod.containers:
            rows.append((*head, _NONE, pod.state.removeprefix("SANDBOX_").lower(), *[_NONE] * 5))
        notes.extend(f"{pod.namespace}/{pod.name}: {problem}" for problem in pod.problems)
    text = align(_HEADER, rows)
    return "\n".join([text, "", *notes]) if notes else text


def _container_cells(container: inspect.Container) -> tuple[str, ...]:
    values = {value.field: value for value in container.values}
    cells = [_actual(values.get(field)) for field in _COLUMNS]
    return (container.name, container.state.removeprefix("CONTAINER_").lower(), *cells, _verdict(container.values))


def _actual(value: inspect.Value | None) -> str:
    return human(value.unit, value.field, value.actual) if value is not None and value.HasField("actual") else _NONE


def _verdict(values: Sequence[inspect.Value]) -> str:
    """``yes``, ``no: <fields>``, or - when no hook has an opinion that can be checked."""
    checked = [value for value in values if value.HasField("desired") and value.HasField("actual")]
    wrong = [value.field for value in checked if differs(value)]
    if wrong:
        return f"no: {', '.join(wrong)}"
    return "yes" if checked else _NONE


def wide(answer: inspect.ListPodsResponse) -> str:
    """One line per cgroup value."""
    if not answer.pods:
        return NO_PODS
    rows: list[tuple[str, ...]] = []
    notes: list[str] = []
    for pod in answer.pods:
        about = f"{pod.qos_class} by {pod.qos_source}; cgroup parent {pod.cgroup_parent or 'unknown'}"
        notes.extend(f"{pod.namespace}/{pod.name}: {note}" for note in (about, *pod.problems))
        for container in pod.containers:
            head = (pod.namespace, pod.name, pod.qos_class, container.name)
            rows.extend((*head, *_value_cells(value)) for value in container.values)
    return "\n".join([align(_WIDE_HEADER, rows), "", *notes])


def _value_cells(value: inspect.Value) -> tuple[str, ...]:
    desired = human(value.unit, value.field, value.desired) if value.HasField("desired") else _NONE
    mark = "differs" if differs(value) else ""
    return (value.field, desired, _actual(value), mark, value.why or _NONE, value.file or _NONE)

"""Shows a list of pods: one line per container, or (wide) one line per value.

A value differs if a hook has an opinion, the kernel has the file, and the two texts are not the same; qosd has
already given both in one spelling.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from koord.pb.koord import inspect_pb2 as inspect
from koordctl.fields import Column, Field, Layout, Listing
from koordctl.plain import member
from koordctl.values import NONE, human


@dataclass(frozen=True, slots=True)
class Line:
    """A container of a pod, if it has any; and one value of it where each has a line of its own."""

    pod: inspect.Pod
    container: inspect.Container | None
    value: inspect.Value | None = None

    @property
    def values(self) -> Sequence[inspect.Value]:
        return self.container.values if self.container else ()


def differs(value: inspect.Value) -> bool:
    """Returns whether the kernel holds something else than the hooks want."""
    return _is_checked(value) and value.desired != value.actual


def _is_checked(value: inspect.Value) -> bool:
    return value.HasField("desired") and value.HasField("actual")


def _as_desired(line: Line) -> bool | None:
    """Returns whether the kernel holds what hooks want; None where no hook has an opinion that can be checked."""
    checked = [value for value in line.values if _is_checked(value)]
    return not any(map(differs, checked)) if checked else None


def _verdict(line: Line) -> str:
    """``yes``, ``no: <fields>``, or -."""
    different = [value.field for value in line.values if differs(value)]
    return f"no: {', '.join(different)}" if different else NONE if _as_desired(line) is None else "yes"


def _state(line: Line) -> str:
    return line.container.state if line.container else line.pod.state


def _differs(line: Line) -> bool:
    return line.value is not None and differs(line.value)


def _kernel(name: str, header: str, value_of: Callable[[Line], inspect.Value | None], key: str) -> Field[Line]:
    """The text ``key`` of a kernel value."""

    def text(line: Line) -> str:
        value = value_of(line)
        return human(value.unit, value.field, member(value, key)) if value else NONE

    return Field(name, header, text, value=lambda line: member(value_of(line), key))


def _actual(name: str, header: str) -> Field[Line]:
    """Returns what the kernel holds of the row ``name``."""
    return _kernel(name, header, lambda line: next((v for v in line.values if v.field == name), None), "actual")


def _containers(answer: inspect.ListPodsResponse) -> Sequence[Line]:
    return [Line(pod, container) for pod in answer.pods for container in pod.containers or (None,)]


def _values(answer: inspect.ListPodsResponse) -> Sequence[Line]:
    lines = (line for line in _containers(answer) if line.container)
    return [Line(line.pod, line.container, value) for line in lines for value in line.values]


_NAMES: tuple[Field[Line], ...] = (
    Field("namespace", "NAMESPACE", value="pod.namespace"),
    Field("name", "POD", value="pod.name"),
    Field("qos_class", "QOS", value="pod.qos_class"),
)
_CONTAINER: Field[Line] = Field("container", "CONTAINER", value="container.name")
CONTAINERS: Listing[Line] = Listing(
    "pods",
    (
        *_NAMES,
        Field("priority_class", "PRIORITY", lambda line: line.pod.priority_class or NONE, value="pod.priority_class"),
        _CONTAINER,
        Field("state", "STATE", lambda line: _state(line).rpartition("_")[2].lower(), value=_state),
        _actual("cpuset_cpus", "CPUS"),
        _actual("cpu_quota", "QUOTA(us)"),
        _actual("cpu_shares", "SHARES"),
        _actual("memory_limit_in_bytes", "MEMORY"),
        Field("as_desired", "AS DESIRED", _verdict, value=_as_desired),
        Field("uid", "UID", column=Column.NAMED, value="pod.uid"),
        Field("sandbox_id", "SANDBOX ID", column=Column.NAMED, value="pod.sandbox_id"),
        Field("qos_source", "QOS BY", column=Column.NAMED, value="pod.qos_source"),
        Field("sub_priority", "SUB-PRIORITY", column=Column.NAMED, value="pod.sub_priority"),
        Field("cgroup_parent", "CGROUP PARENT", column=Column.NAMED, value="pod.cgroup_parent"),
        Field("problems", "PROBLEMS", column=Column.NAMED, value="pod.problems"),
        Field("container_id", "CONTAINER ID", column=Column.NAMED, value="container.id"),
        Field("cgroup_path", "CGROUP", column=Column.NAMED, value="container.cgroup_path"),
    ),
    "No pods.",
    _containers,
)
VALUES: Listing[Line] = Listing(
    "pods",
    (
        *_NAMES,
        _CONTAINER,
        Field("field", "VALUE", value="value.field"),
        _kernel("desired", "DESIRED", lambda line: line.value, "desired"),
        _kernel("actual", "ACTUAL", lambda line: line.value, "actual"),
        Field("differs", "", lambda line: "differs" if _differs(line) else "", Column.FILLED, _differs),
        Field("why", "WHY", lambda line: member(line, "value.why") or NONE, value="value.why"),
        Field("file", "FILE", lambda line: member(line, "value.file") or NONE, value="value.file"),
        Field("unit", "UNIT", column=Column.NAMED, value="value.unit"),
        Field("raw", "RAW", column=Column.NAMED, value="value.raw"),
    ),
    "No pod has a container.",
    _values,
)


def advice(pod: inspect.Pod) -> Sequence[str]:
    """Yields a line for each way in which a limit or a request hurts the pod, with what to do about it."""
    whose = [f" for {each.container}" if each.container else "" for each in pod.advice]
    told = [f"{each.finding}. To do: {each.remedy}" for each in pod.advice]
    return [f"advice{name}: {line}" for name, line in zip(whose, told, strict=True)]


def page(answer: inspect.ListPodsResponse, layout: Layout[Line]) -> str:
    """Renders the table, and below it what is wrong with a pod; in wide form also its values."""
    notes = []
    for pod in answer.pods:
        about = f"{pod.qos_class} by {pod.qos_source}; cgroup parent {pod.cgroup_parent or 'unknown'}"
        lines = (about, *pod.problems, *advice(pod)) if layout.listing is VALUES else pod.problems
        notes += [f"{pod.namespace}/{pod.name}: {line}" for line in lines]
    table = layout.table(layout.listing.rows(answer))
    return "\n".join([table, "", *notes]) if notes else table

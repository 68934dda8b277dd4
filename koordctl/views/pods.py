"""Shows a list of pods: one line per container, or (wide) one line per value.

A value differs if a hook has an opinion, the kernel has the file, and the two texts are not the same; qosd has
already given both in one spelling.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from koord.pb.koord import inspect_pb2 as inspect
from koordctl.fields import Listing, ListingField, ListingLayout, Visibility
from koordctl.plain import member
from koordctl.values import NONE, human


@dataclass(frozen=True, slots=True)
class ContainerLine:
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


def _as_desired(line: ContainerLine) -> bool | None:
    """Returns whether the kernel holds what hooks want; None where no hook has an opinion that can be checked."""
    checked = [value for value in line.values if _is_checked(value)]
    return not any(map(differs, checked)) if checked else None


def _verdict(line: ContainerLine) -> str:
    """Returns ``yes``, ``no: <fields>``, or -."""
    different = [value.field for value in line.values if differs(value)]
    return f"no: {', '.join(different)}" if different else NONE if _as_desired(line) is None else "yes"


def _state(line: ContainerLine) -> str:
    return line.container.state if line.container else line.pod.state


def _differs(line: ContainerLine) -> bool:
    return line.value is not None and differs(line.value)


def _kernel(
    name: str, header: str, value_of: Callable[[ContainerLine], inspect.Value | None], key: str
) -> ListingField[ContainerLine]:
    """Makes a field of what is ``desired`` or ``actual`` (``key``) of a kernel value."""

    def text(line: ContainerLine) -> str:
        value = value_of(line)
        return human(value.unit, value.field, member(value, key)) if value else NONE

    return ListingField(name, header, text, value=lambda line: member(value_of(line), key))


def _actual(name: str, header: str) -> ListingField[ContainerLine]:
    """Makes a field of what the kernel holds of the row ``name``."""
    return _kernel(name, header, lambda line: next((v for v in line.values if v.field == name), None), "actual")


def _containers(answer: inspect.ListPodsResponse) -> Sequence[ContainerLine]:
    return [ContainerLine(pod, container) for pod in answer.pods for container in pod.containers or (None,)]


def _values(answer: inspect.ListPodsResponse) -> Sequence[ContainerLine]:
    lines = (line for line in _containers(answer) if line.container)
    return [ContainerLine(line.pod, line.container, value) for line in lines for value in line.values]


_NAMES: tuple[ListingField[ContainerLine], ...] = (
    ListingField("namespace", "NAMESPACE", value="pod.namespace"),
    ListingField("name", "POD", value="pod.name"),
    ListingField("qos_class", "QOS", value="pod.qos_class"),
)
_CONTAINER: ListingField[ContainerLine] = ListingField("container", "CONTAINER", value="container.name")
CONTAINERS: Listing[ContainerLine] = Listing(
    "pods",
    (
        *_NAMES,
        ListingField(
            "priority_class", "PRIORITY", lambda line: line.pod.priority_class or NONE, value="pod.priority_class"
        ),
        _CONTAINER,
        ListingField("state", "STATE", lambda line: _state(line).rpartition("_")[2].lower(), value=_state),
        _actual("cpuset_cpus", "CPUS"),
        _actual("cpu_quota", "QUOTA(us)"),
        _actual("cpu_shares", "SHARES"),
        _actual("memory_limit_in_bytes", "MEMORY"),
        ListingField("as_desired", "AS DESIRED", _verdict, value=_as_desired),
        ListingField("uid", "UID", visibility=Visibility.NAMED, value="pod.uid"),
        ListingField("sandbox_id", "SANDBOX ID", visibility=Visibility.NAMED, value="pod.sandbox_id"),
        ListingField("qos_source", "QOS BY", visibility=Visibility.NAMED, value="pod.qos_source"),
        ListingField("sub_priority", "SUB-PRIORITY", visibility=Visibility.NAMED, value="pod.sub_priority"),
        ListingField("cgroup_parent", "CGROUP PARENT", visibility=Visibility.NAMED, value="pod.cgroup_parent"),
        ListingField("problems", "PROBLEMS", visibility=Visibility.NAMED, value="pod.problems"),
        ListingField("container_id", "CONTAINER ID", visibility=Visibility.NAMED, value="container.id"),
        ListingField("cgroup_path", "CGROUP", visibility=Visibility.NAMED, value="container.cgroup_path"),
    ),
    "No pods.",
    _containers,
)
VALUES: Listing[ContainerLine] = Listing(
    "pods",
    (
        *_NAMES,
        _CONTAINER,
        ListingField("field", "VALUE", value="value.field"),
        _kernel("desired", "DESIRED", lambda line: line.value, "desired"),
        _kernel("actual", "ACTUAL", lambda line: line.value, "actual"),
        ListingField("differs", "", lambda line: "differs" if _differs(line) else "", Visibility.FILLED, _differs),
        ListingField("why", "WHY", lambda line: member(line, "value.why") or NONE, value="value.why"),
        ListingField("file", "FILE", lambda line: member(line, "value.file") or NONE, value="value.file"),
        ListingField("unit", "UNIT", visibility=Visibility.NAMED, value="value.unit"),
        ListingField("raw", "RAW", visibility=Visibility.NAMED, value="value.raw"),
    ),
    "No pod has a container.",
    _values,
)


def advice(pod: inspect.Pod) -> Sequence[str]:
    """Returns a line for each way in which a limit or a request hurts the pod, with what to do about it."""
    whose = [f" for {each.container}" if each.container else "" for each in pod.advice]
    told = [f"{each.finding}. To do: {each.remedy}" for each in pod.advice]
    return [f"advice{name}: {line}" for name, line in zip(whose, told, strict=True)]


def page(answer: inspect.ListPodsResponse, layout: ListingLayout[ContainerLine]) -> str:
    """Renders the table, and below it what is wrong with a pod; in wide form also its values."""
    notes = []
    for pod in answer.pods:
        about = f"{pod.qos_class} by {pod.qos_source}; cgroup parent {pod.cgroup_parent or 'unknown'}"
        lines = (about, *pod.problems, *advice(pod)) if layout.listing is VALUES else pod.problems
        notes += [f"{pod.namespace}/{pod.name}: {line}" for line in lines]
    table = layout.table(layout.listing.rows(answer))
    return "\n".join([table, "", *notes]) if notes else table

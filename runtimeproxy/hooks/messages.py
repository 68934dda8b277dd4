"""Reads the hook protocol's messages as flat slots, from their bytes.

Pods and containers have the same kinds of fields under different numbers; ``MessageShape`` lists the numbers once, so
that neither a question nor its answer has to be decoded for the one or two fields that matter. Invariant: ``read``
yields exactly what is present in the message, an explicit zero included, the last value where a field occurs twice.
Update requests are messages already; ``flatten_resources`` and ``apply_resource`` are for them.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Any

from runtimeproxy.hooks.edits import (
    ANNOTATIONS,
    CGROUP_PARENT,
    ENVS,
    HUGEPAGE_LIMITS,
    LABELS,
    RESOURCE_FIELDS,
    SCALARS,
    UNIFIED,
    Edits,
    Slot,
)
from runtimeproxy.hooks.fields import EditableField, FieldForm, FieldTable, resources
from runtimeproxy.hooks.patch import KEY, VALUE
from runtimeproxy.wire.protowire import MalformedMessage, Path, gather, payloads

ALL_FIELDS = frozenset((LABELS, ANNOTATIONS, ENVS, CGROUP_PARENT, *RESOURCE_FIELDS))
_SIGN_BIT = 1 << 63


Layout = Mapping[Path, Mapping[int, tuple[str, FieldForm]]]
"""A table turned round, for reading: the field and its form by enclosing message and number."""


def layout(table: FieldTable) -> Layout:
    found: dict[Path, dict[int, tuple[str, FieldForm]]] = {}
    for field, place in table.items():
        found.setdefault(place.path[:-1], {})[place.path[-1]] = field, place.form
    return found


class MessageShape:
    """The places of the fields in a request and in its answer.

    ``request`` is for changing the request, ``request_layout`` and ``answer_layout`` are for reading request and
    answer; ``removed``: the answer's lists of keys to delete, by number.
    """

    def __init__(self, request: FieldTable, answer: FieldTable, removed: tuple[tuple[int, str], ...]) -> None:
        self.request = request
        self.request_layout = layout(request)
        self.answer_layout = layout(answer)
        self.removed = removed


POD = MessageShape(
    request={
        LABELS: EditableField((3,), FieldForm.MAP),
        ANNOTATIONS: EditableField((4,), FieldForm.MAP),
        CGROUP_PARENT: EditableField((5,), FieldForm.STRING),
        **resources(7),
    },
    answer={
        LABELS: EditableField((1,), FieldForm.MAP),
        ANNOTATIONS: EditableField((2,), FieldForm.MAP),
        CGROUP_PARENT: EditableField((3,), FieldForm.STRING),
        **resources(4),
    },
    removed=((101, ANNOTATIONS),),
)
CONTAINER = MessageShape(
    request={
        ANNOTATIONS: EditableField((3,), FieldForm.MAP),
        ENVS: EditableField((9,), FieldForm.BYTES_MAP),
        CGROUP_PARENT: EditableField((8,), FieldForm.STRING),
        **resources(4),
    },
    answer={
        ANNOTATIONS: EditableField((1,), FieldForm.MAP),
        ENVS: EditableField((4,), FieldForm.BYTES_MAP),
        CGROUP_PARENT: EditableField((3,), FieldForm.STRING),
        **resources(2),
    },
    removed=((101, ANNOTATIONS), (102, ENVS)),
)


def read(message: bytes, layout: Layout, fields: Container[str] = ALL_FIELDS) -> Edits:
    """Returns what ``message`` sets of ``fields``, by slot. Raises MalformedMessage."""
    state: Edits = {}
    for path, members in layout.items():
        wanted = {number: member for number, member in members.items() if member[0] in fields}
        inside = _inside(message, path) if wanted else b""
        if inside:
            _read_members(state, inside, wanted)
    return state


def _inside(message: bytes, path: Path) -> bytes:
    """Returns the message at ``path``; one that occurs several times is the sum of its parts."""
    for number in path:
        message = b"".join(payloads(message, number)[0])
    return message


def _read_members(state: Edits, message: bytes, members: Mapping[int, tuple[str, FieldForm]]) -> None:
    integers: dict[int, list[int]] = {number: [] for number, (_, form) in members.items() if form is FieldForm.INT}
    others: dict[int, list[bytes]] = {number: [] for number in members if number not in integers}
    gather(message, others, integers)
    try:
        for number, (field, form) in members.items():
            if form is FieldForm.INT:
                for integer in integers[number]:
                    state[Slot(field)] = integer - 2 * _SIGN_BIT if integer & _SIGN_BIT else integer
            elif form is FieldForm.STRING:
                for content in others[number]:
                    state[Slot(field)] = content.decode()
            else:
                for entry in others[number]:
                    _read_entry(state, field, form, entry)
    except UnicodeDecodeError as error:
        raise MalformedMessage(0, f"a string that is not UTF-8: {error.reason}") from error


def _read_entry(state: Edits, field: str, form: FieldForm, entry: bytes) -> None:
    strings: dict[int, list[bytes]] = {KEY: [], VALUE: []}
    integers: dict[int, list[int]] = {VALUE: []}
    gather(entry, strings, integers)
    slot = Slot(field, _last(strings[KEY]).decode())
    if form is FieldForm.INT_LIST:
        state[slot] = integers[VALUE][-1] if integers[VALUE] else 0
    else:
        value = _last(strings[VALUE])
        state[slot] = value.decode() if form is FieldForm.MAP else value


def _last(contents: list[bytes]) -> bytes:
    return contents[-1] if contents else b""


def removals(answer: bytes, shape: MessageShape) -> Edits:
    """Returns the keys that ``answer`` asks to delete. Raises MalformedMessage."""
    keys = payloads(answer, *[number for number, _ in shape.removed])
    return {
        Slot(field, key.decode("utf-8", "replace")): None
        for (_, field), found in zip(shape.removed, keys, strict=True)
        for key in found
    }


def flatten_resources(resources: Any, fields: Container[str] = ALL_FIELDS) -> Edits:
    """Returns what a LinuxContainerResources, CRI's or the hook protocol's, sets of ``fields``."""
    state: Edits = {}
    for slot in SCALARS:
        if slot.field in fields and resources.HasField(slot.field):
            state[slot] = getattr(resources, slot.field)
    if HUGEPAGE_LIMITS in fields:
        for limit in resources.hugepage_limits:
            state[Slot(HUGEPAGE_LIMITS, limit.page_size)] = limit.limit
    if UNIFIED in fields:
        for key in resources.unified:
            state[Slot(UNIFIED, key)] = resources.unified[key]
    return state


def apply_resource(resources: Any, slot: Slot, value: Any) -> None:
    """Sets one field of a LinuxContainerResources."""
    if slot.field == UNIFIED:
        if value is None:
            resources.unified.pop(slot.key, None)
        else:
            resources.unified[slot.key] = value
    elif slot.field == HUGEPAGE_LIMITS:
        known = [limit for limit in resources.hugepage_limits if limit.page_size == slot.key]
        for limit in known or [resources.hugepage_limits.add(page_size=slot.key)]:
            limit.limit = value
    else:
        setattr(resources, slot.field, value)

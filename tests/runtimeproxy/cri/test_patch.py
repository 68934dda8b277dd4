"""Edits in a request's bytes: what a decoder reads is what was meant, and everything else is as it was."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf.message import Message
from hypothesis import given, settings
from hypothesis import strategies as st

from koord.pb.cri import api_pb2 as cri
from runtimeproxy.cri import methods
from runtimeproxy.cri.fields import RESTORED_CONTAINER, SANDBOX_OF_CREATE, TABLES
from runtimeproxy.hooks import patch
from runtimeproxy.hooks.edits import (
    ANNOTATIONS,
    CGROUP_PARENT,
    ENVS,
    HUGEPAGE_LIMITS,
    LABELS,
    RESOURCE_INTS,
    UNIFIED,
    Edits,
    Slot,
)
from runtimeproxy.hooks.fields import FieldForm
from runtimeproxy.wire.protowire import MalformedMessage, bytes_field, int_field, nested

UNKNOWN = bytes_field(4000, b"\xffunknown")
KINDS: dict[str, type[Message]] = {
    methods.RUN_POD: cri.RunPodSandboxRequest,
    methods.CREATE: cri.CreateContainerRequest,
    methods.UPDATE: cri.UpdateContainerResourcesRequest,
    methods.UPDATE_POD: cri.UpdatePodSandboxResourcesRequest,
    methods.RESTORE_POD: cri.RestorePodRequest,
}


def create() -> cri.CreateContainerRequest:
    request = cri.CreateContainerRequest(pod_sandbox_id="p")
    request.config.annotations.update({"a": "1", "b": "2"})
    for key, value in (("A", b"1"), ("B", b"\xff"), ("A", b"2")):
        request.config.envs.add(key=key, value=value)
    request.config.linux.resources.cpu_quota = 100_000
    request.config.linux.resources.hugepage_limits.add(page_size="2MB", limit=1)
    request.sandbox_config.linux.cgroup_parent = "/kubepods/pod1"
    return request


def applied(message: bytes, edits: Edits, method: str = methods.CREATE) -> Any:
    return KINDS[method].FromString(patch.apply(message, TABLES[method], edits))


def test_no_edits_return_the_very_object() -> None:
    message = create().SerializeToString()
    assert patch.apply(message, TABLES[methods.CREATE], {}) is message


def test_a_field_that_is_not_owned_is_an_error() -> None:
    with pytest.raises(KeyError):
        patch.apply(b"", TABLES[methods.UPDATE], {Slot(LABELS, "a"): "b"})


def test_malformed_bytes_are_an_error_only_where_they_must_be_read() -> None:
    with pytest.raises(MalformedMessage):
        patch.apply(b"\x12\x7fA", TABLES[methods.CREATE], {Slot(ENVS, "A"): b""})


def test_an_edit_over_the_runtimes_limit_is_an_error() -> None:
    message = bytes_field(1, b"x" * (patch.MAX_MESSAGE_BYTES - 20))
    with pytest.raises(patch.EditTooLarge):
        patch.apply(message, TABLES[methods.CREATE], {Slot(ENVS, "A"): b"y" * 30})


def test_a_message_that_was_too_large_already_is_not_our_error() -> None:
    message = bytes_field(1, b"x" * (patch.MAX_MESSAGE_BYTES + 1))
    assert len(patch.apply(message, TABLES[methods.CREATE], {Slot("cpu_quota"): 0})) > len(message)


@pytest.mark.parametrize("value", [0, -1, 5, (1 << 63) - 1, -(1 << 63)])
@pytest.mark.parametrize("field", RESOURCE_INTS)
def test_integers_are_set_also_to_zero(field: str, value: int) -> None:
    resources = applied(create().SerializeToString(), {Slot(field): value}).config.linux.resources
    assert resources.HasField(field)
    assert getattr(resources, field) == value


def test_an_empty_string_is_set() -> None:
    request = create()
    request.config.linux.resources.cpuset_cpus = "0-7"
    assert applied(request.SerializeToString(), {Slot("cpuset_cpus"): ""}).config.linux.resources.cpuset_cpus == ""


def test_a_variable_is_changed_in_each_place_and_keeps_its_order() -> None:
    envs = applied(create().SerializeToString(), {Slot(ENVS, "A"): b"new", Slot(ENVS, "C"): b""}).config.envs
    assert [(each.key, each.value) for each in envs] == [("A", b"new"), ("B", b"\xff"), ("A", b"new"), ("C", b"")]


def test_a_variable_is_removed_in_each_place() -> None:
    envs = applied(create().SerializeToString(), {Slot(ENVS, "A"): None}).config.envs
    assert [each.key for each in envs] == ["B"]


def test_a_changed_variable_keeps_its_unknown_fields() -> None:
    entry = bytes_field(1, b"A") + UNKNOWN + bytes_field(2, b"1") + int_field(9, 1)
    edited = patch.apply(nested((2, 6), entry), TABLES[methods.CREATE], {Slot(ENVS, "A"): b"2"})
    assert edited == nested((2, 6), bytes_field(1, b"A") + UNKNOWN + bytes_field(2, b"2") + int_field(9, 1))


def test_hugepage_limits_are_changed_in_place() -> None:
    edits: Edits = {Slot(HUGEPAGE_LIMITS, "2MB"): 0, Slot(HUGEPAGE_LIMITS, "1GB"): 1 << 30}
    limits = applied(create().SerializeToString(), edits).config.linux.resources.hugepage_limits
    assert [(each.page_size, each.limit) for each in limits] == [("2MB", 0), ("1GB", 1 << 30)]


def test_map_entries_are_set_and_deleted() -> None:
    edits: Edits = {Slot(ANNOTATIONS, "a"): "new", Slot(ANNOTATIONS, "b"): None, Slot(ANNOTATIONS, "c"): ""}
    assert dict(applied(create().SerializeToString(), edits).config.annotations) == {"a": "new", "c": ""}


def test_an_edit_reaches_the_last_of_several_sub_messages() -> None:
    message = create().SerializeToString() + nested((2, 15, 1), int_field(2, 7))
    assert applied(message, {Slot("cpu_quota"): 0}).config.linux.resources.cpu_quota == 0


def test_what_is_repeated_from_the_sandbox() -> None:
    edits: Edits = {Slot(CGROUP_PARENT): "/elsewhere", Slot(ANNOTATIONS, "x"): "y"}
    edited = cri.CreateContainerRequest.FromString(
        patch.apply(create().SerializeToString(), SANDBOX_OF_CREATE, edits)
    ).sandbox_config
    assert (edited.linux.cgroup_parent, dict(edited.annotations)) == ("/elsewhere", {"x": "y"})


@pytest.mark.parametrize(
    ("kind", "table"),
    [*((KINDS[method], table) for method, table in TABLES.items()), (cri.ContainerConfig, RESTORED_CONTAINER)],
)
def test_the_table_names_the_fields_of_the_messages(kind: type[Message], table: dict[str, Any]) -> None:
    for field, owned in table.items():
        descriptor: Any = kind.DESCRIPTOR
        for number in owned.path[:-1]:
            descriptor = descriptor.fields_by_number[number].message_type
        leaf = descriptor.fields_by_number[owned.path[-1]]
        assert leaf.name == field
        is_message = leaf.message_type is not None
        assert is_message == (owned.form in (FieldForm.MAP, FieldForm.BYTES_LIST, FieldForm.INT_LIST))


names = st.sampled_from(["a", "b", "c", "ü"])
words = st.text(max_size=5)
numbers = st.integers(-(1 << 63), (1 << 63) - 1)
blobs = st.binary(max_size=6)


@st.composite
def requests(draw: st.DrawFn) -> cri.CreateContainerRequest:
    """CreateContainer with everything we own, things we do not, and fields nobody knows."""
    request = cri.CreateContainerRequest(pod_sandbox_id=draw(words))
    config = request.config
    config.annotations.update(draw(st.dictionaries(names, words)))
    config.command.extend(draw(st.lists(words, max_size=2)))
    for key, value in draw(st.lists(st.tuples(names, blobs), max_size=4)):
        config.envs.add(key=key, value=value)
    for size, limit in draw(st.dictionaries(names, st.integers(0, 1 << 40))).items():
        config.linux.resources.hugepage_limits.add(page_size=size, limit=limit)
    for field, number in draw(st.dictionaries(st.sampled_from(RESOURCE_INTS), numbers)).items():
        setattr(config.linux.resources, field, number)
    config.linux.resources.unified.update(draw(st.dictionaries(names, words)))
    config.linux.security_context.privileged = draw(st.booleans())
    request.sandbox_config.annotations.update(draw(st.dictionaries(names, words)))
    for message in (request, config, config.linux, config.linux.resources, request.sandbox_config):
        if draw(st.booleans()):
            message.MergeFromString(UNKNOWN)
    return request


edit_maps = st.dictionaries(
    st.one_of(
        st.tuples(st.sampled_from(RESOURCE_INTS), st.just("")),
        st.tuples(st.sampled_from(["cpuset_cpus", "cpuset_mems", CGROUP_PARENT]), st.just("")),
        st.tuples(st.sampled_from([ANNOTATIONS, UNIFIED, ENVS, HUGEPAGE_LIMITS]), names),
    ),
    st.just(0),
    max_size=6,
)


def value_for(field: str, draw: st.DrawFn) -> Any:
    if field in RESOURCE_INTS:
        return draw(numbers)
    if field == HUGEPAGE_LIMITS:
        return draw(st.integers(0, 1 << 40))
    if field == ENVS:
        return draw(st.none() | blobs)
    if field in (ANNOTATIONS, UNIFIED):
        return draw(st.none() | words)
    return draw(words)


@st.composite
def edit_sets(draw: st.DrawFn) -> Edits:
    return {Slot(*slot): value_for(slot[0], draw) for slot in draw(edit_maps)}


def set_fields(request: cri.CreateContainerRequest, edits: Edits) -> None:
    """The same edits made with protobuf's own setters."""
    resources = request.config.linux.resources
    value: Any
    for slot, value in edits.items():
        if slot.field in (ANNOTATIONS, UNIFIED):
            entries = request.config.annotations if slot.field == ANNOTATIONS else resources.unified
            if slot.key in entries:  # protobuf's pop makes the message that holds the map
                del entries[slot.key]
            if value is not None:
                entries[slot.key] = value
        elif slot.field in (ENVS, HUGEPAGE_LIMITS):
            set_entries(request, slot, value)
        elif slot.field == CGROUP_PARENT:
            request.sandbox_config.linux.cgroup_parent = value
        else:
            setattr(resources, slot.field, value)


def set_entries(request: cri.CreateContainerRequest, slot: Slot, value: Any) -> None:
    is_env = slot.field == ENVS
    entries: Any = request.config.envs if is_env else request.config.linux.resources.hugepage_limits
    key, content = ("key", "value") if is_env else ("page_size", "limit")
    found = [each for each in entries if getattr(each, key) == slot.key]
    if value is None:
        for each in found:
            entries.remove(each)
        return
    for each in found or [entries.add(**{key: slot.key})]:
        setattr(each, content, value)


def stripped(request: cri.CreateContainerRequest) -> tuple[bytes, ...]:
    """The parts that exist only if something is set, so that deleting from what is absent compares equal."""
    return tuple(
        part.SerializeToString(deterministic=True)
        for part in (request.config.linux.resources, request.sandbox_config.linux)
    )


@settings(max_examples=150)
@given(requests(), edit_sets())
def test_edits_decode_as_if_they_had_been_set_and_nothing_else_changes(
    request: cri.CreateContainerRequest, edits: Edits
) -> None:
    message = request.SerializeToString()
    # Of a list's new entries, those whose names occur somewhere in the message come last: they were looked for first.
    edits = dict(sorted(edits.items(), key=lambda item: item[0].key.encode() in message))
    edited = cri.CreateContainerRequest.FromString(patch.apply(message, TABLES[methods.CREATE], edits))
    set_fields(request, edits)
    assert stripped(edited) == stripped(request)
    assert edited.SerializeToString(deterministic=True) == request.SerializeToString(deterministic=True)


@settings(max_examples=150)
@given(st.binary(max_size=80), edit_sets())
def test_malformed_requests_end_in_a_typed_error(data: bytes, edits: Edits) -> None:
    try:
        patch.apply(data, TABLES[methods.CREATE], edits)
    except MalformedMessage:
        return

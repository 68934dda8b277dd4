"""The wire form: malformed bytes are errors, and an edit touches nothing but what it names."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koord.pb.cri import api_pb2 as cri
from runtimeproxy.wire.protowire import (
    LENGTH,
    MAX_GROUP_DEPTH,
    VARINT,
    MalformedMessage,
    bytes_field,
    edit_entries,
    gather,
    int_field,
    last_bytes,
    nested,
    read_varint,
    set_last,
    spans,
    varint,
)

GROUP, END = b"\x0b", b"\x0c"  # field 1


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"\x08", id="varint missing"),
        pytest.param(b"\x08\x80", id="varint cut off"),
        pytest.param(b"\x08" + b"\x80" * 10 + b"\x01", id="varint too long"),
        pytest.param(b"\x00\x01", id="field number 0"),
        pytest.param(b"\xf8\xff\xff\xff\xff\x01\x00", id="field number too large"),
        pytest.param(b"\x0e", id="wire type 6"),
        pytest.param(b"\x0f", id="wire type 7"),
        pytest.param(b"\x0a\x05abc", id="length past the end"),
        pytest.param(b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", id="length of 2^64"),
        pytest.param(b"\x09abc", id="fixed64 cut off"),
        pytest.param(b"\x0dab", id="fixed32 cut off"),
        pytest.param(GROUP, id="group not closed"),
        pytest.param(END, id="group not opened"),
        pytest.param(GROUP + b"\x14", id="group closed by another number"),
        pytest.param(GROUP * (MAX_GROUP_DEPTH + 1) + END * (MAX_GROUP_DEPTH + 1), id="groups nested too deep"),
        pytest.param(GROUP * 100_000, id="a bomb of groups"),
    ],
)
def test_malformed(data: bytes) -> None:
    with pytest.raises(MalformedMessage):
        list(spans(data))
    with pytest.raises(MalformedMessage):
        gather(data, {})


def test_a_group_is_one_span() -> None:
    data = GROUP + GROUP + int_field(5, 1) + END + END + int_field(2, 7)
    assert [(span.number, span.start, span.end) for span in spans(data)] == [(1, 0, 6), (2, 6, 8)]


@given(st.binary(max_size=200))
def test_any_bytes_are_spans_or_malformed(data: bytes) -> None:
    try:
        found = list(spans(data))
    except MalformedMessage:
        return
    assert b"".join(data[span.start : span.end] for span in found) == data


some_fields = st.lists(
    st.sampled_from(
        (
            int_field(1, 300),
            int_field(1, -1),
            bytes_field(1, b"abc"),
            bytes_field(20, b"x" * 200),
            GROUP + int_field(1, 2) + END,
            b"\x0d1234",
            b"\x09" + bytes(8),
        )
    )
).map(b"".join)


@given(st.binary(max_size=200) | some_fields)
def test_gather_finds_what_spans_finds(data: bytes) -> None:
    payloads: dict[int, list[bytes]] = {1: [], 20: []}
    integers: dict[int, list[int]] = {1: []}
    try:
        found = list(spans(data))
    except MalformedMessage:
        with pytest.raises(MalformedMessage):
            gather(data, payloads, integers)
        return
    gather(data, payloads, integers)
    assert payloads == {
        number: [data[span.value : span.end] for span in found if (span.number, span.wire_type) == (number, LENGTH)]
        for number in payloads
    }
    assert integers[1] == [
        read_varint(data, span.value, span.end)[0] for span in found if (span.number, span.wire_type) == (1, VARINT)
    ]


@given(st.integers(-(1 << 63), (1 << 63) - 1))
def test_integers_are_read_back_by_protobuf(number: int) -> None:
    message = int_field(2, number)
    assert cri.LinuxContainerResources.FromString(message).cpu_quota == number
    assert read_varint(varint(number), 0, 10)[0] == number % (1 << 64)


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b"", b""),
        (bytes_field(2, b"x"), b""),
        (bytes_field(1, b"a"), b"a"),
        (bytes_field(1, b"a") + bytes_field(1, b"b"), b"b"),
        (int_field(1, 5), b""),
    ],
)
def test_last_bytes(data: bytes, value: bytes) -> None:
    assert last_bytes(data, 1) == value


def test_set_last_keeps_what_stands_around_it() -> None:
    around = int_field(9, 1)
    assert set_last(around, 2, int_field(2, 5)) == around + int_field(2, 5)
    twice = int_field(2, 1) + around + int_field(2, 2) + around
    assert set_last(twice, 2, int_field(2, 5)) == int_field(2, 1) + around + int_field(2, 5) + around


def test_nothing_to_edit_returns_the_very_object() -> None:
    data = nested((2, 6), bytes_field(1, b"A"))
    assert edit_entries(data, {(2, 6): lambda entry: entry}) is data
    assert edit_entries(data, {(2, 7): lambda entry: None}) is data


def test_a_sub_message_that_occurs_twice_is_edited_twice() -> None:
    one, two = nested((2, 6), b""), nested((2, 6), int_field(9, 1))
    other = int_field(3, 1)
    edited = edit_entries(one + other + two, {(2, 6): lambda entry: None if not entry else entry + entry})
    assert edited == bytes_field(2, b"") + other + nested((2, 6), int_field(9, 1) * 2)


def test_malformed_inside_an_edited_message_is_an_error() -> None:
    with pytest.raises(MalformedMessage):
        edit_entries(bytes_field(2, b"\x0a\x05a"), {(2, 6): lambda entry: entry})


def test_malformed_inside_what_is_not_edited_is_none_of_our_business() -> None:
    data = bytes_field(3, b"\xff") + nested((2, 6), b"")
    assert edit_entries(data, {(2, 6): lambda entry: b"\x08\x01"}) == bytes_field(3, b"\xff") + nested(
        (2, 6), b"\x08\x01"
    )


@given(st.binary(max_size=100))
def test_edits_of_any_bytes_end_in_an_error_or_in_well_formed_bytes(data: bytes) -> None:
    try:
        edited = edit_entries(data, {(1, 1): lambda entry: entry + b"\x08\x00", (2,): lambda entry: None})
    except MalformedMessage:
        return
    list(spans(edited))

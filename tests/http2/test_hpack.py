"""The narrow decoder against the hpack library as oracle: same fields, same table, after any series of blocks."""

from __future__ import annotations

import pytest
from hpack import Decoder, Encoder
from hpack.huffman import HuffmanEncoder
from hpack.huffman_constants import REQUEST_CODES, REQUEST_CODES_LENGTH
from hypothesis import given, settings
from hypothesis import strategies as st

from koord.http2.hpack import HeaderDecoder, HpackError, literal
from koord.http2.huffman import HuffmanError, huffman_decode
from tests.runtimeproxy.relay.endpoint import RfcEncoder

NAMES = st.sampled_from(["x", "grpc-timeout", "content-type", "via", "a-long-name" * 9, "te"]) | st.text(
    "abcdefghijklmnopqrstuvwxyz0123456789-", min_size=1, max_size=20
)
VALUES = st.sampled_from(["", "1999999u", "application/grpc", "v" * 5000]) | st.text(
    st.characters(min_codepoint=0, max_codepoint=255), max_size=60
)
BLOCKS = st.lists(
    st.tuples(
        st.lists(st.tuples(NAMES, VALUES, st.booleans()), max_size=8),
        st.booleans(),
        st.sampled_from([None, 0, 100, 1000, 4096]),
    ),
    max_size=8,
)


@pytest.mark.parametrize(
    ("block", "why"),
    [
        ("80", "index 0"),
        ("be", "an entry that was never added"),
        ("ff8080808080808001", "an integer beyond 32 bits"),
        ("40", "no name after the opcode"),
        ("4005", "a name longer than the block"),
        ("4081ff", "no value"),
        ("0001780181ff", "one value and the beginning of another"),
        ("000178820000", "Huffman padding of zeros"),
        ("00017884ffffffff", "the end-of-string symbol"),
        ("3fe23f", "a table of 8,193 bytes where 4,096 are allowed"),
        ("7f", "a truncated integer"),
    ],
)
def test_malformed(block: str, why: str) -> None:
    with pytest.raises(HpackError):
        HeaderDecoder().decode(bytes.fromhex(block))


@settings(deadline=None)
@given(BLOCKS)
def test_same_fields_and_same_table_as_the_library(
    blocks: list[tuple[list[tuple[str, str, bool]], bool, int | None]],
) -> None:
    encoder, oracle, ours = Encoder(), Decoder(max_header_list_size=1 << 30), HeaderDecoder()
    narrow = HeaderDecoder({b"te"})
    for fields, huffman, resize in blocks:
        if resize is not None:
            encoder.header_table_size = resize
        coded = [(name.encode(), value.encode("latin-1"), secret) for name, value, secret in fields]
        block = encoder.encode(coded, huffman=huffman)
        expected = [(bytes(name), bytes(value)) for name, value in oracle.decode(block, raw=True)]
        for _ in range(2 if resize is None and not fields else 1):
            assert ours.decode(block) == dict(expected)
        assert ours.table == [(bytes(n), bytes(v)) for n, v in oracle.header_table.dynamic_entries]
        assert narrow.decode(block) == {n: v for n, v in expected if n == b"te"}


SIZES = st.sampled_from([0, 32, 60, 200, 1000, 4096, 20_000])


@settings(deadline=None, max_examples=300)
@given(st.lists(SIZES | st.none() | st.lists(st.tuples(NAMES, VALUES), min_size=1, max_size=4), max_size=12))
def test_blocks_of_our_own_between_those_of_an_encoder_whose_table_changes(
    steps: list[int | list[tuple[str, str]] | None],
) -> None:
    """A number: the decoder's new SETTINGS_HEADER_TABLE_SIZE, acknowledged; None: a block of ours is put in."""
    encoder, oracle, ours = RfcEncoder(), Decoder(max_header_list_size=1 << 30), HeaderDecoder()
    for step in steps:
        if isinstance(step, int):
            ours.allow_table_bytes(step)
            ours.acknowledged_table_bytes(step)
            oracle.max_allowed_table_size = step
            if step != encoder.header_table_size:  # the library forgets a change that is followed by an equal one
                encoder.header_table_size = step
            continue
        if step is None:
            block = ours.size_update() + literal(b"grpc-status", b"8")
            assert oracle.decode(block, raw=True) == [(b"grpc-status", b"8")]
        else:
            block = encoder.encode([(name.encode(), value.encode("latin-1")) for name, value in step])
            expected = [(bytes(name), bytes(value)) for name, value in oracle.decode(block, raw=True)]
            assert ours.decode(block) == dict(expected)
        assert ours.table == [(bytes(n), bytes(v)) for n, v in oracle.header_table.dynamic_entries]


@pytest.mark.parametrize(
    ("acknowledged", "update"),
    [([], ""), ([4096], ""), ([8192], ""), ([0], "20"), ([30], "3e"), ([31], "3f00"), ([1000], "3fc907"),
     ([0, 4096], "20"), ([4096, 100, 200], "3f45")],
)  # fmt: skip
def test_the_smallest_size_since_the_last_block_is_said_once(acknowledged: list[int], update: str) -> None:
    ours = HeaderDecoder()
    for size in acknowledged:
        ours.acknowledged_table_bytes(size)
    assert (ours.size_update().hex(), ours.size_update().hex()) == (update, "")


def test_an_update_is_due_in_the_first_block_only_even_if_that_is_a_known_one() -> None:
    ours = HeaderDecoder()
    for _ in range(2):
        ours.decode(b"\x88")
    ours.acknowledged_table_bytes(0)
    ours.decode(b"\x88")
    assert ours.size_update() == b""


@settings(deadline=None, max_examples=300)
@given(st.lists(st.binary(max_size=40), max_size=5))
def test_bytes_that_mean_nothing_raise_our_error_or_agree(blocks: list[bytes]) -> None:
    oracle, ours = Decoder(max_header_list_size=1 << 30), HeaderDecoder()
    for block in blocks:
        try:
            fields = ours.decode(block)
        except HpackError:
            return
        try:
            expected = oracle.decode(block, raw=True)
        except Exception:  # noqa: BLE001 - the library is stricter in places; then the two tables part
            return
        assert fields == {bytes(n): bytes(v) for n, v in expected}


def test_a_repeated_block_is_remembered_only_while_the_table_stands() -> None:
    ours = HeaderDecoder()
    ours.decode(bytes.fromhex("4001610131"))  # a: 1
    assert ours.decode(b"\xbe") == {b"a": b"1"}
    ours.decode(bytes.fromhex("4001620132"))  # b: 2
    assert ours.decode(b"\xbe") == {b"b": b"2"}


def test_the_peer_may_allow_a_larger_table() -> None:
    ours = HeaderDecoder()
    ours.allow_table_bytes(8192)
    assert ours.decode(bytes.fromhex("3fe13f")) == {}


@given(st.binary(max_size=300), st.binary(max_size=40000))
def test_our_literals_leave_the_table_alone(name: bytes, value: bytes) -> None:
    ours = HeaderDecoder()
    assert ours.decode(literal(name, value)) == {name: value}
    assert ours.table == []


@given(st.binary(max_size=400))
def test_huffman_round_trip(text: bytes) -> None:
    assert huffman_decode(HuffmanEncoder(REQUEST_CODES, REQUEST_CODES_LENGTH).encode(text)) == text


def test_huffman_refuses_a_string_that_ends_inside_a_symbol() -> None:
    with pytest.raises(HuffmanError):
        huffman_decode(b"\xff")

"""NRI's two framings: what we send fits the Go side's reader, what we receive may be cut anywhere."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qosd.nri import mux, ttrpc
from tests.qosd.nri.runtimes import QUEUED_FRAMES, GoReader, OutOfMemory, frames_of, packed

MESSAGES = st.lists(
    st.tuples(
        st.sampled_from([mux.PLUGIN_SERVICE, mux.RUNTIME_SERVICE]),
        st.integers(0, (1 << 31) - 1).map(lambda number: 2 * number + 1),
        st.sampled_from([1, 2, 3, 200]),
        st.binary(max_size=64) | st.integers(4000, 9000).map(bytes),
    ),
    max_size=6,
)


def received(pieces: list[bytes]) -> list[tuple[int, int, int, bytes]]:
    """Every message in ``pieces``: (connection, stream, type, payload)."""
    trunk = mux.Demultiplexer()
    readers = {mux.PLUGIN_SERVICE: ttrpc.MessageReader(), mux.RUNTIME_SERVICE: ttrpc.MessageReader()}
    return [
        (connection, *message)
        for piece in pieces
        for connection, data in trunk.feed(piece)
        for message in readers[connection].feed(data)
    ]


@pytest.mark.parametrize("length", [mux.MAX_PAYLOAD_BYTES + 1, 0xFFFFFFFF])
def test_a_frame_longer_than_any_peer_may_send_is_refused(length: int) -> None:
    with pytest.raises(mux.MuxError, match=str(length)):
        list(mux.Demultiplexer().feed(struct.pack(">II", 1, length)))


@pytest.mark.parametrize(
    ("header", "why"),
    [
        (struct.pack(">IIBB", ttrpc.MAX_MESSAGE_BYTES + 1, 1, 1, 0), "4194305 bytes"),
        (struct.pack(">IIBB", 0, 0, 1, 0), "stream id 0 is even"),
        (struct.pack(">IIBB", 0, 2, 2, 0), "stream id 2 is even"),
    ],
)
def test_a_message_that_no_caller_may_send_is_refused(header: bytes, why: str) -> None:
    with pytest.raises(ttrpc.TtrpcError, match=why):
        list(ttrpc.MessageReader().feed(header))


@pytest.mark.parametrize("payload", [b"\xff", b"\x0a\xff", b"\x12\x03ab"])
def test_a_payload_that_is_no_protobuf_is_refused(payload: bytes) -> None:
    with pytest.raises(ttrpc.TtrpcError):
        ttrpc.read_request(payload)
    with pytest.raises(ttrpc.TtrpcError):
        ttrpc.read_answer(payload)


def test_a_status_is_a_call_error() -> None:
    with pytest.raises(ttrpc.CallError) as caught:
        ttrpc.read_answer(ttrpc.refusal(ttrpc.UNIMPLEMENTED, "no such method"))
    assert (caught.value.code, caught.value.message) == (12, "no such method")


@given(MESSAGES, st.data())
def test_what_is_sent_arrives_wherever_it_is_cut(
    messages: list[tuple[int, int, int, bytes]], data: st.DataObject
) -> None:
    sent = b"".join(packed(*message) for message in messages)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(sent)), max_size=8)))
    pieces = [sent[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(sent)], strict=True)]
    assert received(pieces) == messages


def test_a_conversation_cut_at_every_byte() -> None:
    messages = [(1, 1, 1, b"request"), (2, 1, 2, b""), (1, 3, 1, b"x" * 5000), (2, 3, 2, b"answer")]
    sent = b"".join(packed(*message) for message in messages)
    for cut in range(len(sent) + 1):
        assert received([sent[:cut], sent[cut:]]) == messages
    assert received([bytes([byte]) for byte in sent]) == messages


@given(st.binary(max_size=300))
def test_noise_is_refused_or_waited_for_and_nothing_else(noise: bytes) -> None:
    trunk = mux.Demultiplexer()
    readers: dict[int, Any] = {}
    try:
        for connection, data in trunk.feed(noise):
            for message in readers.setdefault(connection, ttrpc.MessageReader()).feed(data):
                ttrpc.read_request(message.payload)
    except (mux.MuxError, ttrpc.TtrpcError):
        pass


@given(st.integers(0, 3 * mux.CHUNK_BYTES), st.integers(1, 5))
def test_the_go_side_reads_what_we_send(length: int, count: int) -> None:
    payload = bytes(range(256)) * (length // 256 + 1)
    payload = payload[:length]
    sent = b"".join(mux.frames(1, ttrpc.header(2 * number + 1, 2, length), payload) for number in range(count))
    reader = GoReader(frame for _, frame in frames_of(sent))
    assert [reader.message() for _ in range(count)] == [(2 * number + 1, 2, payload) for number in range(count)]


def test_the_largest_message_fits_the_go_sides_queue() -> None:
    sent = mux.frames(1, ttrpc.header(1, 2, mux.MAX_SENT_BYTES), bytes(mux.MAX_SENT_BYTES))
    assert len(frames_of(sent)) < QUEUED_FRAMES


def test_the_reader_of_these_tests_has_the_go_sides_limit() -> None:
    header = struct.pack(">IIBB", 4087, 1, 2, 0)
    with pytest.raises(OutOfMemory):
        GoReader([header + bytes(4087)]).message()

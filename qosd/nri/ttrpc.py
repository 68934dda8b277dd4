"""ttrpc: calls on a byte stream, each message with 10 bytes before it.

The header is length, stream id (both uint32, big endian), type and flags (a byte each). The calling side chooses
stream ids: odd and rising. Only unary calls are spoken: a message of another type is ignored, as the protocol asks
for the sake of what comes later. (Upstream containerd/ttrpc, PROTOCOL.md.)

Fails with TtrpcError for bytes that no caller may send; the connection cannot go on after it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from google.protobuf.message import DecodeError

from koord.pb.nri import ttrpc_pb2 as pb

MAX_MESSAGE_BYTES = 4 << 20
REQUEST, RESPONSE = 1, 2
OK, INTERNAL, UNAVAILABLE, DEADLINE_EXCEEDED, RESOURCE_EXHAUSTED, UNIMPLEMENTED = 0, 13, 14, 4, 8, 12
_HEADER = struct.Struct(">IIBB")
_UNARY = 0  # flags


class TtrpcError(ValueError):
    """The peer sent bytes that are no ttrpc."""


class CallError(Exception):
    """A call that gave no answer. ``code``: gRPC status."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(f"status {code}: {message}")
        self.code, self.message = code, message


class Message(NamedTuple):
    """``type``: REQUEST, RESPONSE or a type of a later protocol."""

    stream: int
    type: int
    payload: bytes


class MessageReader:
    """Cuts one connection's byte stream into messages; holds at most one incomplete message."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[Message]:
        """Yields the messages that ``data`` completes."""
        self._buffer += data
        while len(self._buffer) >= _HEADER.size:
            length, stream, kind, _ = _HEADER.unpack_from(self._buffer)
            if length > MAX_MESSAGE_BYTES:
                raise TtrpcError(f"a message of {length} bytes; at most {MAX_MESSAGE_BYTES} are allowed")
            if stream % 2 == 0:
                raise TtrpcError(f"stream id {stream} is even, which no caller may choose")
            end = _HEADER.size + length
            if len(self._buffer) < end:
                return
            payload = bytes(self._buffer[_HEADER.size : end])
            del self._buffer[:end]
            yield Message(stream, kind, payload)


def header(stream: int, kind: int, length: int) -> bytes:
    return _HEADER.pack(length, stream, kind, _UNARY)


def request(service: str, method: str, payload: bytes, timeout_s: float) -> bytes:
    """Returns the payload of a REQUEST message."""
    timeout_nano = int(timeout_s * 1e9)
    return pb.Request(service=service, method=method, payload=payload, timeout_nano=timeout_nano).SerializeToString()


def read_request(payload: bytes) -> pb.Request:
    """Raises TtrpcError when ``payload`` is no Request."""
    try:
        return pb.Request.FromString(payload)
    except DecodeError as error:
        raise TtrpcError(f"a request that is no protobuf: {error}") from error


def answer(payload: bytes) -> bytes:
    """Returns the payload of a RESPONSE message with status OK."""
    return pb.Response(payload=payload).SerializeToString()


def refusal(code: int, message: str) -> bytes:
    """Returns the payload of a RESPONSE message that says why there is no answer."""
    return pb.Response(status=pb.Status(code=code, message=message)).SerializeToString()


def read_answer(payload: bytes) -> bytes:
    """Returns the callee's message. Raises CallError with its status, or TtrpcError when ``payload`` is no Response."""
    try:
        response = pb.Response.FromString(payload)
    except DecodeError as error:
        raise TtrpcError(f"an answer that is no protobuf: {error}") from error
    if response.status.code != OK:
        raise CallError(response.status.code, response.status.message)
    return response.payload

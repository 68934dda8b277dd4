"""NRI's outer framing: several byte streams over one unix stream, each piece with 8 bytes before it.

A frame is a connection id and a length (both uint32, big endian), then that many bytes; nothing opens or closes a
connection. Receiving, each id is a byte stream: where a frame ends means nothing. Sending, it does: NRI's Go end
hands a whole frame to one read of a 4096-byte buffer and gives up when it does not fit. So a message's header has a
frame of its own and its payload goes in chunks that always fit; and since that end keeps at most 256 frames of a
connection unread before it drops everything, ``MAX_SENT_BYTES`` bounds a message. (Upstream pkg/net/multiplex.)

Fails with MuxError for a length that no peer may send; the connection cannot go on after it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

PLUGIN_SERVICE, RUNTIME_SERVICE = 1, 2
MAX_PAYLOAD_BYTES = 10 + (4 << 20)
CHUNK_BYTES = 4096
MAX_SENT_BYTES = 128 * CHUNK_BYTES
_HEADER = struct.Struct(">II")


class MuxError(ValueError):
    """The peer sent a frame header that cannot be one."""


def frames(connection: int, header: bytes, payload: bytes) -> bytes:
    """Returns one message of ``connection``: ``header`` in a frame, then ``payload`` in as many as it takes."""
    pieces = [header, *(payload[at : at + CHUNK_BYTES] for at in range(0, len(payload), CHUNK_BYTES))]
    return b"".join(_HEADER.pack(connection, len(piece)) + piece for piece in pieces)


class Demultiplexer:
    """Takes the trunk's bytes as they come, cut anywhere."""

    def __init__(self) -> None:
        self._header = b""
        self._connection = 0
        self._missing_bytes = 0

    def feed(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        """Yields what ``data`` adds to each connection's stream, in order of arrival: (connection id, bytes), never
        empty.
        """
        position = 0
        while position < len(data):
            if self._missing_bytes == 0:
                position = self._read_header(data, position)
                continue
            piece = data[position : position + self._missing_bytes]
            position += len(piece)
            self._missing_bytes -= len(piece)
            yield self._connection, piece

    def _read_header(self, data: bytes, position: int) -> int:
        """Returns where ``data`` goes on behind its part of a frame's header."""
        end = position + _HEADER.size - len(self._header)
        self._header += data[position:end]
        if len(self._header) == _HEADER.size:
            self._connection, self._missing_bytes = _HEADER.unpack(self._header)
            self._header = b""
            if self._missing_bytes > MAX_PAYLOAD_BYTES:
                raise MuxError(
                    f"a frame of connection {self._connection} claims {self._missing_bytes} bytes; "
                    f"at most {MAX_PAYLOAD_BYTES} are allowed"
                )
        return min(end, len(data))

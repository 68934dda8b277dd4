"""HTTP/2 frames (RFC 9113 §4, §6): cutting a byte stream at frame boundaries, and building the few we send.

Invariant: a header block is atomic. HEADERS and its CONTINUATIONs come out of `split` as one item, so nothing can
be put between them. What no honest peer sends (an oversized frame, an endless header block) raises FrameError and
ends the connection, which bounds what is ever kept.
"""

from __future__ import annotations

from struct import Struct

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HEADER_BYTES = 9
DEFAULT_WINDOW_BYTES = 65_535
MAX_WINDOW_BYTES = (1 << 31) - 1
DEFAULT_MAX_FRAME_BYTES, LARGEST_MAX_FRAME_BYTES = 16_384, (1 << 24) - 1
MAX_HEADER_BLOCK_BYTES = 1 << 20
MAX_CONTINUATIONS = 256
MAX_STREAM_ID = (1 << 31) - 1

DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)

END_STREAM = ACK = 0x1
END_HEADERS = 0x4
PADDED = 0x8
PRIORITY_FLAG = 0x20

HEADER_TABLE_SIZE, ENABLE_PUSH, MAX_CONCURRENT_STREAMS, INITIAL_WINDOW_SIZE, MAX_FRAME_SIZE = range(1, 6)

NO_ERROR, PROTOCOL_ERROR, INTERNAL_ERROR, FLOW_CONTROL_ERROR = range(4)
FRAME_SIZE_ERROR, REFUSED_STREAM, CANCEL, COMPRESSION_ERROR, ENHANCE_YOUR_CALM = 6, 7, 8, 9, 11

_HEADER = Struct(">HBBBI")
_UINT32 = Struct(">I")
_SETTING = Struct(">HI")
_unpack = _HEADER.unpack_from
_OPENS_BLOCK = (HEADERS, PUSH_PROMISE)


class FrameError(Exception):
    """Bytes that no HTTP/2 peer may send. ``code`` is the error code for GOAWAY."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


# One frame, or one whole header block, at ``buffer[begin:end]``: (kind, flags, stream, begin, end). The payload starts
# HEADER_BYTES after ``begin``. A plain tuple: five are made per call, and a class would cost a microsecond of them.
Frame = tuple[int, int, int, int, int]


def split(buffer: bytes, position: int, max_frame_bytes: int) -> tuple[list[Frame], int, int]:
    """Cut ``buffer`` from ``position`` into whole frames.

    Returns the frames, where what follows them begins, and how many bytes the first incomplete frame needs from there
    on at least: 0 if nothing is left over. Raises FrameError.
    """
    frames: list[Frame] = []
    size = len(buffer)
    while position + 9 <= size:
        high, low, kind, flags, stream = _unpack(buffer, position)
        length = high << 8 | low
        if length > max_frame_bytes:
            raise FrameError(FRAME_SIZE_ERROR, f"frame of {length} bytes, at most {max_frame_bytes} are allowed")
        end = position + 9 + length
        if end > size:
            return frames, position, end - position
        if not flags & END_HEADERS and kind in _OPENS_BLOCK:
            end, need = _block_end(buffer, end, position, stream & MAX_STREAM_ID, max_frame_bytes)
            if need:
                return frames, position, need
        elif kind == CONTINUATION:
            raise FrameError(PROTOCOL_ERROR, "CONTINUATION without HEADERS")
        frames.append((kind, flags, stream & 0x7FFFFFFF, position, end))
        position = end
    return frames, position, HEADER_BYTES if position < size else 0


def _block_end(buffer: bytes, position: int, begin: int, stream: int, max_frame_bytes: int) -> tuple[int, int]:
    """Where the header block that began at ``begin`` ends, or (0, bytes needed from ``begin``)."""
    for _ in range(MAX_CONTINUATIONS):
        if position + HEADER_BYTES > len(buffer):
            return 0, position + HEADER_BYTES - begin
        high, low, kind, flags, of = _unpack(buffer, position)
        length = high << 8 | low
        if kind != CONTINUATION or of & MAX_STREAM_ID != stream:
            raise FrameError(PROTOCOL_ERROR, "another frame inside a header block")
        position += HEADER_BYTES + length
        if length > max_frame_bytes or position - begin > MAX_HEADER_BLOCK_BYTES:
            raise FrameError(ENHANCE_YOUR_CALM, f"header block of more than {MAX_HEADER_BLOCK_BYTES} bytes")
        if position > len(buffer):
            return 0, position - begin
        if flags & END_HEADERS:
            return position, 0
    raise FrameError(ENHANCE_YOUR_CALM, f"more than {MAX_CONTINUATIONS} CONTINUATION frames in one header block")


def header_block(buffer: bytes, frame: Frame) -> bytes:
    """The HPACK block of a HEADERS or PUSH_PROMISE item, CONTINUATIONs joined. Raises FrameError."""
    kind, flags, _, begin, end = frame
    if kind == HEADERS and flags & (END_HEADERS | PADDED | PRIORITY_FLAG) == END_HEADERS:
        return buffer[begin + HEADER_BYTES : end]
    high, low, *_ = _unpack(buffer, begin)
    first_end = begin + HEADER_BYTES + (high << 8 | low)
    start, stop = _unpadded(buffer, flags, begin + HEADER_BYTES, first_end)
    if kind == PUSH_PROMISE:
        start += 4
    elif flags & PRIORITY_FLAG:
        start += 5
    if start > stop:
        raise FrameError(PROTOCOL_ERROR, "HEADERS too short for their flags")
    parts = [buffer[start:stop]]
    position = first_end
    while position < end:
        high, low, *_ = _unpack(buffer, position)
        next_position = position + HEADER_BYTES + (high << 8 | low)
        parts.append(buffer[position + HEADER_BYTES : next_position])
        position = next_position
    return b"".join(parts)


def data_payload(buffer: bytes, frame: Frame) -> bytes:
    """The payload of a DATA frame without its padding. Raises FrameError."""
    _, flags, _, begin, end = frame
    begin += HEADER_BYTES
    if flags & PADDED:
        begin, end = _unpadded(buffer, flags, begin, end)
    return buffer[begin:end]


def frame_payload(buffer: bytes, frame: Frame) -> bytes:
    """All of a frame's payload."""
    return buffer[frame[3] + HEADER_BYTES : frame[4]]


def _unpadded(buffer: bytes, flags: int, begin: int, end: int) -> tuple[int, int]:
    if not flags & PADDED:
        return begin, end
    if begin >= end or begin + 1 + buffer[begin] > end:
        raise FrameError(PROTOCOL_ERROR, "padding longer than the frame")
    return begin + 1, end - buffer[begin]


def uint32(buffer: bytes, frame: Frame) -> int:
    """The one 32-bit payload of RST_STREAM and WINDOW_UPDATE. Raises FrameError."""
    _, _, _, begin, end = frame
    if end - begin != HEADER_BYTES + 4:
        raise FrameError(FRAME_SIZE_ERROR, "WINDOW_UPDATE or RST_STREAM that is not 4 bytes")
    value: int = _UINT32.unpack_from(buffer, begin + HEADER_BYTES)[0]
    return value


def last_stream_of(buffer: bytes, frame: Frame) -> int:
    """The last stream that the sender of a GOAWAY frame has taken or may still take."""
    return int.from_bytes(frame_payload(buffer, frame)[:4]) & MAX_STREAM_ID


def settings_of(buffer: bytes, frame: Frame) -> list[tuple[int, int]]:
    """The (identifier, value) pairs of a SETTINGS frame, in order; sizes are in bounds. Raises FrameError."""
    payload = frame_payload(buffer, frame)
    if len(payload) % _SETTING.size:
        raise FrameError(FRAME_SIZE_ERROR, "SETTINGS that is not a multiple of 6 bytes")
    pairs = list(_SETTING.iter_unpack(payload))
    for identifier, value in pairs:
        if identifier == INITIAL_WINDOW_SIZE and value > MAX_WINDOW_BYTES:
            raise FrameError(FLOW_CONTROL_ERROR, f"INITIAL_WINDOW_SIZE {value}, at most {MAX_WINDOW_BYTES} is allowed")
        if identifier == MAX_FRAME_SIZE and not DEFAULT_MAX_FRAME_BYTES <= value <= LARGEST_MAX_FRAME_BYTES:
            allowed = f"{DEFAULT_MAX_FRAME_BYTES} to {LARGEST_MAX_FRAME_BYTES}"
            raise FrameError(PROTOCOL_ERROR, f"MAX_FRAME_SIZE {value}, {allowed} is allowed")
    return pairs


def frame_header(length: int, kind: int, flags: int, stream: int) -> bytes:
    return _HEADER.pack(length >> 8, length & 0xFF, kind, flags, stream)


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return _HEADER.pack(len(payload) >> 8, len(payload) & 0xFF, kind, flags, stream) + payload


def window_update(stream: int, increment_bytes: int) -> bytes:
    return frame(WINDOW_UPDATE, 0, stream, _UINT32.pack(increment_bytes))


def rst_stream(stream: int, code: int) -> bytes:
    return frame(RST_STREAM, 0, stream, _UINT32.pack(code))


def settings(values: tuple[tuple[int, int], ...] = ()) -> bytes:
    return frame(SETTINGS, 0, 0, b"".join(_SETTING.pack(*pair) for pair in values))


def goaway(last_stream: int, code: int, debug: bytes = b"") -> bytes:
    return frame(GOAWAY, 0, 0, _UINT32.pack(last_stream) + _UINT32.pack(code) + debug)

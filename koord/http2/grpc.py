"""gRPC's own framing inside HTTP/2: the length-prefixed message, the timeout, the status codes in use."""

from __future__ import annotations

from collections.abc import Mapping

from koord.http2.hpack import literal

PREFIX_BYTES = 5  # a compression flag and a 32-bit length
MAX_MESSAGE_BYTES = 16 << 20  # what kubelet and containerd accept
MAX_TEXT_BYTES = 8 << 10  # of a status message: a header block is one frame, and grpc-go reads none over 16 KiB

OK, CANCELLED, UNKNOWN, INVALID_ARGUMENT, DEADLINE_EXCEEDED, NOT_FOUND = range(6)
PERMISSION_DENIED, RESOURCE_EXHAUSTED, FAILED_PRECONDITION = 7, 8, 9
UNIMPLEMENTED, INTERNAL, UNAVAILABLE, UNAUTHENTICATED = 12, 13, 14, 16

ANSWER_HEAD = b"\x88" + literal(b"content-type", b"application/grpc")  # with :status 200, a static entry
_ENCODED = [bytes((octet,)) if 0x20 <= octet <= 0x7E and octet != 0x25 else b"%%%02X" % octet for octet in range(256)]
_UNITS = {"H": 3600.0, "M": 60.0, "S": 1.0, "m": 1e-3, "u": 1e-6, "n": 1e-9}


class UnaryError(Exception):
    """A call that gave no answer. ``code``: gRPC status, UNAVAILABLE when the peer could not be reached."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(f"gRPC status {code}: {message}")
        self.code = code
        self.message = message


def grpc_message(body: bytes | bytearray) -> bytes | None:
    """The one uncompressed message of a unary body; None if the body is anything else."""
    if len(body) < PREFIX_BYTES or body[0] or int.from_bytes(body[1:PREFIX_BYTES]) != len(body) - PREFIX_BYTES:
        return None
    return body[PREFIX_BYTES:] if isinstance(body, bytes) else bytes(memoryview(body)[PREFIX_BYTES:])


def body_bytes(begin: bytes | bytearray) -> int:
    """How long the body of one message will be, as its prefix says; 0 as long as the prefix is not whole."""
    return PREFIX_BYTES + int.from_bytes(begin[1:PREFIX_BYTES]) if len(begin) >= PREFIX_BYTES else 0


def grpc_body(message: bytes) -> bytes:
    return b"\0" + len(message).to_bytes(4) + message


def grpc_timeout_s(value: bytes | None) -> float | None:
    """Seconds of a ``grpc-timeout`` value such as ``119999864u``; None if absent or malformed."""
    if not value or not value[:-1].isdigit() or len(value) > 9:
        return None
    unit = _UNITS.get(chr(value[-1]))
    return None if unit is None else int(value[:-1]) * unit


def status_in(fields: Mapping[bytes, bytes], otherwise: int) -> int:
    """The status of a call that ended with these header fields; ``otherwise`` where they hold none."""
    value = fields.get(b"grpc-status", b"")
    if value == b"0":
        return OK
    return int(value) if value.isdigit() and len(value) < 4 else otherwise


def refusal_in(fields: Mapping[bytes, bytes]) -> tuple[int, str] | None:
    """Status and message of a call that ended with these header fields; None = OK."""
    code = status_in(fields, INTERNAL)
    if code == OK:
        return None
    text = fields.get(b"grpc-message")
    http = fields.get(b":status", b"without a status").decode("latin-1")
    return code, f"HTTP {http}" if text is None else plain_text(text)


def status_fields(code: int, message: str) -> bytes:
    """``grpc-status`` and ``grpc-message`` of a block that ends a call, in literals that touch no table."""
    return literal(b"grpc-status", b"%d" % code) + literal(b"grpc-message", grpc_text(message))


def grpc_text(text: str) -> bytes:
    """A status message as ``grpc-message`` carries it: UTF-8, percent-encoded outside of printable ASCII.

    What is beyond ``MAX_TEXT_BYTES`` is left out.
    """
    encoded = b"".join(_ENCODED[octet] for octet in text[:MAX_TEXT_BYTES].encode())
    if len(encoded) <= MAX_TEXT_BYTES:
        return encoded
    cut = encoded[:MAX_TEXT_BYTES]
    return cut[: cut.rindex(b"%")] if b"%" in cut[-2:] else cut


def plain_text(encoded: bytes) -> str:
    """A ``grpc-message`` as it was before it was percent-encoded."""
    first, *parts = encoded.split(b"%")
    plain = [bytes.fromhex(part[:2].decode("ascii")) + part[2:] if _is_hex(part[:2]) else b"%" + part for part in parts]
    return (first + b"".join(plain)).decode("utf-8", "replace")


def _is_hex(text: bytes) -> bool:
    return len(text) == 2 and all(octet in b"0123456789abcdefABCDEF" for octet in text)

"""Makes one CRI call on the runtime's socket.

Fails with a UnaryError: what the runtime said, or INTERNAL if its answer is no message of the expected kind.
"""

from __future__ import annotations

from typing import TypeVar

from google.protobuf.message import DecodeError, Message

from koord.http2 import blocking
from koord.http2.grpc import INTERNAL, UnaryError

Answer = TypeVar("Answer", bound=Message)


def call(
    socket: str, method: str, request: Message, answer: type[Answer], timeout_s: float, package: str = "runtime.v1"
) -> Answer:
    """Calls ``method`` of the ``RuntimeService`` that listens on ``socket``, and returns its answer."""
    reply = blocking.call(socket, f"/{package}.RuntimeService/{method}", request.SerializeToString(), timeout_s)
    try:
        return answer.FromString(reply)
    except DecodeError as error:
        raise UnaryError(INTERNAL, f"{method}: {error}") from error

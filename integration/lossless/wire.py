"""Two gRPC peers that exchange bytes, and what each of them heard of one call.

Neither encodes anything, so that a relay which writes a message anew is found out. Invariant: only calls that carry
``MARK`` are the test's; the proxy's own questions to the runtime hear that nothing exists, and are not recorded.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import grpc

from integration.harness.cri import OPTIONS
from integration.lossless.schema import Method

MARK = ("x-lossless", "1")
TIMEOUT_S = 20.0


@dataclass(frozen=True, slots=True)
class Exchange:
    """``requests`` as the server got them, ``answers`` as the client got them."""

    requests: tuple[bytes, ...]
    answers: tuple[bytes, ...]


class Server(grpc.GenericRpcHandler):
    """Answers any path with ``answers``, which the test lays out before each call."""

    def __init__(self, streams: frozenset[str]) -> None:
        self._streams = streams
        self.answers: tuple[bytes, ...] = ()
        self.requests: list[bytes] = []

    @contextlib.contextmanager
    def serving(self, socket: Path) -> Iterator[None]:
        server = grpc.server(ThreadPoolExecutor(4), options=OPTIONS)
        server.add_generic_rpc_handlers((self,))
        server.add_insecure_port(f"unix:{socket}")
        server.start()
        try:
            yield
        finally:
            server.stop(None).wait()

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[bytes, bytes]:
        path = handler_call_details.method
        if MARK not in [(key, value) for key, value in handler_call_details.invocation_metadata]:
            return grpc.unary_unary_rpc_method_handler(_nothing_exists(path))
        if path in self._streams:
            return grpc.unary_stream_rpc_method_handler(self._stream)
        return grpc.unary_unary_rpc_method_handler(self._unary)

    def _unary(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        self.requests.append(request)
        return self.answers[0]

    def _stream(self, request: bytes, context: grpc.ServicerContext) -> Iterator[bytes]:
        self.requests.append(request)
        yield from self.answers


class Client:
    """Calls through ``socket``; ``server`` is at the other end of it."""

    def __init__(self, socket: Path, server: Server) -> None:
        self._channel = grpc.insecure_channel(f"unix:{socket}", options=OPTIONS)
        self._server = server

    def exchange(self, method: Method, request: bytes, answers: Sequence[bytes]) -> Exchange:
        self._server.requests, self._server.answers = [], tuple(answers)
        got = self._call(method, request)
        return Exchange(tuple(self._server.requests), got)

    def _call(self, method: Method, request: bytes) -> tuple[bytes, ...]:
        if method.streams:
            stream: grpc.UnaryStreamMultiCallable[bytes, bytes] = self._channel.unary_stream(method.path)
            return tuple(stream(request, timeout=TIMEOUT_S, metadata=(MARK,)))
        unary: grpc.UnaryUnaryMultiCallable[bytes, bytes] = self._channel.unary_unary(method.path)
        return (unary(request, timeout=TIMEOUT_S, metadata=(MARK,)),)

    def close(self) -> None:
        self._channel.close()


def _nothing_exists(path: str) -> Callable[[bytes, grpc.ServicerContext], bytes]:
    def answer(request: bytes, context: grpc.ServicerContext) -> bytes:
        if "/List" not in path:
            context.abort(grpc.StatusCode.NOT_FOUND, "there is nothing here")
        return b""

    return answer

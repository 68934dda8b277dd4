"""A hook server on a unix socket whose answers a test makes, and the file by which a proxy finds it.

Messages are bytes here: only the peers decode them.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import grpc

SERVICE = "/runtime.v1alpha1.RuntimeHookService/"
PRESENCE = (("koord-presence", "1"),)
Metadata = tuple[tuple[str, str | bytes], ...]


@dataclass(frozen=True, slots=True)
class Question:
    """One hook call: ``stage`` as in a hook-server file ("PreCreateContainer")."""

    stage: str
    message: bytes
    metadata: Metadata


@dataclass(frozen=True, slots=True)
class Reply:
    """``metadata`` is initial metadata; ``PRESENCE`` says that what is absent in ``message`` is no opinion."""

    message: bytes
    metadata: Metadata = ()


Answering = Callable[[Question], Reply]


@contextlib.contextmanager
def serving(socket: Path, answer: Answering) -> Iterator[None]:
    """Serve RuntimeHookService on ``socket``; calls of anything else hear UNIMPLEMENTED."""
    server = grpc.server(ThreadPoolExecutor(8))
    server.add_generic_rpc_handlers((_Service(answer),))
    server.add_insecure_port(f"unix:{socket}")
    server.start()
    try:
        yield
    finally:
        server.stop(None).wait()


def write_file(directory: Path, socket: Path, stages: Sequence[str] = ("*",), policy: str = "Ignore") -> None:
    """The hook-server file ``double.json``; ``"*"`` among the stages is understood by Koord's proxy only."""
    directory.mkdir(exist_ok=True)
    entry = {"remote-endpoint": str(socket), "failure-policy": policy, "runtime-hooks": list(stages)}
    (directory / "double.json").write_text(json.dumps(entry))


class _Service(grpc.GenericRpcHandler):
    def __init__(self, answer: Answering) -> None:
        self._answer = answer

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[bytes, bytes] | None:
        path = handler_call_details.method
        if not path.startswith(SERVICE):
            return None
        stage = path.removeprefix(SERVICE).removesuffix("Hook")

        def handle(message: bytes, context: grpc.ServicerContext) -> bytes:
            reply = self._answer(Question(stage, message, tuple(context.invocation_metadata())))
            context.send_initial_metadata(reply.metadata)
            return reply.message

        return grpc.unary_unary_rpc_method_handler(handle)

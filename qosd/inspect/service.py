"""NodeInspect: one method per question, on koord.http2's server; the socket is the owner's alone (0600).

What reads kernel files or the journal runs in a thread, so that no hook call waits for koordctl. Invariant: an
answer's own failure costs that call; what the asker can put right is a status with a sentence.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TypeVar

from google.protobuf.message import DecodeError, Message

from koord.http2.grpc import INVALID_ARGUMENT, NOT_FOUND
from koord.http2.server import Method, Refusal, Reply, UnaryServer
from koord.pb.koord import inspect_pb2 as inspect
from qosd import serving
from qosd.inspect import convert, explain, metrics, node, pods, writes
from qosd.inspect.sources import Sources

SERVICE = "koord.node.v1.NodeInspect"
SOCKET_MODE = 0o600
Asked = TypeVar("Asked", bound=Message)


class Inspector:
    """Answers NodeInspect; ``now_ns`` is the wall clock."""

    def __init__(self, sources: Sources, now_ns: Callable[[], int] = time.time_ns) -> None:
        self._sources, self._now_ns = sources, now_ns

    def methods(self) -> dict[str, Method]:
        """The service's methods by path."""
        table: dict[str, Method] = {
            "GetNode": _method(inspect.GetNodeRequest, self.get_node),
            "ListPods": _method(inspect.ListPodsRequest, self.list_pods),
            "Explain": _method(inspect.ExplainRequest, self.explain),
            "Plan": _method(inspect.PlanRequest, self.plan),
            "Journal": _method(inspect.JournalRequest, self.journal),
            "Metrics": _method(inspect.MetricsRequest, self.metrics),
            "SetStrategies": _method(inspect.SetStrategiesRequest, self.set_strategies),
        }
        return {f"/{SERVICE}/{name}": method for name, method in table.items()}

    async def get_node(self, request: inspect.GetNodeRequest) -> inspect.GetNodeResponse:
        return await asyncio.to_thread(node.answer, self._sources)

    async def list_pods(self, request: inspect.ListPodsRequest) -> inspect.ListPodsResponse:
        return await asyncio.to_thread(pods.answer, self._sources, request)

    async def explain(self, request: inspect.ExplainRequest) -> inspect.ExplainResponse:
        return await asyncio.to_thread(explain.answer, self._sources, request, self._now_ns())

    async def plan(self, request: inspect.PlanRequest) -> inspect.PlanResponse:
        return await writes.plan(self._sources)

    async def journal(self, request: inspect.JournalRequest) -> inspect.JournalResponse:
        return await asyncio.to_thread(writes.journal, self._sources, request)

    async def metrics(self, request: inspect.MetricsRequest) -> inspect.MetricsResponse:
        return await asyncio.to_thread(metrics.answer, self._sources, request)

    async def set_strategies(self, request: inspect.SetStrategiesRequest) -> inspect.SetStrategiesResponse:
        known = [strategy.name for strategy in self._sources.strategies]
        unknown = [name for name in request.names if name not in known]
        if unknown:
            raise Refusal(NOT_FOUND, f"there is no strategy {unknown[0]!r}; there are {', '.join(known)}")
        await self._sources.switch(request.enabled, tuple(request.names) or tuple(known))
        return inspect.SetStrategiesResponse(strategies=convert.strategies(self._sources.decisions()))


def _method(asked: type[Asked], handler: Callable[[Asked], Awaitable[Message]]) -> Method:
    async def answer(message: bytes, fields: Mapping[bytes, bytes]) -> Reply:
        try:
            request = asked.FromString(message)
        except DecodeError as error:
            raise Refusal(INVALID_ARGUMENT, f"the request is no {asked.DESCRIPTOR.name}: {error}") from error
        return Reply((await handler(request)).SerializeToString())

    return answer


def listening(path: Path, inspector: Inspector) -> AbstractAsyncContextManager[None]:
    """Serve on a unix socket of mode 0600. Raises SocketTaken or OSError."""
    return serving.listening(path, SOCKET_MODE, UnaryServer(inspector.methods()))

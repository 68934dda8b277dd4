"""NodeInspect: one method per question, on koord.http2's server; the socket is the owner's alone (0600).

An answer is made of the newest tick's report, of what the daemon says of itself, and of kernel files and the journal,
which are read in a thread, so that no hook call waits for koordctl. Invariants: nothing is kept between calls; an
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
from qosd.inspect import convert, daemon, explain, metrics, pods, writes
from qosd.inspect import node as nodes
from qosd.node import Node
from qosd.report import TickReport
from qosd.strategies import speakers

SERVICE = "koord.node.v1.NodeInspect"
SOCKET_MODE = 0o600
Asked = TypeVar("Asked", bound=Message)


class Inspector:
    """Answers NodeInspect about ``node``. ``wall`` and ``monotonic`` are clocks in nanoseconds."""

    def __init__(
        self,
        node: Node,
        wall: Callable[[], int] = time.time_ns,
        monotonic: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._node, self._wall, self._monotonic, self._began_ns = node, wall, monotonic, monotonic()

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

    @property
    def _report(self) -> TickReport:
        return self._node.loop.report

    async def get_node(self, request: inspect.GetNodeRequest) -> inspect.GetNodeResponse:
        node = self._node
        answer = inspect.GetNodeResponse(
            loops=daemon.loops(node, self._monotonic()),
            front_ends=daemon.front_ends(node),
            warnings=daemon.warnings(node),
            policy=daemon.policy(node, self._wall()),
        )
        report, tree, dropped = self._report, node.locator.tree, node.journal.dropped
        uptime_s = (self._monotonic() - self._began_ns) / 1e9
        tiers, rules = node.locator.tiers.values(), node.rules.current

        def read() -> None:
            nodes.add_report(answer, report, tree)
            answer.features.extend(daemon.features(tree, tiers, rules))
            answer.daemon.CopyFrom(daemon.process(node.options, uptime_s, dropped))

        await asyncio.to_thread(read)
        return answer

    async def list_pods(self, request: inspect.ListPodsRequest) -> inspect.ListPodsResponse:
        node = self._node
        return await asyncio.to_thread(pods.answer, self._report, request, node.writer, daemon.warnings(node))

    async def explain(self, request: inspect.ExplainRequest) -> inspect.ExplainResponse:
        node = self._node
        head = inspect.ExplainResponse(
            inputs=daemon.loops(node, self._monotonic()),
            warnings=daemon.warnings(node),
            policy=daemon.policy(node, self._wall()),
        )
        return await asyncio.to_thread(
            explain.answer, self._report, request, head, node.writer, node.journal, self._wall()
        )

    async def plan(self, request: inspect.PlanRequest) -> inspect.PlanResponse:
        return writes.plan(await self._node.plan(), daemon.policy(self._node, self._wall()))

    async def journal(self, request: inspect.JournalRequest) -> inspect.JournalResponse:
        return await asyncio.to_thread(writes.journal, self._node.journal, request)

    async def metrics(self, request: inspect.MetricsRequest) -> inspect.MetricsResponse:
        return await asyncio.to_thread(metrics.answer, self._report.snapshot, self._node.sense.store, request)

    async def set_strategies(self, request: inspect.SetStrategiesRequest) -> inspect.SetStrategiesResponse:
        known = [strategy.name for strategy in speakers()]
        unknown = [name for name in request.names if name not in known]
        if unknown:
            raise Refusal(NOT_FOUND, f"there is no strategy {unknown[0]!r}; there are {', '.join(known)}")
        await self._node.switch(request.enabled, request.names or known)
        return inspect.SetStrategiesResponse(strategies=convert.strategies(self._report.decisions))


def _method(request_type: type[Asked], handler: Callable[[Asked], Awaitable[Message]]) -> Method:
    async def answer(message: bytes, fields: Mapping[bytes, bytes]) -> Reply:
        try:
            request = request_type.FromString(message)
        except DecodeError as error:
            raise Refusal(INVALID_ARGUMENT, f"the request is no {request_type.DESCRIPTOR.name}: {error}") from error
        return Reply((await handler(request)).SerializeToString())

    return answer


def listening(path: Path, inspector: Inspector) -> AbstractAsyncContextManager[None]:
    """Serve on a unix socket of mode 0600. Raises SocketTaken or OSError."""
    return serving.listening(path, SOCKET_MODE, UnaryServer(inspector.methods()))

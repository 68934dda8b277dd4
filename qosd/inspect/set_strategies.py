"""SetStrategies: strategies off and on, until the daemon ends."""

from __future__ import annotations

from koord.http2.grpc import NOT_FOUND
from koord.http2.server import Refusal
from koord.pb.koord import inspect_pb2 as inspect
from qosd.inspect import convert
from qosd.inspect.inspector import Inspector
from qosd.strategies import speakers


async def answer(inspector: Inspector, request: inspect.SetStrategiesRequest) -> inspect.SetStrategiesResponse:
    known = [strategy.name for strategy in speakers()]
    unknown = [name for name in request.names if name not in known]
    if unknown:
        raise Refusal(NOT_FOUND, f"there is no strategy {unknown[0]!r}; there are {', '.join(known)}")
    await inspector.node.switch(request.enabled, request.names or known)
    return inspect.SetStrategiesResponse(strategies=convert.strategies(inspector.report.decisions))

"""Runtime events from a streaming server: followed where they are broadcast, left alone where they are not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import grpc.aio
import pytest

from koord.pb.cri import api_pb2 as cri
from qosd.pods import events
from qosd.pods.cri import CRIClient
from qosd.pods.events import RuntimeEvents
from tests.support.waiting import until


class _Streaming(grpc.GenericRpcHandler):
    """Version, and GetContainerEvents as ``ending`` says: "open", "closed" (ends at once) or "unimplemented"."""

    def __init__(self, name: str, version: str, ending: str) -> None:
        self.name, self.version, self.ending = name, version, ending
        self.subscriptions = 0
        self.queue: asyncio.Queue[str] = asyncio.Queue()

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[bytes, bytes] | None:
        if details.method.endswith("/Version"):
            return grpc.unary_unary_rpc_method_handler(self._version)
        return grpc.unary_stream_rpc_method_handler(self._events)

    async def _version(self, request: bytes, context: grpc.aio.ServicerContext[bytes, bytes]) -> bytes:
        answer = cri.VersionResponse(runtime_name=self.name, runtime_version=self.version)
        return answer.SerializeToString()

    async def _events(self, request: bytes, context: grpc.aio.ServicerContext[bytes, bytes]) -> AsyncIterator[bytes]:
        self.subscriptions += 1
        if self.ending == "unimplemented":
            await context.abort(grpc.StatusCode.UNIMPLEMENTED, "unknown method GetContainerEvents")
        while self.ending == "open":
            yield cri.ContainerEventResponse(container_id=await self.queue.get()).SerializeToString()


@asynccontextmanager
async def listening(path: Path, service: _Streaming) -> AsyncIterator[tuple[RuntimeEvents, list[str]]]:
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((service,))
    server.add_insecure_port(f"unix:{path}")
    await server.start()
    runtime = CRIClient(f"unix://{path}", 2.0, asyncio.get_running_loop())
    heard: list[str] = []
    reader = RuntimeEvents(runtime, heard.append)
    task = asyncio.create_task(reader.run())
    try:
        yield reader, heard
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        runtime.close()
        await server.stop(None)


@pytest.mark.parametrize(
    ("name", "version", "ending", "subscriptions", "says"),
    [
        ("containerd", "1.7.29", "open", 0, "one reader only"),
        ("containerd", "1.6.20", "unimplemented", 1, "has no events"),
        ("cri-o", "1.34.0", "closed", 1, "turned off"),
        ("docker", "28.0", "open", 0, "one reader only"),
    ],
)
async def test_runtimes_without_events_for_us_are_said_once(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    name: str,
    version: str,
    ending: str,
    subscriptions: int,
    says: str,
) -> None:
    caplog.set_level("INFO", events.log.name)
    service = _Streaming(name, version, ending)
    async with listening(tmp_path / "s", service) as (reader, heard):
        await until(lambda: caplog.messages)
        await asyncio.sleep(0.1)
        assert service.subscriptions == subscriptions
        assert (reader.heard, heard) == (False, [])
        assert len(caplog.messages) == 1 and says in caplog.messages[0]


async def test_events_are_heard_and_an_opened_stream_means_look_at_everything(tmp_path: Path) -> None:
    service = _Streaming("containerd", "v2.3.7", "open")
    async with listening(tmp_path / "s", service) as (reader, heard):
        await service.queue.put("first")
        await until(lambda: heard == ["first"])
        assert reader.heard
        await until(lambda: heard == ["first", ""])
        await service.queue.put("second")
        await until(lambda: heard == ["first", "", "second"])
        assert service.subscriptions == 1

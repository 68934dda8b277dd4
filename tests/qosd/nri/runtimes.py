"""The runtime's end of an NRI socket, written from the protocol's description and not with Koord's framing.

``GoReader`` is the buffered reader of the Go side with its limits; ``Runtime`` accepts plugins on a unix socket, as
containerd does, and calls them.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

from google.protobuf.message import Message

from koord.pb.nri import api_pb2 as nri
from koord.pb.nri import ttrpc_pb2 as pb

PLUGIN, RUNTIME = "nri.pkg.api.v1alpha1.Plugin", "nri.pkg.api.v1alpha1.Runtime"
BUFFER_BYTES, QUEUED_FRAMES = 4096, 256
Answer = TypeVar("Answer", bound=Message)


class OutOfMemory(Exception):
    """What Go's end says when a frame does not fit the buffer that one read offers."""


def frames_of(data: bytes) -> list[tuple[int, bytes]]:
    """(connection id, payload) of every frame."""
    found = []
    while data:
        connection, length = struct.unpack(">II", data[:8])
        found.append((connection, data[8 : 8 + length]))
        data = data[8 + length :]
    return found


class GoReader:
    """bufio.Reader over a multiplexed connection: each read takes one whole frame, which must fit what is offered."""

    def __init__(self, frames: Iterable[bytes]) -> None:
        self._frames = iter(frames)
        self._buffer = b""

    def read_full(self, size: int) -> bytes:
        taken = b""
        while len(taken) < size:
            missing = size - len(taken)
            if not self._buffer:
                frame = next(self._frames)
                if len(frame) > max(missing if missing >= BUFFER_BYTES else 0, BUFFER_BYTES):
                    raise OutOfMemory(f"{len(frame)} bytes at once")
                self._buffer = frame
            taken += self._buffer[:missing]
            self._buffer = self._buffer[missing:]
        return taken

    def message(self) -> tuple[int, int, bytes]:
        """(stream id, type, payload)."""
        length, stream, kind, _ = struct.unpack(">IIBB", self.read_full(10))
        return stream, kind, self.read_full(length)


def packed(connection: int, stream: int, kind: int, payload: bytes, flags: int = 0) -> bytes:
    """One ttrpc message in frames as the Go side makes them: its first 4096 bytes, then the rest at once."""
    message = struct.pack(">IIBB", len(payload), stream, kind, flags) + payload
    pieces = [message[:BUFFER_BYTES], message[BUFFER_BYTES:]]
    return b"".join(struct.pack(">II", connection, len(piece)) + piece for piece in pieces if piece)


class Attached:
    """One accepted plugin."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._stream = 1
        self._answers: dict[int, asyncio.Future[pb.Response]] = {}
        self._streams = {1: b"", 2: b""}
        self.registered: asyncio.Future[nri.RegisterPluginRequest] = asyncio.get_running_loop().create_future()
        self.gone = asyncio.Event()
        self._task = asyncio.create_task(self._read())

    async def call(self, method: str, request: Message, answer: type[Answer], service: str = PLUGIN) -> Answer:
        response = await self.response(method, request, service)
        assert response.status.code == 0, response.status
        return answer.FromString(response.payload)

    async def response(self, method: str, request: Message, service: str = PLUGIN) -> pb.Response:
        envelope = pb.Request(service=service, method=method, payload=request.SerializeToString())
        stream, self._stream = self._stream, self._stream + 2
        self._answers[stream] = asyncio.get_running_loop().create_future()
        self.send(packed(1, stream, 1, envelope.SerializeToString(), flags=1))
        return await asyncio.wait_for(self._answers[stream], 5)

    def send(self, data: bytes) -> None:
        self._writer.write(data)

    def close(self) -> None:
        self._writer.close()

    async def configured(self, version: str = "v0.12.0", synchronize: bool = True) -> nri.ConfigureResponse:
        """What containerd does with a plugin that comes."""
        await asyncio.wait_for(self.registered, 5)
        configure = nri.ConfigureRequest(
            runtime_name="containerd", runtime_version="v2", request_timeout=2000, NRI_version=version
        )
        answer = await self.call("Configure", configure, nri.ConfigureResponse)
        if synchronize:
            await self.call("Synchronize", nri.SynchronizeRequest(), nri.SynchronizeResponse)
        return answer

    async def _read(self) -> None:
        try:
            while True:
                connection, length = struct.unpack(">II", await self._reader.readexactly(8))
                payload = await self._reader.readexactly(length)
                assert len(payload) <= BUFFER_BYTES
                self._streams[connection] += payload
                self._cut(connection)
        except (asyncio.IncompleteReadError, ConnectionError):
            self.gone.set()

    def _cut(self, connection: int) -> None:
        while len(self._streams[connection]) >= 10:
            length, stream, kind, _ = struct.unpack(">IIBB", self._streams[connection][:10])
            message = self._streams[connection][10 : 10 + length]
            if len(message) < length:
                return
            self._streams[connection] = self._streams[connection][10 + length :]
            self._got(connection, stream, kind, message)

    def _got(self, connection: int, stream: int, kind: int, message: bytes) -> None:
        if connection == 1:
            assert kind == 2
            self._answers.pop(stream).set_result(pb.Response.FromString(message))
            return
        request = pb.Request.FromString(message)
        assert (kind, request.service, request.method) == (1, RUNTIME, "RegisterPlugin")
        self.registered.set_result(nri.RegisterPluginRequest.FromString(request.payload))
        self.send(packed(2, stream, 2, pb.Response(payload=nri.Empty().SerializeToString()).SerializeToString()))


class Runtime:
    """A listening NRI socket; ``plugin()`` is the next one that connects."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._plugins: asyncio.Queue[Attached] = asyncio.Queue()
        self._accepted: list[Attached] = []
        self._server: Any = None

    async def plugin(self) -> Attached:
        return await asyncio.wait_for(self._plugins.get(), 5)

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[Runtime]:
        """As containerd: an old socket file is removed, and the file goes with the listener."""
        self.path.unlink(missing_ok=True)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._server = await asyncio.start_unix_server(self._accept, self.path)
        try:
            yield self
        finally:
            self._server.close()
            for each in self._accepted:
                each.close()
            self.path.unlink(missing_ok=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        plugin = Attached(reader, writer)
        self._accepted.append(plugin)
        self._plugins.put_nowait(plugin)

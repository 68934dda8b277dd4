"""The honest runtime behind a proxy under attack.

It answers with a digest of what it received, so that a client can tell whether its request arrived whole, and whether
it was edited on its way.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import multiprocessing
from collections.abc import AsyncIterator
from pathlib import Path
from typing import cast

import hpack
import uvloop
from google.protobuf.message import DecodeError

from integration.fuzz.attacks import BIG, GONE, SERVICE
from integration.harness.processes import wait_for
from koord.pb.cri import api_pb2 as pb
from tests.runtimeproxy.relay import raw
from tests.runtimeproxy.relay.ledger import PREFACE, FrameCutter

BIG_ANSWER = bytes(4 << 20)
STATUS_OK = b"\0\x0bgrpc-status\x010"
PRIORITY_FLAG = 0x20
ENDING = raw.END_HEADERS | raw.END_STREAM
EDITED = ("fuzz.koordinator.sh/edited", "yes")  # the annotation by which the hook servers mark a container
EDITED_MARK = "-edited"
GONE_AFTER_S = 0.3
STARTS_S = 20.0
MOST_HEADERS_BYTES = 4 << 20
MOST_UNFINISHED_BYTES = 96 << 20


def digest(request: pb.CreateContainerRequest) -> str:
    """The digest of the parts that no hook may change."""
    kept = (request.pod_sandbox_id, request.config.metadata.name, request.config.image.image, *request.config.command)
    return hashlib.sha256(repr(kept).encode()).hexdigest()


def answer(path: str, body: bytes) -> bytes:
    """The message that answers ``body``, which is a gRPC body; raises ``DecodeError``."""
    message = body[5:]
    if path in (BIG, GONE):
        return BIG_ANSWER
    if path == f"{SERVICE}CreateContainer":
        request = pb.CreateContainerRequest.FromString(message)
        mark = EDITED_MARK if request.config.annotations.get(EDITED[0]) == EDITED[1] else ""
        return pb.CreateContainerResponse(container_id=digest(request) + mark).SerializeToString()
    if path == f"{SERVICE}RunPodSandbox":
        return pb.RunPodSandboxResponse(pod_sandbox_id=hashlib.sha256(message).hexdigest()).SerializeToString()
    if path == f"{SERVICE}Version":
        return pb.VersionResponse(version="0.1.0", runtime_name="fuzz").SerializeToString()
    return b""


class Runtime(asyncio.Protocol):
    """One connection of a runtime that answers every call, and hangs up on a client that breaks the rules.

    grpcio will not do here: under thousands of resets its server cancels calls on other connections too.
    """

    def __init__(self) -> None:
        self._cutter = FrameCutter(preface=True)
        self._decoder = hpack.Decoder(max_header_list_size=MOST_HEADERS_BYTES)
        self._requests: dict[int, tuple[str, bytearray]] = {}
        self._unfinished_bytes = 0
        self._answers: dict[int, memoryview] = {}  # DATA still to be sent
        self._windows: dict[int, int] = {}
        self._connection_window = self._initial_window = 65_535
        self._block: tuple[int, int, bytes] | None = None
        self._transport: asyncio.Transport | None = None
        self._blocked = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport = cast(asyncio.Transport, transport)
        transport.write(raw.frame(raw.SETTINGS))

    def abort(self) -> None:
        """End the connection at once."""
        if self._transport is not None:
            self._transport.abort()

    def pause_writing(self) -> None:
        assert self._transport is not None
        self._blocked = True
        self._transport.pause_reading()

    def resume_writing(self) -> None:
        assert self._transport is not None
        self._blocked = False
        self._transport.resume_reading()
        self._pump()

    def data_received(self, data: bytes) -> None:
        assert self._transport is not None
        try:
            for whole in self._cutter.feed(data):
                if whole != PREFACE:
                    self._frame(whole[3], whole[4], int.from_bytes(whole[5:9], "big"), whole[9:])
        except (ValueError, IndexError, hpack.HPACKError, DecodeError):
            self._transport.abort()
        self._pump()

    def _frame(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        assert self._transport is not None
        match kind:
            case raw.HEADERS | raw.CONTINUATION:
                self._headers(kind, flags, stream, payload)
            case raw.DATA:
                self._data(flags, stream, payload)
            case raw.WINDOW_UPDATE:
                self._credited(stream, int.from_bytes(payload, "big"))
            case raw.SETTINGS if not flags & raw.ACK:
                for place in range(0, len(payload), 6):
                    if payload[place : place + 2] == b"\0\4":
                        self._initial_window = int.from_bytes(payload[place + 2 : place + 6], "big")
                self._transport.write(raw.frame(raw.SETTINGS, raw.ACK))
            case raw.PING if not flags & raw.ACK:
                self._transport.write(raw.frame(raw.PING, raw.ACK, 0, payload))
            case raw.RST_STREAM:
                _, body = self._requests.pop(stream, ("", b""))
                self._unfinished_bytes -= len(body)
                self._answers.pop(stream, None)

    def _headers(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        if kind == raw.HEADERS:
            payload = _unpadded(flags, payload)[5 if flags & PRIORITY_FLAG else 0 :]
            self._block = (flags, stream, b"")
        if self._block is None or self._block[1] != stream:
            raise ValueError("CONTINUATION without HEADERS")
        first_flags, _, block = self._block
        self._block = (first_flags, stream, block + payload)
        if flags & raw.END_HEADERS:
            fields = dict(self._decoder.decode(block + payload, raw=True))
            self._block = None
            self._requests.setdefault(stream, (fields.get(b":path", b"").decode("latin-1"), bytearray()))
            if first_flags & raw.END_STREAM:
                self._answer(stream)

    def _data(self, flags: int, stream: int, payload: bytes) -> None:
        assert self._transport is not None
        if payload:
            self._transport.write(raw.window_update(0, len(payload)) + raw.window_update(stream, len(payload)))
        if stream in self._requests:
            payload = _unpadded(flags, payload)
            self._requests[stream][1].extend(payload)
            self._unfinished_bytes += len(payload)
            if self._unfinished_bytes > MOST_UNFINISHED_BYTES:
                raise ValueError("requests without end")
            if flags & raw.END_STREAM:
                self._answer(stream)

    def _answer(self, stream: int) -> None:
        assert self._transport is not None
        path, body = self._requests.pop(stream)
        self._unfinished_bytes -= len(body)
        if path == GONE:
            asyncio.get_running_loop().call_later(GONE_AFTER_S, self._transport.abort)
        message = answer(path, bytes(body))
        self._windows.setdefault(stream, self._initial_window)
        self._answers[stream] = memoryview(message)
        prefix = b"\0" + len(message).to_bytes(4, "big")
        self._transport.write(raw.frame(raw.HEADERS, raw.END_HEADERS, stream, raw.ANSWER_BLOCK))
        self._transport.write(raw.frame(raw.DATA, 0, stream, prefix))
        self._windows[stream] -= len(prefix)
        self._connection_window -= len(prefix)

    def _credited(self, stream: int, size: int) -> None:
        if stream:
            self._windows[stream] = self._windows.get(stream, self._initial_window) + size
        else:
            self._connection_window += size

    def _pump(self) -> None:
        """Send as much as the windows and the transport take."""
        assert self._transport is not None
        for stream in list(self._answers):
            while self._sends(stream):
                size = min(len(self._answers[stream]), 16_384, self._connection_window, self._windows[stream])
                self._transport.write(raw.frame(raw.DATA, 0, stream, bytes(self._answers[stream][:size])))
                self._connection_window -= size
                self._windows[stream] -= size
                self._answers[stream] = self._answers[stream][size:]
            if not self._answers[stream]:
                self._transport.write(raw.frame(raw.HEADERS, ENDING, stream, STATUS_OK))
                del self._answers[stream]

    def _sends(self, stream: int) -> bool:
        assert self._transport is not None
        may = not self._blocked and not self._transport.is_closing()
        return may and bool(self._answers[stream]) and self._connection_window > 0 and self._windows[stream] > 0


def _unpadded(flags: int, payload: bytes) -> bytes:
    """Raises ``ValueError`` where the padding is longer than the frame."""
    if not flags & raw.PADDED:
        return payload
    if not payload or payload[0] >= len(payload):
        raise ValueError("padding longer than its frame")
    return payload[1 : len(payload) - payload[0]]


@contextlib.asynccontextmanager
async def runtime(path: Path) -> AsyncIterator[None]:
    """The runtime on ``path`` for the time of the block, in a process of its own: it is not what is measured."""
    process = multiprocessing.get_context("spawn").Process(target=_serve, args=(path,), daemon=True)
    process.start()
    try:
        await asyncio.to_thread(wait_for, path.exists, STARTS_S, "the runtime")
        yield
    finally:
        process.terminate()
        await asyncio.to_thread(process.join)


def _serve(path: Path) -> None:
    async def serve() -> None:
        await asyncio.get_running_loop().create_unix_server(Runtime, str(path))
        await asyncio.Event().wait()

    uvloop.run(serve())

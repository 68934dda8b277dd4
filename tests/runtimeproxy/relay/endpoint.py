"""Strict HTTP/2 ends for relay tests, on ``h2``, which checks HPACK, stream states and flow control of its peer.

A relay that bends a rule makes the peer behind it raise; ``Endpoint.fault`` keeps what it said and every wait on
that connection fails with it. Each end can be told to misbehave in time, never in form: credit late, stop reading,
stop before a chosen frame, change SETTINGS in mid-stream, pad. GOAWAY is taken out of the stream before ``h2``
sees it, because ``h2`` knows no graceful one.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import cast

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import (
    DataReceived,
    Event,
    RemoteSettingsChanged,
    RequestReceived,
    ResponseReceived,
    StreamEnded,
    StreamReset,
    TrailersReceived,
)
from h2.exceptions import ProtocolError, StreamClosedError
from h2.settings import SettingCodes, Settings
from hpack import Encoder
from hyperframe.frame import GoAwayFrame

from tests.runtimeproxy.relay.ledger import FRAME_HEADER_BYTES, End, FrameCutter, LedgerError, Link

DATA, HEADERS, RST_STREAM, SETTINGS, GOAWAY = 0, 1, 3, 4, 7
ACK = 1
Header = tuple[bytes, bytes]
Park = Callable[[int, int, int], bool]  # (frame type, flags, stream id) -> stop reading before this frame


class PeerGone(ConnectionError):
    """The connection ended, or broke a rule, while somebody waited on it."""


@dataclass(frozen=True, slots=True)
class Tuning:
    """How an end announces itself and when it credits what it received; sizes in bytes.

    ``credit_batch``: credit windows when so much is owed; None = only when the test says so.
    """

    initial_window: int = 65_535
    connection_window: int = 65_535
    largest_frame: int = 16_384
    header_table: int = 4_096
    streams: int = 20_000
    credit_batch: int | None = 1


@dataclass(slots=True)
class Stream:
    """One stream as its reader sees it."""

    endpoint: Endpoint
    id: int
    headers: list[Header] = field(default_factory=list)
    data: bytearray = field(default_factory=bytearray)
    trailers: list[Header] = field(default_factory=list)
    uncredited: int = 0
    ended: bool = False
    reset: int | None = None

    def header(self, name: bytes) -> bytes | None:
        """The last value of ``name`` among headers and trailers."""
        return dict([*self.headers, *self.trailers]).get(name)

    @property
    def grpc_status(self) -> int | None:
        status = self.header(b"grpc-status")
        return None if status is None else int(status)

    @property
    def messages(self) -> list[bytes]:
        """The gRPC messages received so far, without their 5-byte prefix."""
        return split_messages(bytes(self.data))

    async def until(self, ready: Callable[[Stream], bool]) -> Stream:
        """Wait for a condition on this stream."""
        await self.endpoint.until(lambda: ready(self))
        return self

    async def finished(self) -> Stream:
        """Wait for END_STREAM or RST_STREAM of the peer."""
        return await self.until(lambda s: s.ended or s.reset is not None)


class Endpoint(asyncio.Protocol):
    """One end of a connection: ``h2`` for the rules, streams by id for the test."""

    def __init__(
        self,
        end: End,
        tuning: Tuning,
        link: Link | None = None,
        on_stream: Callable[[Stream], Awaitable[None]] | None = None,
    ) -> None:
        self.end = end
        self.streams: dict[int, Stream] = {}
        self.goaways: list[tuple[int, int]] = []  # (last stream id, error code)
        self.fault: Exception | None = None
        self.greeted = False  # the peer's SETTINGS have come
        self.closed = False
        self.park: Park | None = None
        self.h2 = _h2_connection(end, tuning)
        self._tuning, self._link, self._on_stream = tuning, link, on_stream
        self._cutter = FrameCutter(preface=end is End.RUNTIME)
        self._parked: list[bytes] = []
        self._owed = 0
        self._batch = tuning.credit_batch
        self._waiters: list[asyncio.Future[None]] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._transport: asyncio.Transport | None = None

    # --- asyncio.Protocol -------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport = cast(asyncio.Transport, transport)
        self.h2.initiate_connection()
        if (extra := self._tuning.connection_window - 65_535) > 0:
            self.h2.increment_flow_control_window(extra)
        self.flush()

    def data_received(self, data: bytes) -> None:
        self._parked += self._cutter.feed(data)
        self._read()

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True
        self._wake()

    # --- what a test does ---------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Write what ``h2`` has prepared."""
        self.raw(self.h2.data_to_send())

    def raw(self, data: bytes) -> None:
        """Write bytes past ``h2``; the ledger still sees them."""
        if data and self._transport is not None and not self._transport.is_closing():
            if self._link is not None:
                self._link.feed(self.end, data)
            self._transport.write(data)

    def stop_reading(self) -> None:
        assert self._transport is not None
        self._transport.pause_reading()

    @property
    def parked(self) -> bool:
        """Whether a frame lies unread because of ``park``."""
        return bool(self._parked)

    def read_one(self) -> None:
        """Read the one frame that ``park`` stopped at."""
        frame, self._parked = self._parked[:1], self._parked[1:]
        rest, self._parked = self._parked, frame
        park, self.park = self.park, None
        self._read()
        self.park, self._parked = park, rest

    def read_again(self) -> None:
        """Undo ``stop_reading`` and ``park``."""
        assert self._transport is not None
        self.park = None
        self._transport.resume_reading()
        self._read()

    def goaway(self, last_stream_id: int, error_code: int = 0) -> None:
        """Announce the end of the connection, gracefully."""
        self.raw(GoAwayFrame(last_stream_id=last_stream_id, error_code=error_code).serialize())

    def reset(self, stream_id: int, code: ErrorCodes = ErrorCodes.CANCEL) -> None:
        self.h2.reset_stream(stream_id, code)
        self.flush()

    def change(self, **values: int) -> None:
        """Send SETTINGS, by the names of ``SettingCodes`` in lower case."""
        self.h2.update_settings({SettingCodes[name.upper()]: value for name, value in values.items()})
        self.flush()

    def credit(self, stream: Stream, size: int) -> None:
        """Give back ``size`` bytes of connection and stream window."""
        stream.uncredited -= size
        self._owed -= size
        self.h2.increment_flow_control_window(size)
        if not (stream.ended or stream.reset is not None):
            self.h2.increment_flow_control_window(size, stream.id)
        self.flush()

    def credit_all(self) -> None:
        """Give back all that is owed, and from now on everything at once."""
        self._batch = 1
        if self._owed:
            self.h2.increment_flow_control_window(self._owed)
        for stream in self.streams.values():
            if stream.uncredited and not stream.ended and stream.reset is None:
                self.h2.increment_flow_control_window(stream.uncredited, stream.id)
            stream.uncredited = 0
        self._owed = 0
        self.flush()

    async def send(
        self, stream_id: int, data: bytes, *, end: bool = True, pad: int | None = None, chunk: int = 1 << 20
    ) -> None:
        """Send DATA as the windows allow, in frames of at most ``chunk`` bytes, each padded by ``pad``."""
        overhead = 0 if pad is None else pad + 1
        position, last = 0, False
        while not last:
            if data:
                await self.until(lambda: self._is_reset(stream_id) or self._room(stream_id) > overhead)
            size = min(len(data) - position, chunk, max(0, self._room(stream_id) - overhead))
            last = position + size == len(data)
            piece = data[position : position + size]
            self.h2.send_data(stream_id, piece, end_stream=end and last, pad_length=pad)
            self.flush()
            position += size

    def send_headers(self, stream_id: int, headers: Iterable[Header], *, end: bool = False) -> None:
        self.h2.send_headers(stream_id, list(headers), end_stream=end)
        self.flush()

    async def until(self, ready: Callable[[], bool]) -> None:
        """Wait until ``ready``; raises ``PeerGone`` when it cannot come true any more."""
        while not ready():
            if self.fault is not None or self.closed:
                raise PeerGone(f"{self.end.value} end: {self.fault or 'connection closed'}") from self.fault
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            await waiter

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._transport is not None:
            self._transport.abort()
        with contextlib.suppress(PeerGone):
            await self.until(lambda: self.closed)

    # --- reading ------------------------------------------------------------------------------------------------

    def _is_reset(self, stream_id: int) -> bool:
        stream = self.streams.get(stream_id)
        return stream is not None and stream.reset is not None

    def _room(self, stream_id: int) -> int:
        return min(self.h2.local_flow_control_window(stream_id), self.h2.max_outbound_frame_size)

    def _read(self) -> None:
        while self._parked and self.fault is None:
            frame = self._parked[0]
            kind, flags, stream_id = frame[3], frame[4], int.from_bytes(frame[5:9], "big")
            if self.park is not None and self.park(kind, flags, stream_id):
                break
            del self._parked[0]
            if not self._observed(frame):
                break
            if kind == GOAWAY and not frame.startswith(b"PRI"):
                body = frame[FRAME_HEADER_BYTES:]
                self.goaways.append((int.from_bytes(body[:4], "big"), int.from_bytes(body[4:8], "big")))
            else:
                self._to_h2(frame)
        self._wake()

    def _observed(self, frame: bytes) -> bool:
        try:
            if self._link is not None:
                self._link.feed(self.end.other, frame)
        except LedgerError as error:
            self._fail(error)
        return self.fault is None

    def _fail(self, error: Exception) -> None:
        self.fault = error
        self.flush()
        assert self._transport is not None
        self._transport.close()

    def _to_h2(self, frame: bytes) -> None:
        try:
            events = self.h2.receive_data(frame)
        except ProtocolError as error:
            self._fail(error)
            return
        for event in events:
            self._take(event)
        self.flush()

    def _take(self, event: Event) -> None:
        match event:
            case RequestReceived(stream_id=int(stream_id)):
                stream = self.streams[stream_id] = Stream(self, stream_id, list(event.headers or ()))
                if self._on_stream is not None:
                    self._start(self._on_stream(stream))
            case ResponseReceived(stream_id=int(stream_id)):
                self.streams[stream_id].headers = list(event.headers or ())
            case TrailersReceived(stream_id=int(stream_id)):
                self.streams[stream_id].trailers = list(event.headers or ())
            case DataReceived(stream_id=int(stream_id)):
                self._data(self.streams[stream_id], event.data or b"", event.flow_controlled_length or 0)
            case RemoteSettingsChanged():
                self.greeted = True
            case StreamEnded(stream_id=int(stream_id)):
                self.streams[stream_id].ended = True
            case StreamReset(stream_id=int(stream_id)):
                self.streams[stream_id].reset = int(event.error_code or 0)
            case _:
                pass  # windows: h2 keeps them, and whoever waits is woken anyway

    def _data(self, stream: Stream, data: bytes, size: int) -> None:
        stream.data += data
        stream.uncredited += size
        self._owed += size
        batch = self._batch
        if batch is not None and self._owed >= batch:
            self.h2.increment_flow_control_window(self._owed)
            self._owed = 0
        if batch is not None and stream.uncredited >= batch:
            with contextlib.suppress(StreamClosedError):
                self.h2.increment_flow_control_window(stream.uncredited, stream.id)
            stream.uncredited = 0

    def _start(self, work: Awaitable[None]) -> None:
        async def run() -> None:
            with contextlib.suppress(PeerGone, StreamClosedError):
                await work

        task = asyncio.get_running_loop().create_task(run())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _wake(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)


class RfcEncoder(Encoder):
    """Of the changes of its table's size it says the smallest and the last (RFC 7541 §4.2); the library says all."""

    def _encode_table_size_change(self) -> bytes:
        changes = self.table_size_changes
        self.table_size_changes = list(dict.fromkeys((min(changes), changes[-1])))
        return super()._encode_table_size_change()


def _h2_connection(end: End, tuning: Tuning) -> H2Connection:
    config = H2Configuration(
        client_side=end is End.CLIENT,
        header_encoding=False,
        normalize_outbound_headers=False,
        normalize_inbound_headers=False,
    )
    connection = H2Connection(config)
    connection.encoder = RfcEncoder()
    values = {
        SettingCodes.INITIAL_WINDOW_SIZE: tuning.initial_window,
        SettingCodes.MAX_FRAME_SIZE: tuning.largest_frame,
        SettingCodes.HEADER_TABLE_SIZE: tuning.header_table,
        SettingCodes.MAX_CONCURRENT_STREAMS: tuning.streams,
    }
    connection.local_settings = Settings(client=end is End.CLIENT, initial_values=values)
    connection.max_inbound_frame_size = tuning.largest_frame
    connection.decoder.max_allowed_table_size = tuning.header_table
    return connection


def split_messages(data: bytes) -> list[bytes]:
    """Whole gRPC messages of a body; raises ``ValueError`` on a body that ends inside one."""
    messages = []
    while data:
        size = int.from_bytes(data[1:5], "big")
        if len(data) < 5 + size:
            raise ValueError(f"body ends {5 + size - len(data)} bytes inside a message of {size}")
        messages.append(data[5 : 5 + size])
        data = data[5 + size :]
    return messages

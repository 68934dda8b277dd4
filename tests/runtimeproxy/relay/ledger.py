"""A model of HTTP/2 flow control that watches a link from outside and objects.

Both ends of a proxied call keep windows of their own, and a proxy that edits messages keeps two more. A lost
credit shows only when a connection has stood for days; this model finds it after one call. It reads the bytes
that each end of a link writes, in the order in which one observer saw them, and keeps what each end *may* send.

Invariants, checked at every frame: no DATA beyond a window, no window above 2^31-1, no frame larger than its
reader allows, no frame inside a header block, nothing on a stream after its sender ended or reset it, no SETTINGS
acknowledged twice. A violation raises ``LedgerError``; ``settled`` compares the two links when all is quiet.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType

from hyperframe.exceptions import HyperframeError
from hyperframe.frame import (
    ContinuationFrame,
    DataFrame,
    Frame,
    HeadersFrame,
    RstStreamFrame,
    SettingsFrame,
    WindowUpdateFrame,
)

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
FRAME_HEADER_BYTES = 9
DEFAULT_WINDOW_BYTES = 65_535
DEFAULT_FRAME_BYTES = 16_384
LARGEST_WINDOW_BYTES = 2**31 - 1


class LedgerError(AssertionError):
    """A frame broke a rule of RFC 9113; the text names link, sender and frame."""


class End(Enum):
    """Who wrote the bytes, as seen on one link: the side of the CRI client, or that of the runtime."""

    CLIENT = "client"
    RUNTIME = "runtime"

    @property
    def other(self) -> End:
        return End.RUNTIME if self is End.CLIENT else End.CLIENT


class FrameCutter:
    """Cuts a byte stream into whole frames, whatever the sizes of the reads."""

    def __init__(self, *, preface: bool) -> None:
        self._rest = bytearray()
        self._preface = preface

    def feed(self, data: bytes) -> list[bytes]:
        """The frames completed by ``data``, header included; the client's preface is its own first item."""
        self._rest += data
        whole: list[bytes] = []
        begin = 0
        while (end := begin + self._size_at(begin)) <= len(self._rest):
            whole.append(bytes(self._rest[begin:end]))
            begin, self._preface = end, False
        del self._rest[:begin]
        return whole

    def _size_at(self, begin: int) -> int:
        """Bytes of the frame that starts at ``begin``, or of its header while that is incomplete."""
        if self._preface:
            return len(PREFACE)
        if len(self._rest) < begin + FRAME_HEADER_BYTES:
            return FRAME_HEADER_BYTES
        return FRAME_HEADER_BYTES + int.from_bytes(self._rest[begin : begin + 3], "big")


@dataclass(slots=True)
class _Proposal:
    """SETTINGS that a reader sent and its peer has not acknowledged."""

    window: int | None
    frame_bytes: int | None


@dataclass(slots=True)
class Sender:
    """What one end may send: windows in bytes, as granted by its reader so far.

    SETTINGS count from their ACK on: only then may their author rely on them, and only then must the sender have
    applied them.
    """

    connection: int = DEFAULT_WINDOW_BYTES
    sent_bytes: int = 0
    credited_bytes: int = 0
    opening: int = DEFAULT_WINDOW_BYTES  # the connection window before any DATA used it
    initial: int = DEFAULT_WINDOW_BYTES
    frame_bytes: int = DEFAULT_FRAME_BYTES
    streams: dict[int, int] = field(default_factory=dict)  # credit above (or below) the initial window
    ended: set[int] = field(default_factory=set)
    proposals: deque[_Proposal] = field(default_factory=deque)
    in_header_block: int = 0

    def stream(self, stream_id: int) -> int:
        return self.initial + self.streams.get(stream_id, 0)

    def spend(self, stream_id: int, size: int) -> str:
        """Take ``size`` bytes from both windows; the complaint if one does not have them."""
        if size > self.stream(stream_id):
            return f"DATA of {size} on stream {stream_id} exceeds its window of {self.stream(stream_id)}"
        if size > self.connection:
            return f"DATA of {size} exceeds the connection window of {self.connection}"
        self.connection -= size
        self.sent_bytes += size
        self.streams[stream_id] = self.streams.get(stream_id, 0) - size
        return ""

    def credit(self, stream_id: int, size: int) -> str:
        """Apply a WINDOW_UPDATE; the complaint if it overflows."""
        if stream_id:
            self.streams[stream_id] = self.streams.get(stream_id, 0) + size
            window = self.stream(stream_id)
        else:
            self.connection += size
            self.credited_bytes += size
            if not self.sent_bytes:
                self.opening = self.connection
            window = self.connection
        return f"window {window} of stream {stream_id} is over 2^31-1" if window > LARGEST_WINDOW_BYTES else ""

    def acknowledge(self) -> str:
        if not self.proposals:
            return "SETTINGS acknowledged that were never sent"
        proposal = self.proposals.popleft()
        self.initial = self.initial if proposal.window is None else proposal.window
        self.frame_bytes = self.frame_bytes if proposal.frame_bytes is None else proposal.frame_bytes
        return ""


class Link:
    """The ledger of one socket: feed it what each end wrote."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.senders = {end: Sender() for end in End}
        self.resets: set[int] = set()
        self.frames: list[tuple[End, str, int]] = []  # (writer, frame type, stream) of everything but DATA
        self._cutters = {end: FrameCutter(preface=end is End.CLIENT) for end in End}

    def feed(self, writer: End, data: bytes) -> None:
        """Account for bytes that ``writer`` wrote; raises ``LedgerError``."""
        for raw in self._cutters[writer].feed(data):
            if raw != PREFACE:
                self._frame(writer, raw)

    def open_streams(self) -> set[int]:
        """Streams that neither end reset and at least one has not ended."""
        seen = set(self.senders[End.CLIENT].streams) | set(self.senders[End.RUNTIME].streams)
        both = self.senders[End.CLIENT].ended & self.senders[End.RUNTIME].ended
        return seen - both - self.resets

    def _frame(self, writer: End, raw: bytes) -> None:
        frame, _ = Frame.parse_frame_header(memoryview(raw)[:FRAME_HEADER_BYTES])
        try:
            frame.parse_body(memoryview(raw)[FRAME_HEADER_BYTES:])
        except HyperframeError as error:
            raise LedgerError(f"{self.name}: {writer.value} sent {type(frame).__name__}: {error}") from error
        sender = self.senders[writer]
        complaint = self._shape(sender, frame, len(raw) - FRAME_HEADER_BYTES) or self._account(writer, frame)
        if complaint:
            raise LedgerError(f"{self.name}: {writer.value} sent {type(frame).__name__}: {complaint}")
        if not isinstance(frame, DataFrame):
            self.frames.append((writer, type(frame).__name__, frame.stream_id))

    def _shape(self, sender: Sender, frame: Frame, size: int) -> str:
        if size > sender.frame_bytes:
            return f"{size} bytes where {sender.frame_bytes} are allowed"
        inside = sender.in_header_block
        if bool(inside) != isinstance(frame, ContinuationFrame) or (inside and inside != frame.stream_id):
            return f"stream {frame.stream_id} while the header block of stream {inside} is open"
        if isinstance(frame, (HeadersFrame, ContinuationFrame)):
            sender.in_header_block = 0 if "END_HEADERS" in frame.flags else frame.stream_id
        late = frame.stream_id in sender.ended and isinstance(frame, (DataFrame, HeadersFrame))
        return f"stream {frame.stream_id} was already ended by its sender" if late else ""

    def _account(self, writer: End, frame: Frame) -> str:
        sender, reader = self.senders[writer], self.senders[writer.other]
        complaint = ""
        if isinstance(frame, DataFrame):
            complaint = sender.spend(frame.stream_id, frame.flow_controlled_length)
        elif isinstance(frame, HeadersFrame):
            sender.streams.setdefault(frame.stream_id, 0)
        elif isinstance(frame, WindowUpdateFrame):
            complaint = reader.credit(frame.stream_id, frame.window_increment)
        elif isinstance(frame, SettingsFrame):
            complaint = self._settings(sender, reader, frame)
        elif isinstance(frame, RstStreamFrame):
            self.resets.add(frame.stream_id)
        if isinstance(frame, RstStreamFrame) or "END_STREAM" in frame.flags:
            sender.ended.add(frame.stream_id)
        return complaint

    @staticmethod
    def _settings(sender: Sender, reader: Sender, frame: SettingsFrame) -> str:
        if "ACK" in frame.flags:
            return sender.acknowledge()
        window = frame.settings.get(SettingsFrame.INITIAL_WINDOW_SIZE)
        reader.proposals.append(_Proposal(window, frame.settings.get(SettingsFrame.MAX_FRAME_SIZE)))
        return ""


class Ledger:
    """Both links of one relayed connection, and what must hold between them when nothing moves."""

    def __init__(self) -> None:
        self.near = Link("client link")
        self.far = Link("runtime link")

    def settled(self, *, owed_bytes: int = 0, held: Mapping[int, int] = MappingProxyType({})) -> list[str]:
        """What is out of balance at quiescence; empty when every byte is accounted for.

        Towards the client the proxy grants its own connection window, of HTTP/2's initial size: what the client may
        send, and the ``owed_bytes`` that the proxy has not given back yet, are exactly that. The runtime's DATA
        passes through: the runtime may send exactly what the client granted, and streams that are open on both links
        agree in both directions. Only the client's window of a stream in ``held`` (stream → bytes owed) is the
        proxy's own, and is with those exactly what the runtime's SETTINGS say.
        """
        wrong = []
        granted = self.near.senders[End.CLIENT].connection
        if granted + owed_bytes != DEFAULT_WINDOW_BYTES:
            kind = "leaked" if granted + owed_bytes < DEFAULT_WINDOW_BYTES else "invented"
            wrong.append(f"client's window is {granted}, and {owed_bytes} are owed to it: credit {kind}")
        passed, source = self.near.senders[End.RUNTIME].connection, self.far.senders[End.RUNTIME].connection
        if source != passed:
            wrong.append(f"runtime may send {source} where its client granted {passed}")
        return wrong + self._held_apart(held) + self._streams_apart(held)

    def _held_apart(self, held: Mapping[int, int]) -> list[str]:
        sender = self.near.senders[End.CLIENT]
        return [
            f"stream {stream_id}: client's window is {sender.stream(stream_id)} of {sender.initial}, {owed} are owed"
            for stream_id, owed in held.items()
            if stream_id not in sender.ended and sender.stream(stream_id) + owed != sender.initial
        ]

    def _streams_apart(self, held: Mapping[int, int]) -> list[str]:
        wrong = []
        for stream_id in sorted(self.near.open_streams() & self.far.open_streams()):
            for end in (End.RUNTIME,) if stream_id in held else End:
                near, far = (link.senders[end].stream(stream_id) for link in (self.near, self.far))
                if near != far:
                    wrong.append(f"stream {stream_id}: {end.value}'s window is {near} near, {far} far")
        return wrong

    def barriers(self) -> int:
        """SETTINGS that the proxy itself sent to the runtime."""
        count = [
            sum(1 for end, kind, _ in link.frames if end is End.CLIENT and kind == "SettingsFrame")
            for link in (self.near, self.far)
        ]
        return count[1] - count[0]

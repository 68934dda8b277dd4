"""The model client: it opens calls, and knows of each what the relay or the runtime may answer."""

from __future__ import annotations

from urllib.parse import unquote

from tests.runtimeproxy.simulation.call import HOLD, Call, Fields, check
from tests.runtimeproxy.simulation.dice import Dice
from tests.runtimeproxy.simulation.end import SETTINGS, End, Side
from tests.runtimeproxy.simulation.transport import SimTransport

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
MAX_STREAM_ID = (1 << 31) - 1
OWN_WINDOW_BYTES = 65_535  # the connection's window is the relay's own, and it never widens it
_DRAIN_PING = b"koordDrn"


class Client(End):
    name = "client"

    def __init__(self, transport: SimTransport) -> None:
        super().__init__(transport)
        transport.incoming += PREFACE
        self.next_stream = 1
        self.calls: dict[int, Call] = {}  # all that were ever opened, by stream
        self.goaways: list[tuple[int, int]] = []
        self.cut = False  # the relay hung up while calls were open

    def open(self, call: Call, dice: Dice) -> None:
        side = Side(self.next_stream, call)
        side.body = call.body
        self.next_stream += 2
        self.calls[side.id] = call
        self.sides[side.id] = side
        self.send_headers(side, call.fields, False, dice)

    def send_more(self, side: Side, dice: Dice, most_bytes: int) -> bool:
        """The next DATA, or the trailers behind the last."""
        call = side.call
        if side.sent == len(side.body) and call.trailers is not None:
            self.send_headers(side, call.trailers, True, dice)
        elif not self.send_data(side, most_bytes, call.padding, call.trailers is None):
            return False
        self.close_if_ended(side)
        return True

    def reset(self, side: Side) -> None:
        call = side.call
        call.reset_by_client = True
        call.outcome = "cancelled"
        self.send_reset(side, 8)

    @property
    def leaving(self) -> bool:
        return bool(self.goaways)

    # End

    def was_opened(self, stream: int) -> bool:
        return stream in self.calls

    def counts_ping(self, payload: bytes) -> bool:
        return payload != _DRAIN_PING

    def _frame(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        check(self.settings_seen or kind == SETTINGS, f"frame of kind {kind} before the runtime's SETTINGS")
        super()._frame(kind, flags, stream, payload)

    def on_headers(self, stream: int, fields: Fields, ends: bool) -> None:
        check(stream in self.calls, f"answer HEADERS on idle stream {stream}")
        side = self.sides.get(stream)
        if side is None:
            return  # it was cancelled
        call = side.call
        check(not side.peer_ended, f"HEADERS on stream {stream} after END_STREAM")
        if fields == call.answer_head and not call.answered_head:
            call.answered_head = True
        elif fields == call.answer_trailers and ends:
            check(call.missing_bytes == 0, f"call {call.number}: trailers before all of its answer")
        else:
            self._refused(side, fields, ends)
        if ends:
            self._ended(side)

    def _refused(self, side: Side, fields: Fields, ends: bool) -> None:
        call = side.call
        told = dict(fields)
        status, message = int(told.get(b"grpc-status", b"-1")), unquote(told.get(b"grpc-message", b"").decode())
        expected = [f"{code} {text}" for code, text in call.expected_refusals]
        check(
            ends and any(status == code and message.startswith(text) for code, text in call.expected_refusals),
            f"call {call.number} was answered {fields}, sent {call.answer_head}, {call.answer_trailers}, or {expected}",
        )
        check((b":status" in told) != call.answered_head, f"call {call.number}: one :status is due, and only one")
        check(call.arrived_bytes == 0 and not call.arrived_whole, f"call {call.number} was refused and has arrived")
        check(call.reset_at_runtime, f"call {call.number} was refused before the runtime's stream was reset")
        call.outcome = "refused"

    def _ended(self, side: Side) -> None:
        side.peer_ended = True
        call = side.call
        if call.outcome is None:
            check(call.answer_ended, f"call {call.number}: END_STREAM that the runtime did not send")
            check(call.missing_bytes == 0, f"call {call.number}: END_STREAM before all of the answer")
            call.outcome = "answered"
        self.close_if_ended(side)

    def on_data(self, side: Side, payload: bytes, ends: bool) -> None:
        call = side.call
        check(call.answered_head, f"call {call.number}: DATA before HEADERS")
        call.come(payload)
        if ends:
            self._ended(side)

    def on_reset(self, side: Side, code: int) -> None:
        call = side.call
        if call.outcome is None:
            check(call.reset_by_runtime, f"call {call.number} was reset by nobody")
            call.outcome = "reset"

    def on_goaway(self, last_stream: int, code: int) -> None:
        check(code == 0, f"GOAWAY with error {code}")
        check(not self.goaways or last_stream <= self.goaways[-1][0], "GOAWAY that takes more than the one before")
        self.goaways.append((last_stream, code))
        for stream, side in list(self.sides.items()):
            if stream > last_stream:
                side.call.outcome = "not taken"
                del self.sides[stream]

    def on_hang_up(self) -> None:
        self.cut = any(side.call.outcome is None for side in self.sides.values())

    def on_connection_credit(self) -> None:
        check(self.send_window <= OWN_WINDOW_BYTES, f"the client's window is {self.send_window}: credit was invented")

    def on_stream_credit(self, side: Side) -> None:
        held = side.call.method.treatment == HOLD and not side.call.bypassed
        granted = 0 if held else side.call.granted_bytes
        check(side.spent_bytes + granted >= 0, f"stream {side.id}: {-side.spent_bytes} bytes of credit were invented")

"""The model runtime: it checks what arrives against what was sent and decided, and answers in many ways."""

from __future__ import annotations

from collections.abc import Callable

from tests.runtimeproxy.simulation.call import Call, Fields, Violation, check
from tests.runtimeproxy.simulation.client import MAX_STREAM_ID, PREFACE
from tests.runtimeproxy.simulation.dice import Dice
from tests.runtimeproxy.simulation.end import GOAWAY, End, Side
from tests.runtimeproxy.simulation.transport import SimTransport

_HEAD: Fields = [(b":status", b"200"), (b"content-type", b"application/grpc")]
_SIZES = (0, 1, 5, 40, 300, 300, 2_000, 20_000)


class Runtime(End):
    name = "runtime"

    def __init__(self, transport: SimTransport, client_calls: dict[int, Call]) -> None:
        super().__init__(transport)
        self.last_stream = 0
        self.last_taken = MAX_STREAM_ID  # after a GOAWAY of its own
        self._calls = client_calls
        self._greeted = False
        self.lacks_blocks: Callable[[], bool] = lambda: False  # the relay has dropped a header block, and may no more

    # answering

    def answer_head(self, side: Side, dice: Dice) -> None:
        call = side.call
        fields = [*_HEAD, (b"x-answer", b"%d" % call.number)]
        if dice.one_in(4):
            fields.append((b"x-%d" % dice.below(20), b"a" * dice.below(200)))
        call.answer_head = fields
        message = dice.roll().to_bytes(4) * (dice.pick(_SIZES) // 4)
        call.answer_body = b"\0" + len(message).to_bytes(4) + message
        side.body = call.answer_body
        self.send_headers(side, fields, False, dice)

    def answer_more(self, side: Side, dice: Dice, most_bytes: int) -> bool:
        """DATA, or the trailers behind the last."""
        if side.sent < len(side.body) or (not side.sent and dice.one_in(2)):
            return self.send_data(side, most_bytes, dice.below(200) if dice.one_in(8) else None, False)
        self.end_answer(side, [(b"grpc-status", b"0"), (b"x-trailer", b"%d" % dice.below(9))], dice)
        return True

    def fail_at_once(self, side: Side, dice: Dice) -> None:
        """An answer of trailers only."""
        self.end_answer(side, [*_HEAD, (b"grpc-status", b"5"), (b"grpc-message", b"no such pod")], dice)

    def end_answer(self, side: Side, fields: Fields, dice: Dice) -> None:
        call = side.call
        call.answer_trailers, call.answer_ended = fields, True
        self.send_headers(side, fields, True, dice)
        self.close_if_ended(side)

    def widen(self, side: Side, size_bytes: int) -> None:
        """More window than was used, as ends do that measure how much is on its way."""
        side.call.granted_bytes += size_bytes
        self.credit_stream(side, size_bytes)

    def reset(self, side: Side, code: int) -> None:
        side.call.reset_by_runtime = True
        self.send_reset(side, code)

    def leave(self) -> None:
        """GOAWAY: streams that come later are not looked at."""
        self.last_taken = min(self.last_taken, self.last_stream)
        self.write(GOAWAY, 0, 0, self.last_taken.to_bytes(4) + bytes(4))

    # End

    def _cut(self) -> None:
        if not self._greeted:
            got = bytes(self._rest[: len(PREFACE)])
            check(PREFACE.startswith(got), f"no preface: {got!r}")
            if len(got) < len(PREFACE):
                return
            self._greeted = True
            del self._rest[: len(PREFACE)]
        super()._cut()

    def was_opened(self, stream: int) -> bool:
        return 0 < stream <= self.last_stream

    def on_headers(self, stream: int, fields: Fields, ends: bool) -> None:
        side = self.sides.get(stream)
        if stream > self.last_stream:
            self._opened(stream, fields, ends)
        elif side is not None:
            call = side.call
            check(not side.peer_ended and ends, f"HEADERS on stream {stream} in mid-request")
            check(fields == call.trailers, f"call {call.number}: trailers {fields}, sent {call.trailers}")
            self._request_ended(side)

    def _opened(self, stream: int, fields: Fields, ends: bool) -> None:
        self.last_stream = stream
        call = self._calls[stream]
        check(fields == call.fields, f"call {call.number}: HEADERS {fields}, sent {call.fields}")
        late = call.outcome == "not taken" and stream <= self.last_taken
        check(not late, f"stream {stream} was opened, and GOAWAY said that it would not be")
        if stream > self.last_taken:
            return
        call.reached_runtime = True
        self.sides[stream] = Side(stream, call)
        if ends:
            raise Violation(f"call {call.number} ended with its HEADERS")

    def on_data(self, side: Side, payload: bytes, ends: bool) -> None:
        call = side.call
        if payload:
            call.arrive(payload)
        if ends:
            complete = call.trailers is None or self.lacks_blocks()
            check(complete, f"call {call.number} ended before its trailers")
            self._request_ended(side)

    def _request_ended(self, side: Side) -> None:
        side.call.arrive_end()
        side.peer_ended = True
        self.close_if_ended(side)

    def may_follow_reset(self, stream: int) -> bool:
        return self._calls[stream].trailers is not None

    def on_reset(self, side: Side, code: int) -> None:
        side.call.reset_at_runtime = True

    def on_goaway(self, last_stream: int, code: int) -> None:
        check(code == 0, f"GOAWAY with error {code}")

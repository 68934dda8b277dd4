"""Small faults of the relay, each of which the simulation must find."""

from __future__ import annotations

from runtimeproxy.relay.accounts import Accounts
from runtimeproxy.relay.answers import AnswerRelay
from runtimeproxy.relay.direction import ToClient
from runtimeproxy.relay.goaway import GoingAway
from runtimeproxy.relay.held import HeldStreams
from runtimeproxy.relay.outbox import Outbox
from runtimeproxy.relay.refusals import Refusals
from runtimeproxy.relay.requests import RequestRelay
from runtimeproxy.relay.rewrites import Rewrites, _Answer
from runtimeproxy.relay.stream import Stream
from tests.support.mutants import Mutant

MUTANTS = (
    Mutant("credit is given twice", Accounts, "credit_connection", "+= size_bytes", "+= 2 * size_bytes"),
    Mutant("padding of a released stream is kept", HeldStreams, "_take_released", "size_bytes - len(payload)", "0"),
    Mutant("padding in the queue is kept", Outbox, "queue_data", "if padding_bytes:", "if False:"),
    Mutant("a released stream's credit is kept", Outbox, "_give_back", "if size_bytes and", "if False and"),
    Mutant("DATA follows GOAWAY", RequestRelay, "_data", "stream_id > self._going_away.last_allowed or", ""),
    Mutant("DATA follows a reset", RequestRelay, "_data", "or stream_id in self._reset", ""),
    Mutant("a reset follows a reset", RequestRelay, "_of_a_stream", "or frame[2] in self._reset", ""),
    Mutant("a header block overtakes", RequestRelay, "_keep_order", "outbox.keeps_header_blocks or", "False and"),
    Mutant("an acknowledgement overtakes", RequestRelay, "_settings_ack", "if self._outbox.passing:", "if False:"),
    Mutant("acknowledgements are confused", AnswerRelay, "_settings_ack", "acks.popleft()", "acks.pop()"),
    Mutant("a table's change is not told", Refusals, "barrier", "self._size_update() +", ""),
    Mutant("frames precede the SETTINGS", ToClient, "inject", "if self.settled:", "if True:"),
    Mutant("SETTINGS move no window", HeldStreams, "initial_window", "stream.window_bytes += change", "pass"),
    Mutant("the runtime's window is not kept", Outbox, "_pump_item", "self.window_bytes if owner", "1 << 20 if owner"),
    Mutant("a stream's window is not kept", Outbox, "_pump_released", "stream.window_bytes, ", ""),
    Mutant("the frame size is not kept", Outbox, "whole", ", self.max_frame_bytes", ""),
    Mutant("END_STREAM is lost", Outbox, "_pump_item", "if rest else item.flags", "if True else item.flags"),
    Mutant("a piece is turned around", Stream, "take", "bytes(data[:most_bytes])", "bytes(data[:most_bytes])[::-1]"),
    Mutant("GOAWAY names one stream too few", GoingAway, "_allow_no_more", ".last_stream", ".last_stream >> 1"),
    Mutant("an answered request goes on", AnswerRelay, "_end", "self._uplink.cut_short(stream)", "pass"),
    Mutant("a question is never cancelled", Stream, "stop_asking", "self.task.cancel()", "pass"),
    Mutant("a rewritten answer loses its end", AnswerRelay, "_headers", "return kept + data", "return data"),
    Mutant("what waits of an answer is lost with a reset", Rewrites, "close", "if frames:", "if False:"),
    Mutant("what waits of an answer stays counted", Rewrites, "_release", "-answer.kept_bytes", "0"),
    Mutant("padding of a rewritten answer is lost", _Answer, "with_body", "raw[stop:]", 'b""'),
    Mutant("an answer's message is cut wrongly", Rewrites, "take", "len(answer.body):", "len(answer.body) + 1:"),
    Mutant("the budget is not given back", Accounts, "empty", "self.account(stream, -stream.held_bytes)", "pass"),
)  # fmt: skip

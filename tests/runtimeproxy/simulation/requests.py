"""The calls that the model client makes."""

from __future__ import annotations

from tests.runtimeproxy.simulation.call import Call
from tests.runtimeproxy.simulation.dice import Dice
from tests.runtimeproxy.simulation.interceptor import METHODS
from tests.runtimeproxy.simulation.profile import Profile

_UNEDITABLE = ("compressed flag", "grpc-encoding", "content-length", "two messages", "short", "trailers")
_SMALL_BUDGET_BYTES = 1 << 20


def new_call(number: int, profile: Profile, dice: Dice) -> Call:
    """Any call; its message begins with its number, by which the interceptor knows it."""
    method = dice.pick(METHODS)
    fields = [
        (b":method", b"POST"), (b":scheme", b"http"), (b":path", method.path), (b":authority", b"localhost"),
        (b"content-type", b"application/grpc"), (b"te", b"trailers"),
    ]  # fmt: skip
    if dice.one_in(3):
        fields.append((b"x-%d" % dice.below(20), b"r" * dice.below(200)))
    if dice.one_in(3):
        fields.append((b"grpc-timeout", b"%dm" % dice.below(100_000)))
    size = max(4, dice.below(dice.pick(profile.bodies)) + 1)
    message = (number.to_bytes(4) * (size // 4 + 1))[:size]
    call = Call(number, method, fields, b"\0" + size.to_bytes(4) + message, message)
    call.squeezed = profile.budget_bytes < _SMALL_BUDGET_BYTES
    call.padding = dice.below(256) if profile.padded and dice.one_in(2) else None
    if profile.uneditable and dice.one_in(3):
        _make_uneditable(call, dice.pick(_UNEDITABLE))
    return call


def _make_uneditable(call: Call, why: str) -> None:
    call.uneditable = why
    if why == "compressed flag":
        call.body, call.message = b"\1" + call.body[1:], None
    elif why == "two messages":
        call.body, call.message = call.body * 2, None
    elif why == "short":
        call.body, call.message = call.body[:-1], None
    elif why == "content-length":
        call.fields.append((b"content-length", b"%d" % len(call.body)))
    elif why == "grpc-encoding":
        call.fields.append((b"grpc-encoding", b"gzip"))
    else:
        call.trailers = [(b"x-client-trailer", b"%d" % call.number)]

"""The reference model of one call: what was sent, what was decided, and what may therefore arrive.

Both ends and the interceptor of a run share the Call, so each compares what it receives with what was sent at the
moment it arrives.
"""

from __future__ import annotations

from dataclasses import dataclass, field

Fields = list[tuple[bytes, bytes]]

PASS, TAP, HOLD, REWRITE = "pass", "tap", "hold", "rewrite"
_OURS = "koord-runtime-proxy: "


class Violation(AssertionError):
    """Something that must never happen has happened."""


def check(holds: object, what: str) -> None:
    if not holds:
        raise Violation(what)


def rewritten(message: bytes) -> bytes:
    """What becomes of a message of an answer that is rewritten."""
    return bytes(octet ^ 0xFF for octet in message)


@dataclass(frozen=True, slots=True)
class Method:
    """A path of the model service and what the interceptor plans for it."""

    path: bytes
    treatment: str
    wants_answer: bool = False
    fail_closed: bool = False


@dataclass(slots=True, eq=False)
class Call:
    """``uneditable``: why the relay cannot edit it, if it cannot. ``verdict``: the body to forward, the status and
    message of a refusal, or the exception that was raised; None while there is none."""

    number: int
    method: Method
    fields: Fields
    body: bytes
    message: bytes | None
    trailers: Fields | None = None
    uneditable: str | None = None
    padding: int | None = None

    # the interceptor's part
    asked: bool = False
    tapped: bool = False
    told: bool = False
    verdict: bytes | tuple[int, str] | Exception | None = None
    bypassed: bool = False  # bypass was on while the call was open
    squeezed: bool = False  # the budget for held bytes is small: it may go on unasked, or before the verdict counts

    # what the runtime has seen
    reached_runtime: bool = False
    arrived_bytes: int = 0
    arrived_whole: bool = False
    bodies: list[bytes] = field(default_factory=list)  # of those that may arrive, those that fit what has arrived
    reset_at_runtime: bool = False

    # the runtime's answer
    answer_head: Fields | None = None
    answer_body: bytes = b""
    answer_trailers: Fields | None = None
    answer_ended: bool = False
    granted_bytes: int = 0  # of the stream's window, beyond what was received
    reset_by_runtime: bool = False

    # what the client has seen
    outcome: str | None = None
    answered_head: bool = False
    answered_bytes: int = 0
    answer_bodies: list[bytes] = field(default_factory=list)  # of those that may come, those that fit what has come
    reset_by_client: bool = False

    @property
    def missing_bytes(self) -> int:
        """Of the answer, at the client."""
        return len(self.answer_body) - self.answered_bytes

    def come(self, payload: bytes) -> None:
        """Some of the answer has come: it must be the next part of what may come."""
        begin = self.answered_bytes
        if not begin:
            self.answer_bodies = [self.answer_body]
            if self.method.treatment == REWRITE:
                self.answer_bodies.append(self.answer_body[:5] + rewritten(self.answer_body[5:]))
        self.answer_bodies = [body for body in self.answer_bodies if body[begin : begin + len(payload)] == payload]
        check(self.answer_bodies, f"call {self.number}: another answer than sent")
        self.answered_bytes += len(payload)

    def arrive(self, payload: bytes) -> None:
        """Some of it has arrived: it must be the next part of what may arrive."""
        begin = self.arrived_bytes
        if not begin:
            self.bodies = self.expected_bodies()
            check(self.bodies, f"call {self.number} ({self.method.path.decode()}) arrived before it was decided on")
        self.bodies = [body for body in self.bodies if body[begin : begin + len(payload)] == payload]
        check(self.bodies, f"call {self.number}: another request arrived than was decided on")
        self.arrived_bytes += len(payload)

    def arrive_end(self) -> None:
        bodies = self.bodies if self.arrived_bytes else self.expected_bodies()
        refused = bool(self.expected_refusals) and not self.arrived_bytes
        if self.trailers is not None and (refused or self.reset_by_client):
            return  # its trailers go on for the table's sake, and its reset follows
        missing = [len(body) - self.arrived_bytes for body in bodies]
        check(missing, f"call {self.number} ended before it was decided on")
        check(0 in missing, f"call {self.number} ended {missing[0]} bytes short")
        self.arrived_whole = True

    def expected_bodies(self) -> list[bytes]:
        """What may arrive at the runtime by now: one of these."""
        if self.method.treatment != HOLD:
            return [self.body]
        bodies = [self.verdict] if isinstance(self.verdict, bytes) else []
        unasked = self.squeezed or (self.verdict is None and self.uneditable)
        failed = isinstance(self.verdict, Exception)
        if self.bypassed or ((unasked or failed) and not self.method.fail_closed):
            bodies.append(self.body)
        return bodies

    @property
    def expected_refusals(self) -> list[tuple[int, str]]:
        """The statuses that the relay may give instead of the runtime, each with the begin of its message."""
        if self.method.treatment != HOLD:
            return []
        refusals = [self.verdict] if isinstance(self.verdict, tuple) else []
        if self.method.fail_closed:
            if self.squeezed:
                refusals.append((8, _OURS))
            if self.verdict is None and (self.uneditable or self.squeezed):
                refusals.append((9, _OURS))
            if isinstance(self.verdict, Exception):
                refusals.append((13, _OURS))
        return refusals

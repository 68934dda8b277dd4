"""Several hook servers asked in the order of their files, each about what the one before made of the request.

A later server wins a field; that it overrode an earlier one is logged and counted. The whole chain never takes more
than the deadline it is given. A server that fails is passed over (Ignore) or ends the chain with a refusal (Fail);
an edit that a guard refuses is dropped. Invariant: the result holds only slots whose value differs from what the
request had before the first server.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

from koord.http2.grpc import UNAVAILABLE
from runtimeproxy.hooks import patch
from runtimeproxy.hooks.edits import Edits, Slot, changes, name
from runtimeproxy.hooks.guards import Guard
from runtimeproxy.hooks.hookfile import Policy
from runtimeproxy.hooks.merge import opinion
from runtimeproxy.hooks.messages import ALL_FIELDS, Shape, read, removals
from runtimeproxy.hooks.observe import Metrics
from runtimeproxy.hooks.server import HookFailed, HookServer, Opinion
from runtimeproxy.hooks.stages import Stage
from runtimeproxy.intercept import Refuse

log = logging.getLogger("runtimeproxy.hooks.chain")

Said = tuple[Edits, Edits]
"""What an answer sets, and the keys that it asks to delete."""


@dataclass(frozen=True, slots=True)
class Question:
    """``request`` is an encoded hook request of ``shape``; ``subject`` is for logs."""

    stage: Stage
    request: bytes
    shape: Shape
    guard: Guard
    subject: Callable[[], str]


@dataclass(slots=True)
class Agreed:
    """``before``: what edited slots had, if anything, before the first server; ``who``: the hook file that set each."""

    before: Edits = field(default_factory=dict)
    edits: Edits = field(default_factory=dict)
    who: dict[Slot, str] = field(default_factory=dict)


Meanwhile = Callable[[Agreed], None]
"""Told, while a server is asked, what will have been agreed if it says what it said last; then that very object is what
`Chain.ask` returns. What it works out is thrown away otherwise; it may raise ValueError."""


@dataclass(frozen=True, slots=True)
class _Heard:
    """What one server's answer means: the edits that count, and those that the guard refuses, with its reason.

    ``shown``: the fields in question as the request had them.
    """

    shown: Edits
    kept: Edits
    refused: tuple[tuple[Slot, str], ...]


class _Guess:
    """What will have been agreed if the one server to ask says what it said last, worked out while it thinks.

    The answers to the pods of a workload are alike, and there is nothing else to do in that time. ``said``: the answer
    that was taken for granted, None if there was none to take; only then is there more. Nothing is logged or counted of
    a guess.
    """

    agreed: Agreed
    refused: tuple[tuple[Slot, str], ...]

    def __init__(self, server: HookServer, question: Question, meanwhile: Meanwhile) -> None:
        self._server, self._question, self._meanwhile = server, question, meanwhile
        self.said: Opinion[Said] | None = None

    def work_out(self) -> None:
        """Raises nothing: what cannot be read will be read again, by whoever says so."""
        said: Opinion[Said] | None = self._server.last(self._question.stage)
        if said is None or not any(said.answer):
            return
        with suppress(ValueError):
            heard, self.agreed = _hear(self._question, self._question.request, said), Agreed()
            _take_over(self.agreed, heard, self._server.spec.file)
            self._meanwhile(self.agreed)
            self.said, self.refused = said, heard.refused


class Chain:
    """Asks ``servers`` in their order; ``clock`` is monotonic seconds."""

    def __init__(self, servers: Sequence[HookServer], metrics: Metrics, clock: Callable[[], float]) -> None:
        self.servers = tuple(servers)
        self._of = {stage: tuple(server for server in servers if server.wants(stage)) for stage in Stage}
        self._metrics = metrics
        self._clock = clock

    def of(self, stage: Stage) -> tuple[HookServer, ...]:
        """The servers that are asked at this stage."""
        return self._of[stage]

    async def ask(
        self, question: Question, deadline: float | None, meanwhile: Meanwhile | None = None
    ) -> Agreed | Refuse:
        """What the servers of the question's stage make of the request, or the refusal that a policy calls for.

        ``deadline``: monotonic seconds by which the last server must have answered, None for no limit but theirs.
        """
        asked = self._of[question.stage]
        guess = _Guess(asked[0], question, meanwhile) if meanwhile is not None and len(asked) == 1 else None
        agreed, request, parse = Agreed(), question.request, partial(_read, question.shape)
        for server in asked:
            left_s = server.timeout_s if deadline is None else min(server.timeout_s, deadline - self._clock())
            try:
                said = await server.ask(question.stage, request, left_s, parse, guess.work_out if guess else None)
            except HookFailed as failed:
                if self._ends(server, question, failed):
                    return Refuse(UNAVAILABLE, f"hook server {server.spec.file}: {failed}")
                continue
            if said is None or not any(said.answer):
                continue
            if guess is not None and said is guess.said:
                if guess.refused:
                    self._tell_refused(server.spec.file, question, guess.refused)
                return guess.agreed
            heard = _hear(question, request, said)
            self._tell_refused(server.spec.file, question, heard.refused)
            self._tell_overridden(server.spec.file, question, agreed, heard)
            _take_over(agreed, heard, server.spec.file)
            if server is not asked[-1]:
                request = patch.apply(request, question.shape.request, heard.kept)
        if len(asked) > 1:
            agreed.edits = changes(agreed.edits, agreed.before)
        return agreed

    def _ends(self, server: HookServer, question: Question, failed: HookFailed) -> bool:
        """Does this failure refuse the request?"""
        refused = server.spec.policy is Policy.FAIL
        outcome = "refused" if refused else "ignored"
        self._metrics.hook_policy(server.spec.file, question.stage, outcome)
        log.warning(
            "hook server %s: %s for %s: %s; %s",
            server.spec.file,
            question.stage.value,
            question.subject(),
            failed,
            outcome,
        )
        return refused

    def _tell_overridden(self, file: str, question: Question, agreed: Agreed, heard: _Heard) -> None:
        for slot in heard.kept.keys() & agreed.edits.keys():
            self._metrics.hook_conflict(slot.field)
            log.warning(
                "%s: %s of hook server %s overrides that of %s", question.subject(), name(slot), file, agreed.who[slot]
            )

    def _tell_refused(self, file: str, question: Question, refused: Sequence[tuple[Slot, str]]) -> None:
        for slot, reason in refused:
            self._metrics.hook_guard(reason)
            log.warning("%s: hook server %s may not set %s (%s); dropped", question.subject(), file, name(slot), reason)


def _hear(question: Question, request: bytes, said: Opinion[Said]) -> _Heard:
    """``request`` as the server was shown it."""
    set_, removed = said.answer
    named = {slot.field for slot in (*set_, *removed)} if said.presence else ALL_FIELDS
    shown = read(request, question.shape.asked, named)
    owned = {
        slot: new
        for slot, new in opinion(shown, set_, removed, presence=said.presence).items()
        if slot.field in question.guard.owned
    }
    refused = tuple([(slot, why) for slot, new in owned.items() if (why := question.guard.refusal(slot, new))])
    for slot, _ in refused:
        del owned[slot]
    return _Heard(shown, owned, refused)


def _take_over(agreed: Agreed, heard: _Heard, file: str) -> None:
    for slot, new in heard.kept.items():
        if slot in heard.shown and slot not in agreed.edits:
            agreed.before[slot] = heard.shown[slot]
        agreed.edits[slot], agreed.who[slot] = new, file


def _read(shape: Shape, answer: bytes) -> Said:
    return (read(answer, shape.said), removals(answer, shape)) if answer else ({}, {})

"""Several hook servers asked in the order of their files, each about what the one before made of the request.

A later server wins a field; that it overrode an earlier one is logged and counted. The whole chain never takes more
than the deadline it is given. A server that fails is passed over (Ignore) or ends the chain with a refusal (Fail);
an edit that a guard refuses is dropped. Invariant: the result holds only slots whose value differs from what the
request had before the first server.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial

from koord.http2.grpc import UNAVAILABLE
from runtimeproxy.hooks import patch
from runtimeproxy.hooks.edits import Edits, Slot, Value, changes, name
from runtimeproxy.hooks.guards import Guard
from runtimeproxy.hooks.hookfile import Policy
from runtimeproxy.hooks.merge import opinion
from runtimeproxy.hooks.messages import ALL_FIELDS, Shape, read, removals
from runtimeproxy.hooks.observe import Metrics
from runtimeproxy.hooks.server import HookFailed, HookServer, Opinion
from runtimeproxy.hooks.stages import Stage
from runtimeproxy.intercept import Refuse

log = logging.getLogger("runtimeproxy.hooks.chain")

_SHORT_BYTES = 512

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


class Chain:
    """Asks ``servers`` in their order; ``clock`` is monotonic seconds."""

    def __init__(self, servers: Sequence[HookServer], metrics: Metrics, clock: Callable[[], float]) -> None:
        self._servers = servers
        self._metrics = metrics
        self._clock = clock

    async def ask(self, question: Question, deadline: float | None) -> Agreed | Refuse:
        """What the servers of the question's stage make of the request, or the refusal that a policy calls for.

        ``deadline``: monotonic seconds by which the last server must have answered, None for no limit but theirs.
        """
        agreed = Agreed()
        request = question.request
        asked = [server for server in self._servers if server.wants(question.stage)]
        for server in asked:
            left_s = server.timeout_s if deadline is None else min(server.timeout_s, deadline - self._clock())
            try:
                said = await server.ask(question.stage, request, left_s, partial(_parse, question.shape))
            except HookFailed as failed:
                if self._ends(server, question, failed):
                    return Refuse(UNAVAILABLE, f"hook server {server.spec.file}: {failed}")
                continue
            if said is not None and any(said.answer):
                kept = self._fold(server.spec.file, question, agreed, request, said)
                if server is not asked[-1]:
                    request = patch.apply(request, question.shape.request, kept)
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

    def _fold(self, file: str, question: Question, agreed: Agreed, request: bytes, said: Opinion[Said]) -> Edits:
        """Take one server's edits of ``request`` over into what was agreed; those that count."""
        set_, removed = said.answer
        named = {slot.field for slot in (*set_, *removed)} if said.presence else ALL_FIELDS
        shown = read(request, question.shape.asked, named)
        edits = opinion(shown, set_, removed, presence=said.presence)
        kept = {
            slot: new
            for slot, new in edits.items()
            if slot.field in question.guard.owned and self._passes(file, question, slot, new)
        }
        for slot in kept.keys() & agreed.edits.keys():
            self._metrics.hook_conflict(slot.field)
            log.warning(
                "%s: %s of hook server %s overrides that of %s", question.subject(), name(slot), file, agreed.who[slot]
            )
        for slot, new in kept.items():
            if slot in shown and slot not in agreed.edits:
                agreed.before[slot] = shown[slot]
            agreed.edits[slot], agreed.who[slot] = new, file
        return kept

    def _passes(self, file: str, question: Question, slot: Slot, new: Value) -> bool:
        reason = question.guard.refusal(slot, new)
        if reason is None:
            return True
        self._metrics.hook_guard(reason)
        log.warning("%s: hook server %s may not set %s (%s); dropped", question.subject(), file, name(slot), reason)
        return False


def _parse(shape: Shape, answer: bytes) -> Said:
    return _parse_short(shape, answer) if len(answer) <= _SHORT_BYTES else _read(shape, answer)


def _read(shape: Shape, answer: bytes) -> Said:
    return (read(answer, shape.said), removals(answer, shape)) if answer else ({}, {})


_parse_short = lru_cache(64)(_read)
"""A server says the same of many pods."""

"""Asks several hook servers in the order of their files, each about what the one before made of the request.

A later server wins a field; that it overrode an earlier one is logged and counted. The whole chain never takes more
than the deadline it is given. A server that fails is passed over (Ignore) or ends the chain with a refusal (Fail);
an edit that a guard refuses is dropped. Invariant: the result holds only slots whose value differs from what the
request had before the first server.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from koord.http2.grpc import UNAVAILABLE
from runtimeproxy.hooks import patch
from runtimeproxy.hooks.edits import Edits, Slot, changes, name
from runtimeproxy.hooks.hookfile import Policy
from runtimeproxy.hooks.largemessages import LargeMessageWorker
from runtimeproxy.hooks.merge import opinion
from runtimeproxy.hooks.messages import ALL_FIELDS, Shape, read, removals
from runtimeproxy.hooks.server import HookFailed, HookServer, Opinion
from runtimeproxy.hooks.stages import Stage
from runtimeproxy.intercept import Refuse
from runtimeproxy.metrics import Metrics

if TYPE_CHECKING:
    from runtimeproxy.hooks.guards import Guard

log = logging.getLogger("runtimeproxy.hooks.chain")

Said = tuple[Edits, Edits]
"""What an answer sets, and the keys that it asks to delete."""


@dataclass(frozen=True, slots=True)
class Question:
    """``request`` is an encoded hook request of ``shape``; ``subject`` is for logs; ``handler``: the pod's runtime
    handler, where it decides who is waited for."""

    stage: Stage
    request: bytes
    shape: Shape
    guard: Guard
    subject: Callable[[], str]
    handler: str = ""


@dataclass(slots=True)
class Agreed:
    """``before``: what edited slots had, if anything, before the first server; ``files``: who set each, a hook file."""

    before: Edits = field(default_factory=dict)
    edits: Edits = field(default_factory=dict)
    files: dict[Slot, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Heard:
    """The meaning of one server's answer: the edits that count, and those that the guard refuses, with its reason.

    ``shown``: the fields in question as the request had them.
    """

    shown: Edits
    kept: Edits
    refused: tuple[tuple[Slot, str], ...]


class Chain:
    """Asks ``servers`` in their order; ``clock`` is monotonic seconds."""

    def __init__(
        self,
        servers: Sequence[HookServer],
        metrics: Metrics,
        clock: Callable[[], float],
        worker: LargeMessageWorker | None = None,
    ) -> None:
        self.servers = tuple(servers)
        self._of = {stage: tuple(server for server in servers if stage in server.spec.stages) for stage in Stage}
        self._metrics = metrics
        self._clock = clock
        self._worker = worker or LargeMessageWorker()

    def of(self, stage: Stage) -> tuple[HookServer, ...]:
        """Returns the servers that are asked or notified at this stage."""
        return self._of[stage]

    async def ask(self, question: Question, deadline: float | None) -> Agreed | Refuse:
        """Returns what the servers of the question's stage make of the request, or the refusal that a policy calls for.

        ``deadline``: monotonic seconds by which the last server must have answered, None for no limit but theirs.
        """
        servers = [server for server in self._of[question.stage] if server.awaits(question.stage, question.handler)]
        agreed, request, parse = Agreed(), question.request, partial(self._read, question.shape)
        for server in servers:
            left_s = server.timeout_s if deadline is None else min(server.timeout_s, deadline - self._clock())
            try:
                reply = await server.ask(question.stage, request, left_s, parse)
            except HookFailed as failed:
                if self._ends(server, question, failed):
                    return Refuse(UNAVAILABLE, f"hook server {server.spec.file}: {failed}")
                continue
            if reply is None or not any(reply.answer):
                continue
            heard = await self._worker(len(request), partial(_hear, question, request, reply))
            self._tell_refused(server.spec.file, question, heard.refused)
            self._tell_overridden(server.spec.file, question, agreed, heard)
            _take_over(agreed, heard, server.spec.file)
            if server is not servers[-1]:
                request = await self._worker(
                    len(request), partial(patch.apply, request, question.shape.request, heard.kept)
                )
        if len(servers) > 1:
            agreed.edits = changes(agreed.edits, agreed.before)
        return agreed

    async def _read(self, shape: Shape, answer: bytes) -> Said:
        if not answer:
            return {}, {}
        return await self._worker(len(answer), lambda: (read(answer, shape.said), removals(answer, shape)))

    def _ends(self, server: HookServer, question: Question, failed: HookFailed) -> bool:
        """Returns whether this failure refuses the request."""
        refused = server.spec.policy_at(question.stage) is Policy.FAIL
        outcome = "refused" if refused else "ignored"
        self._metrics.hook_failure(server.spec.file, question.stage, outcome)
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
                "%s: %s of hook server %s overrides that of %s",
                question.subject(),
                name(slot),
                file,
                agreed.files[slot],
            )

    def _tell_refused(self, file: str, question: Question, refused: Sequence[tuple[Slot, str]]) -> None:
        for slot, reason in refused:
            self._metrics.hook_guard(reason)
            log.warning("%s: hook server %s may not set %s (%s); dropped", question.subject(), file, name(slot), reason)


def _hear(question: Question, request: bytes, reply: Opinion[Said]) -> _Heard:
    """Judges an answer about ``request``, as the server was shown it."""
    set_, removed = reply.answer
    named = {slot.field for slot in (*set_, *removed)} if reply.presence else ALL_FIELDS
    shown = read(request, question.shape.asked, named)
    owned = {
        slot: new
        for slot, new in opinion(shown, set_, removed, presence=reply.presence).items()
        if slot.field in question.guard.owned
    }
    refused = tuple([(slot, reason) for slot, new in owned.items() if (reason := question.guard.refusal(slot, new))])
    for slot, _ in refused:
        del owned[slot]
    return _Heard(shown, owned, refused)


def _take_over(agreed: Agreed, heard: _Heard, file: str) -> None:
    for slot, new in heard.kept.items():
        if slot in heard.shown and slot not in agreed.edits:
            agreed.before[slot] = heard.shown[slot]
        agreed.edits[slot], agreed.files[slot] = new, file

"""Asks several hook servers in the order of their files, each about the request as the one before left it.

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
from runtimeproxy.hooks.client import HookAnswer, HookClient, HookFailed
from runtimeproxy.hooks.edits import Edits, Slot, changes, name
from runtimeproxy.hooks.hookfile import FailurePolicy
from runtimeproxy.hooks.largemessages import LargeMessageWorker
from runtimeproxy.hooks.merge import wanted_edits
from runtimeproxy.hooks.messages import ALL_FIELDS, MessageShape, read, removals
from runtimeproxy.hooks.stages import CallStage
from runtimeproxy.intercept import Refuse
from runtimeproxy.metrics import Metrics

if TYPE_CHECKING:
    from runtimeproxy.hooks.guards import EditGuard

log = logging.getLogger("runtimeproxy.hooks.chain")

ParsedAnswer = tuple[Edits, Edits]
"""What an answer sets, and the keys that it asks to delete."""


@dataclass(frozen=True, slots=True)
class HookQuestion:
    """What the servers of a stage are asked. ``request`` is an encoded hook request of ``shape``; ``subject`` is for
    logs; ``handler``: the pod's runtime handler, where it decides which servers the call waits for.
    """

    stage: CallStage
    request: bytes
    shape: MessageShape
    guard: EditGuard
    subject: Callable[[], str]
    handler: str = ""


@dataclass(slots=True)
class AgreedEdits:
    """All servers' edits. ``before``: the slots' values before the first, if any; ``files``: each slot's hook file."""

    before: Edits = field(default_factory=dict)
    edits: Edits = field(default_factory=dict)
    files: dict[Slot, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _JudgedAnswer:
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
        servers: Sequence[HookClient],
        metrics: Metrics,
        clock: Callable[[], float],
        worker: LargeMessageWorker | None = None,
    ) -> None:
        self.servers = tuple(servers)
        self._of = {stage: tuple(server for server in servers if stage in server.spec.stages) for stage in CallStage}
        self._metrics = metrics
        self._clock = clock
        self._worker = worker or LargeMessageWorker()

    def of(self, stage: CallStage) -> tuple[HookClient, ...]:
        """Returns the servers that are asked or notified at this stage."""
        return self._of[stage]

    async def ask(self, question: HookQuestion, deadline: float | None) -> AgreedEdits | Refuse:
        """Returns the edits of the servers of the question's stage, or the refusal that a policy calls for.

        ``deadline``: monotonic seconds by which the last server must have answered, None for no limit but theirs.
        """
        servers = [server for server in self._of[question.stage] if server.awaits(question.stage, question.handler)]
        agreed, request, parse = AgreedEdits(), question.request, partial(self._read, question.shape)
        for server in servers:
            left_s = server.timeout_s if deadline is None else min(server.timeout_s, deadline - self._clock())
            try:
                reply = await server.ask(question.stage, request, left_s, parse)
            except HookFailed as failed:
                if self._must_refuse(server, question, failed):
                    return Refuse(UNAVAILABLE, f"hook server {server.spec.file}: {failed}")
                continue
            if reply is None or not any(reply.answer):
                continue
            judged = await self._worker(len(request), partial(_judge, question, request, reply))
            self._report_refused(server.spec.file, question, judged.refused)
            self._report_overridden(server.spec.file, question, agreed, judged)
            _take_over(agreed, judged, server.spec.file)
            if server is not servers[-1]:
                request = await self._worker(
                    len(request), partial(patch.apply, request, question.shape.request, judged.kept)
                )
        if len(servers) > 1:
            agreed.edits = changes(agreed.edits, agreed.before)
        return agreed

    async def _read(self, shape: MessageShape, answer: bytes) -> ParsedAnswer:
        if not answer:
            return {}, {}
        return await self._worker(len(answer), lambda: (read(answer, shape.answer_layout), removals(answer, shape)))

    def _must_refuse(self, server: HookClient, question: HookQuestion, failed: HookFailed) -> bool:
        """Counts and logs a failure; returns whether it refuses the request."""
        refused = server.spec.policy_at(question.stage) is FailurePolicy.FAIL
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

    def _report_overridden(self, file: str, question: HookQuestion, agreed: AgreedEdits, judged: _JudgedAnswer) -> None:
        for slot in judged.kept.keys() & agreed.edits.keys():
            self._metrics.hook_conflict(slot.field)
            log.warning(
                "%s: %s of hook server %s overrides that of %s",
                question.subject(),
                name(slot),
                file,
                agreed.files[slot],
            )

    def _report_refused(self, file: str, question: HookQuestion, refused: Sequence[tuple[Slot, str]]) -> None:
        for slot, reason in refused:
            self._metrics.hook_guard(reason)
            log.warning("%s: hook server %s may not set %s (%s); dropped", question.subject(), file, name(slot), reason)


def _judge(question: HookQuestion, request: bytes, reply: HookAnswer[ParsedAnswer]) -> _JudgedAnswer:
    """Judges an answer about ``request``, as the server was shown it."""
    set_, removed = reply.answer
    named = {slot.field for slot in (*set_, *removed)} if reply.presence else ALL_FIELDS
    shown = read(request, question.shape.request_layout, named)
    edits = {
        slot: new
        for slot, new in wanted_edits(shown, set_, removed, presence=reply.presence).items()
        if slot.field in question.guard.editable
    }
    refused = tuple([(slot, reason) for slot, new in edits.items() if (reason := question.guard.refusal(slot, new))])
    for slot, _ in refused:
        del edits[slot]
    return _JudgedAnswer(shown, edits, refused)


def _take_over(agreed: AgreedEdits, judged: _JudgedAnswer, file: str) -> None:
    for slot, new in judged.kept.items():
        if slot in judged.shown and slot not in agreed.edits:
            agreed.before[slot] = judged.shown[slot]
        agreed.edits[slot], agreed.files[slot] = new, file

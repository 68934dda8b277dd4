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
from typing import TYPE_CHECKING

from koord.http2.grpc import UNAVAILABLE
from runtimeproxy.hooks.edits import Edits, Slot, Value, changes, name
from runtimeproxy.hooks.guards import Guard
from runtimeproxy.hooks.hookfile import Policy
from runtimeproxy.hooks.merge import opinion
from runtimeproxy.hooks.messages import ALL_FIELDS, Shape, apply, flatten, removals
from runtimeproxy.hooks.observe import Metrics
from runtimeproxy.hooks.server import HookFailed, HookServer, Opinion
from runtimeproxy.hooks.stages import Stage
from runtimeproxy.intercept import Refuse

if TYPE_CHECKING:
    from runtimeproxy.hooks.messages import HookRequest, HookResponse

log = logging.getLogger("runtimeproxy.hooks.chain")


@dataclass(frozen=True, slots=True)
class Question:
    """``request`` is edited as servers answer; ``parse`` decodes an answer; ``subject`` is for logs."""

    stage: Stage
    request: HookRequest
    shape: Shape
    parse: Callable[[bytes], HookResponse]
    guard: Guard
    subject: str


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
        for server in self._servers:
            if not server.wants(question.stage):
                continue
            try:
                said = await self._ask_one(server, question, deadline)
            except HookFailed as failed:
                if self._ends(server, question, failed):
                    return Refuse(UNAVAILABLE, f"hook server {server.spec.file}: {failed}")
                continue
            if said is not None:
                self._fold(server.spec.file, question, agreed, said)
        agreed.edits = changes(agreed.edits, agreed.before)
        return agreed

    async def _ask_one(self, server: HookServer, question: Question,
                       deadline: float | None) -> Opinion[HookResponse] | None:
        left_s = server.timeout_s if deadline is None else min(server.timeout_s, deadline - self._clock())
        return await server.ask(question.stage, question.request.SerializeToString(), left_s, question.parse)

    def _ends(self, server: HookServer, question: Question, failed: HookFailed) -> bool:
        """Does this failure refuse the request?"""
        refused = server.spec.policy is Policy.FAIL
        outcome = "refused" if refused else "ignored"
        self._metrics.hook_policy(server.spec.file, question.stage, outcome)
        log.warning("hook server %s: %s for %s: %s; %s", server.spec.file, question.stage.value, question.subject,
                    failed, outcome)
        return refused

    def _fold(self, file: str, question: Question, agreed: Agreed, said: Opinion[HookResponse]) -> None:
        """Take one server's edits over into what was agreed and into what the next server will be shown."""
        set_, removed = flatten(said.answer, question.shape), removals(said.answer, question.shape)
        if not set_ and not removed:
            return
        named = {slot.field for slot in (*set_, *removed)} if said.presence else ALL_FIELDS
        shown = flatten(question.request, question.shape, named)
        edits = opinion(shown, set_, removed, presence=said.presence)
        kept = {slot: new for slot, new in edits.items()
                if slot.field in question.guard.owned and self._passes(file, question, slot, new)}
        for slot in kept.keys() & agreed.edits.keys():
            self._metrics.hook_conflict(slot.field)
            log.warning("%s: %s of hook server %s overrides that of %s", question.subject, name(slot), file,
                        agreed.who[slot])
        for slot, new in kept.items():
            if slot in shown and slot not in agreed.edits:
                agreed.before[slot] = shown[slot]
            agreed.edits[slot], agreed.who[slot] = new, file
        apply(question.request, question.shape, kept)

    def _passes(self, file: str, question: Question, slot: Slot, new: Value) -> bool:
        reason = question.guard.refusal(slot, new)
        if reason is None:
            return True
        self._metrics.hook_guard(reason)
        log.warning("%s: hook server %s may not set %s (%s); dropped", question.subject, file, name(slot), reason)
        return False

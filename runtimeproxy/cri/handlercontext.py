"""The context that the handlers of requests share: settings, the cache, the servers, and where to report.

No protobuf here: the interceptor makes it at start-up.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from koord.http2.grpc import OK
from runtimeproxy.audit import Audit, shown
from runtimeproxy.cri.exempt import Exemptions, PodTraits, SkipRules
from runtimeproxy.cri.objectcache import ObjectCache
from runtimeproxy.cri.updaterecords import UpdateRecords
from runtimeproxy.hooks.chain import AgreedEdits, Chain
from runtimeproxy.hooks.client import HookClient
from runtimeproxy.hooks.edits import Edits, name
from runtimeproxy.hooks.hookfile import FailurePolicy
from runtimeproxy.hooks.largemessages import LargeMessageWorker
from runtimeproxy.hooks.stages import CallStage
from runtimeproxy.intercept import Call
from runtimeproxy.metrics import Metrics

log = logging.getLogger("runtimeproxy.cri")

Commit = Callable[[bytes | None], None]
"""Called when the runtime has answered a request with success; the answer's message where the plan wants it."""


@dataclass(frozen=True, slots=True)
class NotifyTarget:
    """A ``Commit`` that notifies post hooks too. ``tell`` takes the gRPC status, also of a failed call."""

    tell: Callable[[int], None]
    commit: Commit = lambda answer: None

    def __call__(self, answer: bytes | None) -> None:
        self.commit(answer)
        self.tell(OK)


Edited = tuple[Callable[[], str], AgreedEdits, Edits]
"""How logs name what was edited, what the servers agreed on, and the edits that were sent."""


@dataclass(frozen=True, slots=True)
class HookOptions:
    """Settings of the hooks, with the meaning of the flags of the same names in ``runtimeproxy.options``."""

    version: str
    hook_timeout_s: float = 3.0
    skip: SkipRules = field(default_factory=SkipRules)
    foreign_parents: bool = False


@dataclass(slots=True)
class HandlerContext:
    """Holds what all handlers share; ``chain`` is replaced as a whole when the hook directory changes."""

    options: HookOptions
    cache: ObjectCache
    exemptions: Exemptions
    audit: Audit
    metrics: Metrics
    clock: Callable[[], float]
    updates: UpdateRecords
    worker: LargeMessageWorker = field(default_factory=LargeMessageWorker)
    chain: Chain = field(init=False)

    def __post_init__(self) -> None:
        self.use(())

    def use(self, servers: Sequence[HookClient]) -> None:
        """Asks these servers from now on, in this order."""
        self.chain = Chain(servers, self.metrics, self.clock, self.worker)

    def holds(self, stage: CallStage) -> bool:
        """Returns whether a request of this stage may have to wait for a server."""
        return any(server.may_await(stage) for server in self.chain.of(stage))

    def fails_closed(self, stage: CallStage) -> bool:
        """Returns whether one of these servers is under policy Fail."""
        servers = self.chain.of(stage)
        return any(server.spec.policy_at(stage) is FailurePolicy.FAIL and server.may_await(stage) for server in servers)

    def deadline(self, call: Call) -> float | None:
        """Returns when hooks must be done with ``call``: half of the time that its caller gives it."""
        return None if call.timeout_s is None else call.started + call.timeout_s / 2

    def left_s(self, call: Call, limit_s: float) -> float:
        """Returns the seconds until ``deadline``, at most ``limit_s``."""
        deadline = self.deadline(call)
        return limit_s if deadline is None else min(limit_s, deadline - self.clock())

    def may_exempt(self, mentions: Callable[[bytes], bool]) -> bool:
        """Returns whether `is_exempt` could be true of a pod; ``mentions``: whether its labels or annotations contain a
        text. It seldom could, so most pods need not be decoded.
        """
        skip = self.options.skip
        return bool(skip.namespaces) or self.exemptions.knows_own_pods or skip.could_apply(mentions)

    def is_exempt(self, pod: PodTraits) -> bool:
        """Returns whether ``pod`` is exempt, and counts it."""
        reason = self.exemptions.reason(pod, self.options.skip, fail_closed=any(map(self.fails_closed, CallStage)))
        if reason is not None:
            self.metrics.exemption(reason)
        return reason is not None

    def report(self, method: str, *edited: Edited) -> None:
        """Counts and audits the edits of a request that goes on; not before it has. Raises nothing."""
        try:
            for subject, agreed, sent in edited:
                self._report_one(method, subject, agreed, sent)
        except Exception as error:  # noqa: BLE001 - the request has gone on already
            self.fault("reporting", error)

    def _report_one(self, method: str, subject: Callable[[], str], agreed: AgreedEdits, sent: Edits) -> None:
        named = subject() if sent else ""
        for slot, value in sent.items():
            self.metrics.edit(method, slot.field)
            self.audit.edited(
                named,
                name(slot),
                shown(slot, agreed.before.get(slot)),
                shown(slot, value),
                agreed.files.get(slot, "sandbox"),
            )

    def fault(self, doing: str, error: Exception) -> None:
        """Counts and logs an error of our own that costs no request more than its editing. Raises nothing."""
        try:
            self.metrics.fault(doing)
            log.error("%s failed: %r", doing, error, exc_info=error)
        except Exception:  # noqa: BLE001, S110 - no way is left to tell
            pass

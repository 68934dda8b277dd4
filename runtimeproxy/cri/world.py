"""What the handlers of requests share: settings, the cache, the servers, and where to report.

No protobuf here: the interceptor makes it at start-up.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from koord.http2.grpc import OK
from runtimeproxy.cri.exempt import Exemptions, PodTraits, SkipRules
from runtimeproxy.cri.store import Store
from runtimeproxy.cri.updaterecords import UpdateRecords
from runtimeproxy.hooks.apart import Apart
from runtimeproxy.hooks.chain import Agreed, Chain
from runtimeproxy.hooks.edits import Edits, name
from runtimeproxy.hooks.hookfile import Policy
from runtimeproxy.hooks.observe import Audit, shown
from runtimeproxy.hooks.server import HookServer
from runtimeproxy.hooks.stages import Stage
from runtimeproxy.intercept import Call
from runtimeproxy.metrics import Metrics

log = logging.getLogger("runtimeproxy.cri")

Commit = Callable[[bytes | None], None]
"""Called when the runtime has answered a request with success; the answer's message where the plan wants it."""


@dataclass(frozen=True, slots=True)
class Told:
    """A ``Commit`` of a call that after hooks hear of. ``tell`` is given the gRPC status, of a failed call too."""

    tell: Callable[[int], None]
    commit: Commit = lambda answer: None

    def __call__(self, answer: bytes | None) -> None:
        self.commit(answer)
        self.tell(OK)


Edited = tuple[Callable[[], str], Agreed, Edits]
"""How logs name what was edited, what the servers agreed on, and the edits that were sent."""


@dataclass(frozen=True, slots=True)
class HookOptions:
    """Settings of the hooks, with the meaning of the flags of the same names in ``runtimeproxy.options``."""

    version: str
    hook_timeout_s: float = 3.0
    skip: SkipRules = field(default_factory=SkipRules)
    foreign_parents: bool = False


@dataclass(slots=True)
class World:
    """``chain`` is replaced as a whole when the hook directory changes."""

    options: HookOptions
    store: Store
    exemptions: Exemptions
    audit: Audit
    metrics: Metrics
    clock: Callable[[], float]
    updates: UpdateRecords
    apart: Apart = field(default_factory=Apart)
    chain: Chain = field(init=False)

    def __post_init__(self) -> None:
        self.use(())

    def use(self, servers: Sequence[HookServer]) -> None:
        """Ask these from now on, in this order."""
        self.chain = Chain(servers, self.metrics, self.clock, self.apart)

    def holds(self, stage: Stage) -> bool:
        """May a request have to wait for a server?"""
        return any(server.may_await(stage) for server in self.chain.of(stage))

    def fails_closed(self, stage: Stage) -> bool:
        """And is one of them under policy Fail?"""
        servers = self.chain.of(stage)
        return any(server.spec.policy_at(stage) is Policy.FAIL and server.may_await(stage) for server in servers)

    def deadline(self, call: Call) -> float | None:
        """When hooks must be done with ``call``: half of the time that its caller gives it."""
        return None if call.timeout_s is None else call.started + call.timeout_s / 2

    def left_s(self, call: Call, limit_s: float) -> float:
        """Seconds until that, at most ``limit_s``."""
        deadline = self.deadline(call)
        return limit_s if deadline is None else min(limit_s, deadline - self.clock())

    def may_exempt(self, mentions: Callable[[bytes], bool]) -> bool:
        """Could `is_exempt` say yes of a pod whose labels or annotations ``mention`` a text? Seldom, so it need not be
        decoded."""
        skip = self.options.skip
        return bool(skip.namespaces) or self.exemptions.knows_own_pods or skip.could_apply(mentions)

    def is_exempt(self, pod: PodTraits) -> bool:
        """Is ``pod`` left alone? Counted if so."""
        reason = self.exemptions.reason(pod, self.options.skip, fail_closed=any(map(self.fails_closed, Stage)))
        if reason is not None:
            self.metrics.exemption(reason)
        return reason is not None

    def report(self, method: str, *edited: Edited) -> None:
        """Count and audit the edits of a request that goes on; not before it has. Raises nothing."""
        try:
            for subject, agreed, sent in edited:
                self._report_one(method, subject, agreed, sent)
        except Exception as error:  # noqa: BLE001 - the request has gone on already
            self.fault("reporting", error)

    def _report_one(self, method: str, subject: Callable[[], str], agreed: Agreed, sent: Edits) -> None:
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
        """Count and log an error of our own that costs no request more than its editing. Raises nothing."""
        try:
            self.metrics.fault(doing)
            log.error("%s failed: %r", doing, error, exc_info=error)
        except Exception:  # noqa: BLE001, S110 - there is nobody left to tell
            pass

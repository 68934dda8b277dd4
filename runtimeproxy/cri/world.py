"""What the handlers of requests share: settings, the cache, the servers, and where to report.

No protobuf here: the interceptor makes it at start-up.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from runtimeproxy.cri.exempt import Exemptions, PodTraits
from runtimeproxy.cri.store import Store
from runtimeproxy.hooks.chain import Agreed, Chain
from runtimeproxy.hooks.edits import Edits, name
from runtimeproxy.hooks.hookfile import Policy
from runtimeproxy.hooks.observe import Audit, Metrics, shown
from runtimeproxy.hooks.server import HookServer
from runtimeproxy.hooks.stages import Stage
from runtimeproxy.intercept import Call

log = logging.getLogger("runtimeproxy.cri")

Commit = Callable[[bytes | None], None]
"""Called when the runtime has answered a request with success; the answer's message where the plan wants it."""

Later = Callable[[Callable[[], None]], object]
"""Runs what it is given a moment later."""


@dataclass(frozen=True, slots=True)
class HookOptions:
    """Settings of the hooks, with the meaning of the flags of the same names in ``runtimeproxy.options``."""

    version: str
    hook_timeout_s: float = 3.0
    skip_key: str = "runtimeproxy.koordinator.sh/skip-hookserver"
    skip_value: str = "true"
    skip_namespaces: tuple[str, ...] = ()
    foreign_parents: bool = False


@dataclass(slots=True)
class World:
    """``chain`` is replaced as a whole when the hook directory changes; ``later`` runs what no request waits for."""

    options: HookOptions
    store: Store
    exemptions: Exemptions
    audit: Audit
    metrics: Metrics
    clock: Callable[[], float]
    later: Later
    chain: Chain = field(init=False)

    def __post_init__(self) -> None:
        self.use(())

    def use(self, servers: Sequence[HookServer]) -> None:
        """Ask these from now on, in this order."""
        self.chain = Chain(servers, self.metrics, self.clock)

    def wants(self, stage: Stage) -> bool:
        return bool(self.chain.of(stage))

    def fails_closed(self, stage: Stage) -> bool:
        """Is a server of the stage under policy Fail?"""
        return any(server.spec.policy is Policy.FAIL for server in self.chain.of(stage))

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
        options = self.options
        marked = bool(options.skip_key) and mentions(options.skip_key.encode())
        return marked or bool(options.skip_namespaces) or self.exemptions.knows_own_pods

    def is_exempt(self, pod: PodTraits) -> bool:
        """Is ``pod`` left alone? Counted if so."""
        options = self.options
        reason = self.exemptions.reason(pod, (options.skip_key, options.skip_value), options.skip_namespaces)
        if reason is not None:
            self.metrics.exempt(reason)
        return reason is not None

    def report(self, method: str, subject: Callable[[], str], agreed: Agreed, sent: Edits) -> None:
        """Count and audit the edits of a request that goes on; not before it has."""
        if sent:
            self.later(partial(self._report, method, subject, agreed, sent))

    def _report(self, method: str, named: Callable[[], str], agreed: Agreed, sent: Edits) -> None:
        subject = named()
        for slot, value in sent.items():
            self.metrics.edit(method, slot.field)
            self.audit.edited(
                subject,
                name(slot),
                shown(slot, agreed.before.get(slot)),
                shown(slot, value),
                agreed.who.get(slot, "sandbox"),
            )

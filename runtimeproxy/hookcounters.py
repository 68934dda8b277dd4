"""What the hooks count, as plain counters: adding is cheap, and importing this is too.

Invariant: the number of label values is bounded (``CAP`` per counter, then "other"), whatever clients send.
``runtimeproxy.metrics`` says what each figure is called.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from koord.service.metrics import Histogram, Labels

CAP = 256
OTHER = "other"


@dataclass(slots=True)
class HookCounters:
    """What ``runtimeproxy.hooks.observe.Metrics`` asks for, kept as plain counters."""

    edits: Counter[Labels] = field(default_factory=Counter)
    calls: Counter[Labels] = field(default_factory=Counter)
    latency: dict[Labels, Histogram] = field(default_factory=dict)
    policy: Counter[Labels] = field(default_factory=Counter)
    conflicts: Counter[Labels] = field(default_factory=Counter)
    guards: Counter[Labels] = field(default_factory=Counter)
    posts_dropped: Counter[Labels] = field(default_factory=Counter)
    exemptions: Counter[Labels] = field(default_factory=Counter)
    faults: Counter[Labels] = field(default_factory=Counter)
    file_errors: int = 0  # now
    cached_pods: int = 0  # now
    cached_containers: int = 0  # now

    def edit(self, method: str, field: str) -> None:
        _add(self.edits, (method, field))

    def hook_call(self, server: str, stage: str, result: str, seconds: float) -> None:
        _add(self.calls, (server, stage, result))
        if result == "open":
            return  # the server was not asked
        known = self.latency.get((server, stage))
        if known is None:
            known = self.latency.setdefault(capped(self.latency, (server, stage)), Histogram())
        known.observe(seconds)

    def hook_policy(self, server: str, stage: str, outcome: str) -> None:
        _add(self.policy, (server, stage, outcome))

    def hook_conflict(self, field: str) -> None:
        _add(self.conflicts, (field,))

    def hook_guard(self, reason: str) -> None:
        _add(self.guards, (reason,))

    def post_dropped(self, server: str, stage: str) -> None:
        _add(self.posts_dropped, (server, stage))

    def hook_file_errors(self, count: int) -> None:
        self.file_errors = count

    def exempt(self, reason: str) -> None:
        _add(self.exemptions, (reason,))

    def fault(self, doing: str) -> None:
        _add(self.faults, (doing,))

    def cache_size(self, pods: int, containers: int) -> None:
        self.cached_pods, self.cached_containers = pods, containers


def capped(counts: Mapping[Labels, object], key: Labels) -> Labels:
    """``key``, or once there are ``CAP`` others, as many times "other"."""
    return key if key in counts or len(counts) < CAP else (OTHER,) * len(key)


def _add(counts: Counter[Labels], key: Labels) -> None:
    counts[key if key in counts else capped(counts, key)] += 1

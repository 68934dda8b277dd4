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
    """What hooks, cache and posts count. Nothing here blocks or raises."""

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
        """A field of a request of ``method`` (short CRI name) was rewritten; map fields count once per key."""
        _add(self.edits, (method, field))

    def hook_call(self, server: str, stage: str, result: str, seconds: float) -> None:
        """A hook server was asked. ``result``: ok, unimplemented, error, timeout, undecodable or open (breaker)."""
        _add(self.calls, (server, stage, result))
        if result == "open":
            return  # the server was not asked
        known = self.latency.get((server, stage))
        if known is None:
            known = self.latency.setdefault(capped(self.latency, (server, stage)), Histogram())
        known.observe(seconds)

    def hook_policy(self, server: str, stage: str, outcome: str) -> None:
        """A failed call met the server's policy. ``outcome``: refused or ignored."""
        _add(self.policy, (server, stage, outcome))

    def hook_conflict(self, field: str) -> None:
        """A later hook server overrode an earlier one's value."""
        _add(self.conflicts, (field,))

    def hook_guard(self, reason: str) -> None:
        """An edit was dropped: key, cgroup_parent, value or hidden_env."""
        _add(self.guards, (reason,))

    def post_dropped(self, server: str, stage: str) -> None:
        """A post hook was not delivered: the server's queue was full, or the server or the proxy went away."""
        _add(self.posts_dropped, (server, stage))

    def hook_file_errors(self, count: int) -> None:
        """How many files of the hook directory are invalid now."""
        self.file_errors = count

    def exempt(self, reason: str) -> None:
        """A pod was left alone: mark, namespace, static_pod, critical_pod or own_pod."""
        _add(self.exemptions, (reason,))

    def fault(self, doing: str) -> None:
        """An error of our own outside of a held request. ``doing``: tapped, answered, reporting, posting, learning,
        greeting or loading."""
        _add(self.faults, (doing,))

    def cache_size(self, pods: int, containers: int) -> None:
        """How many objects the cache holds now."""
        self.cached_pods, self.cached_containers = pods, containers


def capped(counts: Mapping[Labels, object], key: Labels) -> Labels:
    """``key``, or once there are ``CAP`` others, as many times "other"."""
    return key if key in counts or len(counts) < CAP else (OTHER,) * len(key)


def _add(counts: Counter[Labels], key: Labels) -> None:
    counts[key if key in counts else capped(counts, key)] += 1

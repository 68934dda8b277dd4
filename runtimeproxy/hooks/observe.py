"""What the hooks report: to the audit log and to the metrics.

Two protocols, so that the hooks neither format nor export anything. Invariant: no environment value and no value
of an annotation or label that Koord does not know is ever passed to an ``Audit``; callers go through ``shown``.
Implementations must not block and must not raise.
"""

from __future__ import annotations

from typing import Protocol

from runtimeproxy.hooks.edits import ANNOTATIONS, ENVS, LABELS, Slot, Value

KOORDINATOR = "koordinator.sh"  # and its subdomains, such as node.koordinator.sh
KNOWN_DOMAINS = (KOORDINATOR, "rdt.resources.beta.kubernetes.io", "blockio.resources.beta.kubernetes.io")
HIDDEN = "(not shown)"


class Audit(Protocol):
    def edited(self, subject: str, field: str, before: str, after: str, file: str) -> None:
        """One rewritten field. ``subject``: ``pod ns/name`` or ``container ns/pod/name``; ``file``: the hook file."""


class Metrics(Protocol):
    def edit(self, method: str, field: str) -> None:
        """A field of a request of ``method`` (short CRI name) was rewritten; map fields count once per key."""

    def hook_call(self, server: str, stage: str, result: str, seconds: float) -> None:
        """A hook server was asked. ``result``: ok, unimplemented, error, timeout, undecodable or open (breaker)."""

    def hook_policy(self, server: str, stage: str, outcome: str) -> None:
        """A failed call met the server's policy. ``outcome``: refused or ignored."""

    def hook_conflict(self, field: str) -> None:
        """A later hook server overrode an earlier one's value."""

    def hook_guard(self, reason: str) -> None:
        """An edit was dropped: key, cgroup_parent, value or hidden_env."""

    def post_dropped(self, server: str, stage: str) -> None:
        """A post hook was not delivered: the server's queue was full, or the server or the proxy went away."""

    def hook_file_errors(self, count: int) -> None:
        """How many files of the hook directory are invalid now."""

    def exempt(self, reason: str) -> None:
        """A pod was left alone: mark, namespace, static_pod, critical_pod or own_pod."""

    def fault(self, doing: str) -> None:
        """An error of our own outside of a held request. ``doing``: tapped, answered, reporting, posting, learning,
        greeting or loading."""

    def cache_size(self, pods: int, containers: int) -> None:
        """How many objects the cache holds now."""


def is_known(key: str) -> bool:
    """Does the key of an annotation or label belong to a domain whose values Koord knows, and may show?"""
    domain, slash, _ = key.partition("/")
    return bool(slash) and (domain in KNOWN_DOMAINS or domain.endswith(f".{KOORDINATOR}"))


def shown(slot: Slot, value: Value) -> str:
    """``value`` as it may be written to a log: never an environment value or an unknown annotation's."""
    if value is None:
        return ""
    if slot.field == ENVS:
        return HIDDEN
    if slot.field in (ANNOTATIONS, LABELS) and not is_known(slot.key):
        return HIDDEN
    return str(value)

"""The metrics of the proxy, with their names on its page.

Relay and hooks add to plain numbers, so adding is cheap, and importing this is too. Invariant: the number of label
values is bounded, whatever clients send: those of the hooks here (``CAP`` per counter, then "other").
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import koord
from koord.service.metrics import Histogram, Labels, Live, counter, gauge, histogram

PREFIX = "koord_runtimeproxy_"
CAP = 256
OTHER = "other"
_LAG_BOUNDS_S = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)


@dataclass(slots=True)
class RelayedBytes:
    """Bytes by direction, a number each: it is added to with every piece of every call."""

    to_runtime: int = 0
    to_client: int = 0


@dataclass(slots=True)
class Metrics:
    """Totals since the start, or the number now. Nothing here blocks or raises."""

    calls: Counter[tuple[str, int]] = counter("Calls that ended, by path and gRPC status.", "method", "code")
    call_duration_seconds: dict[str, Histogram] = histogram(
        "Time from a call's first frame to the end of its answer, holding and the runtime's work included.", "method"
    )
    hold_duration_seconds: dict[str, Histogram] = histogram(
        "Time from a held call's first frame to the decision on it.", "method"
    )
    loop_lag_seconds: Histogram = histogram(
        "How late a timer was that runs while there is work: what the process, or a full CPU, kept calls waiting.",
        bounds=_LAG_BOUNDS_S,
    )
    loop_lag_longest_seconds: float = gauge("The longest of these since the start.")
    edits: Counter[Labels] = counter("Fields rewritten in requests.", "method", "field")
    edited_requests: int = counter("Requests that went on rewritten.")
    refused: int = counter("Requests refused under failure policy Fail.")
    fail_open: Counter[str] = counter(
        "Requests that were to be edited and went on unedited, or were refused after an error under policy Fail.",
        "reason",
    )
    faults: Counter[Labels] = counter("Errors of the proxy's own outside of a held request.", "doing")
    not_held: Counter[str] = counter("Requests that could not be kept back for editing.", "reason")
    """Under policy Fail they were refused, and count there too."""
    not_copied: Counter[str] = counter(
        "Requests that passed without a copy for what is remembered of pods and containers.", "reason"
    )
    restored_statuses: int = counter("Answers about containers in which kubelet got back what it had requested.")
    not_rewritten: Counter[str] = counter(
        "Answers about containers that passed as they were, and may show values of hook servers.",
        "reason",
    )
    blind_connections: Counter[str] = counter("Connections on which decoding failed; relayed, never edited.", "reason")
    connections: int = gauge("Client connections open now.")
    accepted_connections: int = counter("Client connections accepted.")
    unserved_connections: int = counter("Client connections closed because the runtime was missing.")
    bytes: RelayedBytes = counter("Bytes relayed.", "direction", factory=RelayedBytes)
    held_streams: int = gauge("Requests kept back now.")
    held_bytes: int = gauge("Bytes of requests kept back now.")
    hook_calls: Counter[Labels] = counter("Calls to hook servers.", "server", "stage", "outcome")
    hook_duration_seconds: dict[Labels, Histogram] = histogram(
        "Time a hook server took, failures included.", "server", "stage"
    )
    hook_policy: Counter[Labels] = counter(
        "Failed hook calls and what the policy made of them.", "server", "stage", "outcome"
    )
    hook_conflicts: Counter[Labels] = counter("Values of one hook server overridden by a later one.", "field")
    hook_guards: Counter[Labels] = counter("Edits of hook servers that were dropped.", "reason")
    hook_posts_dropped: Counter[Labels] = counter("Post hooks not delivered.", "server", "stage")
    hook_servers: Live = gauge("Hook servers registered now.")
    hook_file_errors: int = gauge("Hook server files that are invalid now.")
    exempt: Counter[Labels] = counter("Requests of pods that are exempt from hooks.", "reason")
    cached_pods: int = gauge("Pods remembered now.")
    cached_containers: int = gauge("Containers remembered now.")
    bypass: Live = gauge("1 while nothing is edited on request of the operator.")
    backend_up: Live = gauge("1 if the runtime's socket takes connections now.")
    log_lines_dropped: Live = counter("Lines of the log and the audit log that nobody read in time.")
    build_info: Mapping[str, int] = gauge(
        "1, with the version that answers.", "version", factory=lambda: {koord.__version__: 1}
    )

    def edit(self, method: str, field: str) -> None:
        """Counts a rewritten field of a request of ``method`` (short CRI name); map fields count once per key."""
        _add(self.edits, (method, field))

    def hook_call(self, server: str, stage: str, result: str, seconds: float) -> None:
        """Counts a question. ``result``: ok, unimplemented, error, timeout, undecodable or open (breaker)."""
        _add(self.hook_calls, (server, stage, result))
        if result == "open":
            return  # the server was not asked
        times = self.hook_duration_seconds.get((server, stage))
        if times is None:
            times = self.hook_duration_seconds[capped(self.hook_duration_seconds, (server, stage))]
        times.observe(seconds)

    def hook_failure(self, server: str, stage: str, outcome: str) -> None:
        """Counts a failed call that met the server's policy. ``outcome``: refused or ignored."""
        _add(self.hook_policy, (server, stage, outcome))

    def hook_conflict(self, field: str) -> None:
        """Counts a value of an earlier hook server that a later one overrode."""
        _add(self.hook_conflicts, (field,))

    def hook_guard(self, reason: str) -> None:
        """Counts an edit that was dropped: key, cgroup_parent, value or hidden_env."""
        _add(self.hook_guards, (reason,))

    def post_dropped(self, server: str, stage: str) -> None:
        """Counts a notification that was not delivered: full queue, or server or proxy gone."""
        _add(self.hook_posts_dropped, (server, stage))

    def exemption(self, reason: str) -> None:
        """Counts a pod that was left alone: mark, namespace, static_pod, critical_pod or own_pod."""
        _add(self.exempt, (reason,))

    def fault(self, doing: str) -> None:
        """Counts an error of our own outside of a held request. ``doing``: tapped, answered, reporting, posting,
        learning, greeting, loading or restoring.
        """
        _add(self.faults, (doing,))


def capped(counts: Mapping[Labels, object], key: Labels) -> Labels:
    """Returns ``key``, or once there are ``CAP`` others, "other" as many times."""
    return key if key in counts or len(counts) < CAP else (OTHER,) * len(key)


def _add(counts: Counter[Labels], key: Labels) -> None:
    counts[key if key in counts else capped(counts, key)] += 1

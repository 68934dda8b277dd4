"""The one table that says how each figure of the proxy is called.

The relay and the hooks add to plain integers; ``koord.service.metrics`` turns them into Prometheus' form.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import koord
from koord.service.metrics import Declared, Kind
from runtimeproxy.hookcounters import HookCounters
from runtimeproxy.looplag import LoopLag
from runtimeproxy.relay.counters import RelayCounters


@dataclass(frozen=True, slots=True)
class Figures:
    """Everything that is exported. The callables are asked when somebody looks; they do not fail."""

    relay: RelayCounters
    lag: LoopLag
    hooks: HookCounters
    bypass: Callable[[], bool]
    backend_up: Callable[[], bool]
    hook_servers: Callable[[], int]
    log_lines_dropped: Callable[[], int]


PREFIX = "koord_runtimeproxy_"
METRICS: tuple[Declared[Figures], ...] = (
    Declared(
        "calls", Kind.COUNTER, "Calls that ended, by path and gRPC status.", ("method", "code"), lambda f: f.relay.calls
    ),
    Declared(
        "call_duration_seconds",
        Kind.HISTOGRAM,
        "Time from a call's first frame to the end of its answer, holding and the runtime's work included.",
        ("method",),
        lambda f: f.relay.latency,
    ),
    Declared(
        "hold_duration_seconds",
        Kind.HISTOGRAM,
        "Time from a held call's first frame to the decision on it.",
        ("method",),
        lambda f: f.relay.hold,
    ),
    Declared(
        "loop_lag_seconds",
        Kind.HISTOGRAM,
        "How late a timer was that runs while there is work: what the process, or a full CPU, kept calls waiting.",
        (),
        lambda f: f.lag.lateness,
    ),
    Declared(
        "loop_lag_longest_seconds",
        Kind.GAUGE,
        "The longest of these since the start.",
        (),
        lambda f: f.lag.longest_s,
    ),
    Declared("edits", Kind.COUNTER, "Fields rewritten in requests.", ("method", "field"), lambda f: f.hooks.edits),
    Declared("edited_requests", Kind.COUNTER, "Requests that went on rewritten.", (), lambda f: f.relay.edited),
    Declared("refused", Kind.COUNTER, "Requests refused under failure policy Fail.", (), lambda f: f.relay.refused),
    Declared(
        "fail_open",
        Kind.COUNTER,
        "Requests that went on unedited although they were to be edited.",
        ("reason",),
        lambda f: f.relay.fail_open,
    ),
    Declared(
        "faults",
        Kind.COUNTER,
        "Errors of the proxy's own outside of a held request.",
        ("doing",),
        lambda f: f.hooks.faults,
    ),
    Declared(
        "not_held",
        Kind.COUNTER,
        "Requests that could not be kept back for editing.",
        ("reason",),
        lambda f: f.relay.not_held,
    ),
    Declared(
        "not_copied",
        Kind.COUNTER,
        "Requests that passed without a copy for what is remembered of pods and containers.",
        ("reason",),
        lambda f: f.relay.not_copied,
    ),
    Declared(
        "blind_connections",
        Kind.COUNTER,
        "Connections on which decoding failed; relayed, never edited.",
        ("reason",),
        lambda f: f.relay.blind,
    ),
    Declared("connections", Kind.GAUGE, "Client connections open now.", (), lambda f: f.relay.connections),
    Declared(
        "accepted_connections",
        Kind.COUNTER,
        "Client connections accepted.",
        (),
        lambda f: f.relay.connections_total,
    ),
    Declared(
        "unserved_connections",
        Kind.COUNTER,
        "Client connections closed because the runtime was missing.",
        (),
        lambda f: f.relay.connections_unserved,
    ),
    Declared(
        "bytes",
        Kind.COUNTER,
        "Bytes relayed.",
        ("direction",),
        lambda f: {"to_runtime": f.relay.bytes_to_runtime, "to_client": f.relay.bytes_to_client},
    ),
    Declared("held_streams", Kind.GAUGE, "Requests kept back now.", (), lambda f: f.relay.held_streams),
    Declared("held_bytes", Kind.GAUGE, "Bytes of requests kept back now.", (), lambda f: f.relay.held_bytes),
    Declared(
        "hook_calls",
        Kind.COUNTER,
        "Calls to hook servers.",
        ("server", "stage", "outcome"),
        lambda f: f.hooks.calls,
    ),
    Declared(
        "hook_duration_seconds",
        Kind.HISTOGRAM,
        "Time a hook server took, failures included.",
        ("server", "stage"),
        lambda f: f.hooks.latency,
    ),
    Declared(
        "hook_policy",
        Kind.COUNTER,
        "Failed hook calls and what the policy made of them.",
        ("server", "stage", "outcome"),
        lambda f: f.hooks.policy,
    ),
    Declared(
        "hook_conflicts",
        Kind.COUNTER,
        "Values of one hook server overridden by a later one.",
        ("field",),
        lambda f: f.hooks.conflicts,
    ),
    Declared(
        "hook_guards",
        Kind.COUNTER,
        "Edits of hook servers that were dropped.",
        ("reason",),
        lambda f: f.hooks.guards,
    ),
    Declared(
        "hook_posts_dropped",
        Kind.COUNTER,
        "Post hooks not delivered.",
        ("server", "stage"),
        lambda f: f.hooks.posts_dropped,
    ),
    Declared("hook_servers", Kind.GAUGE, "Hook servers registered now.", (), lambda f: f.hook_servers()),
    Declared(
        "hook_file_errors",
        Kind.GAUGE,
        "Hook server files that are invalid now.",
        (),
        lambda f: f.hooks.file_errors,
    ),
    Declared(
        "exempt",
        Kind.COUNTER,
        "Requests of pods that are exempt from hooks.",
        ("reason",),
        lambda f: f.hooks.exemptions,
    ),
    Declared("cached_pods", Kind.GAUGE, "Pods remembered now.", (), lambda f: f.hooks.cached_pods),
    Declared("cached_containers", Kind.GAUGE, "Containers remembered now.", (), lambda f: f.hooks.cached_containers),
    Declared("bypass", Kind.GAUGE, "1 while nothing is edited on request of the operator.", (), lambda f: f.bypass()),
    Declared(
        "backend_up",
        Kind.GAUGE,
        "1 if the runtime's socket takes connections now.",
        (),
        lambda f: f.backend_up(),
    ),
    Declared(
        "log_lines_dropped",
        Kind.COUNTER,
        "Lines of the log and the audit log that nobody read in time.",
        (),
        lambda f: f.log_lines_dropped(),
    ),
    Declared(
        "build_info",
        Kind.GAUGE,
        "1, with the version that answers.",
        ("version",),
        lambda _: {koord.__version__: 1},
    ),
)

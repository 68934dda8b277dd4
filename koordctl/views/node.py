"""The node and its strategies, as sections of aligned lines."""

from __future__ import annotations

from typing import Any

from koord.pb.koord import inspect_pb2 as inspect
from koordctl.fields import Column, Field, Layout, Listing
from koordctl.values import NONE, age, amount

_GIB = 1 << 30


def _cpus(pool: inspect.Pool) -> str:
    return pool.cpus or "none"


def _sentence(strategy: inspect.Strategy) -> str:
    errors = f" ({strategy.errors} errors)" if strategy.errors else ""
    return f"{strategy.sentence}{errors}" or NONE


def _front_end_state(front: inspect.FrontEnd) -> str:
    return "acts" if front.acting else "attached" if front.attached else "absent"


def _loop_state(loop: inspect.Loop) -> str:
    return "off" if loop.disabled else "failing" if loop.failures else "ok" if loop.HasField("age_s") else "waiting"


USAGE: Listing[inspect.Usage] = Listing(
    "usage",
    (
        Field("metric", "METRIC"),
        Field("value", "VALUE", lambda usage: amount(usage.unit, usage.value)),
        Field("unit", "UNIT"),
        Field("help", "HELP", column=Column.WIDE),
    ),
)
POOLS: Listing[inspect.Pool] = Listing(
    "pools",
    (Field("name", "POOL"), Field("socket", "SOCKET"), Field("numa_node", "NUMA"), Field("cpus", "CPUS", _cpus)),
)
FEATURES: Listing[inspect.Feature] = Listing(
    "features", (Field("name", "FEATURE"), Field("supported", "SUPPORTED"), Field("detail", "DETAIL"))
)
FRONT_ENDS: Listing[inspect.FrontEnd] = Listing(
    "front_ends",
    (
        Field("name", "FRONT END"),
        Field("state", "STATE", value=_front_end_state),
        Field("detail", "DETAIL"),
        Field("attached", "ATTACHED", column=Column.NAMED),
        Field("acting", "ACTING", column=Column.NAMED),
    ),
)
STRATEGIES: Listing[inspect.Strategy] = Listing(
    "strategies",
    (
        Field("name", "STRATEGY"),
        Field("stage", "STAGE"),
        Field("state", "STATE"),
        Field("opinions", "FILES"),
        Field("sentence", "SAYS", _sentence),
        Field("errors", "ERRORS", column=Column.WIDE),
        Field("lacks", "LACKS", column=Column.WIDE),
    ),
)
LOOPS: Listing[inspect.Loop] = Listing(
    "loops",
    (
        Field("name", "LOOP"),
        Field("state", "STATE", value=_loop_state),
        Field("age_s", "AGE", lambda loop: age(loop.age_s) if loop.HasField("age_s") else "never"),
        Field("failures", "FAILURES"),
        Field("duration_us", "TOOK(us)", lambda loop: f"{loop.duration_us:.0f}"),
        Field("problem", "SAYS", value=lambda loop: loop.disabled or (loop.last_error if loop.failures else "")),
        Field("disabled", "DISABLED", column=Column.NAMED),
        Field("last_error", "LAST ERROR", column=Column.WIDE),
    ),
)
CONTESTED: Listing[inspect.Contested] = Listing("contested", (Field("path", "FILE"), Field("why", "WHY")))

_TITLES: tuple[tuple[str, Listing[Any]], ...] = (
    ("USAGE", USAGE),
    ("CPU POOLS", POOLS),
    ("FEATURES", FEATURES),
    ("FRONT ENDS", FRONT_ENDS),
    ("STRATEGIES", STRATEGIES),
    ("LOOPS", LOOPS),
    ("CONTESTED FILES", CONTESTED),
)
SECTIONS = {listing.key: listing for _, listing in _TITLES}


def page(answer: inspect.GetNodeResponse, layout: Layout[Any]) -> str:
    """The whole answer, without its warnings."""
    tables = [(title, Layout(each, layout.output).table(each.rows(answer))) for title, each in _TITLES]
    return "\n\n".join([_head(answer), *(f"{title}\n{table}" for title, table in tables if table)])


def _head(answer: inspect.GetNodeResponse) -> str:
    daemon, node = answer.daemon, answer.capacity
    if not answer.observed_unix_ns:
        return f"koord-qosd {daemon.version}, pid {daemon.pid}: no snapshot yet."
    lines = [
        ("koord-qosd", f"{daemon.version}, pid {daemon.pid}, up {age(daemon.uptime_s)}, {_own(daemon)}"),
        ("policy", policy(answer.policy)),
        ("CPU", f"{node.cpus} CPUs, {node.cores} cores, {node.sockets} sockets, {node.numa_nodes} NUMA nodes; "
                f"requested {node.cpu_requests_milli / 1000:g}"),
        ("memory", f"{node.memory_bytes / _GIB:.1f} GiB; requested {node.memory_requests_bytes / _GIB:.1f} GiB"),
        ("pods", f"{node.pods} with {node.containers} containers; {answer.owned_files} files held by Koord"),
    ]  # fmt: skip
    return "\n".join(f"{name:<12}{text}" for name, text in lines)


def policy(policy: inspect.Policy) -> str:
    """Where the policy in force comes from, how old it is, and what is wrong with its source now."""
    old = f", {age(policy.age_s)} old" if policy.HasField("age_s") else ""
    problem = f"; now: {policy.problem}" if policy.problem else ""
    if policy.origin == "source":
        return f"{policy.source}{old}"
    if policy.origin == "built-in defaults":
        return f"built-in defaults: there never was a {policy.source}"
    if policy.origin == "unknown":
        return f"UNKNOWN, every strategy is frozen: {policy.problem}"
    return f"{policy.origin} of {policy.source}{old}{problem}"


def doubtful_policy(doubtful: inspect.Policy) -> str:
    """The same as a line of its own where the source does not say now what is in force; "" where it does."""
    return "" if doubtful.origin in ("", "source", "built-in defaults") else f"policy: {policy(doubtful)}"


def _own(daemon: inspect.Daemon) -> str:
    files = f"{daemon.open_files} of {daemon.open_files_limit} files"
    dropped = f", {daemon.journal_dropped} journal entries dropped" if daemon.journal_dropped else ""
    return f"{daemon.rss_bytes / (1 << 20):.0f} MiB, {files}{dropped}"

"""Renders the node and its strategies, as sections of aligned lines."""

from __future__ import annotations

from typing import Any

from koord.pb.koord import inspect_pb2 as inspect
from koordctl.fields import Listing, ListingField, ListingLayout, Visibility
from koordctl.values import NONE, age, amount

_GIB = 1 << 30
_UNKNOWN = "unknown"
_DOUBTFUL = ("last good", _UNKNOWN)


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
        ListingField("metric", "METRIC"),
        ListingField("value", "VALUE", lambda usage: amount(usage.unit, usage.value)),
        ListingField("unit", "UNIT"),
        ListingField("help", "HELP", visibility=Visibility.WIDE),
    ),
)
POOLS: Listing[inspect.Pool] = Listing(
    "pools",
    (
        ListingField("name", "POOL"),
        ListingField("socket", "SOCKET"),
        ListingField("numa_node", "NUMA"),
        ListingField("cpus", "CPUS", lambda pool: pool.cpus or "none"),
    ),
)
FEATURES: Listing[inspect.Feature] = Listing(
    "features",
    (ListingField("name", "FEATURE"), ListingField("supported", "SUPPORTED"), ListingField("detail", "DETAIL")),
)
FRONT_ENDS: Listing[inspect.FrontEnd] = Listing(
    "front_ends",
    (
        ListingField("name", "FRONT END"),
        ListingField("state", "STATE", value=_front_end_state),
        ListingField("detail", "DETAIL"),
        ListingField("attached", "ATTACHED", visibility=Visibility.NAMED),
        ListingField("acting", "ACTING", visibility=Visibility.NAMED),
    ),
)
STRATEGIES: Listing[inspect.Strategy] = Listing(
    "strategies",
    (
        ListingField("name", "STRATEGY"),
        ListingField("stage", "STAGE"),
        ListingField("state", "STATE"),
        ListingField("opinions", "FILES"),
        ListingField("sentence", "SAYS", _sentence),
        ListingField("errors", "ERRORS", visibility=Visibility.WIDE),
        ListingField("lacks", "LACKS", visibility=Visibility.WIDE),
    ),
)
LOOPS: Listing[inspect.Loop] = Listing(
    "loops",
    (
        ListingField("name", "LOOP"),
        ListingField("state", "STATE", value=_loop_state),
        ListingField("age_s", "AGE", lambda loop: age(loop.age_s) if loop.HasField("age_s") else "never"),
        ListingField("failures", "FAILURES"),
        ListingField("duration_us", "TOOK(us)", lambda loop: f"{loop.duration_us:.0f}"),
        ListingField("problem", "SAYS", value=lambda loop: loop.disabled or (loop.last_error if loop.failures else "")),
        ListingField("disabled", "DISABLED", visibility=Visibility.NAMED),
        ListingField("last_error", "LAST ERROR", visibility=Visibility.WIDE),
    ),
)
CLUSTER: Listing[inspect.ClusterPart] = Listing(
    "cluster",
    (
        ListingField("name", "PART"),
        ListingField("state", "STATE"),
        ListingField("age_s", "AGE", lambda part: age(part.age_s) if part.HasField("age_s") else "never"),
        ListingField("failures", "FAILURES"),
        ListingField("says", "SAYS", visibility=Visibility.FILLED),
    ),
    rows_of=lambda answer: answer.cluster.parts,
)
CONTESTED: Listing[inspect.Contested] = Listing("contested", (ListingField("path", "FILE"), ListingField("why", "WHY")))

_TITLES: tuple[tuple[str, Listing[Any]], ...] = (
    ("USAGE", USAGE),
    ("CPU POOLS", POOLS),
    ("FEATURES", FEATURES),
    ("FRONT ENDS", FRONT_ENDS),
    ("STRATEGIES", STRATEGIES),
    ("LOOPS", LOOPS),
    ("CLUSTER", CLUSTER),
    ("CONTESTED FILES", CONTESTED),
)
SECTIONS = {listing.key: listing for _, listing in _TITLES}


def page(answer: inspect.GetNodeResponse, layout: ListingLayout[Any]) -> str:
    """Renders the whole answer, without its warnings."""
    tables = [(title, layout.on(each).table(each.rows(answer))) for title, each in _TITLES]
    return "\n\n".join([_head(answer), *(f"{title}\n{table}" for title, table in tables if table)])


def _head(answer: inspect.GetNodeResponse) -> str:
    daemon, node = answer.daemon, answer.capacity
    if not answer.observed_unix_ns:
        return f"koord-qosd {daemon.version}, pid {daemon.pid}: no snapshot yet."
    lines = [
        ("koord-qosd", f"{daemon.version}, pid {daemon.pid}, up {age(daemon.uptime_s)}, {_own(daemon)}"),
        *(("" if index else "policy", line) for index, line in enumerate(policy_lines(answer.policy))),
        *([("cluster", answer.cluster.sentence)] if answer.HasField("cluster") else []),
        ("CPU", f"{node.cpus} CPUs, {node.cores} cores, {node.sockets} sockets, {node.numa_nodes} NUMA nodes; "
                f"requested {node.cpu_requests_milli / 1000:g}"),
        ("memory", f"{node.memory_bytes / _GIB:.1f} GiB; requested {node.memory_requests_bytes / _GIB:.1f} GiB"),
        ("pods", f"{node.pods} with {node.containers} containers; {answer.owned_files} files held by Koord"),
    ]  # fmt: skip
    return "\n".join(f"{name:<12}{text}" for name, text in lines)


def policy_lines(policy: inspect.Policy) -> list[str]:
    """Says where the policy in force comes from, how old it is, and what is wrong with its source now.

    With a cluster a line for each layer, the highest first, and before them one if the policy is not known.
    """
    return [_origin(each) for each in _shown(policy)]


def doubtful_policy(policy: inspect.Policy) -> str:
    """Returns the lines whose source does not confirm what is in force; "" where all do."""
    return "\n".join(f"policy: {_origin(each)}" for each in _shown(policy) if each.origin in _DOUBTFUL)


def _shown(policy: inspect.Policy) -> list[inspect.Policy]:
    """Returns the layers; where the whole is unknown, it stands for those that are unknown as well."""
    if policy.origin != _UNKNOWN:
        return [*reversed(policy.layers)] or [policy]
    return [policy, *(layer for layer in reversed(policy.layers) if layer.origin != _UNKNOWN)]


def _origin(policy: inspect.Policy) -> str:
    """Says where the policy as a whole, or one layer of it, comes from."""
    old = f", {age(policy.age_s)} old" if policy.HasField("age_s") else ""
    problem = f"; now: {policy.problem}" if policy.problem else ""
    if policy.origin == "source":
        return f"{policy.source}{old}"
    if policy.origin == "built-in defaults":
        return f"built-in defaults: there never was a {policy.source}"
    if policy.origin == "none":
        return f"no {policy.layer}: the API server has none{old}"
    if policy.origin == _UNKNOWN:
        what = f"{policy.layer} never known" if policy.layer else "UNKNOWN, every strategy is frozen"
        return f"{what}: {policy.problem}"
    return f"{policy.origin} of {policy.source}{old}{problem}"


def _own(daemon: inspect.Daemon) -> str:
    files = f"{daemon.open_files} of {daemon.open_files_limit} files"
    dropped = f", {daemon.journal_dropped} journal entries dropped" if daemon.journal_dropped else ""
    return f"{daemon.rss_bytes / (1 << 20):.0f} MiB, {files}{dropped}"

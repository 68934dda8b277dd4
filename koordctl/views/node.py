"""The node and its strategies, as sections of aligned lines."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from koord.pb.koord import inspect_pb2 as inspect
from koordctl.table import align
from koordctl.views.values import NONE, age, amount

_GIB = 1 << 30


def table(answer: inspect.GetNodeResponse) -> str:
    """The whole answer, without its warnings."""
    sections = [
        _head(answer),
        _section("USAGE", ("METRIC", "VALUE", "UNIT"), [_usage(each) for each in answer.usage]),
        _section("CPU POOLS", ("POOL", "SOCKET", "NUMA", "CPUS"), [_pool(each) for each in answer.pools]),
        _section("FEATURES", ("FEATURE", "SUPPORTED", "DETAIL"), [_feature(each) for each in answer.features]),
        _section("FRONT ENDS", ("FRONT END", "STATE", "DETAIL"), [_front_end(each) for each in answer.front_ends]),
        _section("STRATEGIES", STRATEGIES, [_strategy(each) for each in answer.strategies]),
        _section("LOOPS", LOOPS, [_loop(each) for each in answer.loops]),
        _section("CONTESTED FILES", ("FILE", "WHY"), [(each.path, each.why) for each in answer.contested]),
    ]
    return "\n\n".join(section for section in sections if section)


STRATEGIES = ("STRATEGY", "STAGE", "STATE", "FILES", "SAYS")
LOOPS = ("LOOP", "STATE", "AGE", "FAILURES", "TOOK(us)", "SAYS")


def strategies(all_of_them: Iterable[inspect.Strategy]) -> str:
    """One line per strategy."""
    return align(STRATEGIES, [_strategy(each) for each in all_of_them])


def loops(all_of_them: Iterable[inspect.Loop]) -> str:
    """One line per collector or source."""
    return align(LOOPS, [_loop(each) for each in all_of_them])


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


def policy(found: inspect.Policy) -> str:
    """Where the policy in force comes from, how old it is, and what is wrong with its source now."""
    old = f", {age(found.age_s)} old" if found.HasField("age_s") else ""
    problem = f"; now: {found.problem}" if found.problem else ""
    if found.origin == "source":
        return f"{found.source}{old}"
    if found.origin == "built-in defaults":
        return f"built-in defaults: there never was a {found.source}"
    if found.origin == "unknown":
        return f"UNKNOWN, every strategy is frozen: {found.problem}"
    return f"{found.origin} of {found.source}{old}{problem}"


def doubtful_policy(found: inspect.Policy) -> str:
    """The same as a line of its own where the source does not say now what is in force; "" where it does."""
    return "" if found.origin in ("", "source", "built-in defaults") else f"policy: {policy(found)}"


def _own(daemon: inspect.Daemon) -> str:
    files = f"{daemon.open_files} of {daemon.open_files_limit} files"
    dropped = f", {daemon.journal_dropped} journal entries dropped" if daemon.journal_dropped else ""
    return f"{daemon.rss_bytes / (1 << 20):.0f} MiB, {files}{dropped}"


def _section(title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return f"{title}\n{align(header, rows)}" if rows else ""


def _usage(each: inspect.Usage) -> tuple[str, ...]:
    return each.metric, amount(each.unit, each.value), each.unit


def _pool(pool: inspect.Pool) -> tuple[str, ...]:
    return pool.name, str(pool.socket), str(pool.numa_node), pool.cpus or "none"


def _feature(feature: inspect.Feature) -> tuple[str, ...]:
    return feature.name, "yes" if feature.supported else "no", feature.detail


def _front_end(front: inspect.FrontEnd) -> tuple[str, ...]:
    state = "acts" if front.acting else "attached" if front.attached else "absent"
    return front.name, state, front.detail


def _strategy(each: inspect.Strategy) -> tuple[str, ...]:
    errors = f" ({each.errors} errors)" if each.errors else ""
    return each.name, each.stage, each.state, str(each.opinions), f"{each.sentence}{errors}" or NONE


def _loop(loop: inspect.Loop) -> tuple[str, ...]:
    seen = loop.HasField("age_s")
    state = "off" if loop.disabled else "failing" if loop.failures else "ok" if seen else "waiting"
    said = loop.disabled or (loop.last_error if loop.failures else "")
    return loop.name, state, age(loop.age_s) if seen else "never", str(loop.failures), f"{loop.duration_us:.0f}", said

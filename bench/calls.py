"""Calls of CRI's Version on several sockets, and the rows that say what the proxy adds to them.

Two clients, both in ``integration/kubernetes/cri/cmd``: kubelet's gRPC library (``cri-bench``), and one that sends
frames encoded beforehand (``raw-bench``). A closed loop calls again when it has its answer; in an open loop the
requests leave at intended instants, and latency counts from there, so that a stall counts for every call it meets.
"""

from __future__ import annotations

import base64
import json
import statistics
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from bench import stats
from bench.schedule import schedule
from bench.stats import Estimate, Turns
from bench.table import Line
from integration import build
from integration.harness.cgroups import hierarchies
from integration.harness.cri import RUNTIME
from koord.pb.cri import api_pb2 as pb

# What the relay may add to a call that takes 100 µs directly. On a machine that is slower just now both are longer.
ADDED_US, ADDED_AT_DIRECT_US = 80, 100
CALLERS = 8
BLOCK = {"cri-bench": 20, "raw-bench": 50}  # calls in one turn of a socket
CONNECTION_CALLS = 500  # of a closed loop on one connection: the sample, because connections differ
HELD_BLOCK, HELD_CONNECTION_CALLS, HELD_WARM_UP = 5, 100, 20  # each takes a millisecond
MIN_RATIO = {"Go": 0.6, "raw": 0.45}  # of direct, with all callers on one connection

# The client of the open loop runs under SCHED_FIFO, which v1 allows in the root group.
IN_ROOT_GROUP = ("sh", "-c", 'echo $$ > "$0" && exec "$@"')


@dataclass(frozen=True, slots=True)
class Call:
    """What the open loop calls: a unary method by its name and path, an encoded request, the answers' grpc-status."""

    name: str
    path: str
    request: bytes
    status: str

    def options(self) -> tuple[str, ...]:
        message = base64.b64encode(self.request).decode("ascii")
        return ("-path", self.path, "-message", message, "-status", self.status)


VERSION = Call("Version", RUNTIME + "Version", pb.VersionRequest(version="0.1.0").SerializeToString(), "0")


@dataclass(frozen=True, slots=True)
class Calls:
    """What one program measured; all by the name of the socket.

    ``latency_us``: single calls by turn. ``per_s``: rates by number of connections. ``late_us``: in an open loop, how
    late the client itself was.
    """

    latency_us: Mapping[str, Turns]
    per_s: Mapping[int, Mapping[str, list[float]]]
    late_us: list[float]

    @classmethod
    def of(cls, report: Mapping[str, Any]) -> Calls:
        rates = {row["connections"]: row["per_s"] for row in report.get("throughput", ())}
        return cls(report.get("latency_us", {}), rates, report.get("sent_late_us", []))


def closed_loop(program: str, sockets: Mapping[str, Path], seconds: float, *, throughput: bool = True) -> Calls:
    """Twice ``seconds`` of single calls, then ``seconds`` of ``CALLERS`` on one connection, and on one each."""
    rates_s = seconds if throughput else 0
    options = ("-throughput", f"{rates_s}s", "-callers", str(CALLERS))
    return _in_blocks(program, sockets, 2 * seconds, BLOCK[program], CONNECTION_CALLS, options)


def held_loop(sockets: Mapping[str, Path], seconds: float, call: Call) -> Calls:
    """``seconds`` of ``call`` by one caller in short blocks: the cost of a held call with warm caches."""
    options = ("-throughput", "0s", "-warm-up", str(HELD_WARM_UP), *call.options())
    return _in_blocks("raw-bench", sockets, seconds, HELD_BLOCK, HELD_CONNECTION_CALLS, options)


def _in_blocks(
    program: str, sockets: Mapping[str, Path], seconds: float, block: int, connection_calls: int, options: Sequence[str]
) -> Calls:
    """Turns are connections."""
    blocks = connection_calls // block
    counts = ("-latency", f"{seconds}s", "-block", str(block), "-blocks", str(blocks))
    found = _run((), program, sockets, *counts, *options)
    return replace(found, latency_us={name: stats.merged(each, blocks) for name, each in found.latency_us.items()})


def open_loop(sockets: Mapping[str, Path], seconds: float, rate_per_s: float, call: Call = VERSION) -> Calls:
    """``seconds`` of calls on each socket, at the instants of a Poisson process."""
    prefix = (*IN_ROOT_GROUP, str(hierarchies()["cpu"] / "cgroup.procs"))
    turns = schedule(list(sockets), seconds, rate_per_s)
    plan = json.dumps([asdict(turn) for turn in turns])
    return _run(prefix, "raw-bench", sockets, "-open", *call.options(), plan=plan)


def _run(prefix: tuple[str, ...], program: str, sockets: Mapping[str, Path], *options: str, plan: str = "") -> Calls:
    sides = [word for name, socket in sockets.items() for word in ("-side", f"{name}={socket}")]
    argv = [*prefix, str(build.build("cri") / program), *sides, *options]
    done = subprocess.run(argv, check=True, input=plan, stdout=subprocess.PIPE, text=True)
    return Calls.of(json.loads(done.stdout))


def closed_lines(client: str, calls: Calls, proxied: str = "proxied") -> list[Line]:
    """Rows of a closed loop: latency, then throughput."""
    direct, through = calls.latency_us["direct"], calls.latency_us[proxied]
    medians = _medians(direct), _medians(through)
    median_us = statistics.median(medians[0])
    added = stats.paired(stats.added, *medians)
    figure = f"{microseconds(added)} = {added.value / median_us:.2f} of direct; direct {median_us:.0f} µs"
    target, met = "", None
    if client == "Go":
        target = f"<= {ADDED_US} µs at direct {ADDED_AT_DIRECT_US} µs"
        met = added.value <= ADDED_US * max(1, median_us / ADDED_AT_DIRECT_US)
    lines = [Line(f"{client} client: added p50 of Version", figure, target, met)]
    lines += percentile_lines(f"{client} client", direct, through, (99.0, 99.9))
    return [*lines, *(_throughput(client, count, rates, proxied) for count, rates in calls.per_s.items())]


def compared_lines(client: str, calls: Calls) -> list[Line]:
    """What "new" adds against what "old" adds to "direct"."""
    medians = [_medians(calls.latency_us[name]) for name in ("direct", "old", "new")]
    ratio = stats.paired(stats.ratio_of_added, *medians)
    [tail] = stats.added_percentiles(calls.latency_us["old"], calls.latency_us["new"], (99.0,))
    figure = f"{ratio.value:.2f} [{ratio.low:.2f}, {ratio.high:.2f}]"
    return [
        Line(f"{client} client: added p50, new / old", figure, "not over 1", ratio.low <= 1),
        Line(f"{client} client: p99, new - old", microseconds(tail), "not over 0", tail.low <= 0),
    ]


def held_line(calls: Calls, name: str, base: str = "direct") -> Line:
    """The median that ``name`` takes longer than ``base`` for calls that are held."""
    before, after = (_medians(calls.latency_us[side]) for side in (base, name))
    added = stats.paired(stats.added, before, after)
    figure = f"{microseconds(added)}; {base} {statistics.median(before):,.0f} µs"
    if base == "direct":
        return Line("raw client: added p50 of CreateContainer, held", figure)
    return Line(f"raw client: p50 of CreateContainer, held, {name} - {base}", figure, "not over 0", added.low <= 0)


def _medians(turns: Turns) -> list[float]:
    return [statistics.median(turn) for turn in turns]


def percentile_lines(
    who: str, direct: Turns, proxied: Turns, percents: Sequence[float] = stats.PERCENTILES, method: str = VERSION.name
) -> list[Line]:
    """One row for each percentile that the proxy adds to."""
    count, plain = sum(map(len, direct)), stats.all_of(direct)
    return [
        Line(
            f"{who}: added p{percent:g} of {method}",
            f"{microseconds(estimate)}; direct {stats.percentile(plain, percent):,.0f} µs, {count:,} calls",
        )
        for percent, estimate in zip(percents, stats.added_percentiles(direct, proxied, percents), strict=True)
    ]


def microseconds(estimate: Estimate) -> str:
    return f"{estimate.value:+,.0f} µs [{estimate.low:+,.0f}, {estimate.high:+,.0f}]"


def late_line(calls: Calls) -> Line:
    """How far the open loop's client can be trusted."""
    late = [f"p{percent:g} {stats.percentile(calls.late_us, percent):,.0f} µs" for percent in stats.PERCENTILES]
    return Line("open loop: the client sent late by", ", ".join(late))


def _throughput(client: str, connections: int, per_s: Mapping[str, list[float]], proxied: str) -> Line:
    ratio = stats.ratio(per_s["direct"], per_s[proxied])
    target = MIN_RATIO[client] if connections == 1 else None
    return Line(
        f"{client} client: {CALLERS} callers on {connections} connection{'s' * (connections > 1)}",
        f"{ratio:.2f} of direct; direct {statistics.median(per_s['direct']):,.0f}/s",
        f">= {target} " if target else "",
        ratio >= target if target else None,
    )

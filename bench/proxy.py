"""What the runtime proxy costs: calls, throughput, pod creation, memory, start; then calls on a saturated node.

``python -m bench.proxy``; with ``--against COMMIT``, what this version costs beside an older one. Everything is
measured side by side on one private containerd, in turns, because the machine's speed varies by the minute; a figure
without its direct twin would mean nothing. Exits with 0 only if it ran to the end; a missed target is printed, not an
error. Needs root.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import socket
import statistics
import struct
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import FrameType, MappingProxyType
from typing import TypeVar

from bench import calls, creates, saturation, stats, versions
from bench.held import refused_creation
from bench.starts import exec_to_serving_ms
from bench.table import Line, meets, summary
from integration.harness import cgroups, containerd
from integration.harness.containerd import Containerd
from integration.harness.proxy import proxy

OPEN_LOOP, HELD_LOOP = 5, 2  # times as long as a closed loop: p99.9 needs 10,000 calls, p99 2,000
HELD_RATE_PER_S = 100
HELD_PERCENTILES = (50.0, 99.0)
ADDED_P99_US = 1_000  # on the saturated node, with the units' settings
SETTLE_S = 1.0
BOUND_S = 120  # that the saturated node may last beyond its measurement


@dataclass(frozen=True, slots=True)
class Options:
    pairs: int
    seconds: float
    starts: int
    rate_per_s: float

    @property
    def open_s(self) -> float:
        """Length of the open loop, for each socket."""
        return OPEN_LOOP * self.seconds

    @property
    def held_s(self) -> float:
        """Length of the open loop of calls that are held."""
        return HELD_LOOP * self.seconds


@dataclass(slots=True)
class Table:
    """Rows, each printed as soon as it is known."""

    lines: list[Line] = field(default_factory=list)

    def add(self, *lines: Line) -> None:
        self.lines.extend(lines)
        for line in lines:
            print(line.text(), flush=True)

    def title(self, text: str) -> None:
        print(f"\n{text}" if self.lines else text, flush=True)


P = TypeVar("P")
Part = Callable[[Path, Containerd, Options, Table], None]


def memory_line(pid: int, whose: str = "the proxy") -> Line:
    status = Path(f"/proc/{pid}/status").read_text()
    mib = int(status.partition("VmRSS:")[2].split()[0]) / 1024
    return Line(f"resident memory of {whose} after that", f"{mib:.1f} MiB", "<= 40 MiB", mib <= 40)


def start_line(times_ms: Sequence[float]) -> Line:
    median = statistics.median(times_ms)
    figure = f"{median:.0f} ms (max {max(times_ms):.0f}, of {len(times_ms)})"
    return Line("exec to first answered call", figure, "<= 150 ms", median <= 150)


def behind(path: Path) -> int:
    """The process that listens on a unix socket (its SO_PEERCRED)."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.connect(str(path))
        pid: int = struct.unpack("3i", client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]
        return pid


def measure(directory: Path, options: Options, table: Table, parts: Iterable[Part]) -> list[Line]:
    """Those parts, on one containerd; returns all rows."""
    with containerd.private(containerd.installed(), directory / "c") as runtime:
        for part in parts:
            part(directory, runtime, options, table)
    return table.lines


@contextlib.contextmanager
def beside(directory: Path, runtime: Containerd) -> Iterator[tuple[dict[str, Path], str]]:
    """The runtime's socket and a proxy's in front of it, and a cgroup for pods."""
    with (
        cgroups.root(f"/koord-bench-{os.getpid()}") as root,
        proxy(runtime.socket, directory) as relayed,
    ):
        yield {"direct": runtime.socket, "proxied": relayed}, f"{root}/kubepods"


def idle_calls(directory: Path, runtime: Containerd, options: Options, table: Table) -> None:
    table.title("idle node: calls")
    with beside(directory / "calls", runtime) as (sockets, kubepods):
        table.add(*calls.closed_lines("Go", calls.closed_loop("cri-bench", sockets, options.seconds)))
        table.add(*calls.closed_lines("raw", calls.closed_loop("raw-bench", sockets, options.seconds)))
        opened = calls.open_loop(sockets, options.open_s, options.rate_per_s)
        direct, proxied = opened.latency_us["direct"], opened.latency_us["proxied"]
        table.add(*calls.percentile_lines(f"open loop, {options.rate_per_s:g}/s", direct, proxied))
        table.add(calls.late_line(opened))
        with refused_creation(runtime.socket, kubepods) as call:
            table.add(calls.held_line(calls.held_loop(sockets, options.held_s, call), "proxied"))
            held = calls.open_loop(sockets, options.held_s, HELD_RATE_PER_S, call).latency_us
        who = f"open loop, {HELD_RATE_PER_S}/s"
        table.add(*calls.percentile_lines(who, held["direct"], held["proxied"], HELD_PERCENTILES, call.name))
        table.add(memory_line(behind(sockets["proxied"])))


def idle_creation(directory: Path, runtime: Containerd, options: Options, table: Table) -> None:
    table.title("idle node: creation")
    with beside(directory / "creation", runtime) as (sockets, kubepods):
        times = creates.measure(sockets, options.pairs, kubepods)
        table.add(*creates.lines(times["direct"], times["proxied"]), memory_line(behind(sockets["proxied"])))


def start(directory: Path, runtime: Containerd, options: Options, table: Table) -> None:
    """Of a proxy with a hook server, which another one asks already."""
    table.title("idle node: start")
    with beside(directory / "start", runtime):
        argv = [sys.executable, "-m", "runtimeproxy", "--remote-runtime-service-endpoint", str(runtime.socket)]
        argv += ["--koord-runtimeproxy-endpoint", str(directory / "s.sock"), "--metrics-endpoint", ""]
        argv += ["--hookserver-dir", str(directory / "start" / "hookserver.d")]
        log = directory / "starts.log"
        table.add(start_line([exec_to_serving_ms(argv, directory / "s.sock", log) for _ in range(options.starts)]))


def saturated(directory: Path, runtime: Containerd, options: Options, table: Table) -> None:
    """The open loop beside best-effort work: without the units' settings, and with them."""
    weight = saturation.koord_weight()
    shares = saturation.shares_of_weight(weight)
    bound_s = int(3 * (options.open_s + options.held_s)) + BOUND_S
    with (
        cgroups.root(f"/koord-bench-{os.getpid()}") as root,
        refused_creation(runtime.socket, f"{root}/kubepods") as call,
        proxy(runtime.socket, directory / "without") as without,
        proxy(runtime.socket, directory / "with") as with_settings,
        saturation.saturated(f"koord-bench-{os.getpid()}", shares, bound_s, directory / "spin.log") as node,
    ):
        node.system.join(runtime.pid, behind(without), behind(directory / "without" / "hooks.sock"))
        node.koord.join(behind(with_settings), behind(directory / "with" / "hooks.sock"))
        table.title(f"every CPU saturated by best-effort work; koord.slice: CPUWeight={weight}, {shares} shares")
        time.sleep(SETTLE_S)
        sockets = {"direct": runtime.socket, "without": without, "with": with_settings}
        opened = calls.open_loop(sockets, options.open_s, options.rate_per_s)
        table.add(*saturated_lines(opened, calls.VERSION, stats.PERCENTILES, ADDED_P99_US), calls.late_line(opened))
        held = calls.open_loop(sockets, options.held_s, HELD_RATE_PER_S, call)
        table.add(*saturated_lines(held, call, HELD_PERCENTILES))


def saturated_lines(
    opened: calls.Calls, call: calls.Call, percents: Sequence[float], at_most_p99_us: float | None = None
) -> list[Line]:
    """Each percentile in system.slice, which is what the units would have by default, and in koord.slice."""
    direct, sides = opened.latency_us["direct"], ("without", "with")
    without, with_settings = (stats.added_percentiles(direct, opened.latency_us[side], percents) for side in sides)
    lines = []
    for percent, default, chosen in zip(percents, without, with_settings, strict=True):
        direct_us = stats.percentile(stats.all_of(direct), percent)
        at_most_us = at_most_p99_us if percent == 99 else None
        lines.append(
            Line(
                f"saturated, koord.slice: added p{percent:g} of {call.name}",
                f"{calls.microseconds(chosen)} (system.slice: {calls.microseconds(default)});"
                f" direct {direct_us:,.0f} µs, {sum(map(len, direct)):,} calls",
                f"<= {at_most_us / 1000:g} ms" if at_most_us else "",
                meets(chosen, at_most_us, at_most_us) if at_most_us else None,
            )
        )
    return lines


@dataclass(frozen=True, slots=True)
class Sides:
    """By name, "direct" (the runtime itself), "old" and "new", each side's socket; ``kubepods``: a cgroup for pods."""

    sockets: Mapping[str, Path]
    kubepods: str

    @property
    def proxied(self) -> list[str]:
        return [name for name in self.sockets if name != "direct"]


Comparison = Callable[[Sides, Options, Table], list[Line]]


def against(directory: Path, commit: str, options: Options, table: Table, parts: Iterable[Comparison]) -> list[Line]:
    """This version and that of ``commit``, both with their koord-qosd, beside a direct connection.

    Returns the rows that compare the two.
    """
    trees = {"old": versions.checked_out(commit, directory / "trees"), "new": versions.REPOSITORY}
    with contextlib.ExitStack() as stack:
        runtime = stack.enter_context(containerd.private(containerd.installed(), directory / "c"))
        root = stack.enter_context(cgroups.root(f"/koord-bench-{os.getpid()}"))
        sockets = {"direct": runtime.socket}
        for name, tree in trees.items():
            sockets[name] = stack.enter_context(versions.serving(tree, runtime.socket, directory / name))
        sides = Sides(sockets, f"{root}/kubepods")
        table.title(f"old: {commit}; new: this tree")
        compared = [line for part in parts for line in part(sides, options, table)]
        table.add(*(memory_line(behind(sockets[name]), f"the {name} proxy") for name in sides.proxied))
        table.add(*compared)
        return compared


def compared_calls(sides: Sides, options: Options, table: Table) -> list[Line]:
    go, raw = (calls.closed_loop(name, sides.sockets, options.open_s / 2, throughput=False) for name in calls.BLOCK)
    opened = calls.open_loop(sides.sockets, options.open_s, options.rate_per_s)
    with refused_creation(sides.sockets["direct"], sides.kubepods) as call:
        held = calls.held_loop(sides.sockets, options.open_s, call)
    for name in sides.proxied:
        who, direct, proxied = f"{name}, open loop", opened.latency_us["direct"], opened.latency_us[name]
        table.add(*calls.closed_lines(f"{name}, Go", go, name), *calls.closed_lines(f"{name}, raw", raw, name))
        table.add(*calls.percentile_lines(who, direct, proxied))
        table.add(replace(calls.held_line(held, name), label=f"{name}, raw client: added p50 of {call.name}, held"))
    return [*calls.compared_lines("Go", go), *calls.compared_lines("raw", raw), calls.held_line(held, "new", "old")]


def compared_creation(sides: Sides, options: Options, table: Table) -> list[Line]:
    made = creates.measure(sides.sockets, options.pairs, sides.kubepods)
    for name in sides.proxied:
        table.add(*creates.lines(made["direct"], made[name], f", {name}"))
    return [creates.compared_line(made)]


PARTS: Mapping[str, Part] = MappingProxyType(
    {"calls": idle_calls, "creation": idle_creation, "start": start, "saturated": saturated}
)
COMPARISONS: Mapping[str, Comparison] = MappingProxyType({"calls": compared_calls, "creation": compared_creation})


def selected(parts: Mapping[str, P], only: str | None) -> Iterable[P]:
    return (parts[only],) if only else parts.values()


def _interrupted(_number: int, _frame: FrameType | None) -> None:
    """Ends the processes once; a second signal does not interrupt that."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.proxy", description="Measure the runtime proxy.")
    parser.add_argument("--pairs", type=int, default=1000, help="pod creations on each socket (default 1000)")
    parser.add_argument("--seconds", type=float, default=10, help="length of a throughput row; all in proportion (10)")
    parser.add_argument("--rate", type=float, default=200, help="calls per second in the open loop (default 200)")
    parser.add_argument("--starts", type=int, default=20, help="starts of the proxy (default 20)")
    parser.add_argument("--against", metavar="COMMIT", help="measure this version beside an older one")
    parser.add_argument("--only", choices=PARTS, help="measure this part alone")
    chosen = parser.parse_args()
    if chosen.against and chosen.only not in (None, *COMPARISONS):
        parser.error(f"--only {chosen.only} compares no versions; with --against it may be {' or '.join(COMPARISONS)}")
    options = Options(chosen.pairs, chosen.seconds, chosen.starts, chosen.rate)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupted)
    table = Table()
    try:
        with tempfile.TemporaryDirectory(prefix="koord-bench-") as name:
            if chosen.against:
                last = against(Path(name), chosen.against, options, table, selected(COMPARISONS, chosen.only))
            else:
                last = measure(Path(name), options, table, selected(PARTS, chosen.only))
    except KeyboardInterrupt:
        print("interrupted; everything that was started is gone", file=sys.stderr)
        return 1
    print(summary("bench-proxy", last))
    return 0


if __name__ == "__main__":
    sys.exit(main())

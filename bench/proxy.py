"""What the runtime proxy costs: calls, throughput, pod creation, memory, start. ``python -m bench.proxy``.

Everything is measured side by side on one private containerd, in alternation, because the machine's speed varies by
the minute; a figure without its direct twin would mean nothing. Exits with 0 only if it ran to the end; a missed
target is printed, not an error. Needs root.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import creates, stats
from bench.starts import exec_to_serving_ms
from integration import build
from integration.harness import cgroups, containerd
from integration.harness.proxy import proxy

CREATE_RESOLUTION_PERCENT = 3.0
# What the relay may add to a call that takes 100 µs directly. On a machine that is slower just now both are longer.
ADDED_US, ADDED_AT_DIRECT_US = 80, 100
CALLERS = 8


@dataclass(frozen=True, slots=True)
class Line:
    """One row of the table; ``met`` is None where there is no target."""

    what: str
    figure: str
    target: str = ""
    met: bool | None = None

    def text(self) -> str:
        verdict = {None: "", True: "met", False: "MISSED"}[self.met]
        return f"{self.what:<52} {self.figure:<56} {self.target:<26} {verdict}".rstrip()


def go_lines(report: dict[str, Any]) -> list[Line]:
    """Rows of ``cri-bench``: kubelet's gRPC library."""
    latency = report["latency"]
    added_us, direct_us = latency["paired_median_us"], latency["direct"]["p50_us"]
    interval = f"[{latency['paired_low_us']:.0f}, {latency['paired_high_us']:.0f}]"
    figure = f"+{added_us:.0f} µs {interval} = {added_us / direct_us:.2f} of direct; direct {direct_us:.0f} µs"
    met = added_us <= ADDED_US * max(1, direct_us / ADDED_AT_DIRECT_US)
    lines = [Line("Go client: added p50 of Version", figure, "<= 80 µs at direct 100 µs", met)]
    for row in report["throughput"]:
        target = 0.6 if row["connections"] == 1 else None
        lines.append(_throughput("Go", row["connections"], row["ratio"], row["direct_per_s"], target))
    return lines


def raw_lines(report: dict[str, Any]) -> list[Line]:
    """Rows of ``raw-bench``: encoded frames, answers counted."""
    latency = report["latency_us"]
    added = stats.paired(latency["direct"], latency["proxied"], stats.added)
    direct = statistics.median(latency["direct"])
    figure = f"+{added.value:.0f} µs [{added.low:.0f}, {added.high:.0f}]; direct {direct:.0f} µs"
    lines = [Line("raw client: added p50 of Version", figure)]
    for row in report["throughput"]:
        rates = row["per_s"]
        target = 0.45 if row["connections"] == 1 else None
        value = stats.ratio(rates["direct"], rates["proxied"])
        lines.append(_throughput("raw", row["connections"], value, statistics.median(rates["direct"]), target))
    return lines


def _throughput(client: str, connections: int, ratio: float, direct_per_s: float, target: float | None) -> Line:
    what = f"{client} client: {CALLERS} callers on {connections} connection{'s' * (connections > 1)}"
    figure = f"{ratio:.2f} of direct; direct {direct_per_s:,.0f}/s"
    return Line(what, figure, f">= {target} " if target else "", ratio >= target if target else None)


def create_line(found: creates.Creates) -> Line:
    """Pod and container through the hooks, in % of a direct creation."""
    added = stats.paired(found.direct_ms, found.proxied_ms, stats.added_percent)
    pairs, direct_ms = len(found.direct_ms), statistics.median(found.direct_ms)
    figure = f"{added.value:+.1f} % [{added.low:+.1f}, {added.high:+.1f}]; direct {direct_ms:.1f} ms"
    if added.half_width > CREATE_RESOLUTION_PERCENT:
        return Line(f"pod + container with hooks, {pairs} pairs", figure + " not resolved", "<= 3 %")
    return Line(f"pod + container with hooks, {pairs} pairs", figure, "<= 3 %", added.value <= 3)


def memory_line(pid: int) -> Line:
    status = Path(f"/proc/{pid}/status").read_text()
    mib = int(status.partition("VmRSS:")[2].split()[0]) / 1024
    return Line("resident memory of the proxy after all this", f"{mib:.1f} MiB", "<= 40 MiB", mib <= 40)


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


def run_program(name: str, direct: Path, proxied: Path, seconds: float) -> dict[str, Any]:
    program = build.build("cri") / name
    argv = [str(program), "-direct", str(direct), "-proxied", str(proxied)]
    argv += ["-latency", f"{seconds}s", "-throughput", f"{seconds}s", "-callers", str(CALLERS)]
    done = subprocess.run(argv, check=True, stdout=subprocess.PIPE, text=True)
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def measure(directory: Path, pairs: int, seconds: float, starts: int) -> list[Line]:
    """All rows, in the order of the table; each is printed as soon as it is known."""
    lines: list[Line] = []

    def add(*new: Line) -> None:
        lines.extend(new)
        for line in new:
            print(line.text(), flush=True)

    release, group = containerd.installed(), f"/koord-bench-{os.getpid()}"
    with containerd.private(release, directory / "c") as runtime, cgroups.root(group) as root:
        with proxy(runtime.socket, directory / "p") as relayed:
            add(*go_lines(run_program("cri-bench", runtime.socket, relayed, seconds)))
            add(*raw_lines(run_program("raw-bench", runtime.socket, relayed, seconds)))
            add(create_line(creates.measure(runtime.socket, relayed, pairs, f"{root}/kubepods")))
            add(memory_line(behind(relayed)))
        argv = [sys.executable, "-m", "runtimeproxy", "--remote-runtime-service-endpoint", str(runtime.socket)]
        argv += ["--koord-runtimeproxy-endpoint", str(directory / "s.sock"), "--metrics-endpoint", ""]
        argv += ["--hookserver-dir", str(directory / "p" / "hookserver.d")]
        log = directory / "starts.log"
        add(start_line([exec_to_serving_ms(argv, directory / "s.sock", log) for _ in range(starts)]))
    return lines


def summary(lines: Sequence[Line]) -> str:
    """The last line: every figure that has a target."""
    parts = [f"{line.what}: {line.figure.partition(';')[0]}" for line in lines if line.target]
    missed = [line.what for line in lines if line.met is False]
    return f"bench-proxy: {'; '.join(parts)} | " + (f"MISSED: {', '.join(missed)}" if missed else "all targets met")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.proxy", description="Measure the runtime proxy.")
    parser.add_argument("--pairs", type=int, default=1000, help="interleaved pod creations on each side (default 1000)")
    parser.add_argument("--seconds", type=float, default=10, help="length of each latency and throughput measurement")
    parser.add_argument("--starts", type=int, default=20, help="starts of the proxy")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="koord-bench-") as directory:
        lines = measure(Path(directory), chosen.pairs, chosen.seconds, chosen.starts)
    print(summary(lines))
    return 0


if __name__ == "__main__":
    sys.exit(main())

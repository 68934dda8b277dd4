"""How much a latency-sensitive service suffers from best-effort work, by policy. ``python -m bench.protection``.

The service answers requests that come at intended instants, whatever happens; best-effort work is a storm of busy
processes, of copying, or of forks. For each policy turns without a storm and turns with each of them alternate, so that
a ratio compares neighbours. Exits with 0 only if it ran to the end; all it made is removed in any case. Needs root,
containerd and cgroup v1.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from bench.protection import plot, report
from bench.protection.campaign import measured
from bench.protection.node import node
from bench.protection.policies import PROTECTED, UNPROTECTED
from bench.protection.turns import LATENCY_FILE, Bench, Turn, polling
from bench.protection.workloads import WORKLOADS


def for_the_record(bench: Bench, rounds: int, seconds: float) -> dict[str, list[Turn]]:
    """The service alone while idle CPUs sleep, and while they poll, where the kernel can be told so."""
    bench.node.blow(None)
    means: dict[str, Callable[[], AbstractContextManager[None]]] = {"asleep": nullcontext}
    if LATENCY_FILE.exists():
        means["polling"] = polling
    found: dict[str, list[Turn]] = {name: [] for name in means}
    for _ in range(rounds):
        for name, mean in means.items():
            with mean():
                found[name].append(bench.turn(None, seconds))
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.protection", description="Measure the protection.")
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=2.0, help="length of a turn (default 2)")
    parser.add_argument("--only", action="append", default=[], help="a policy's name; may be given again")
    parser.add_argument("--service", choices=WORKLOADS, default="own", help="which service suffers (default own)")
    parser.add_argument("--plot", type=Path, help="draw the figures into this SVG file")
    chosen = parser.parse_args(arguments)
    workload = WORKLOADS[chosen.service]
    policies = [each for each in (*UNPROTECTED, *PROTECTED) if not chosen.only or each.name in chosen.only]
    with (
        tempfile.TemporaryDirectory(prefix="koord-protect-") as name,
        node(Path(name), workload.command()) as made,
        workload.client() as client,
    ):
        bench = Bench(made, client)
        record = for_the_record(bench, chosen.rounds, chosen.seconds)
        all_found = [measured(each, bench, chosen.rounds, chosen.seconds) for each in policies]
    print(report.text(record, all_found, bench.repeated))
    if chosen.plot:
        plot.draw(all_found, chosen.plot)
    print(report.last_line(all_found))
    return 0


if __name__ == "__main__":
    sys.exit(main())

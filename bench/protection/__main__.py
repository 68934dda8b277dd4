"""How much a latency-sensitive service suffers from best-effort work, by policy. ``python -m bench.protection``.

The service answers requests that come at intended instants, whatever happens; best-effort work is a storm of busy
processes, of copying, or of forks. For each policy turns without a storm and turns with each of them alternate, so that
a ratio compares neighbours. Exits with 0 only if it ran to the end; all it made is removed in any case. Needs root,
containerd and cgroup v1.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from bench.protection import plot, report
from bench.protection.campaign import measured
from bench.protection.node import node
from bench.protection.policies import PROTECTED, UNPROTECTED
from bench.protection.turns import Bench
from bench.protection.workloads import WORKLOADS


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.protection", description="Measure the protection.")
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=1.3, help="length of a turn (default 1.3)")
    parser.add_argument("--only", action="append", default=[], help="a policy's name; may be given again")
    parser.add_argument("--service", choices=WORKLOADS, default="own", help="which service suffers (default own)")
    parser.add_argument("--plot", type=Path, help="draw the figures into this SVG file")
    chosen = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    workload = WORKLOADS[chosen.service]
    policies = [each for each in (*UNPROTECTED, *PROTECTED) if not chosen.only or each.name in chosen.only]
    with (
        tempfile.TemporaryDirectory(prefix="koord-protect-") as name,
        node(Path(name), workload.command()) as made,
        workload.client() as client,
    ):
        bench = Bench(made, client)
        made.blow(None)
        asleep = [bench.turn(None, chosen.seconds) for _ in range(chosen.rounds)]
        all_found = [measured(each, bench, chosen.rounds, chosen.seconds) for each in policies]
    print(report.text(asleep, all_found, bench.repeated))
    if chosen.plot:
        plot.draw(all_found, chosen.plot)
    print(report.last_line(all_found))
    return 0


if __name__ == "__main__":
    sys.exit(main())

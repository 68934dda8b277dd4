"""``make screenshot FILE``: ``koordctl top`` on a terminal, beside a service and a best-effort hog, as an SVG.

What it cost goes to standard output: the CPU time of koordctl, and that of koord-qosd with it and without.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from integration.demo import pods
from integration.demo.stage import CGROUP_ROOT, Stage, stage
from release import screenshot

COLUMNS, ROWS = 100, 16
BEFORE_S, MEASURED_S, AFTER_S = 40.0, 30.0, 25.0
TITLE = "koordctl top: a service and a best-effort hog, which CPU suppression holds back"


def main(arguments: list[str]) -> int:
    (target,) = arguments
    with tempfile.TemporaryDirectory(prefix="koord-demo-") as name, stage(Path(name)) as played:
        if played.node.simulated:
            print(f"this machine has no real node: {played.node.description}", file=sys.stderr)
            return 1
        made = (pods.latency_sensitive_reserved, pods.latency_sensitive, pods.best_effort, pods.busy_service, pods.hog)
        for make in made:
            played.start(make(CGROUP_ROOT))
        time.sleep(BEFORE_S)
        Path(target).write_text(screenshot.svg(_screen(played), TITLE), encoding="utf-8")
        played.cri.remove_all()
    return 0


def _screen(played: Stage) -> screenshot.Screen:
    """The screen some time after suppression has begun."""
    daemon = _pid_of("qosd")
    alone_s = _measured(daemon, time.sleep)
    command = [sys.executable, "-m", "koordctl", "top", "--socket", str(played.inspect_socket)]
    with screenshot.running(command, COLUMNS, ROWS) as session:
        session.wait(lambda screen: "default/hog" in screen.text)

        def watch(seconds: float) -> None:
            end_s = time.monotonic() + seconds
            while (left_s := end_s - time.monotonic()) > 0:
                session.read(left_s)

        own_before_s = _cpu_s(session.process.pid)
        with_top_s = _measured(daemon, watch)
        own_s = _cpu_s(session.process.pid) - own_before_s
        played.set_rules(played.rules + pods.SUPPRESSION)
        watch(AFTER_S)
        print(f"koordctl top, {COLUMNS}x{ROWS}, every second, {MEASURED_S:g} s: {1000 * own_s / MEASURED_S:.1f}m CPU")
        alone_milli, with_milli = 1000 * alone_s / MEASURED_S, 1000 * with_top_s / MEASURED_S
        print(f"koord-qosd: {alone_milli:.1f}m CPU without, {with_milli:.1f}m with it")
        print(session.screen.text)
        session.send("q")
        shown = session.screen.cells
        session.end()
        if session.screen.unknown:
            raise ValueError(f"control sequences that no terminal here knows: {session.screen.unknown}")
        return screenshot.Screen(COLUMNS, ROWS, cells=shown)


def _measured(pid: int, wait: Callable[[float], None]) -> float:
    """The CPU seconds of a process while one waits."""
    before_s = _cpu_s(pid)
    wait(MEASURED_S)
    return _cpu_s(pid) - before_s


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _pid_of(module: str) -> int:
    """The child of this process that runs ``module``."""
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    return next(int(pid) for pid in children if f"\0{module}\0".encode() in Path(f"/proc/{pid}/cmdline").read_bytes())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""200 pods made and removed at random: nothing escapes as an error, and nothing of a gone pod stays anywhere.

Once with containerd, as fast as it can, and once with cgroup directories alone at twenty ticks a second, so that
directories vanish between any two calls. What is looked at is outside of koord-qosd: its log, its descriptors and
inotify watches in /proc, its metrics, the undo record, and what ``koordctl`` says.
"""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from integration.harness.pods import Pod
from integration.node import kinds, settings
from integration.node.churn import Node, churning
from integration.node.conftest import MakeDaemon
from integration.node.daemon import Daemon
from integration.node.directories import Directories

PODS = 200
WARM_UP_S = 12.0  # the slowest collectors open their files every ten seconds
SETTLE_S = 30.0
FAST = ("--tick-interval", "0.05")
FAST_S = 20 * settings.MINUTES
_UID = re.compile(r'(?:pod_)?uid="([^"]+)"')
_POD = re.compile(r"/pod([0-9a-f-]{36})")


@dataclass(frozen=True, slots=True)
class Footprint:
    """What a koord-qosd has of its pods; ``series`` and ``held`` are UIDs of pods that it does not list any more.

    ``descriptors``: without those of block I/O, which v1 begins to count with the first of some tier.
    ``dangling``: those to a pod's cgroup that is gone.
    """

    pods: int
    descriptors: int
    dangling: frozenset[str]
    watches: int
    series: frozenset[str]
    """In /metrics, or with a sample that ``koordctl metrics`` shows."""
    held: frozenset[str]
    """With a file in the undo record."""
    owned: int
    opinions: int


def footprint(daemon: Daemon) -> Footprint:
    node, listed = daemon.koordctl("node"), {pod["uid"] for pod in daemon.koordctl("pods")["pods"]}
    samples = daemon.koordctl("metrics")["metrics"]
    subjects = [sample["subject"] for metric in samples for sample in metric["samples"]]
    shown = {uid for subject in subjects for uid in _POD.findall(subject)}
    descriptors = daemon.descriptors()
    return Footprint(
        len(listed),
        sum("/blkio.throttle." not in each for each in descriptors),
        frozenset(each for each in descriptors if _POD.search(each) and not os.path.exists(each)),
        daemon.inotify_watches(),
        frozenset(shown | set(_UID.findall(daemon.page("/metrics")[1]))) - listed,
        frozenset(uid for path in daemon.held() for uid in _POD.findall(path)) - listed,
        node["owned_files"],
        sum(strategy["opinions"] for strategy in node["strategies"]),
    )


def back_to(daemon: Daemon, base: Footprint) -> Footprint:
    """Wait until nothing is left of the churn; what is there in the end, equal to ``base`` or not."""
    until, found = time.monotonic() + SETTLE_S, footprint(daemon)
    while found != base and time.monotonic() < until:
        time.sleep(0.5)
        found = footprint(daemon)
    return found


def test_pods_on_containerd(make_daemon: MakeDaemon, anchor: Pod, runtime: Path, kubepods: str) -> None:
    daemon = make_daemon(kinds.RULES)
    daemon.start()
    time.sleep(WARM_UP_S)
    base, rss_mib, began_s = footprint(daemon), daemon.rss_mib(), time.monotonic()
    node = Node(runtime, kubepods, settings.SEED)
    with churning(node, PODS, foreign_hz=5):
        most = max(watched(daemon, settings.MINUTES * 60))
    rate = (node.tally.created + node.tally.removed) / (time.monotonic() - began_s)
    print(
        f"\n{node.tally.text()} (SEED={settings.SEED}), {rate:.1f} a second on containerd, at most {most} at once;"
        f" {base.descriptors} descriptors at rest, {rss_mib:.1f} MiB before, {daemon.rss_mib():.1f} after"
    )
    check(daemon, base)


async def test_directories_at_speed(make_daemon: MakeDaemon, kubepods: str, tmp_path: Path) -> None:
    directories, stop = Directories(kubepods, settings.SEED), asyncio.Event()
    async with directories.runtime.serving(tmp_path / "cri.sock"):
        await directories.anchor()
        daemon = make_daemon(kinds.RULES, FAST, tmp_path / "cri.sock")
        await asyncio.to_thread(daemon.start)
        await asyncio.sleep(WARM_UP_S)
        base = await asyncio.to_thread(footprint, daemon)
        churn = asyncio.create_task(directories.churn(PODS, stop, pause_s=0.01))
        most = max(await asyncio.to_thread(lambda: list(watched(daemon, FAST_S))))
        stop.set()
        await churn
        rate = directories.tally.created / FAST_S
        print(
            f"\n{directories.tally.text()} (SEED={settings.SEED}), {rate:.0f} created a second, at most {most} at once,"
            f" ticks every {FAST[1]} s"
        )
        await asyncio.to_thread(check, daemon, base)


def watched(daemon: Daemon, seconds: float) -> Iterator[int]:
    """How many pods it knows, again and again for so long; it is healthy all the time."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        assert daemon.page("/healthz")[0] == 200
        yield len(daemon.koordctl("pods")["pods"])
        time.sleep(1)


def check(daemon: Daemon, base: Footprint) -> None:
    """Nothing escaped, and nothing is left."""
    left = back_to(daemon, base)
    print(f"at rest again: {left.descriptors} descriptors, {left.watches} watches, results {results(daemon)}")
    assert left == base
    assert escaped(daemon) == []
    assert [daemon.page(page)[0] for page in ("/healthz", "/readyz")] == [200, 200]
    loops = daemon.koordctl("node")["loops"]
    assert [(loop["name"], loop["last_error"]) for loop in loops if loop["failures"]] == []


def escaped(daemon: Daemon) -> Sequence[str]:
    """Lines of the log that tell of an error of koord-qosd's own."""
    return daemon.complaints() + [line for line in daemon.log.splitlines() if " error " in line[:60]]


def results(daemon: Daemon) -> str:
    """The journal's results so far, counted."""
    counts: dict[str, int] = {}
    for row in daemon.journal():
        counts[row.result] = counts.get(row.result, 0) + 1
    return ", ".join(f"{count} {result}" for result, count in counts.items())

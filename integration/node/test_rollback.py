"""What Koord changed comes back, byte for byte: after ``koordctl disable all``, and after SIGKILL and ``restore``."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from integration.demo import pods
from integration.harness.cri import Cri
from integration.harness.processes import wait_for
from integration.node import kinds, settings, walker
from integration.node.churn import Node, churning
from integration.node.conftest import MakeDaemon
from integration.node.daemon import Daemon

WRITTEN = {"cpu.cfs_quota_us", "cpu.shares", "cpu.idle", "cpuset.cpus", "memory.limit_in_bytes"}
KILLS = max(6, round(6 * settings.MINUTES))
CHURN_S = 4 * settings.MINUTES
QUIET_S = 2.0
Changed = dict[str, tuple[bytes, bytes | None]]
SILENT = "node: {hooks: {batchResource: false, cpuset: false, cpuIdle: false}}\n"


@pytest.fixture
def world(cri: Cri, runtime: Path, kubepods: str) -> Iterator[Node]:
    """Two pods of every kind that run before koord-qosd does."""
    node = Node(runtime, kubepods, settings.SEED)
    chance = random.Random(settings.SEED)
    for number in range(2):
        for make in kinds.EVERY:
            node.create(cri, make(chance, f"{make.__name__.replace('_', '-')}-{number}", kubepods))
    node.create(cri, pods.best_effort(kubepods))  # whose limits are not left to chance
    yield node
    node.clear(cri)


def others(world: Node) -> Node:
    """Pods besides those of ``world``; only the runtime writes their files."""
    return Node(world.runtime, world.root, world.seed, foreign=())


def written(daemon: Daemon, before: walker.Values, root: str) -> Changed:
    """Wait until files of every kind differ from ``before``; those that do then."""

    def found() -> Changed | None:
        differing = walker.changed(before, walker.values(root))
        return differing if set(walker.by_name(differing)) >= WRITTEN else None

    return daemon.process.wait_for(found, 20, "koord-qosd to have written")


def settled(daemon: Daemon, before: walker.Values, root: str) -> Changed:
    """Wait until all values of the pods are written; the differences from ``before`` then."""
    last, since = written(daemon, before, root), time.monotonic()

    def found() -> Changed | None:
        nonlocal last, since
        differing = walker.changed(before, walker.values(root))
        if differing != last:
            last, since = differing, time.monotonic()
        is_quiet = time.monotonic() - since > QUIET_S and not daemon.koordctl("plan")["writes"]
        return differing if is_quiet else None

    return daemon.process.wait_for(found, 30, "koord-qosd to have written all")


def test_disabling_gives_everything_back(make_daemon: MakeDaemon, world: Node) -> None:
    before = walker.values(world.root)
    daemon = make_daemon(kinds.RULES)
    daemon.start()
    first = settled(daemon, before, world.root)
    print(f"\n{len(before)} values of {len(world.living)} pods; Koord changed {dict(walker.by_name(first))}")
    more = others(world)
    with churning(more, 12):
        time.sleep(CHURN_S)
    for _ in range(2):
        assert settled(daemon, before, world.root).keys() == first.keys()
        daemon.koordctl("disable", "all")
        assert walker.changed(before, walker.values(world.root)) == {}
        assert daemon.held() == {}
        daemon.koordctl("enable", "all")
    print(f"all as before after {more.tally.text()} (SEED={settings.SEED}), and again after enable and disable")
    assert not daemon.complaints()


def test_what_a_killed_daemon_left_is_restored_without_it(make_daemon: MakeDaemon, world: Node) -> None:
    """Half of the kills come amid the first writes, half amid those that give back."""
    before = walker.values(world.root)
    chance = random.Random(settings.SEED)
    left = []
    more = others(world)
    with churning(more, 12):
        for number in range(KILLS):
            daemon = make_daemon(SILENT)
            daemon.start()
            wait_for(lambda daemon=daemon: daemon.page("/readyz")[0] == 200, 10, "koord-qosd to be ready")  # type: ignore[misc]
            if number % 2:
                change_rules(daemon, kinds.RULES)
                written(daemon, before, world.root)
            lines = undo_lines(daemon) + chance.randint(1, 20)
            change_rules(daemon, SILENT if number % 2 else kinds.RULES)
            until = time.monotonic() + 10
            while undo_lines(daemon) < lines and time.monotonic() < until:
                pass  # the next line is a fraction of a millisecond away
            daemon.kill()
            left.append(len(walker.changed(before, walker.values(world.root))))
            report = daemon.restore()
            assert walker.changed(before, walker.values(world.root)) == {}, report
            assert daemon.held() == {}
    print(f"\n{KILLS} kills left {left} values changed, all restored; {more.tally.text()} (SEED={settings.SEED})")
    assert max(left) > 0


def change_rules(daemon: Daemon, rules: str) -> None:
    (daemon.directory / "rules.yaml").write_text(rules)


def undo_lines(daemon: Daemon) -> int:
    return daemon.undo_file.read_bytes().count(b"\n")


def test_the_next_start_takes_over_what_a_killed_one_left(make_daemon: MakeDaemon, world: Node) -> None:
    before = walker.values(world.root)
    daemon = make_daemon(kinds.RULES)
    daemon.start()
    first = settled(daemon, before, world.root)
    daemon.kill()
    assert walker.changed(before, walker.values(world.root)).keys() == first.keys()
    daemon.start()
    wait_for(lambda: daemon.page("/readyz")[0] == 200, 10, "koord-qosd to be ready")
    assert settled(daemon, before, world.root).keys() == first.keys()
    daemon.koordctl("disable", "all")
    assert walker.changed(before, walker.values(world.root)) == {}
    assert daemon.held() == {}

"""Real threads in real cgroups (v1), moved between groups of an emulated resctrl: forks, newcomers, the way back."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from integration.host.groups import Groups
from koord.host import placement, resctrl
from koord.host.files import Target
from koord.host.placement import Membership, Placed
from koord.host.restoring import planned, restore
from koord.host.undo import UndoRecord
from koord.host.undoable import RestoreOutcome
from koord.host.writer import WriteError, Writer
from qosd.act.actuator import Actuator
from qosd.act.journal import JournalEntry
from qosd.act.mover import RECHECK_S
from qosd.act.moves import MoveOutcome
from qosd.decide.decision import Decision, Stage
from qosd.decide.runner import Decisions, StrategyResult, StrategyStatus

TOP = f"/koord-resctrl-{os.getpid()}"
BOX, NESTED = f"{TOP}/box", f"{TOP}/box/nested"
S = 1_000_000_000
FORKING = """
import os, threading, time
def child():
    if not os.fork():
        time.sleep(0.3)
        os._exit(0)
    try:
        while os.waitpid(-1, os.WNOHANG) != (0, 0):
            pass
    except ChildProcessError:
        pass
for _ in range(20):
    threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
print("ready", flush=True)
for _ in range(3000):
    child()
    time.sleep(0.005)
"""


Memberships = tuple[Membership, ...]


class Node:
    """``want`` where BOX's tasks belong, then ``tick``; seconds pass by the tick's own clock."""

    def __init__(self, root: Path, groups: Groups, mount: Path) -> None:
        self.tree = replace(groups.tree, resctrl=mount)
        self.groups, self.undo = groups, UndoRecord(root / "undo", "boot")
        self.writer, self.entries = Writer(self.tree), list[JournalEntry]()
        self.actuator = Actuator(self.writer, self.undo, self)
        self.now_ns = 0

    def record(self, entry: JournalEntry) -> None:
        self.entries.append(entry)

    def tick(self, memberships: Memberships, seconds: float = 1.0) -> int:
        """How many tasks were moved."""
        self.now_ns += int(seconds * S)
        turn = StrategyResult("resctrl", Stage.SPEC, StrategyStatus.ACTIVE, Decision("", acts=memberships))
        result = self.actuator.tick(Decisions(1, self.now_ns, self.now_ns, (turn,)))
        assert set(result.results) <= {"done"}, result.outcomes
        return sum(outcome.tasks for outcome in result.outcomes if isinstance(outcome, MoveOutcome))

    def join(self, process: int, cgroup: str = BOX) -> None:
        """As ``kubectl exec``: a process from outside."""
        self.groups.put(Target(cgroup, "cgroup.procs"), process)

    def tasks(self) -> frozenset[int]:
        found = placement.look(self.tree, BOX)
        assert found is not None
        return found.tasks

    def outside(self, cgroup: str) -> frozenset[int]:
        """The tasks of BOX that are not in ``cgroup`` and still live."""
        tasks = self.tasks() - (resctrl.tasks(self.tree.resctrl, cgroup) or frozenset())
        return tasks & self.tasks()


@pytest.fixture
def mount(tmp_path: Path) -> Iterator[Path]:
    point = tmp_path / "resctrl"
    point.mkdir()
    server = subprocess.Popen([sys.executable, "-m", "integration.resctrl.filesystem", str(point)])
    try:
        until = time.monotonic() + 10
        while not point.is_mount():
            assert server.poll() is None, "the emulation ended"
            assert time.monotonic() < until, "the emulation was not mounted in 10 s"
            time.sleep(0.02)
        print("resctrl is emulated (FUSE)")
        for cgroup in ("LSR", "LS", "BE"):
            (point / cgroup).mkdir()
        yield point
    finally:
        subprocess.run(["umount", "--lazy", str(point)], check=False)
        server.terminate()
        server.wait(10)


@pytest.fixture
def node(tmp_path: Path, mount: Path) -> Iterator[Node]:
    groups = Groups(TOP)
    with groups.made(BOX, NESTED):
        for cgroup in (BOX, NESTED):
            groups.fill_cpuset(cgroup)
        yield Node(tmp_path, groups, mount)


@pytest.fixture
def forking(node: Node) -> Iterator[subprocess.Popen[str]]:
    """21 threads, and a child every 5 ms that lives for 0.3 s."""
    process = subprocess.Popen([sys.executable, "-c", FORKING], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        node.join(process.pid)
        yield process
    finally:
        process.kill()
        process.wait(10)
        until = time.monotonic() + 5
        while node.tasks() and time.monotonic() < until:
            time.sleep(0.05)


BE: Memberships = (Membership(BOX, "BE", "BE pods belong to resctrl group BE", "default/a"),)
NOBODY: Memberships = ()


def test_what_the_writer_is_told(mount: Path, node: Node) -> None:
    dead = subprocess.Popen(["true"])
    dead.wait()
    assert node.writer.move_task("BE", dead.pid) is False
    own = threading.get_native_id()
    assert node.writer.move_task("BE", own) is True
    assert own in (resctrl.tasks(mount, "BE") or ())
    assert own not in (resctrl.tasks(mount) or ())
    assert node.writer.move_task("", own) is True
    with pytest.raises(OSError, match="Invalid argument") as raised:
        _write(mount / "BE/tasks", f"{own}\n{own}\n")
    assert raised.value.errno == errno.EINVAL
    assert "parsing error" in resctrl.last_status(mount)
    with pytest.raises(WriteError):
        node.writer.move_task("none", own)


def test_a_process_that_forks_all_the_time(node: Node, forking: subprocess.Popen[str]) -> None:
    assert len(node.tasks()) > 20
    moved = node.tick(BE)
    assert moved > 20
    time.sleep(0.3)
    assert node.outside("BE") == frozenset(), "what is forked from now on begins in the group"
    newcomer = subprocess.Popen(["sleep", "60"])
    try:
        node.join(newcomer.pid, NESTED)
        for _ in range(int(RECHECK_S) + 6):
            node.tick(BE)
        assert newcomer.pid in (resctrl.tasks(node.tree.resctrl, "BE") or ())
    finally:
        newcomer.kill()
        newcomer.wait(10)
    assert [entry.result for entry in node.entries] == ["done"]
    node.tick(NOBODY)
    assert node.outside("") == frozenset()
    assert node.undo.all(Placed) == ()
    print(f"emulated: {moved} tasks moved in the first tick; {node.entries[-1].why}")


def test_restore_without_the_daemon(node: Node, forking: subprocess.Popen[str]) -> None:
    node.tick(BE)
    (line,) = planned(node.writer, node.undo)
    assert (line.outcome, line.before, line.base) == (RestoreOutcome.RESTORED, "BE", "root")
    (line,) = restore(node.writer, node.undo)
    assert line.outcome is RestoreOutcome.RESTORED, line
    assert node.outside("") == frozenset()
    assert node.undo.all(Placed) == ()


def _write(file: Path, text: str) -> None:
    descriptor = os.open(file, os.O_WRONLY)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)

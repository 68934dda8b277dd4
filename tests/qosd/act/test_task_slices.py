"""The actor of attributes of tasks, with slices: threads, the kernel's own slice, and only exceptions in the note."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

import pytest

from koord.host.cgroup import Tree
from koord.host.restoring import restore
from koord.host.sched import SLICE
from koord.host.taskattributes import TaskAttribute, WrittenTask, WrittenTasks
from koord.host.undo import UndoRecord
from koord.host.writer import Reading, Vanished, WriteError
from qosd.act.actuator import Actuator
from qosd.act.taskattributes import RECHECK_S
from qosd.decide.decision import Decision, Stage
from qosd.decide.runner import Decisions, StrategyResult, StrategyStatus
from tests.fakes.clock import S
from tests.fakes.resctrl import MortalWriter
from tests.qosd.act.rig import BOOT, Recorded
from tests.support.opened import opened

JOB = "/kubepods/besteffort/podjob/main"
LONG_US = 100_000


class Killed(BaseException):
    """SIGKILL."""


class SliceWriter(MortalWriter):
    """``slices``: of the threads that live, by id. Threads in ``others`` are of another user, and not for us to set."""

    killed = Killed

    def __init__(self, tree: Tree) -> None:
        super().__init__(tree)
        self.slices: dict[int, int] = {}
        self.others: set[int] = set()

    def start(self, thread: int, slice_us: int = 0) -> None:
        self.slices[thread] = slice_us
        self._list()

    def end(self, thread: int) -> None:
        del self.slices[thread]
        self._list()

    def look_at_task(self, name: str, task: int) -> Reading | None:
        assert name == SLICE
        return Reading(f"/proc/{task}", 5000 + task, self.slices[task]) if task in self.slices else None

    def write_task(self, name: str, task: int, value: int) -> None:
        def written() -> None:
            if task in self.others:
                raise WriteError(errno.EPERM, f"/proc/{task}", str(value), "CAP_SYS_NICE")
            if task not in self.slices:
                raise Vanished(errno.ESRCH, f"/proc/{task}", str(value))
            self.slices[task] = value

        self._act(written)

    def _list(self) -> None:
        directory = self.tree.directory(JOB)
        directory.mkdir(parents=True, exist_ok=True)
        for name in ("cgroup.threads", "tasks"):
            (directory / name).write_text("".join(f"{thread}\n" for thread in self.slices))


class Rig:
    """``tick(slice_us)``: what is wanted of the job's threads; 0: nothing."""

    def __init__(self, root: Path) -> None:
        self.root = root
        root.mkdir(exist_ok=True)
        self.writer = SliceWriter(Tree(2, root / "cgroup", {}, proc=root / "proc"))
        self.now_ns, self.ticks = 1000 * S, 0
        self.start()

    def start(self) -> None:
        self.undo, self.journal = opened(UndoRecord(self.root / "undo", BOOT)), Recorded()
        self.actuator = Actuator(self.writer, self.undo, self.journal)

    def crash(self) -> None:
        self.undo.close()
        self.start()

    def tick(self, slice_us: int, seconds: float = 1.0) -> list[str]:
        """The results of what was written."""
        self.ticks += 1
        self.now_ns += int(seconds * S)
        acts = (TaskAttribute(SLICE, JOB, slice_us, "busy", "default/job"),) if slice_us else ()
        result = StrategyResult("bestEffortSlices", Stage.SUPPRESSION, StrategyStatus.ACTIVE, Decision("", acts=acts))
        decisions = Decisions(self.ticks, self.now_ns, self.now_ns, (result,))
        return [outcome.result for outcome in self.actuator.tick(decisions).outcomes]

    def note(self) -> WrittenTasks:
        (note,) = self.undo.all(WrittenTasks)
        return note


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    made = Rig(tmp_path)
    for thread in (7, 8, 9):
        made.writer.start(thread)
    return made


def test_every_thread_gets_it_and_gives_it_back(rig: Rig) -> None:
    assert rig.tick(LONG_US) == ["done"]
    assert rig.writer.slices == {7: LONG_US, 8: LONG_US, 9: LONG_US}
    assert rig.note().tasks == (), "the kernel's own slice is what most threads have, and needs no names"
    assert rig.journal.entries[-1].why == "busy: 3 threads"
    assert rig.tick(LONG_US) == []
    assert rig.tick(0) == ["done"]
    assert (set(rig.writer.slices.values()), rig.undo.all(WrittenTasks)) == ({0}, ())


def test_who_has_chosen_a_slice_before_gets_that_back(rig: Rig) -> None:
    rig.writer.start(10, 700)
    rig.tick(LONG_US)
    assert rig.note().tasks == (WrittenTask(10, 5010, 700),)
    rig.writer.start(11, LONG_US)  # a fork
    rig.tick(0)
    assert rig.writer.slices == {7: 0, 8: 0, 9: 0, 10: 700, 11: 0}


def test_who_chooses_one_meanwhile_keeps_that(rig: Rig) -> None:
    rig.tick(LONG_US)
    rig.writer.slices[8] = 3_000
    rig.tick(LONG_US, RECHECK_S + 1)
    rig.tick(0)
    assert rig.writer.slices == {7: 0, 8: 3_000, 9: 0}


def test_one_that_comes_from_outside_is_found_within_a_minute(rig: Rig) -> None:
    rig.tick(LONG_US)
    rig.writer.start(12)
    assert rig.tick(LONG_US) == []
    assert rig.tick(LONG_US, RECHECK_S) == ["done"]
    assert rig.writer.slices[12] == LONG_US


def test_threads_of_another_user_are_told_of_once_and_cost_the_others_nothing(rig: Rig) -> None:
    rig.writer.others.add(8)
    assert rig.tick(LONG_US) == ["failed EPERM"]
    assert rig.writer.slices == {7: LONG_US, 8: 0, 9: LONG_US}
    for _ in range(5):
        rig.tick(LONG_US)
    told = [entry for entry in rig.journal.entries if entry.result == "failed EPERM"]
    assert [(entry.name, entry.pod) for entry in told] == [(SLICE, "default/job")]
    assert "CAP_SYS_NICE" in told[0].why


@pytest.mark.parametrize("is_restored", [False, True], ids=["restart", "koordctl restore"])
@pytest.mark.parametrize("is_after", [False, True], ids=["before", "after"])
def test_a_kill_at_every_write(
    tmp_path: Path, is_after: bool, is_restored: bool, record_property: Callable[[str, object], None]
) -> None:
    def made(root: Path) -> Rig:
        rig = Rig(root)
        for thread, slice_us in ((7, 0), (8, 0), (9, 700)):
            rig.writer.start(thread, slice_us)
        return rig

    def run(rig: Rig) -> None:
        rig.tick(LONG_US)
        rig.writer.start(10, LONG_US)
        rig.tick(50_000)
        rig.tick(0)

    recorded = made(tmp_path / "recorded")
    run(recorded)
    count = recorded.writer.acts
    assert recorded.writer.slices == {7: 0, 8: 0, 9: 700, 10: 0}
    record_property("count", f"task slices: killed {'after' if is_after else 'before'} each of {count} writes")
    for number in range(1, count + 1):
        rig = made(tmp_path / str(number))
        rig.writer.dies_at, rig.writer.is_after = number, is_after
        with pytest.raises(Killed):
            run(rig)
        rig.writer.dies_at = 0
        if is_restored:
            restore(rig.writer, rig.undo)
        else:
            rig.crash()
            rig.tick(0)
        assert rig.undo.all(WrittenTasks) == ()
        assert {**rig.writer.slices, 10: 0} == {7: 0, 8: 0, 9: 700, 10: 0}, number
        assert rig.writer.slices.get(10, 0) == 0, number

"""The actor of attributes of tasks: who is written and when, who gets what back, what is told, what a kill leaves."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from koord.host.cgroup import Tree
from koord.host.restoring import planned, restore
from koord.host.taskattributes import OOM_SCORE, TaskAttribute, WrittenTasks
from koord.host.undo import UndoError, UndoRecord
from koord.host.undoable import RestoreOutcome
from qosd.act.actuator import Actuator
from qosd.act.plan import TickPlan, TickResult
from qosd.act.taskattributes import MOST_TASKS, RECHECK_S, AttributePlan, AttributeReport
from qosd.decide.decision import Decision, Stage
from qosd.decide.runner import Decisions, StrategyResult, StrategyStatus
from tests.fakes.clock import S
from tests.fakes.processes import Processes, ScoreWriter
from tests.qosd.act.rig import BOOT, Recorded
from tests.qosd.podviews import view
from tests.support.opened import opened

POD = "/kubepods/burstable/podp"
BOX, CAR = f"{POD}/main", f"{POD}/car"
KUBELETS = 985


class Killed(BaseException):
    """SIGKILL."""


class Dying(ScoreWriter):
    killed = Killed


class Rig:
    """``want`` scores, then ``tick``."""

    def __init__(self, root: Path, version: int = 2) -> None:
        self.root = root
        self.tree = Tree(version, root / "cgroup", {}, proc=root / "proc")
        self.make(BOX)
        self.make(CAR)
        self.processes = Processes(self.tree)
        self.now_ns, self.ticks = 1000 * S, 0
        self.acts: tuple[TaskAttribute, ...] = ()
        self.state, self.is_decided = StrategyStatus.ACTIVE, True
        self.journal = Recorded()
        self.writer = Dying(self.tree)
        self._start()

    def make(self, cgroup: str) -> None:
        directory = self.tree.directory(cgroup)
        directory.mkdir(parents=True)
        (directory / "cgroup.procs").write_text("")

    def _start(self) -> None:
        self.undo = opened(UndoRecord(self.root / "undo", BOOT))
        self.actuator = Actuator(self.writer, self.undo, self.journal)

    def crash(self) -> None:
        self.undo.close()
        self._start()

    def want(self, tasks: int | None = None, **scores: int) -> None:
        cgroups = {"BOX": BOX, "CAR": CAR}
        self.acts = tuple(
            TaskAttribute(OOM_SCORE, cgroups[name], score, "annotation oom-score-adj of the pod", "default/p", tasks)
            for name, score in scores.items()
        )

    def disable(self) -> None:
        self.state, self.acts = StrategyStatus.DISABLED, ()

    def decisions(self) -> Decisions:
        sentence = "disabled by the operator" if self.state is StrategyStatus.DISABLED else ""
        decision = Decision(sentence, acts=self.acts)
        result = StrategyResult("oomScoreAdj", Stage.SPEC, self.state, decision, decided=self.is_decided)
        return Decisions(self.ticks, self.now_ns, self.now_ns, (result,))

    def plan(self) -> TickPlan:
        return self.actuator.plan(self.decisions())

    def tick(self, seconds: float = 1.0) -> TickResult:
        """One tick; asserts that a dry run before it shows just that, and writes and tells nothing."""
        self.ticks += 1
        self.now_ns += int(seconds * S)
        before = self.writer.acts, len(self.journal.entries), self.undo.all(WrittenTasks)
        dry, plan = self.plan(), self.plan()
        assert dry.writes == plan.writes
        assert (self.writer.acts, len(self.journal.entries), self.undo.all(WrittenTasks)) == before
        result = self.actuator.execute(plan)
        assert tuple(outcome.write for outcome in result.outcomes) == dry.writes
        return result

    def examined(self) -> int:
        """How many containers a plan would look at now."""
        (part,) = (part for part in self.plan().parts if isinstance(part, AttributePlan))
        return len(part.findings)

    def notes(self) -> tuple[WrittenTasks, ...]:
        return self.undo.all(WrittenTasks)


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


class TestRefusals:
    def test_lowering_without_the_capability_is_said_once_for_the_pod_and_tried_again(self, rig: Rig) -> None:
        a, b = rig.processes.start(BOX), rig.processes.start(CAR)
        rig.writer.may_lower = False
        rig.want(BOX=-500, CAR=-500)
        tried = [second for second in range(1, 20) if rig.tick().outcomes]
        assert tried == [1, 2, 4, 8, 16]
        (entry,) = rig.journal.entries
        assert (entry.result, entry.pod, entry.after) == ("failed EACCES", "default/p", -500)
        assert "CAP_SYS_RESOURCE" in entry.why
        rig.writer.may_lower = True
        for _ in range(30):
            rig.tick()
        assert (rig.processes.score(a), rig.processes.score(b)) == (-500, -500)
        assert rig.journal.results() == ["failed EACCES", "done", "done"]

    def test_who_may_be_raised_is_although_another_may_not_be_lowered(self, rig: Rig) -> None:
        low, high = rig.processes.start(BOX, -10), rig.processes.start(BOX, 900)
        rig.writer.may_lower = False
        rig.want(BOX=500)
        rig.tick()
        assert (rig.processes.score(low), rig.processes.score(high)) == (500, 900)

    def test_nothing_is_written_that_cannot_be_noted(self, rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
        pid = rig.processes.start(BOX)

        def full(*_: object) -> None:
            raise UndoError(28, "no space", "undo")

        monkeypatch.setattr(rig.undo, "note", full)
        rig.want(BOX=100)
        assert rig.tick().results == ("refused",)
        assert rig.processes.score(pid) == KUBELETS

    def test_a_cgroup_that_leaves_the_tree_is_said_and_stops_nobody(self, rig: Rig) -> None:
        pid = rig.processes.start(BOX)
        bad = TaskAttribute(OOM_SCORE, "/kubepods/../../etc", 1, "", "default/bad")
        rig.want(BOX=100)
        rig.acts = (bad, *rig.acts)
        rig.tick()
        rig.tick()
        assert rig.processes.score(pid) == 100
        assert rig.journal.results() == ["unreadable", "done"]

    def test_a_cgroup_that_is_gone_is_nothing_to_be_said(self, rig: Rig) -> None:
        rig.want(BOX=100)
        shutil.rmtree(rig.tree.directory(BOX))
        assert rig.tick().outcomes == ()
        assert (rig.journal.entries, rig.notes()) == ([], ())


@pytest.mark.parametrize("version", [1, 2])
def test_every_process_of_the_container_and_of_what_is_below_it(tmp_path: Path, version: int) -> None:
    rig = Rig(tmp_path, version)
    rig.make(f"{BOX}/inner")
    pids = [rig.processes.start(BOX), rig.processes.start(f"{BOX}/inner", 0), rig.processes.start(BOX, -998)]
    others = [rig.processes.start(CAR), rig.processes.start(POD)]
    rig.want(BOX=200)
    (outcome,) = rig.tick().outcomes
    assert (outcome.result, outcome.write.before, outcome.write.after) == ("done", KUBELETS, 200)
    assert outcome.write.why == "annotation oom-score-adj of the pod: 3 processes"
    assert [rig.processes.score(pid) for pid in (*pids, *others)] == [200, 200, 200, KUBELETS, KUBELETS]
    rig.want()
    rig.tick()
    assert [rig.processes.score(pid) for pid in pids] == [KUBELETS, 0, -998], "to each what it had"
    assert rig.notes() == ()
    assert [entry.why for entry in rig.journal.entries][-1] == (
        "back to what they had: no strategy wants a value any more: 3 processes"
    )


def test_who_has_it_already_is_not_written_and_nothing_is_noted(rig: Rig) -> None:
    rig.processes.start(BOX, 200)
    rig.want(BOX=200)
    assert rig.tick().outcomes == ()
    assert (rig.writer.acts, rig.notes()) == (0, ())


def test_forks_inherit_it_and_give_it_back(rig: Rig) -> None:
    parent = rig.processes.start(BOX)
    rig.want(BOX=200)
    rig.tick()
    child = rig.processes.fork(parent)
    rig.tick(RECHECK_S)
    assert rig.writer.acts == 1, "who has inherited it need not be written"
    rig.processes.end(parent)
    rig.want()
    rig.tick()
    assert rig.processes.score(child) == KUBELETS


def test_who_comes_from_outside_is_found_when_tasks_have_come_or_after_a_minute(rig: Rig) -> None:
    rig.processes.start(BOX)
    rig.want(BOX=200, tasks=1)
    rig.tick()
    late = rig.processes.start(BOX)
    rig.tick()
    assert rig.processes.score(late) == KUBELETS
    rig.want(BOX=200, tasks=2)
    rig.tick()
    assert rig.processes.score(late) == 200
    later = rig.processes.start(BOX)
    rig.tick(RECHECK_S - 1)
    assert rig.processes.score(later) == KUBELETS
    rig.tick(1)
    assert rig.processes.score(later) == 200


def test_a_tick_at_which_nothing_is_due_looks_at_nothing(rig: Rig) -> None:
    rig.processes.start(BOX)
    rig.want(BOX=200)
    assert rig.examined() == 1
    rig.tick()
    assert rig.examined() == 0
    rig.now_ns += int(RECHECK_S * S)
    assert rig.examined() == 1


def test_who_chooses_for_himself_afterwards_is_left_alone(rig: Rig) -> None:
    pid = rig.processes.start(BOX)
    rig.want(BOX=200)
    rig.tick()
    rig.processes.choose(pid, -17)
    rig.tick(RECHECK_S)
    rig.want()
    rig.tick()
    assert rig.processes.score(pid) == -17


def test_another_score_keeps_what_they_had(rig: Rig) -> None:
    first = rig.processes.start(BOX)
    rig.want(BOX=200)
    rig.tick()
    child, other = rig.processes.fork(first), rig.processes.start(BOX, 3)
    rig.want(BOX=-300)
    rig.tick()
    assert [rig.processes.score(pid) for pid in (first, child, other)] == [-300] * 3
    rig.want()
    rig.tick()
    assert [rig.processes.score(pid) for pid in (first, child, other)] == [KUBELETS, KUBELETS, 3]


def test_a_pid_that_is_used_again_is_another_process(rig: Rig) -> None:
    """Outside of the container: what it has, it has from somebody else, even if it is the same number."""
    pid, stays = rig.processes.start(BOX), rig.processes.start(BOX)
    rig.want(BOX=200)
    rig.tick()
    rig.processes.end(pid)
    assert rig.processes.start(CAR, 200, pid=pid) == pid
    rig.want()
    rig.tick()
    assert (rig.processes.score(pid), rig.processes.score(stays)) == (200, KUBELETS)


def test_who_has_left_the_container_gets_back_what_it_had(rig: Rig) -> None:
    pid = rig.processes.start(BOX)
    rig.want(BOX=200)
    rig.tick()
    rig.processes.move(pid, CAR)
    rig.want()
    rig.tick()
    assert rig.processes.score(pid) == KUBELETS


def test_the_note_forgets_who_has_ended(rig: Rig) -> None:
    pids = [rig.processes.start(BOX) for _ in range(5)]
    rig.want(BOX=200)
    rig.tick()
    for pid in pids[:4]:
        rig.processes.end(pid)
    late = rig.processes.start(BOX)
    rig.tick(RECHECK_S)
    (note,) = rig.notes()
    assert [each.id for each in note.tasks] == [pids[4], late]


def test_of_many_processes_so_many_at_a_time(rig: Rig) -> None:
    pids = [rig.processes.start(BOX) for _ in range(MOST_TASKS + 10)]
    rig.want(BOX=200)
    rig.tick()
    assert rig.writer.acts == MOST_TASKS
    rig.tick()
    assert {rig.processes.score(pid) for pid in pids} == {200}
    rig.want()
    rig.tick()
    rig.tick()
    assert {rig.processes.score(pid) for pid in pids} == {KUBELETS}
    assert rig.notes() == ()


def test_disabled_is_given_back_and_says_so(rig: Rig) -> None:
    pid = rig.processes.start(BOX)
    rig.want(BOX=200)
    rig.tick()
    rig.disable()
    rig.tick()
    assert (rig.processes.score(pid), rig.notes()) == (KUBELETS, ())
    assert "oomScoreAdj is disabled by the operator" in rig.journal.entries[-1].why


def test_what_an_earlier_run_left_waits_until_all_have_decided(rig: Rig) -> None:
    pid = rig.processes.start(BOX)
    rig.want(BOX=200)
    rig.tick()
    rig.crash()
    rig.want()
    rig.is_decided = False
    rig.tick(RECHECK_S * 2)
    assert rig.processes.score(pid) == 200
    rig.is_decided = True
    rig.tick()
    assert (rig.processes.score(pid), rig.notes()) == (KUBELETS, ())


def test_what_explain_shows(rig: Rig) -> None:
    rig.processes.start(BOX)
    rig.want(BOX=200, CAR=200)
    rig.tick()
    report = next(each for each in rig.actuator.reports if isinstance(each, AttributeReport))
    (told,) = report.of_pod(rig.decisions(), view("p"))
    assert (told.target.cgroup, told.result, told.actual, told.owner) == (BOX, "200", "200", "oomScoreAdj")


def test_restore_says_what_it_does_and_does_it(rig: Rig) -> None:
    pid = rig.processes.start(BOX)
    rig.want(BOX=200)
    rig.tick()
    (line,) = planned(rig.writer, rig.undo)
    assert (line.outcome, line.base, line.before, line.why) == (RestoreOutcome.RESTORED, KUBELETS, 200, "1 process")
    (line,) = restore(rig.writer, rig.undo)
    assert (line.outcome, line.after) == (RestoreOutcome.RESTORED, KUBELETS)
    assert (rig.processes.score(pid), rig.notes()) == (KUBELETS, ())


def test_what_restore_may_not_do_stays_noted(rig: Rig) -> None:
    pid = rig.processes.start(BOX, -998)
    rig.want(BOX=200)
    rig.tick()
    rig.writer.may_lower = False
    (line,) = restore(rig.writer, rig.undo)
    assert line.outcome is RestoreOutcome.FAILED and "CAP_SYS_RESOURCE" in line.why
    assert len(rig.notes()) == 1
    rig.writer.may_lower = True
    restore(rig.writer, rig.undo)
    assert (rig.processes.score(pid), rig.notes()) == (-998, ())


@pytest.mark.parametrize("is_restored", [False, True], ids=["restart", "koordctl restore"])
@pytest.mark.parametrize("is_after", [False, True], ids=["before", "after"])
def test_a_kill_at_every_write(
    tmp_path: Path, is_after: bool, is_restored: bool, record_property: Callable[[str, object], None]
) -> None:
    """Given a score, another one, a newcomer, and taken back: killed at each write, then gone on with and disabled."""

    def run(rig: Rig) -> None:
        rig.want(BOX=200, CAR=-200)
        rig.tick()
        rig.processes.start(BOX, 4)
        rig.want(BOX=300, CAR=-200, tasks=3)
        rig.tick()
        rig.want(BOX=300)
        rig.tick()

    def made(root: Path) -> Rig:
        rig = Rig(root)
        for score in (985, 0, -998):
            rig.processes.start(BOX, score)
        rig.processes.start(CAR, 5)
        return rig

    recorded = made(tmp_path / "recorded")
    run(recorded)
    count, when = recorded.writer.acts, "after" if is_after else "before"
    record_property("count", f"OOM scores: killed {when} each of {count} writes")
    assert count >= 8
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
            rig.tick()
            rig.disable()
            rig.tick()
        assert rig.notes() == ()
        assert sorted(rig.processes.scores().values()) in ([-998, 0, 5, 985], [-998, 0, 4, 5, 985]), number

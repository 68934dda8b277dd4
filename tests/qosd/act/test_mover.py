"""The actuator moving tasks between resctrl groups (emulated): who is moved and when, who goes back, what is told."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from koord.host.placement import TASKS, Membership, Placed
from koord.host.restoring import restore
from koord.host.undo import UndoError, UndoRecord
from qosd.act.actuator import Actuator
from qosd.act.journal import JournalEntry
from qosd.act.mover import RECHECK_S, REPORT_S
from qosd.act.moves import Moves
from qosd.act.plan import TickPlan, TickResult
from qosd.decide.decision import Decision, Stage
from qosd.decide.runner import Decisions, StrategyResult, StrategyStatus
from tests.fakes.clock import S
from tests.fakes.resctrl import ResctrlNode
from tests.qosd.act.rig import BOOT, Recorded
from tests.support.opened import opened

BOX, CAR = "/kubepods/besteffort/pod1/box", "/kubepods/burstable/pod2/car"
WHY = "BE pods belong to resctrl group BE"


class Rig:
    """``want`` who belongs where, then ``tick``."""

    def __init__(self, root: Path) -> None:
        self.root, self.node, self.journal = root, ResctrlNode(root), Recorded()
        self.now_ns, self.ticks = 1000 * S, 0
        self.memberships: tuple[Membership, ...] = ()
        self.state, self.decided = StrategyStatus.ACTIVE, True
        self._start()

    def _start(self) -> None:
        self.undo = opened(UndoRecord(self.root / "undo", BOOT))
        self.actuator = Actuator(self.node.writer, self.undo, self.journal)

    def crash(self) -> None:
        """SIGKILL and the next start: nothing is left but the kernel's files and the undo record."""
        self.undo.close()
        self._start()

    def want(self, **resctrl_groups: str) -> None:
        """``want(BOX="BE")``: nothing else is wanted."""
        said = {{"BOX": BOX, "CAR": CAR}[name]: resctrl_group for name, resctrl_group in resctrl_groups.items()}
        self.say(said)

    def say(self, resctrl_groups: Mapping[str, str]) -> None:
        self.memberships = tuple(
            Membership(cgroup, name, f"{name} pods belong to resctrl group {name}", "default/a")
            for cgroup, name in resctrl_groups.items()
        )

    def disable(self) -> None:
        self.state, self.memberships = StrategyStatus.DISABLED, ()

    def plan(self) -> TickPlan:
        sentence = "disabled by the operator" if self.state is StrategyStatus.DISABLED else ""
        result = StrategyResult(
            "resctrl", Stage.SPEC, self.state, Decision(sentence, acts=self.memberships), decided=self.decided
        )
        return self.actuator.plan(Decisions(self.ticks, self.now_ns, self.now_ns, (result,)))

    def tick(self, seconds: float = 1.0) -> TickResult:
        """One tick; asserts that a dry run before it shows just that, and moves and tells nothing."""
        self.ticks += 1
        self.now_ns += int(seconds * S)
        before = len(self.node.writer.moved), len(self.journal.entries), self.undo.all(Placed)
        dry, plan = self.plan(), self.plan()
        assert dry.writes == plan.writes
        assert (len(self.node.writer.moved), len(self.journal.entries), self.undo.all(Placed)) == before
        result = self.actuator.execute(plan)
        assert tuple(outcome.write for outcome in result.outcomes) == dry.writes
        return result

    def moves(self, plan: TickPlan) -> Moves:
        """The mover's part."""
        (moves,) = (part for part in plan.parts if isinstance(part, Moves))
        return moves

    def pass_time(self, seconds: int) -> None:
        for _ in range(seconds):
            self.tick()

    def told(self) -> list[tuple[str, object, object, str]]:
        return [(entry.result, entry.before, entry.after, entry.why) for entry in self.journal.entries]


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


class TestRefusals:
    def test_the_kernel_refuses(self, rig: Rig) -> None:
        """Told once with what resctrl says, tried again with back-off."""
        rig.node.start(BOX, 2)
        rig.node.writer.refusals["BE"] = errno.EINVAL
        (rig.node.tree.resctrl / "info/last_cmd_status").write_text("Pseudo-locking in progress\n")
        rig.want(BOX="BE")
        tried = [second for second in range(1, 20) if rig.tick().outcomes]
        assert tried == [1, 2, 4, 8, 16]
        ((result, before, after, why),) = rig.told()
        assert (result, before, after) == ("failed EINVAL", "root", "BE")
        assert why.startswith(WHY)
        assert "Pseudo-locking in progress" in why
        del rig.node.writer.refusals["BE"]
        rig.pass_time(60)
        assert rig.journal.results() == ["failed EINVAL", "done"]

    def test_without_undo_record_nobody_is_moved(self, rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
        def full(*_: object) -> None:
            raise UndoError(errno.ENOSPC, "undo record: No space left on device", "/run/undo")

        rig.node.start(BOX)
        rig.want(BOX="BE")
        with monkeypatch.context() as patch:
            patch.setattr(rig.undo, "note", full)
            rig.tick()
        assert (rig.node.writer.moved, rig.journal.results()) == ([], ["refused"])
        rig.tick()
        assert rig.node.members("BE") == {100}

    def test_a_group_that_is_removed(self, rig: Rig) -> None:
        rig.node.start(BOX)
        shutil.rmtree(rig.node.tree.resctrl / "BE")
        rig.want(BOX="BE")
        rig.pass_time(60)
        assert rig.told() == [("unsupported", None, "BE", "there is no resctrl group BE")]
        rig.node.make_group("BE")
        rig.tick(RECHECK_S)
        assert rig.node.members("BE") == {100}

    def test_an_unreadable_cgroup_costs_itself_only(self, rig: Rig) -> None:
        rig.node.start(BOX)
        rig.node.listing(BOX).write_text("many\n")
        (car,) = rig.node.start(CAR)
        rig.want(BOX="BE", CAR="LS")
        rig.pass_time(30)
        assert rig.node.members("LS") == {car}
        assert rig.journal.results() == ["unreadable", "done"]

    def test_someone_elses_group_is_left_alone_and_told_once(self, rig: Rig) -> None:
        rig.node.make_group("gold")
        (task,) = rig.node.start(BOX, beside="gold")
        rig.want(BOX="BE")
        rig.pass_time(60)
        rig.want()
        rig.tick()
        assert rig.node.members("gold") == {task}
        assert rig.journal.results() == ["yielded"]


class TestMoving:
    def test_right_after_the_start(self, rig: Rig) -> None:
        tasks = [*rig.node.start(BOX, 2), *rig.node.start(f"{BOX}/nested")]
        rig.want(BOX="BE")
        (outcome,) = rig.tick().outcomes
        assert (outcome.result, outcome.detail) == ("done", "3 tasks")
        assert rig.node.members("BE") == set(tasks)
        assert rig.actuator.tasks.placed == {BOX: "BE"}
        (entry,) = rig.journal.entries
        assert (entry.owner, entry.pod, entry.cgroup, entry.name) == ("resctrl", "default/a", BOX, TASKS)
        assert rig.told() == [("done", "root", "BE", f"{WHY}: 3 tasks")]

    def test_plan_shows_it_as_a_value(self, rig: Rig) -> None:
        rig.node.start(BOX, 2)
        rig.want(BOX="BE")
        (shown,) = rig.plan().writes
        assert (shown.path, shown.before, shown.after) == (str(rig.node.tree.resctrl / "BE/tasks"), "root", "BE")
        assert (shown.target.cgroup, shown.why) == (BOX, f"{WHY}: 2 tasks")

    def test_a_cgroup_that_comes_later_or_is_empty_at_first(self, rig: Rig) -> None:
        rig.want(BOX="BE", CAR="LS")
        rig.node.start(CAR, 0)
        rig.tick()
        (box,), (car,) = rig.node.start(BOX), rig.node.start(CAR)
        rig.tick()
        assert (rig.node.members("BE"), rig.node.members("LS")) == ({box}, {car})

    def test_latecomers_are_found_within_the_recheck_and_told_in_sum(self, rig: Rig) -> None:
        first = rig.node.start(BOX)
        rig.want(BOX="BE")
        rig.pass_time(60)
        late = []
        for _ in range(10):
            late += rig.node.start(BOX)
            rig.pass_time(int(RECHECK_S) + 1)
            assert rig.node.members("BE") == {*first, *late}
        assert rig.told() == [("done", "root", "BE", f"{WHY}: 1 task")]
        rig.pass_time(int(REPORT_S))
        rig.node.start(BOX)
        rig.pass_time(int(RECHECK_S) + 1)
        assert rig.told()[1:] == [("done", "root", "BE", f"{WHY}: 1 task; 10 tasks that came later had been moved too")]

    def test_latecomers_of_a_cgroup_that_is_gone_are_told_too(self, rig: Rig) -> None:
        rig.node.start(BOX)
        rig.want(BOX="BE")
        rig.tick()
        rig.node.start(BOX, 2)
        rig.pass_time(20)
        shutil.rmtree(rig.node.tree.directory(BOX))
        rig.want()
        rig.pass_time(20)
        assert [why for *_, why in rig.told()] == [f"{WHY}: 1 task", "2 tasks that came later had been moved too"]
        assert (rig.undo.all(Placed), rig.actuator.tasks.placed) == ((), {})

    def test_a_fork_bomb_is_followed_up_at_once(self, rig: Rig) -> None:
        rig.node.start(BOX)
        rig.want(BOX="BE")

        def fork(task: int) -> None:
            rig.node.start(BOX)

        rig.node.writer.then = fork
        for _ in range(20):
            assert rig.tick().outcomes
        assert len(rig.journal.entries) == 1
        rig.node.writer.then = lambda task: None
        rig.tick()
        assert rig.node.members() == set()

    def test_tasks_that_are_there_already_are_not_ours(self, rig: Rig) -> None:
        """The runtime, or NRI, put them there: nothing is moved, and a release moves nobody."""
        tasks = rig.node.start(BOX, 2, beside="BE")
        rig.want(BOX="BE")
        rig.pass_time(20)
        rig.want()
        rig.tick()
        assert (rig.node.members("BE"), rig.node.writer.moved, rig.journal.entries) == (set(tasks), [], [])

    def test_another_class(self, rig: Rig) -> None:
        tasks = set(rig.node.start(BOX, 2))
        rig.want(BOX="BE")
        rig.tick()
        rig.want(BOX="LS")
        rig.tick()
        assert (rig.node.members("BE"), rig.node.members("LS")) == (set(), tasks)
        assert rig.told()[-1][1:3] == ("BE", "LS")
        rig.want()
        rig.tick()
        assert rig.node.members() == tasks
        assert rig.undo.all(Placed) == ()


class TestCost:
    def test_unchanged_cgroups_are_looked_at_every_ten_seconds(self, rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
        rig.node.start(BOX)
        rig.want(BOX="BE")
        rig.pass_time(40)
        with_findings = 0
        for _ in range(100):
            rig.ticks += 1
            rig.now_ns += S
            plan = rig.plan()
            with_findings += bool(rig.moves(plan).findings)
            rig.actuator.execute(plan)
        assert with_findings == 100 // RECHECK_S

    def test_without_memberships_nothing_is_looked_at(self, rig: Rig) -> None:
        shutil.rmtree(rig.node.tree.resctrl)
        rig.memberships = ()
        for _ in range(3):
            rig.tick()
        assert rig.moves(rig.plan()).findings == ()


class TestGivingBack:
    def test_a_disabled_strategy(self, rig: Rig) -> None:
        tasks = set(rig.node.start(BOX, 2))
        rig.want(BOX="BE")
        rig.tick()
        rig.disable()
        rig.tick()
        assert (rig.node.members("BE"), rig.node.members()) == (set(), tasks)
        why = "back to the root group: resctrl is disabled by the operator: 2 tasks"
        assert rig.told()[-1] == ("done", "BE", "root", why)
        assert rig.journal.entries[-1].pod == "default/a"
        assert (rig.undo.all(Placed), rig.actuator.tasks.placed) == ((), {})

    def test_what_is_frozen_stays(self, rig: Rig) -> None:
        tasks = set(rig.node.start(BOX))
        rig.want(BOX="BE")
        rig.tick()
        rig.state = StrategyStatus.FROZEN
        tasks |= set(rig.node.start(BOX))
        rig.pass_time(20)
        assert rig.node.members("BE") == tasks

    def test_a_release_that_the_kernel_refuses_is_tried_again(self, rig: Rig) -> None:
        tasks = set(rig.node.start(BOX))
        rig.want(BOX="BE")
        rig.tick()
        rig.node.writer.refusals[""] = errno.EINVAL
        rig.want()
        rig.pass_time(5)
        assert rig.undo.all(Placed) != ()
        del rig.node.writer.refusals[""]
        rig.pass_time(60)
        assert (rig.node.members(), rig.undo.all(Placed)) == (tasks, ())

    def test_after_a_crash_what_is_still_wanted_stays(self, rig: Rig) -> None:
        rig.node.start(BOX)
        rig.want(BOX="BE")
        rig.tick()
        rig.crash()
        rig.decided, rig.memberships = False, ()
        rig.pass_time(20)
        rig.decided = True
        rig.want(BOX="BE")
        rig.pass_time(20)
        assert len(rig.node.writer.moved) == 1
        assert rig.undo.all(Placed) != ()

    def test_a_change_of_class_that_failed_half_way(self, rig: Rig) -> None:
        """Some tasks are in the old class's group, some in the new one's: the record names both."""
        tasks = set(rig.node.start(BOX, 3))
        rig.want(BOX="BE")
        rig.tick()
        rig.node.writer.then = lambda task: rig.node.writer.refusals.update({"LS": errno.EINVAL})
        rig.want(BOX="LS")
        rig.tick()
        assert (len(rig.node.members("BE")), len(rig.node.members("LS"))) == (2, 1)
        rig.undo.close()
        with UndoRecord(rig.root / "undo", BOOT) as record:
            restore(rig.node.writer, record)
        assert rig.node.members() == tasks

    def test_after_a_crash_what_nobody_wants_goes_back(self, rig: Rig) -> None:
        (task,) = rig.node.start(BOX)
        rig.want(BOX="BE")
        rig.tick()
        rig.crash()
        rig.decided, rig.memberships = False, ()
        rig.pass_time(3)
        assert rig.node.members("BE") == {task}, "nobody has decided yet"
        rig.decided = True
        rig.disable()
        rig.tick()
        assert rig.node.members() == {task}
        assert rig.journal.entries[-1].owner == "an earlier run"


CGROUPS = (BOX, CAR, "/kubepods/pod3/one")
EVENTS = st.one_of(
    st.tuples(st.just("start"), st.sampled_from(CGROUPS), st.sampled_from(["", "", "BE", "gold"])),
    st.tuples(st.just("want"), st.dictionaries(st.sampled_from(CGROUPS), st.sampled_from(["LSR", "LS", "BE"]))),
    st.tuples(st.just("remove"), st.sampled_from(CGROUPS)),
    st.tuples(st.just("crash")),
    st.tuples(st.just("wait"), st.integers(1, 30)),
)


@settings(max_examples=60, deadline=None)
@given(events=st.lists(EVENTS, max_size=14), by_restore=st.booleans())
def test_any_history_ends_where_it_should(events: list[tuple[object, ...]], by_restore: bool) -> None:
    """Wanted tasks are in their group within a recheck; those of ``gold`` never move; at the end Koord's are back.

    A task that somebody else started in a class's group may be sent to the root group along with those that Koord
    moved into that group for the same cgroup, never elsewhere.
    """
    with TemporaryDirectory() as directory:
        rig = Rig(Path(directory))
        rig.node.make_group("gold")
        wanted: dict[str, str] = {}
        for name, *arguments in events:
            if name == "start":
                rig.node.start(str(arguments[0]), beside=str(arguments[1]))
            elif name == "want":
                (said,) = arguments
                assert isinstance(said, dict)
                wanted = said
                rig.say(wanted)
            elif name == "remove":
                shutil.rmtree(rig.node.tree.directory(str(arguments[0])), ignore_errors=True)
            elif name == "crash":
                rig.crash()
            rig.pass_time(int(str(arguments[0])) if name == "wait" else 1)
        gold = rig.node.members("gold")
        rig.pass_time(int(RECHECK_S) + 1)
        for cgroup, name in wanted.items():
            assert _tasks(rig, cgroup) - gold <= rig.node.members(name)
        _check_the_journal(rig.journal.entries, rig)
        moved = {task for _, task in rig.node.writer.moved}
        assert not moved & gold
        if by_restore:
            rig.undo.close()
            with UndoRecord(rig.root / "undo", BOOT) as record:
                restore(rig.node.writer, record)
                assert record.all(Placed) == ()
        else:
            rig.disable()
            rig.tick()
            assert rig.undo.all(Placed) == ()
        there = set().union(*(_tasks(rig, cgroup) for cgroup in CGROUPS))
        assert moved & there <= rig.node.members()


def _tasks(rig: Rig, cgroup: str) -> set[int]:
    file = rig.node.listing(cgroup)
    return set(map(int, file.read_text().split())) if file.exists() else set()


def _check_the_journal(entries: list[JournalEntry], rig: Rig) -> None:
    """Nothing but moves that took place, and at most one entry per cgroup and tick."""
    assert {entry.result for entry in entries} <= {"done", "yielded"}
    assert len({(entry.tick, entry.cgroup) for entry in entries}) == len(entries)
    assert all(rig.ticks >= entry.tick for entry in entries)

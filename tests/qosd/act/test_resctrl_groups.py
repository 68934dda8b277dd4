"""Resctrl groups made and removed. Emulated: plain directories, filled as the kernel fills them."""

from __future__ import annotations

import errno
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from koord.host.cgroup import Tree
from koord.host.files import Target, Value
from koord.host.placement import Membership
from koord.host.resctrlgroup import MadeGroup, ResctrlGroup
from koord.host.restoring import planned, restore
from koord.host.undo import UndoError, UndoRecord
from koord.host.undoable import Outcome
from koord.host.writer import WriteError
from qosd.act.actuator import Actuator
from qosd.act.ownership import Ownership
from qosd.act.plan import Result
from qosd.decide.decision import Decision, Opinion, Stage
from qosd.decide.runner import Decisions, State, StrategyResult
from tests.fakes.clock import S
from tests.fakes.resctrl import GroupWriter, ResctrlNode
from tests.qosd.act.rig import BOOT, Recorded
from tests.support.opened import opened

BOX = "/kubepods/besteffort/podjob/box"
OWNERS = {"toy": Ownership(Stage.SPEC, frozenset({"resctrl.schemata"}))}
SCHEMATA = Target("", "resctrl.schemata@toys/L3")


class Killed(BaseException):
    """SIGKILL."""


class Rig:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.node = ResctrlNode(root)
        self.tree: Tree = self.node.tree
        self.writer = GroupWriter(self.tree)
        self.writer.killed = Killed
        self.journal = Recorded()
        self.now_ns, self.ticks, self.decided = 1000 * S, 0, True
        self.groups: tuple[ResctrlGroup, ...] = ()
        self.memberships: tuple[Membership, ...] = ()
        self.opinions: Mapping[Target, Opinion] = {}
        self.start()

    def start(self) -> None:
        self.undo = opened(UndoRecord(self.root / "undo", BOOT))
        self.actuator = Actuator(self.writer, self.undo, self.journal, OWNERS)

    def crash(self) -> None:
        self.undo.close()
        self.start()

    def want(self, *names: str) -> None:
        self.groups = tuple(ResctrlGroup(name, "toys need cache") for name in names)

    def tick(self, seconds: float = 1.0) -> Result:
        self.ticks += 1
        self.now_ns += int(seconds * S)
        decision = Decision("", self.opinions, (*self.memberships, *self.groups))
        result = StrategyResult("toy", Stage.SPEC, State.ACTIVE, decision, self.decided)
        decisions = Decisions(self.ticks, self.now_ns, self.now_ns, (result,))
        dry, plan = self.actuator.plan(decisions), self.actuator.plan(decisions)
        assert dry.writes == plan.writes
        done = self.actuator.execute(plan)
        assert tuple(outcome.write for outcome in done.outcomes) == plan.writes
        return done

    def there(self) -> set[str]:
        return {path.name for path in self.tree.resctrl.iterdir() if path.is_dir()} - {"info"}

    def told(self) -> list[tuple[str, Value | None, Value | None, str]]:
        return [(entry.result, entry.before, entry.after, entry.why) for entry in self.journal.entries]


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    made = Rig(tmp_path)
    yield made
    made.undo.close()


BEFORE = {"LSR", "LS", "BE"}


def test_made_when_wanted_and_removed_when_not(rig: Rig) -> None:
    rig.want("toys")
    assert rig.tick().results == ("done",)
    assert (rig.there(), rig.tick().results) == ({*BEFORE, "toys"}, ())
    rig.want()
    assert rig.tick().results == ("done",)
    assert (rig.there(), rig.undo.all(MadeGroup)) == (BEFORE, ())
    assert rig.told() == [
        ("done", "absent", "present", "toys need cache"),
        ("done", "present", "absent", "no strategy wants it"),
    ]
    assert {entry.name for entry in rig.journal.entries} == {"resctrl.group@toys"}


def test_one_that_was_there_is_nobody_elses_to_remove(rig: Rig) -> None:
    rig.want("BE")
    assert rig.tick().results == ()
    rig.want()
    assert (rig.tick().results, rig.there()) == ((), BEFORE)


def test_one_that_somebody_removed_is_made_again(rig: Rig) -> None:
    rig.want("toys")
    rig.tick()
    rig.writer.remove_group("toys")
    assert sum(len(rig.tick().results) for _ in range(11)) == 1
    assert "toys" in rig.there()


def test_one_that_somebody_else_made_in_its_place_stays(rig: Rig) -> None:
    rig.want("toys")
    rig.tick()
    rig.writer.remove_group("toys")
    (rig.root / "holds the inode").mkdir()
    rig.node.make_group("toys")
    rig.want()
    rig.tick()
    assert ("toys" in rig.there(), rig.undo.all(MadeGroup)) == (True, ())


def test_first_tasks_and_schemata_go_back_then_the_group_goes(rig: Rig) -> None:
    tasks = set(rig.node.start(BOX, 3))
    rig.want("toys")
    rig.memberships = (Membership(BOX, "toys", "toys belong together"),)
    rig.tick()
    rig.opinions = {SCHEMATA: Opinion.set("0=f", "a small part")}
    rig.tick()
    assert rig.node.members("toys") == tasks
    assert (rig.tree.resctrl / "toys/schemata").read_text().strip() == "L3:0=f"
    rig.groups, rig.memberships, rig.opinions = (), (), Decision("").opinions
    assert rig.tick().results == ("done", "done"), "schemata and tasks"
    assert "toys" in rig.there()
    assert rig.tick().results == ("done",)
    assert (rig.there(), rig.node.members() >= tasks, rig.undo.all(MadeGroup)) == (BEFORE, True, ())


@pytest.mark.parametrize(
    ("name", "number", "result", "why"),
    [
        ("info", 0, "refused", "is no name of a group"),
        ("../cgroup", 0, "refused", "is no name of a group"),
        (".hidden", 0, "refused", "is no name of a group"),
        ("toys", errno.ENOSPC, "failed ENOSPC", "all classes of service of this CPU (CLOSIDs) are taken"),
        ("toys", errno.ENOENT, "unsupported", "No such file or directory"),
    ],
)
def test_refusals_are_told_once_and_tried_again_with_back_off(
    rig: Rig, name: str, number: int, result: str, why: str
) -> None:
    rig.writer.refusals[name] = number
    rig.want(name)
    tried = [second for second in range(1, 20) if rig.tick().results]
    assert tried == [1, 2, 4, 8, 16]
    ((told, _, _, sentence),) = rig.told()
    assert told == result
    assert why in sentence
    assert (rig.there(), rig.undo.all(MadeGroup)) == (BEFORE, ())


def test_without_undo_record_none_is_made(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: object) -> None:
        raise UndoError(errno.ENOSPC, "undo record: No space left on device", "/run/undo")

    rig.want("toys")
    with monkeypatch.context() as patch:
        patch.setattr(rig.undo, "note", full)
        assert rig.tick().results == ("refused",)
    assert rig.there() == BEFORE
    rig.tick(), rig.tick()
    assert "toys" in rig.there()


def test_an_earlier_runs_group_stays_until_all_have_decided(rig: Rig) -> None:
    rig.want("toys")
    rig.tick()
    rig.crash()
    rig.decided = False
    rig.groups = ()
    assert (rig.tick().results, "toys" in rig.there()) == ((), True)
    rig.decided = True
    rig.tick()
    assert rig.there() == BEFORE
    assert rig.journal.entries[-1].owner == "an earlier run"


@pytest.mark.parametrize("is_restored", [False, True], ids=["restart", "koordctl restore"])
@pytest.mark.parametrize("dies_at", range(1, 9))
def test_a_kill_at_every_act(tmp_path: Path, dies_at: int, is_restored: bool) -> None:
    """Before and after each of: mkdir, three tasks moved, all three moved back, rmdir."""
    rig = Rig(tmp_path)
    tasks = set(rig.node.start(BOX, 3))
    for is_after in (False, True):
        rig.writer.dies_at, rig.writer.is_after, rig.writer.acts = dies_at, is_after, 0
        with pytest.raises(Killed):
            rig.want("toys")
            rig.memberships = (Membership(BOX, "toys", "toys belong together"),)
            rig.tick(), rig.tick()
            rig.groups, rig.memberships = (), ()
            for _ in range(4):
                rig.tick()
        rig.writer.dies_at = 0
        rig.groups, rig.memberships = (), ()
        if is_restored:
            rig.undo.close()
            with UndoRecord(rig.root / "undo", BOOT) as record:
                shown = {line.target: line.outcome for line in planned(rig.writer, record)}
                done = {line.target: line.outcome for line in restore(rig.writer, record)}
                assert shown == done
                assert set(done.values()) <= {Outcome.RESTORED, Outcome.ALREADY_BASE, Outcome.GONE}
            rig.start()
        else:
            rig.crash()
            rig.tick(), rig.tick(), rig.tick()
        assert (rig.there(), rig.node.members() >= tasks, rig.undo.all(MadeGroup)) == (BEFORE, True, ())


def test_a_removal_that_fails_stays_in_the_record(rig: Rig) -> None:
    rig.want("toys")
    rig.tick()
    rig.writer.refusals["toys"] = errno.EBUSY
    (line,) = restore(rig.writer, rig.undo)
    assert (line.outcome, line.before, line.after) == (Outcome.FAILED, "present", "present")
    assert rig.undo.all(MadeGroup)


def test_an_error_says_what_it_was_about() -> None:
    error = WriteError(errno.ENOSPC, "/sys/fs/resctrl/toys", "mkdir", "all are taken")
    assert str(error) == "/sys/fs/resctrl/toys <- 'mkdir': No space left on device (all are taken)"

"""Tasks of cgroups in resctrl groups (emulated): who is missing, moving them, and putting them back."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path

import pytest

from koord.host import placement, resctrl
from koord.host.cgroup import Tree
from koord.host.files import ParseError, ValueRefused
from koord.host.placement import MOST_WRITES, ROUNDS, TASKS, Census, Placed
from koord.host.restoring import planned, restore
from koord.host.undo import UndoRecord
from koord.host.undoable import Restored, RestoreOutcome
from koord.host.writer import Unsupported, Vanished, WriteError, Writer
from tests.fakes.resctrl import ResctrlNode, write
from tests.support.opened import opened

BOX = "/kubepods/besteffort/pod1/box"
CLASSES = frozenset({"LSR", "LS", "BE"})
BOOT = "6f1d"


@pytest.fixture(params=[1, 2])
def node(tmp_path: Path, request: pytest.FixtureRequest) -> ResctrlNode:
    return ResctrlNode(tmp_path, request.param)


class TestTheWriter:
    @pytest.mark.parametrize("task", [0, -1])
    def test_never_moves_itself(self, node: ResctrlNode, task: int) -> None:
        """The kernel takes 0 for the caller."""
        with pytest.raises(ValueRefused):
            Writer(node.tree).move_task("LS", task)

    def test_writes_one_id(self, node: ResctrlNode) -> None:
        assert Writer(node.tree).move_task("LS", 4711)
        assert (node.tree.resctrl / "LS/tasks").read_text() == "4711\n"

    def test_a_group_that_is_gone(self, node: ResctrlNode) -> None:
        with pytest.raises(Vanished):
            Writer(node.tree).move_task("other", 1)
        (node.tree.resctrl / "LS/tasks").unlink()
        with pytest.raises(Unsupported):
            Writer(node.tree).move_task("LS", 1)

    def test_tells_what_resctrl_says(self, node: ResctrlNode) -> None:
        """A file of /proc stands for the refusing one: it takes no such number."""
        tasks = node.tree.resctrl / "LS/tasks"
        tasks.unlink()
        tasks.symlink_to("/proc/self/oom_score_adj")
        (node.tree.resctrl / "info/last_cmd_status").write_text("Task list parsing error\n")
        with pytest.raises(WriteError, match=r"Invalid argument \(Task list parsing error\)") as raised:
            Writer(node.tree).move_task("LS", 99_999)
        assert raised.value.errno == errno.EINVAL


class TestLooking:
    def test_a_cgroup_that_is_not_there(self, node: ResctrlNode) -> None:
        assert placement.look(node.tree, BOX) is None

    def test_what_the_container_made_below_counts(self, node: ResctrlNode) -> None:
        tasks = [*node.start(BOX, 2), *node.start(f"{BOX}/init.scope"), *node.start(f"{BOX}/system.slice/x.service")]
        found = placement.look(node.tree, BOX)
        assert found is not None
        assert found.tasks == set(tasks)
        assert (found.path, found.inode) == (str(node.tree.directory(BOX)), node.tree.directory(BOX).stat().st_ino)

    def test_threads_of_another_pid_namespace_are_left_out(self, node: ResctrlNode) -> None:
        node.start(BOX)
        node.listing(BOX).write_text("0\n0\n100\n")
        found = placement.look(node.tree, BOX)
        assert found is not None
        assert found.tasks == {100}

    def test_nonsense(self, node: ResctrlNode) -> None:
        node.start(BOX)
        node.listing(BOX).write_text("many\n")
        with pytest.raises(ParseError, match="many"):
            placement.look(node.tree, BOX)

    def test_someone_elses_group_keeps_its_tasks(self, node: ResctrlNode) -> None:
        plain, in_be = node.start(BOX), node.start(BOX, beside="BE")
        node.make_group("mine")
        mine, inside = node.start(BOX, beside="mine"), node.start(BOX, beside="LS")
        census = Census(node.tree.resctrl, CLASSES)
        tasks = frozenset({*plain, *in_be, *mine, *inside})
        assert census.missing(tasks, "LS") == {*plain, *in_be}
        assert census.among(tasks, ("LS", "mine", "none")) == {*mine, *inside}
        assert census.of("none") is None

    def test_every_group_is_read_once(self, node: ResctrlNode) -> None:
        census = Census(node.tree.resctrl, CLASSES)
        assert census.of("LS") == frozenset()
        write(resctrl.tasks_file(node.tree.resctrl, "LS"), {1})
        assert census.of("LS") == frozenset()


def _missing(node: ResctrlNode) -> frozenset[int]:
    return placement.missing(node.tree, BOX, "BE", CLASSES)


class TestMoving:
    def test_until_nobody_is_missing(self, node: ResctrlNode) -> None:
        """Each task forks while it is being moved; its child begins in the old group, as in the kernel's race."""
        first = node.start(BOX, 3)
        children: list[int] = []

        def fork(task: int) -> None:
            if task in first:
                children.extend(node.start(BOX))

        node.writer.then = fork
        moved = placement.move(node.writer, "BE", lambda: _missing(node))
        assert (moved.tasks, moved.settled, moved.error) == (6, True, None)
        assert node.members("BE") == {*first, *children}
        assert node.members() == set()

    def test_a_fork_bomb_is_bounded(self, node: ResctrlNode) -> None:
        node.start(BOX)

        def fork(task: int) -> None:
            node.start(BOX)

        node.writer.then = fork
        moved = placement.move(node.writer, "BE", lambda: _missing(node))
        assert (moved.tasks, moved.settled) == (ROUNDS, False)

    def test_so_are_the_writes(self, node: ResctrlNode) -> None:
        tasks = range(1, MOST_WRITES + 10)
        node.writer.ended.update(tasks)
        moved = placement.move(node.writer, "BE", lambda: tasks)
        assert (moved.tasks, moved.ended, moved.settled) == (0, MOST_WRITES, False)

    def test_a_task_that_ended_is_no_error_and_not_tried_twice(self, node: ResctrlNode) -> None:
        alive, dead = node.start(BOX, 2)
        node.writer.ended.add(dead)
        moved = placement.move(node.writer, "BE", lambda: _missing(node))
        assert (moved.tasks, moved.ended, moved.settled) == (1, 1, True)
        assert node.members("BE") == {alive}

    def test_a_refusal_ends_it(self, node: ResctrlNode) -> None:
        node.start(BOX, 3)
        node.writer.refusals["BE"] = errno.EINVAL
        moved = placement.move(node.writer, "BE", lambda: _missing(node))
        assert (moved.tasks, moved.settled) == (0, False)
        assert isinstance(moved.error, WriteError)

    def test_a_cgroup_that_vanishes_has_nobody_to_move(self, node: ResctrlNode) -> None:
        node.start(BOX, 2)
        node.writer.then = lambda task: shutil.rmtree(node.tree.directory(BOX), ignore_errors=True)
        moved = placement.move(node.writer, "BE", lambda: _missing(node))
        assert (moved.settled, moved.error) == (True, None)


class Recorded:
    """A node with an undo record, in which BOX was moved to BE."""

    def __init__(self, root: Path) -> None:
        self.node = ResctrlNode(root)
        self.file = root / "undo"
        self.record = opened(UndoRecord(self.file, BOOT))
        self.tasks = self.node.start(BOX, 3)
        self.placed = _placed(self.node.tree, "BE")
        self.record.note(self.placed)
        placement.move(self.node.writer, "BE", lambda: _missing(self.node))

    def reopen(self, boot_id: str = BOOT) -> UndoRecord:
        self.record.close()
        self.record = opened(UndoRecord(self.file, boot_id))
        return self.record

    def restored(self) -> Restored:
        (line,) = restore(self.node.writer, self.record)
        return line


def _placed(tree: Tree, *groups: str) -> Placed:
    found = placement.look(tree, BOX)
    assert found is not None
    return Placed(BOX, found.path, found.inode, groups)


@pytest.fixture
def recorded(tmp_path: Path) -> Recorded:
    return Recorded(tmp_path)


class TestPuttingBack:
    def test_the_record_outlives_us_but_not_the_boot(self, recorded: Recorded) -> None:
        assert recorded.reopen().all(Placed) == (recorded.placed,)
        assert recorded.reopen("another boot").all(Placed) == ()

    def test_what_is_back_or_gone_is_forgotten(self, recorded: Recorded) -> None:
        recorded.record.drop(Placed, BOX)
        assert recorded.reopen().all(Placed) == ()
        recorded.record.note(recorded.placed)
        shutil.rmtree(recorded.node.tree.directory(BOX))
        assert recorded.reopen().all(Placed) == ()

    def test_the_record_stays_small(self, recorded: Recorded) -> None:
        for _ in range(3000):
            recorded.record.drop(Placed, BOX)
            recorded.record.note(recorded.placed)
        assert recorded.file.stat().st_size < 400_000
        assert recorded.reopen().all(Placed) == (recorded.placed,)

    def test_restore_moves_them_to_the_root_group(self, recorded: Recorded) -> None:
        node = recorded.node
        other = node.start("/kubepods/pod2/box", beside="BE")
        (line,) = planned(node.writer, recorded.reopen())
        assert (line.target.cgroup, line.target.name, line.base) == (BOX, TASKS, "root")
        assert (line.outcome, line.before, line.why) == (RestoreOutcome.RESTORED, "BE", "3 tasks")
        line = recorded.restored()
        assert (line.outcome, line.after, line.why) == (RestoreOutcome.RESTORED, "root", "3 tasks")
        assert node.members() == set(recorded.tasks)
        assert node.members("BE") == set(other), "the runtime put them there, not Koord"
        assert recorded.reopen().all(Placed) == ()

    def test_nobody_left_to_put_back(self, recorded: Recorded) -> None:
        for task in recorded.tasks:
            recorded.node.writer.move_task("", task)
        assert recorded.restored().outcome is RestoreOutcome.ALREADY_BASE

    def test_another_cgroup_of_the_same_path(self, recorded: Recorded) -> None:
        directory = recorded.node.tree.directory(BOX)
        directory.rename(directory.with_name("old"))
        recorded.node.start(BOX, beside="BE")
        assert recorded.restored().outcome is RestoreOutcome.GONE
        assert recorded.node.members("BE") != set()

    def test_what_the_kernel_refuses_stays_in_the_record(self, recorded: Recorded) -> None:
        recorded.node.writer.refusals[""] = errno.EINVAL
        line = recorded.restored()
        assert (line.outcome, line.why[:13]) == (RestoreOutcome.FAILED, "0 tasks moved")
        assert recorded.reopen().all(Placed) == (recorded.placed,)

    def test_an_unreadable_listing(self, recorded: Recorded) -> None:
        recorded.node.listing(BOX).write_text("many\n")
        assert recorded.restored().outcome is RestoreOutcome.FAILED
        assert recorded.record.all(Placed) != ()

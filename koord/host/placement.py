"""The tasks of a cgroup in a resctrl group: which are missing there, how they are moved, and which are put back.

Membership is no value of a file. The kernel takes one thread id per write and moves that thread. What the thread forks
later begins beside it, but a fork under way may begin in the old resctrl group, and a process that enters the cgroup
from outside (``kubectl exec``) comes with its own group. So a move lists the cgroup, writes the tasks that are missing,
and lists again until none is.

A strategy wants a ``Membership``; ``Placed`` is noted before the first task is moved.

Invariants: a task in a control group that is neither the root group nor a class's was put there by another agent and
stays; no thread is written twice by one ``move``, whose writes and rounds are bounded; a task that ends in between is
no error. All cgroups below a cgroup count: a container may have made some of its own.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

import msgspec

from koord.host import resctrl
from koord.host.cgroup import GONE, ReadError, Tree
from koord.host.files import ParseError, Target
from koord.host.undoable import Restored, RestoreOutcome
from koord.host.writer import WriteError, Writer

TASKS = "resctrl.tasks"
"""The name of a cgroup's resctrl group where others have a row's name: it is no value of a file."""
ROUNDS = 8
MOST_WRITES = 4096
ROOT = "root"
"""How people call the root group, whose name is ""."""
_MOST_GROUPS = 1024
_LINKS_OF_A_LEAF = 2
THREADS = "cgroup.threads"
PROCESSES = "cgroup.procs"
_T = TypeVar("_T")


class Membership(msgspec.Struct, frozen=True):
    """The tasks of ``cgroup``, and of those below it, belong to resctrl group ``resctrl_group``."""

    cgroup: str
    resctrl_group: str
    why: str
    pod: str = ""


class Placed(msgspec.Struct, frozen=True, tag="tasks"):
    """Koord moved tasks of ``cgroup`` into ``resctrl_groups``; ``path`` and ``inode`` are the directory's."""

    cgroup: str = msgspec.field(name="group")
    path: str
    inode: int
    resctrl_groups: tuple[str, ...]

    @property
    def key(self) -> tuple[str]:
        return (self.cgroup,)

    @property
    def is_there(self) -> bool:
        return os.path.exists(self.path)

    def planned(self, writer: Writer) -> Restored:
        """Where the tasks are now, by the names of resctrl groups."""
        line = Restored(Target(self.cgroup, TASKS), self.path, RestoreOutcome.GONE, ROOT)
        try:
            tasks = to_put_back(writer.tree, self)
        except (ReadError, ValueError) as error:
            return replace(line, outcome=RestoreOutcome.FAILED, why=str(error))
        if tasks is None:
            return line
        if not tasks:
            return replace(line, outcome=RestoreOutcome.ALREADY_BASE, before=ROOT, after=ROOT)
        held = ", ".join(self.resctrl_groups)
        return replace(line, outcome=RestoreOutcome.RESTORED, before=held, after=held, why=count(len(tasks)))

    def undo(self, writer: Writer) -> Restored:
        """Move the tasks back to the root group."""
        line = self.planned(writer)
        if line.outcome is not RestoreOutcome.RESTORED:
            return line
        moved = move(writer, "", lambda: to_put_back(writer.tree, self) or ())
        if not moved.settled:
            why = str(moved.error or "new tasks keep appearing")
            return replace(line, outcome=RestoreOutcome.FAILED, why=f"{count(moved.tasks)} moved, then: {why}")
        return replace(line, after=ROOT, why=count(moved.tasks))


@dataclass(frozen=True, slots=True)
class Cgroup:
    """A cgroup's directory when it was looked at, and the ids of all threads, or processes, in it and below it."""

    path: str
    inode: int
    tasks: frozenset[int]


@dataclass(frozen=True, slots=True)
class Moved:
    """The result of one ``move``. ``settled``: no task was missing at its end; ``error``: what ended it before."""

    tasks: int
    ended: int
    settled: bool
    error: Exception | None = None


class Census:
    """The tasks of each resctrl group of the mount at ``root``; each group is read once, when it is first asked for.

    ``classes``: the groups that Koord may take tasks from, beside the root group. Raises ReadError, ParseError.
    """

    def __init__(self, root: Path, classes: Collection[str]) -> None:
        self._root, self._classes = root, classes
        self._tasks: dict[str, frozenset[int] | None] = {}
        self._others: frozenset[int] | None = None

    def of(self, resctrl_group: str) -> frozenset[int] | None:
        """The tasks of ``resctrl_group``; None if there is none."""
        if resctrl_group not in self._tasks:
            self._tasks[resctrl_group] = resctrl.tasks(self._root, resctrl_group)
        return self._tasks[resctrl_group]

    def others(self) -> frozenset[int]:
        """Returns the tasks of all resctrl groups of other agents."""
        if self._others is None:
            names = (name for name in resctrl.groups(self._root) if name not in self._classes)
            self._others = frozenset().union(*(self.of(name) or () for name in names))
        return self._others

    def missing(self, tasks: frozenset[int], resctrl_group: str) -> frozenset[int]:
        """Returns those of ``tasks`` that are to be moved for all to be in ``resctrl_group``."""
        missing = tasks - (self.of(resctrl_group) or frozenset())
        return missing - self.others() if missing else missing

    def among(self, tasks: frozenset[int], resctrl_groups: Collection[str]) -> frozenset[int]:
        """Returns those of ``tasks`` that are in any of ``resctrl_groups``."""
        return tasks & frozenset().union(*(self.of(name) or () for name in resctrl_groups))


def look(tree: Tree, cgroup: str, row: str = THREADS) -> Cgroup | None:
    """``cgroup`` now (v1: in the CPU controller's hierarchy), with the ids that ``row`` lists; None if it is gone.

    Raises ReadError, ParseError, and ValueError for a path that leaves the tree.
    """
    file = tree.path(Target(cgroup, row))
    if file is None:
        return None
    top, name = os.path.split(file)
    inode, tasks = _of_file(top, lambda: os.stat(top).st_ino), _tasks(f"{top}/{name}")
    if inode is None or tasks is None:
        return None
    for directory in _below(top):
        tasks |= _tasks(f"{directory}/{name}") or frozenset()
    return Cgroup(top, inode, tasks)


def _tasks(file: str) -> frozenset[int] | None:
    content = _of_file(file, lambda: _content(file))
    return None if content is None else resctrl.parse_tasks(content, file)


def _content(file: str) -> bytes:
    with open(file, "rb", buffering=0) as opened:
        return opened.readall()


def _below(top: str) -> Iterator[str]:
    """Yields the cgroups below ``top``, a bounded number of them."""
    waiting = _children(top)
    for _ in range(_MOST_GROUPS):
        if not waiting:
            return
        directory = waiting.pop()
        yield directory
        waiting += _children(directory)


def _children(directory: str) -> list[str]:
    """The kernel counts them in the directory's links, so that a leaf costs no listing."""

    def listed() -> list[str]:
        if os.stat(directory).st_nlink == _LINKS_OF_A_LEAF:
            return []
        with os.scandir(directory) as entries:
            return [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]

    return _of_file(directory, listed) or []


def _of_file(path: str, read: Callable[[], _T]) -> _T | None:
    """Returns what ``read`` returns; None if ``path`` is gone. Raises ReadError."""
    try:
        return read()
    except OSError as error:
        if error.errno in GONE:
            return None
        raise ReadError(error.errno, f"cannot read: {error.strerror}", path) from error


def missing(tree: Tree, cgroup: str, resctrl_group: str, classes: Collection[str]) -> frozenset[int]:
    """The tasks of ``cgroup`` that are to be moved now for all to be in ``resctrl_group``."""
    found = look(tree, cgroup)
    return frozenset() if found is None else Census(tree.resctrl, classes).missing(found.tasks, resctrl_group)


def to_put_back(tree: Tree, placed: Placed) -> frozenset[int] | None:
    """The tasks of the cgroup that are where Koord moved some; None if it is gone, or another of the same path."""
    found = look(tree, placed.cgroup)
    if found is None or (found.path, found.inode) != (placed.path, placed.inode):
        return None
    return Census(tree.resctrl, ()).among(found.tasks, placed.resctrl_groups)


def move(writer: Writer, to: str, strays: Callable[[], Collection[int]]) -> Moved:
    """Moves ``strays()`` to resctrl group ``to``, and again those that are new, until none is. Never raises."""
    tried: set[int] = set()
    moved = ended = 0
    try:
        for _ in range(ROUNDS):
            new = sorted(set(strays()) - tried)
            if not new:
                return Moved(moved, ended, settled=True)
            for task in new[: MOST_WRITES - len(tried)]:
                tried.add(task)
                if writer.move_task(to, task):
                    moved += 1
                else:
                    ended += 1
    except (WriteError, ReadError, ParseError) as error:
        return Moved(moved, ended, settled=False, error=error)
    return Moved(moved, ended, settled=False)


def count(tasks: int) -> str:
    return f"{tasks} task{'' if tasks == 1 else 's'}"

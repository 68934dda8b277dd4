"""A node of plain files whose resctrl behaves as the kernel's, as far as its tasks files go. Emulated.

Plain files cannot move an id from one to another, so the writer's one method that moves tasks does it here.
"""

from __future__ import annotations

import errno
import itertools
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

from koord.host import resctrl
from koord.host.cgroup import Tree
from koord.host.writer import Vanished, WriteError, Writer

_T = TypeVar("_T")


class ModelWriter(Writer):
    """``moved``: (resctrl group, id) of each write that succeeded. ``ended`` are ids of tasks that are no more.

    ``refusals``: errno by resctrl group. ``then`` is called after each write, as the node goes on meanwhile.
    """

    def __init__(self, tree: Tree) -> None:
        super().__init__(tree)
        self.moved: list[tuple[str, int]] = []
        self.ended: set[int] = set()
        self.refusals: dict[str, int] = {}
        self.then: Callable[[int], None] = lambda task: None

    def move_task(self, resctrl_group: str, task: int) -> bool:
        file = resctrl.tasks_file(self.tree.resctrl, resctrl_group)
        if resctrl_group in self.refusals:
            raise WriteError(self.refusals[resctrl_group], str(file), str(task), resctrl.last_status(self.tree.resctrl))
        if not file.exists():
            raise Vanished(errno.ENOENT, str(file), str(task))
        if task in self.ended:
            return False
        for name in ("", *resctrl.groups(self.tree.resctrl)):
            ids = resctrl.tasks(self.tree.resctrl, name) or frozenset()
            if task in ids or name == resctrl_group:
                keeps = ids | {task} if name == resctrl_group else ids - {task}
                write(resctrl.tasks_file(self.tree.resctrl, name), keeps)
        self.moved.append((resctrl_group, task))
        self.then(task)
        return True


class MortalWriter(ModelWriter):
    """Dies before, or after, act number ``dies_at`` (0 = never)."""

    killed: type[BaseException] = KeyboardInterrupt

    def __init__(self, tree: Tree) -> None:
        super().__init__(tree)
        self.acts, self.dies_at, self.is_after = 0, 0, False

    def _act(self, act: Callable[[], _T]) -> _T:
        self.acts += 1
        if self.acts == self.dies_at and not self.is_after:
            raise self.killed
        answer = act()
        if self.acts == self.dies_at:
            raise self.killed
        return answer

    def move_task(self, cgroup: str, task: int) -> bool:
        return self._act(lambda: super(MortalWriter, self).move_task(cgroup, task))


class ResctrlNode:
    """Cgroups with tasks, and a resctrl mount with the groups LSR, LS and BE."""

    def __init__(self, root: Path, version: int = 1) -> None:
        self.tree = Tree(version, root / "cgroup", {}, resctrl=root / "resctrl")
        self.writer = ModelWriter(self.tree)
        self._ids = itertools.count(100)
        for cgroup in ("", "LSR", "LS", "BE"):
            self.make_group(cgroup)
        (self.tree.resctrl / "info").mkdir()
        (self.tree.resctrl / "info/last_cmd_status").write_text("ok\n")

    def make_group(self, name: str, tasks: Iterable[int] = ()) -> None:
        (self.tree.resctrl / name).mkdir(parents=True, exist_ok=True)
        (self.tree.resctrl / name / "schemata").write_text("L3:0=7ff\n")
        write(resctrl.tasks_file(self.tree.resctrl, name), tasks)

    def listing(self, cgroup: str) -> Path:
        return self.tree.directory(cgroup) / ("tasks" if self.tree.version == 1 else "cgroup.threads")

    def start(self, cgroup: str, count: int = 1, beside: str = "") -> list[int]:
        """New threads in ``cgroup``, which is made if need be; as of a parent in resctrl group ``beside``."""
        ids = list(itertools.islice(self._ids, count))
        file = self.listing(cgroup)
        file.parent.mkdir(parents=True, exist_ok=True)
        write(file, {*(resctrl.parse_tasks(file.read_text(), "") if file.exists() else ()), *ids})
        members = resctrl.tasks_file(self.tree.resctrl, beside)
        write(members, {*(resctrl.tasks(self.tree.resctrl, beside) or ()), *ids})
        return ids

    def members(self, name: str = "") -> set[int]:
        """The tasks of a resctrl group."""
        return set(resctrl.tasks(self.tree.resctrl, name) or ())


def write(file: Path, ids: Iterable[int]) -> None:
    file.write_text("".join(f"{one}\n" for one in sorted(ids)))

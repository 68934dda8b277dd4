"""Processes as files: each with its OOM score adjustment and its start time below /proc, and listed in its cgroup."""

from __future__ import annotations

import errno
import itertools
import shutil
from pathlib import Path

from koord.host.cgroup import Tree
from koord.host.files import Target, Value
from koord.host.writer import WriteError
from tests.fakes.resctrl import MortalWriter

SCORE = "oom_score_adj"


class ScoreWriter(MortalWriter):
    """Without ``may_lower`` the kernel refuses to lower a score. Writes are acts: see ``MortalWriter``."""

    may_lower = True

    def write(self, target: Target, value: Value) -> None:
        def written() -> None:
            if target.name.startswith(SCORE) and not self.may_lower and int(value) < int(self.read(target) or 0):
                rule = "lowering it needs CAP_SYS_RESOURCE"
                raise WriteError(errno.EACCES, str(self.path(target)), str(value), rule)
            super(ScoreWriter, self).write(target, value)

        self._act(written)


class Processes:
    """Of the node with ``tree``."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._pids, self._ticks = itertools.count(100), itertools.count(5000)
        self._of: dict[int, str] = {}

    def start(self, cgroup: str, score: int = 985, pid: int = 0) -> int:
        """A new process; ``pid``: one that was used before."""
        pid = pid or next(self._pids)
        directory = self._tree.proc / str(pid)
        directory.mkdir(parents=True)
        (directory / SCORE).write_text(f"{score}\n")
        fields = ["S", *["0"] * 18, str(next(self._ticks)), *["0"] * 30]
        (directory / "stat").write_text(f"{pid} (a (b) c) {' '.join(fields)}\n")
        self._of[pid] = cgroup
        self._list(cgroup)
        return pid

    def fork(self, parent: int) -> int:
        """It has its parent's score."""
        return self.start(self._of[parent], self.score(parent))

    def move(self, pid: int, cgroup: str) -> None:
        before, self._of[pid] = self._of[pid], cgroup
        self._list(before)
        self._list(cgroup)

    def end(self, pid: int) -> None:
        shutil.rmtree(self._tree.proc / str(pid))
        self._list(self._of.pop(pid))

    def score(self, pid: int) -> int:
        return int((self._tree.proc / str(pid) / SCORE).read_text())

    def choose(self, pid: int, score: int) -> None:
        """It sets its own."""
        (self._tree.proc / str(pid) / SCORE).write_text(f"{score}\n")

    def scores(self) -> dict[int, int]:
        return {pid: self.score(pid) for pid in self._of}

    def _list(self, cgroup: str) -> None:
        file: Path | None = self._tree.path(Target(cgroup, "cgroup.procs"))
        assert file is not None
        if file.parent.is_dir():
            file.write_text("".join(f"{pid}\n" for pid, its in self._of.items() if its == cgroup))

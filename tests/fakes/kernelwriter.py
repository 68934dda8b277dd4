"""A writer for files of cgroups whose kernel refuses what a real one refuses, and which may die at any write."""

from __future__ import annotations

from collections.abc import Sequence

from koord.host.cgroup import Tree
from koord.host.files import Target, Value
from koord.host.writer import WriteError, Writer
from tests.fakes.kernel import KernelModel
from tests.fakes.resctrl import MortalWriter


class Killed(BaseException):
    """SIGKILL."""


class KernelWriter(MortalWriter):
    """The kernel knows the rows ``names`` of ``groups``; its CPUs are 0-3. Dies before, or after, write ``dies_at``."""

    killed = Killed

    def __init__(self, tree: Tree, groups: Sequence[str], names: Sequence[str]) -> None:
        super().__init__(tree)
        self._targets = [Target(cgroup, name) for cgroup in groups for name in names]
        self._groups = tuple(groups)

    def write(self, target: Target, value: Value) -> None:
        self._act(lambda: self._written(target, value))

    def written_by_others(self, target: Target, value: Value) -> None:
        """The same kernel for kubelet and the runtime, which are never killed here."""
        self._written(target, value)

    def _written(self, target: Target, value: Value) -> None:
        if target not in self._targets:
            super().write(target, value)
            return
        held = {each: actual for each in self._targets if (actual := self.read(each)) is not None}
        model = KernelModel(self.version, self._groups, "0-3", "0", held)
        try:
            model.write(target, value)
        except OSError as error:
            raise WriteError(error.errno or 0, str(self.path(target)), str(value)) from error
        for each, before in held.items():
            if model.read(each) != before or each == target:
                Writer.write(self, each, model.read(each))

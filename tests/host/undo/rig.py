"""A cgroup tree of plain files with an undo record beside it, and what kubelet requested of a container there."""

from __future__ import annotations

from pathlib import Path

from koord.host.cgroup import Tree
from koord.host.files import Target, Value
from koord.host.originals import ContainerKey, Original, Originals, Pending
from koord.host.undo import UndoRecord
from koord.host.writer import Reading, Writer
from tests.support.opened import opened

BOOT = "6f1d"
QUOTA = Target("/kubepods/pod1", "cpu_quota")
ORIGINALS = Originals(ContainerKey("uid", "main", 1), {"cpu_quota": Original(100_000, 50_000, Pending.CREATED)})


class Rig:
    """A cgroup tree of plain files and a record beside it."""

    def __init__(self, root: Path, version: int = 1) -> None:
        self.root = root / "cgroup"
        self.writer = Writer(Tree(version, self.root, {}))
        self.file, self.lock = root / "undo", root / "undo.lock"
        self.record = opened(UndoRecord(self.file, BOOT))

    def put(self, target: Target, text: str) -> Path:
        """What someone else writes."""
        path = self.writer.path(target)
        assert path is not None
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def reading(self, target: Target) -> Reading:
        reading = self.writer.look(target)
        assert reading is not None
        return reading

    def take(self, target: Target, value: Value) -> Value:
        """What the actuator does: remember, then write."""
        base = self.record.remember(target, self.reading(target), value)
        self.writer.write(target, value)
        return base

    def reopen(self, boot_id: str = BOOT) -> UndoRecord:
        self.record.close()
        self.record = opened(UndoRecord(self.file, boot_id))
        return self.record

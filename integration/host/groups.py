"""Cgroups of a test's own in the kernel's cpu, cpuset and memory hierarchies (v1), below one top group.

Invariant: only the top group and what is below it is made, written and removed.
"""

from __future__ import annotations

import contextlib
import errno
import os
import time
from collections.abc import Iterator
from pathlib import Path

from koord.host.cgroup import Tree, detect
from koord.host.files import Target, Value
from koord.host.writer import Writer

CONTROLLERS = ("cpu", "cpuset", "memory")


class Groups:
    """``top`` has all CPUs and memory nodes and no limit; ``writer`` is Koord's, for the whole tree."""

    def __init__(self, top: str) -> None:
        mountinfo = Path("/proc/self/mountinfo").read_text(encoding="utf-8")
        self.top = top
        self.tree: Tree = detect(Path("/sys/fs/cgroup"), mountinfo)
        self.writer = Writer(self.tree)
        self.cpus, self.mems = (str(self.writer.read(Target("/", name))) for name in ("cpuset_cpus", "cpuset_mems"))

    @contextlib.contextmanager
    def made(self, *groups: str) -> Iterator[None]:
        """``groups`` (parents first) as the kernel makes them, removed afterwards."""
        try:
            for cgroup in (self.top, *groups):
                for controller in CONTROLLERS:
                    self.tree.directory(cgroup, controller).mkdir()
                if cgroup == self.top:
                    self.fill_cpuset(cgroup)
            yield
        finally:
            for cgroup in (*reversed(groups), self.top):
                for controller in CONTROLLERS:
                    _remove(self.tree.directory(cgroup, controller))

    def fill_cpuset(self, cgroup: str) -> None:
        """All CPUs and memory nodes, without which no process can join."""
        self.put(Target(cgroup, "cpuset_cpus"), self.cpus)
        self.put(Target(cgroup, "cpuset_mems"), self.mems)

    def put(self, target: Target, value: Value) -> None:
        """One plain write of ``value`` as it is, past Koord's checks; raises the kernel's OSError."""
        descriptor = os.open(self.file(target), os.O_WRONLY)
        try:
            os.write(descriptor, str(value).encode() or b"\n")
        finally:
            os.close(descriptor)

    def file(self, target: Target) -> Path:
        path = self.tree.path(target, for_write=True)
        assert path is not None, target
        return path


def _remove(directory: Path) -> None:
    """Waits up to 5 s for processes to leave."""
    until = time.monotonic() + 5
    while True:
        try:
            directory.rmdir()
        except FileNotFoundError:
            return
        except OSError as error:
            if error.errno != errno.EBUSY or time.monotonic() > until:
                raise
            time.sleep(0.01)
        else:
            return

"""Does many things to the guest's kernel files in one go, through Koord's own writer or past it.

stdin is a JSON list of steps, stdout the list of their results, in the same order. A step is a list of a verb and its
words: ``write GROUP ROW VALUE`` (Koord's writer, then what the file holds: {"text", "value"}), ``release GROUP ROW
VALUE`` (the same with the nearest that the kernel takes), ``read GROUP ROW`` (what the file holds; null = no such
file), ``put PATH TEXT`` (one write(2)), ``text PATH``, ``mkdir PATH``, ``rmdir PATH``, ``tell [GROUP ROW]...``
(systemd, of what the files hold). A step that fails is {"error", "errno"} (errno null if it was refused before any
kernel saw it), and costs itself only.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from koord.host.cgroup import detect
from koord.host.files import Target, Value
from koord.host.systemd_units import of_host
from koord.host.undo import UndoRecord
from koord.host.writer import Writer


class Kernel:
    def __init__(self, record: UndoRecord) -> None:
        mountinfo = Path("/proc/self/mountinfo").read_text(encoding="utf-8")
        self.writer = Writer(detect(Path("/sys/fs/cgroup"), mountinfo))
        self.record = record
        self.verbs: Mapping[str, Callable[..., Any]] = {
            "write": self.write,
            "release": lambda cgroup, name, value: self.write(
                cgroup, name, self.writer.attainable(Target(cgroup, name), value)
            ),
            "read": lambda cgroup, name: self.writer.read(Target(cgroup, name)),
            "put": put,
            "text": lambda path: Path(path).read_text(encoding="ascii"),
            "mkdir": os.mkdir,
            "rmdir": os.rmdir,
            "tell": self.tell,
        }

    def write(self, cgroup: str, name: str, value: Value) -> dict[str, Any]:
        target = Target(cgroup, name)
        self.writer.write(target, value)
        path = self.writer.path(target)
        assert path is not None
        return {"text": path.read_text(encoding="ascii").strip(), "value": self.writer.read(target)}

    def tell(self, *targets: list[str]) -> dict[str, Any]:
        units = of_host(self.writer, self.record)
        assert units is not None
        told = units.tell(Target(*target) for target in targets)
        return {
            target.name: {"why": one.why, "kept": one.value if one.is_rounded else None} for target, one in told.items()
        }

    def do(self, step: list[Any]) -> Any:
        try:
            return self.verbs[step[0]](*step[1:])
        except (OSError, ValueError) as error:
            return {"error": str(error), "errno": error.errno if isinstance(error, OSError) else None}


def put(path: str, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)


def main() -> int:
    with tempfile.TemporaryDirectory() as directory, UndoRecord(Path(directory) / "undo", "") as record:
        kernel = Kernel(record)
        json.dump([kernel.do(step) for step in json.load(sys.stdin)], sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main())

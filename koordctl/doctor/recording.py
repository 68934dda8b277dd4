"""What a recorded tree remembers of a node besides its files: answers that only the running node could give.

``FILE`` lies at the tree's top; a tree that has it is recorded, whatever its path. Fails with RecordingError, naming
the file.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

FILE = "koord-recording.json"


class RecordingError(ValueError):
    """The tree's file of answers is not one."""


@dataclass(frozen=True, slots=True)
class Recording:
    """``kubelet``: its version, "" = unknown. ``runtime``: name and version; None: it did not answer."""

    kubelet: str = ""
    runtime: tuple[str, str] | None = None
    state_free_bytes: int | None = None

    def text(self) -> str:
        name, version = self.runtime or ("", "")
        told = {"name": name, "version": version} if self.runtime else None
        return json.dumps({"kubelet": self.kubelet, "runtime": told, "stateFreeBytes": self.state_free_bytes}) + "\n"


def read(root: Path) -> Recording | None:
    """The answers that the tree at ``root`` remembers; None if it is no recording."""
    file = root / FILE
    try:
        found = json.loads(file.read_bytes())
        told = found["runtime"]
        runtime = (str(told["name"]), str(told["version"])) if told else None
        return Recording(str(found["kubelet"]), runtime, found["stateFreeBytes"])
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RecordingError(f"{file}: {error!r}") from error

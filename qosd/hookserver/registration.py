"""The file by which a runtime proxy finds this hook server.

Its keys are Koordinator's, so that either proxy reads it. It is written whole or not at all (a temporary name that
no proxy reads, then a rename), as the last step of start-up, when the socket already answers. Stopping is not
disabling: it stays when qosd ends, and with policy Ignore a proxy that finds nobody forwards requests unedited.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

FILE_NAME = "koord-qosd.json"


def content(socket: Path, failure_policy: str, stages: Sequence[str]) -> str:
    """The file's JSON; ``failure_policy`` is Fail or Ignore, ``stages`` are names as in ``PreCreateContainer``."""
    entry = {"remote-endpoint": str(socket), "failure-policy": failure_policy, "runtime-hooks": list(stages)}
    return json.dumps(entry, indent=2) + "\n"


def write(directory: Path, text: str) -> Path:
    """Put ``text`` into ``directory``/koord-qosd.json atomically and durably (0644); raises OSError with the path."""
    directory.mkdir(mode=0o755, parents=True, exist_ok=True)
    target = directory / FILE_NAME
    temporary = directory / f".{FILE_NAME}.{os.getpid()}.tmp"
    try:
        with temporary.open("w", encoding="utf-8") as file:
            os.fchmod(file.fileno(), 0o644)
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.rename(target)
    finally:
        temporary.unlink(missing_ok=True)
    return target


def remove(directory: Path) -> None:
    """Take the file away, if it is there."""
    (directory / FILE_NAME).unlink(missing_ok=True)

"""What clients write to an API server, and when, from its audit log: the same cost for each client, unlike a watch.

``flags`` has the server log one line for each answered write, without bodies.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

_POLICY: dict[str, Any] = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived", "ResponseStarted"],
    "rules": [
        {"level": "Metadata", "verbs": ["create", "update", "patch", "delete"], "omitManagedFields": True},
        {"level": "None"},
    ],
}


class _Target(msgspec.Struct, frozen=True):
    resource: str = ""
    subresource: str = ""
    name: str = ""


class _Status(msgspec.Struct, frozen=True):
    code: int = 0


class _User(msgspec.Struct, frozen=True):
    username: str = ""


class _Line(msgspec.Struct, frozen=True, rename="camel"):
    verb: str
    stage_timestamp: str
    user: _User = _User()
    object_ref: _Target = _Target()
    response_status: _Status = _Status()


class Write(msgspec.Struct, frozen=True):
    """``at_s``: when it was answered, in seconds since 1970. ``what``: such as ``create pods/binding``."""

    at_s: float
    what: str
    name: str
    user: str
    is_done: bool


_LINE = msgspec.json.Decoder(_Line)


def flags(directory: Path) -> tuple[str, ...]:
    """Returns the API server's flags for a log below ``directory``; writes the policy."""
    directory.mkdir(parents=True, exist_ok=True)
    policy = directory / "audit-policy.json"
    policy.write_text(json.dumps(_POLICY))
    return f"--audit-policy-file={policy}", f"--audit-log-path={log(directory)}", "--audit-log-maxsize=1000"


def log(directory: Path) -> Path:
    return directory / "audit.log"


class AuditLog:
    """The writes that were answered since it was made, as far as ``read`` has been called."""

    def __init__(self, path: Path) -> None:
        self.writes: list[Write] = []
        self._path, self._offset, self._rest = path, path.stat().st_size if path.exists() else 0, b""

    def read(self) -> Sequence[Write]:
        """Returns the new ones."""
        with self._path.open("rb") as file:
            file.seek(self._offset)
            added = file.read()
        self._offset += len(added)
        *lines, self._rest = (self._rest + added).split(b"\n")
        new = [_write(line) for line in lines]
        self.writes += new
        return new


def _write(line: bytes) -> Write:
    read = _LINE.decode(line)
    target = read.object_ref
    what = f"{read.verb} {target.resource}{'/' if target.subresource else ''}{target.subresource}"
    at_s = datetime.fromisoformat(read.stage_timestamp).timestamp()
    return Write(at_s, what, target.name, read.user.username, read.response_status.code // 100 == 2)

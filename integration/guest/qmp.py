"""QEMU's own control: QMP, one command after the other, over the unix socket on which QEMU listens.

Events are skipped. Raises HarnessError for what QEMU refuses, and where it ends before it answers.
"""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

from integration.harness.processes import HarnessError, wait_for

ANSWER_S = 60.0
SAVED_S = 300.0
_UNBOUNDED_BYTES_PER_S = 1 << 40


class QMP:
    """A connection to the socket ``path``, to be used in a ``with``."""

    def __init__(self, path: Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(ANSWER_S)
        self._socket.connect(str(path))
        self._lines = self._socket.makefile("rb")

    def __enter__(self) -> QMP:
        self._read()  # the greeting
        self.command("qmp_capabilities")
        return self

    def __exit__(self, *_: object) -> None:
        self._lines.close()
        self._socket.close()

    def command(self, name: str, **arguments: object) -> Any:
        request = json.dumps({"execute": name, "arguments": arguments}).encode() + b"\n"
        try:
            self._socket.sendall(request)
            return self._answer(name)
        except OSError as error:
            raise HarnessError(f"QEMU ended before its answer to {name}: {error}") from error

    def _answer(self, name: str) -> Any:
        while True:
            message = self._read()
            if "error" in message:
                raise HarnessError(f"QEMU refuses {name}: {message['error'].get('desc')}")
            if "return" in message:
                return message["return"]

    def save(self, file: Path) -> None:
        """Memory and devices, in ``file``; the machine runs on while it is saved, and is stopped afterwards."""
        self.command("migrate-set-parameters", **{"max-bandwidth": _UNBOUNDED_BYTES_PER_S})
        self.command("migrate", uri=f"exec:cat > {file}")
        wait_for(self._is_saved, SAVED_S, f"QEMU to save {file}")

    def _is_saved(self) -> bool:
        state = self.command("query-migrate")
        if state.get("status") == "failed":
            raise HarnessError(f"QEMU cannot save the machine: {state.get('error-desc', 'it does not say why')}")
        return bool(state.get("status") == "completed")

    def _read(self) -> dict[str, Any]:
        line = self._lines.readline()
        if not line:
            raise HarnessError("QEMU ended before its answer")
        return dict(json.loads(line))

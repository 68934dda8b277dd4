"""What systemd's socket unit is on a node: holds the listening socket, and starts the proxy on it again and again.

Invariant: the socket outlives every proxy. A client that connects while there is none waits in the backlog.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from integration.harness.processes import Process

BACKLOG = 1024
# LISTEN_PID has to be the pid of the process itself, and the socket its descriptor 3: only the child can see to both.
_ACTIVATE = 'fd=$1; shift; LISTEN_PID=$$ LISTEN_FDS=1 exec "$@" 3<&"$fd"'


class SocketHolder:
    """Listens on ``path``; ``spawn`` starts a program with that socket as descriptor 3, as systemd does."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.bind(str(path))
        os.chmod(path, 0o660)
        self._socket.listen(BACKLOG)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()
        self.path.unlink(missing_ok=True)

    def spawn(self, argv: Sequence[str | Path], log: Path, environment: Mapping[str, str] | None = None) -> Process:
        descriptor = self._socket.fileno()
        activated = ["/bin/sh", "-c", _ACTIVATE, "sh", str(descriptor), *argv]
        return Process(activated, log, environment, pass_fds=(descriptor,))

    def spawn_proxy(
        self,
        backend: Path,
        hook_files: Path,
        log: Path,
        flags: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> Process:
        """koord-runtime-proxy of this checkout; it serves as soon as it runs, so there is nothing to wait for."""
        argv = [
            *(sys.executable, "-m", "runtimeproxy"),
            *("--koord-runtimeproxy-endpoint", str(self.path)),
            *("--remote-runtime-service-endpoint", str(backend)),
            *("--hookserver-dir", str(hook_files)),
            *flags,
        ]
        return self.spawn(argv, log, environment)

"""koord-manager's commands: to serve, and to uninstall."""

from __future__ import annotations

import os
from collections.abc import Sequence

from koord.cluster import program
from koord.cluster.program import Work
from koord_manager.options import NAME, PROGRAM, UNINSTALL

_UNINSTALL = "uninstall"
STRANGERS = (
    "koord_manager.nodelink.gate",
    "koord_manager.nodelink.server",
    "koord_manager.webhooks.largereviews",
)
"""Loggers with lines that any client of a port, or one node, can cause."""


def main() -> None:
    """Serve until a signal ends it, or uninstall; leaves by SystemExit otherwise."""
    program.run(NAME, _load)


def _load(arguments: Sequence[str]) -> Work:
    return _uninstallation(arguments[1:]) if arguments[:1] == [_UNINSTALL] else _service(arguments)


def _service(arguments: Sequence[str]) -> Work:
    options = PROGRAM.load(PROGRAM.parse(arguments))
    _set_up_log(options.effective_log_level)
    program.prepare_for_clients()
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # each handshake that a stranger breaks off would be a line
    from koord_manager import manager  # noqa: PLC0415 - nothing heavy is loaded for --help or a usage error

    return manager.run(options, os.environ)


def _uninstallation(arguments: Sequence[str]) -> Work:
    options = UNINSTALL.load(UNINSTALL.parse(arguments))
    _set_up_log(options.log_level)
    from koord_manager import uninstall  # noqa: PLC0415

    return uninstall.run(options, os.environ)


def _set_up_log(level: str) -> None:
    program.set_up_log(level, ("koord_manager",), STRANGERS)

"""koord-manager's program: options, logging, exit codes (0 ended by a signal, 1 could not start or died, 2 usage)."""

from __future__ import annotations

import asyncio
import logging
import os
import sys

import uvloop

from koord.service import log
from koord.service.options import OptionError
from koord_manager.options import PROGRAM

_log = logging.getLogger("koord_manager")


def main() -> None:
    """Serve until a signal ends it; leaves by SystemExit otherwise."""
    try:
        options = PROGRAM.load(PROGRAM.parse(sys.argv[1:]))
    except OptionError as error:
        print(f"koord-manager: {error}", file=sys.stderr)
        sys.exit(2)
    log.set_up(options.log_level, ("koord_manager", "koord"), os.environ)
    from koord.kube.errors import KubeError  # noqa: PLC0415 - nothing heavy is loaded for --help or a usage error
    from koord_manager import manager  # noqa: PLC0415

    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(manager.run(options, os.environ))
    except* (OSError, KubeError, ValueError) as group:
        for reason in group.exceptions:
            _log.error("%s", reason)
        sys.exit(1)

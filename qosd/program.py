"""koord-qosd's program: options, logging, exit codes (0 ended by a signal, 1 could not start or died, 2 usage).

The event loop is asyncio's own: this daemon wakes a few times a second, where uvloop saves nothing that can be measured
and takes 1.8 MiB.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys

from koord.service import failures, log
from koord.service.config import ConfigError
from koord.service.notify import NotifyEnvironmentError
from koord.service.options import OptionError
from qosd.options import PROGRAM

_log = logging.getLogger("qosd")


def main() -> None:
    """Serves until a signal ends it; leaves by SystemExit otherwise."""
    try:
        options = PROGRAM.load(PROGRAM.parse(sys.argv[1:]))
    except OptionError as error:
        print(f"koord-qosd: {error}", file=sys.stderr)
        sys.exit(2)
    lines = log.set_up(options.log_level, ("qosd", "koord"), os.environ)
    from qosd import daemon  # noqa: PLC0415 - nothing heavy is loaded for --help or a usage error

    with failures.ending(_log, OSError, ConfigError, NotifyEnvironmentError):
        asyncio.run(daemon.run(options, os.environ, lines))

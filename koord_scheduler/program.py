"""koord-scheduler's command."""

from __future__ import annotations

import os
from collections.abc import Sequence

from koord.cluster import program
from koord.cluster.program import Work
from koord_scheduler.options import NAME, PROGRAM


def main() -> None:
    """Serves until a signal ends it; leaves by SystemExit otherwise."""
    program.run(NAME, _load)


def _load(arguments: Sequence[str]) -> Work:
    options = PROGRAM.load(PROGRAM.parse(arguments))
    program.set_up_log(options.effective_log_level, ("koord_scheduler",))
    from koord_scheduler import component  # noqa: PLC0415 - nothing heavy is loaded for --help or a usage error

    return component.run(options, os.environ)

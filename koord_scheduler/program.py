"""koord-scheduler's command."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from koord.cluster import program
from koord.cluster.program import Work
from koord.service.options import CommandLine, OptionError
from koord_scheduler.options import NAME, PROGRAM, Options

if TYPE_CHECKING:
    from koord_scheduler.configuration import Configuration


def main() -> None:
    """Serves until a signal ends it; leaves by SystemExit otherwise."""
    program.run(NAME, _load)


def load(arguments: Sequence[str]) -> tuple[Options, Configuration]:
    """Returns what the command line says, over what its ``--config`` says. Raises OptionError."""
    said = PROGRAM.parse(arguments)
    from koord_scheduler import configuration  # noqa: PLC0415 - nothing heavy is loaded for --help or a usage error

    try:
        found = configuration.read(Path(said.config_file)) if said.config_file else configuration.Configuration()
    except configuration.ConfigurationError as error:
        raise OptionError(str(error)) from error
    return PROGRAM.load(CommandLine({**found.options, **said.values})), found


def _load(arguments: Sequence[str]) -> Work:
    options, configuration = load(arguments)
    program.set_up_log(options.effective_log_level, ("koord_scheduler",))
    from koord_scheduler import component  # noqa: PLC0415 - nothing heavy is loaded for --help or a usage error

    return component.run(options, configuration, os.environ)

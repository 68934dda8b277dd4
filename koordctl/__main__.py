"""koordctl's command line: the modules of ``koordctl.commands``, each imported when it is called.

Invariant: what runs for one command imports nothing of another, and nothing heavier than click and protobuf, so that
an answer takes a fraction of a second from the start of the process. Exit codes: ``koordctl.exits``.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import NoReturn

import click

import koord
from koordctl import commands
from koordctl.exits import EPILOG, INTERRUPTED, OK, USAGE

_FILES = os.listdir(commands.__path__[0])  # pkgutil says the same, a millisecond later
COMMANDS = tuple(sorted(name.removesuffix(".py") for name in _FILES if name.endswith(".py") and name[0] != "_"))
"""Each is the function of its name, in the module of its name of ``koordctl.commands``."""


class _Lazy(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None  # resolve_command says so
        command: click.Command = getattr(import_module(f"koordctl.commands.{cmd_name}"), cmd_name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Raises UsageError for a command that does not exist, with the one that was probably meant."""
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            from koord.model.spelling import did_you_mean  # noqa: PLC0415

            ctx.fail(f"No such command {args[0]!r}{did_you_mean(args[0], COMMANDS)}.")
        return super().resolve_command(ctx, args)


@click.group(
    cls=_Lazy,
    epilog=EPILOG,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
@click.version_option(koord.__version__, prog_name="koordctl", message="%(prog)s %(version)s")
def cli() -> None:
    """Show what Koord does on this node, and why."""


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """The console script, by default with the process's arguments; its end is SystemExit with a documented code."""
    try:
        code = cli.main(arguments, prog_name="koordctl", standalone_mode=False)
    except click.UsageError as error:
        error.show()
        sys.exit(USAGE)
    except click.ClickException as error:
        click.echo(f"koordctl: {error.format_message()}", err=True)
        sys.exit(error.exit_code)
    except click.Abort:
        sys.exit(INTERRUPTED)
    sys.exit(code if isinstance(code, int) else OK)


if __name__ == "__main__":
    main()

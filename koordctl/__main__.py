"""Runs koordctl's command line: the modules of ``koordctl.commands``, each imported when it is called.

Invariant: what runs for one command imports nothing of another, and nothing heavier than click and protobuf, so that
an answer takes a fraction of a second from the start of the process. Exit codes: ``koordctl.exits``.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from typing import NoReturn

import click

import koord
from koordctl.exits import EPILOG, INTERRUPTED, OK, USAGE
from koordctl.guide import GUIDES

COMMANDS = tuple(sorted(name for name in GUIDES if " " not in name))
"""Each is the function of its name, in a module of ``koordctl.commands``: that of its name, but for ``_MODULES``."""
_MODULES = {"disable": "strategies", "enable": "strategies", "journal": "writes", "plan": "writes"}


class _Lazy(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None  # resolve_command says so
        module = import_module(f"koordctl.commands.{_MODULES.get(cmd_name, cmd_name)}")
        command: click.Command = getattr(module, cmd_name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Raises UsageError for a command that does not exist, and names the one that was probably meant."""
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            from koord.model.readable import did_you_mean  # noqa: PLC0415

            ctx.fail(f"No such command {args[0]!r}{did_you_mean(args[0], COMMANDS)}.")
        return super().resolve_command(ctx, args)


@click.group(
    cls=_Lazy,
    epilog=EPILOG,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
@click.version_option(koord.__version__, prog_name="koordctl", message="%(prog)s %(version)s")
def cli() -> None:
    """Show what Koord does on this node, and why.

    Start with `koordctl doctor`: it says what is missing on this node and what to do. Then `koordctl node` shows how
    Koord fares, `koordctl pods` what each container has, and `koordctl explain` why. Most commands ask koord-qosd, and
    only root may; `cluster`, `get`, `queue` and two forms of `explain` ask the API server, and `lint` reads files only.
    """


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Runs the console script, by default with the process's arguments; ends with SystemExit and a documented code."""
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

"""``koordctl disable`` and ``koordctl enable``: turn strategies off and on, until koord-qosd ends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from koordctl import completing, guide, options

if TYPE_CHECKING:
    from koordctl.fields import ListingLayout

_ALL = "all"
_METAVAR = f"{_ALL}|NAME..."


@click.command(short_help=guide.summary("disable"), epilog=guide.examples("disable"))
@click.argument("names", nargs=-1, required=True, metavar=_METAVAR, shell_complete=completing.STRATEGIES_OR_ALL)
@options.listing("views.node:STRATEGIES")
@options.daemon
def disable(names: tuple[str, ...], layout: ListingLayout[Any], socket: str, timeout_s: float) -> None:
    """Turn strategies off, and put their files back to the values before, until koord-qosd ends or you enable them."""
    _switch(False, names, layout, socket, timeout_s)


@click.command(short_help=guide.summary("enable"), epilog=guide.examples("enable"))
@click.argument("names", nargs=-1, required=True, metavar=_METAVAR, shell_complete=completing.STRATEGIES_OR_ALL)
@options.listing("views.node:STRATEGIES")
@options.daemon
def enable(names: tuple[str, ...], layout: ListingLayout[Any], socket: str, timeout_s: float) -> None:
    """Let strategies that were disabled act again, as far as the rules enable them."""
    _switch(True, names, layout, socket, timeout_s)


def _switch(enabled: bool, names: tuple[str, ...], layout: ListingLayout[Any], socket: str, timeout_s: float) -> None:
    """Switches ``names``, or all; shows what became of every strategy."""
    from koord.pb.koord import inspect_pb2 as inspect  # noqa: PLC0415
    from koordctl.client import Daemon  # noqa: PLC0415
    from koordctl.output import show_answer  # noqa: PLC0415

    if _ALL in names and len(names) > 1:
        raise click.BadParameter("give either all or names", param_hint="NAME")
    request = inspect.SetStrategiesRequest(enabled=enabled, names=() if _ALL in names else names)
    answer = Daemon(socket, timeout_s).ask("SetStrategies", request, inspect.SetStrategiesResponse)
    show_answer(answer, layout)

"""``koordctl enable``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from koordctl import completing, guide, options
from koordctl.switch import METAVAR, switch

if TYPE_CHECKING:
    from koordctl.fields import Layout


@click.command(short_help=guide.summary("enable"), epilog=guide.examples("enable"))
@click.argument("names", nargs=-1, required=True, metavar=METAVAR, shell_complete=completing.STRATEGIES_OR_ALL)
@options.listing("node:STRATEGIES")
@options.daemon
def enable(names: tuple[str, ...], layout: Layout[Any], socket: str, timeout_s: float) -> None:
    """Let strategies that were disabled act again, as far as the rules enable them."""
    switch(True, names, layout, socket, timeout_s)

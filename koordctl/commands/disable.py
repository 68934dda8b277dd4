"""``koordctl disable``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from koordctl import completing, guide, options
from koordctl.switch import METAVAR, switch

if TYPE_CHECKING:
    from koordctl.fields import Layout


@click.command(short_help=guide.summary("disable"), epilog=guide.examples("disable"))
@click.argument("names", nargs=-1, required=True, metavar=METAVAR, shell_complete=completing.STRATEGIES_OR_ALL)
@options.listing("node:STRATEGIES")
@options.daemon
def disable(names: tuple[str, ...], layout: Layout[Any], socket: str, timeout_s: float) -> None:
    """Turn strategies off: their files go back to the values before. Holds until koord-qosd ends."""
    switch(False, names, layout, socket, timeout_s)

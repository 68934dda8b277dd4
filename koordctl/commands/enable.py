"""``koordctl enable``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from koordctl import options
from koordctl.exits import EPILOG
from koordctl.switch import METAVAR, switch

if TYPE_CHECKING:
    from koordctl.fields import Layout


@click.command(epilog=EPILOG)
@click.argument("names", nargs=-1, required=True, metavar=METAVAR)
@options.listing("node:STRATEGIES")
@options.daemon
def enable(names: tuple[str, ...], layout: Layout[Any], socket: str, timeout_s: float) -> None:
    """Let strategies that were disabled act again, as far as the rules enable them."""
    switch(True, names, layout, socket, timeout_s)

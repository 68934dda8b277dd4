"""``koordctl top``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from koordctl import options
from koordctl.exits import EPILOG, Failed

if TYPE_CHECKING:
    from koordctl.fields import Layout


@click.command(epilog=EPILOG)
@click.option("--interval", type=click.FloatRange(0.2, 60), default=1.0, show_default=True, help="Seconds between two.")
@click.option("--once", is_flag=True, help="Print one picture and stop; needs no terminal.")
@options.listing("top:PODS", "json and yaml: with --once.")
@options.daemon
def top(interval: float, once: bool, layout: Layout[Any], socket: str, timeout_s: float) -> None:
    """Live: the node's usage and pressure, and the pods that use most, with their history."""
    from koordctl.client import Daemon  # noqa: PLC0415
    from koordctl.output import show  # noqa: PLC0415
    from koordctl.views import top as view  # noqa: PLC0415

    daemon = Daemon(socket, timeout_s)
    if once:
        picture = view.read(daemon.ask)
        show(layout, lambda: view.page(picture, layout), lambda: view.document(picture, layout))
        return
    if not layout.is_table:
        raise click.UsageError(f"-o {layout.output} is for --once")
    try:
        from koordctl.screen import Screen  # noqa: PLC0415
    except ModuleNotFoundError as error:
        if error.name is None or not error.name.startswith("textual"):
            raise
        raise Failed(
            "koordctl top needs textual: pip install 'koord[tui]'. Without it: koordctl top --once."
        ) from error
    view.read(daemon.ask)  # an absent daemon is said before the screen is taken
    Screen(daemon.ask, interval, layout).run()

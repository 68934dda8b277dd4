"""``koordctl top``."""

from __future__ import annotations

import click

from koordctl import options
from koordctl.exits import EPILOG, Failed


@click.command(epilog=EPILOG)
@click.option("--interval", type=click.FloatRange(0.2, 60), default=1.0, show_default=True, help="Seconds between two.")
@options.daemon
def top(interval: float, socket: str, timeout_s: float) -> None:
    """Live: the node's usage and pressure, and the pods that use most, with their history."""
    from koordctl.client import Daemon  # noqa: PLC0415

    try:
        from koordctl.screen import Screen  # noqa: PLC0415
    except ModuleNotFoundError as error:
        if error.name is None or not error.name.startswith("textual"):
            raise
        raise Failed("koordctl top needs textual: pip install 'koord[tui]'. Without it: koordctl metrics.") from error
    from koordctl.views import top as view  # noqa: PLC0415

    daemon = Daemon(socket, timeout_s)
    view.read(daemon.ask)  # an absent daemon is said before the screen is taken
    Screen(daemon.ask, interval).run()

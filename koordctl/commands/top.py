"""``koordctl top``."""

from __future__ import annotations

import os
import shutil
import sys
import time
from typing import TYPE_CHECKING, Any

import click

from koordctl import guide, options

if TYPE_CHECKING:
    from koordctl.fields import ListingLayout

_WIDTH, _HEIGHT = 80, 24


@click.command(short_help=guide.summary("top"), epilog=guide.examples("top"))
@click.option(
    "--interval", type=click.FloatRange(0.2, 60), default=1.0, show_default=True, help="Seconds between two pictures."
)
@click.option("--once", is_flag=True, help="Print one picture and stop, as it does without a terminal.")
@options.listing("views.top:PODS", "json and yaml: one picture.")
@options.daemon
def top(interval: float, once: bool, layout: ListingLayout[Any], socket: str, timeout_s: float) -> None:
    """Show live the node's usage and stalls, and the pods that use most, with their history.

    Keys: q quits; c, m, t, w, p and g sort by CPU, memory, throttling, waiting, pod and QoS class, pressed again the
    other way round; / filters by a part of the name or a QoS class; space holds the picture; arrows scroll.
    """
    from koordctl.client import Daemon  # noqa: PLC0415
    from koordctl.output import show  # noqa: PLC0415
    from koordctl.views import frame  # noqa: PLC0415
    from koordctl.views import top as view  # noqa: PLC0415

    reader = view.PictureReader(Daemon(socket, timeout_s).ask, interval, time.monotonic)
    picture = reader.read()  # an absent daemon is said before the screen is taken
    if once or not layout.is_table or not _is_terminal():
        width = shutil.get_terminal_size((_WIDTH, _HEIGHT)).columns
        show(
            layout,
            lambda: frame.page(picture, layout, interval, width),
            lambda: view.document(picture, layout.objects(picture.pods)),
        )
        return
    from koordctl.screen import Screen  # noqa: PLC0415
    from koordctl.terminal import opened  # noqa: PLC0415

    with opened(sys.stdin.fileno(), sys.stdout.fileno(), "NO_COLOR" not in os.environ) as terminal:
        Screen(terminal, reader.read, picture, frame.View(layout, interval)).run()


def _is_terminal() -> bool:
    """Returns whether keys and screen are those of a terminal that knows control sequences."""
    return sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM", "") not in ("", "dumb")

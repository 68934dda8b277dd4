"""``koordctl plan``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from koordctl import guide, options

if TYPE_CHECKING:
    from koordctl.fields import Layout


@click.command(short_help=guide.summary("plan"), epilog=guide.examples("plan"))
@options.listing("writes:WRITES", "wide: with inputs, and whole.")
@options.daemon
def plan(layout: Layout[Any], socket: str, timeout_s: float) -> None:
    """What the next tick would write, in the order of the writes. Nothing is written."""
    from koord.pb.koord import inspect_pb2 as inspect  # noqa: PLC0415
    from koordctl.client import Daemon  # noqa: PLC0415
    from koordctl.output import show_answer  # noqa: PLC0415
    from koordctl.views import writes as view  # noqa: PLC0415

    answer = Daemon(socket, timeout_s).ask("Plan", inspect.PlanRequest(), inspect.PlanResponse)
    show_answer(answer, layout, view.plan)

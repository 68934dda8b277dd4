"""``koordctl plan``."""

from __future__ import annotations

import click

from koordctl import options
from koordctl.exits import EPILOG


@click.command(epilog=EPILOG)
@options.output()
@options.daemon
def plan(output: str, socket: str, timeout_s: float) -> None:
    """What the next tick would write, in the order of the writes. Nothing is written."""
    from koord.pb.koord import inspect_pb2 as inspect  # noqa: PLC0415
    from koordctl.client import Daemon  # noqa: PLC0415
    from koordctl.output import show  # noqa: PLC0415
    from koordctl.views import writes as view  # noqa: PLC0415

    answer = Daemon(socket, timeout_s).ask("Plan", inspect.PlanRequest(), inspect.PlanResponse)
    show(answer, output, view.plan)

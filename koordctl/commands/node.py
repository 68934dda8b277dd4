"""``koordctl node``."""

from __future__ import annotations

import click

from koordctl import options
from koordctl.exits import EPILOG


@click.command(epilog=EPILOG)
@options.output()
@options.daemon
def node(output: str, socket: str, timeout_s: float) -> None:
    """The node: capacity, usage, CPU pools, features, strategies, and the health of every loop."""
    from koord.pb.koord import inspect_pb2 as inspect  # noqa: PLC0415
    from koordctl.client import Daemon  # noqa: PLC0415
    from koordctl.output import show  # noqa: PLC0415
    from koordctl.views import node as view  # noqa: PLC0415

    answer = Daemon(socket, timeout_s).ask("GetNode", inspect.GetNodeRequest(), inspect.GetNodeResponse)
    show(answer, output, view.table)
    if output == "table":
        for warning in answer.warnings:
            click.echo(f"warning: {warning}", err=True)

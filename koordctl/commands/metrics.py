"""``koordctl metrics``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from koordctl import completing, guide, options

if TYPE_CHECKING:
    from koordctl.fields import ListingLayout


@click.command(short_help=guide.summary("metrics"), epilog=guide.examples("metrics"))
@click.argument("metric", required=False, default="", shell_complete=completing.METRICS)
@click.option("--subject", default="", metavar="TEXT", help="Only objects whose pod, cgroup or device contains TEXT.")
@click.option(
    "--history", is_flag=True, help="Also show the samples that koord-qosd keeps: as bars, or in json and yaml."
)
@options.listing("views.metrics:METRICS")
@options.daemon
def metrics(
    metric: str, subject: str, history: bool, layout: ListingLayout[Any], socket: str, timeout_s: float
) -> None:
    """Show the newest sample of every metric and object.

    METRIC: only metrics whose names begin with it.
    """
    from koord.pb.koord import inspect_pb2 as inspect  # noqa: PLC0415
    from koordctl.client import Daemon  # noqa: PLC0415
    from koordctl.output import show_answer  # noqa: PLC0415

    request = inspect.MetricsRequest(metric=metric, subject=subject, history=history)
    answer = Daemon(socket, timeout_s).ask("Metrics", request, inspect.MetricsResponse)
    show_answer(answer, layout)

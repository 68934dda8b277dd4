"""``koordctl queue``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from koordctl import guide, options

if TYPE_CHECKING:
    from pathlib import Path

    from koordctl.fields import ListingLayout


@click.command(short_help=guide.summary("queue"), epilog=guide.examples("queue"))
@click.option(
    "--limit",
    type=click.IntRange(1, 1000),
    default=100,
    show_default=True,
    metavar="ROWS",
    help="So many at most.",
)
@options.listing("cluster.queue:QUEUE", "wide: whole, and since when by the clock.")
@options.scheduler
@options.cluster
@options.koord_namespace
@options.timeout
def queue(
    limit: int, scheduler: str, scheduler_token_file: Path | None, kubeconfig: str, context: str,
    koord_namespace: str, timeout_s: float, layout: ListingLayout[Any],
) -> None:  # fmt: skip
    """List the pods that wait for koord-scheduler, the most important and then the oldest first: since when, how often
    they were tried, and what they wait for. Pods of one owner that wait alike are one row.

    koordctl asks the leading scheduler through the API server, as kubectl port-forward does. Where that cannot be, it
    lists what the API server knows of them, and says so.
    """
    from koordctl.cluster import queue as waiting  # noqa: PLC0415
    from koordctl.cluster.connection import Choice, ask  # noqa: PLC0415
    from koordctl.cluster.scheduler import SchedulerChoice  # noqa: PLC0415
    from koordctl.output import show, warn  # noqa: PLC0415

    choice = SchedulerChoice(koord_namespace, scheduler, timeout_s, scheduler_token_file)
    page, why_not = ask(Choice(kubeconfig, context, timeout_s), lambda client: waiting.read(client, choice, limit))
    show(layout, lambda: waiting.text(page, layout), lambda: waiting.document(page, why_not, layout))
    if why_not:
        warn([f"koord-scheduler: {why_not}; this is what the API server has"], layout.is_table)

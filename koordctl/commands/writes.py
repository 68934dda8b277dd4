"""``koordctl plan`` and ``koordctl journal``: what koord-qosd will write, and what it wrote."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import click

from koordctl import completing, guide, options

if TYPE_CHECKING:
    from koordctl.fields import ListingLayout

_AGO = re.compile(r"(\d+)([smhd])", re.ASCII)
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


@click.command(short_help=guide.summary("plan"), epilog=guide.examples("plan"))
@options.listing("views.writes:WRITES", "wide: with inputs, and whole.")
@options.daemon
def plan(layout: ListingLayout[Any], socket: str, timeout_s: float) -> None:
    """Show what the next tick would write, in the order of the writes. Nothing is written."""
    from koord.pb.koord import inspect_pb2 as inspect  # noqa: PLC0415
    from koordctl.client import Daemon  # noqa: PLC0415
    from koordctl.output import show_answer  # noqa: PLC0415
    from koordctl.views import writes as view  # noqa: PLC0415

    answer = Daemon(socket, timeout_s).ask("Plan", inspect.PlanRequest(), inspect.PlanResponse)
    show_answer(answer, layout, view.plan)


@click.command(short_help=guide.summary("journal"), epilog=guide.examples("journal"))
@click.option(
    "--pod",
    default="",
    metavar="NAMESPACE/NAME",
    shell_complete=completing.QUALIFIED_PODS,
    help="Only writes for this pod.",
)
@click.option(
    "--file",
    default="",
    metavar="PATH",
    help="Only this file, by its path or <cgroup>/<value>; or only this value (cpu_quota).",
)
@click.option(
    "--strategy",
    default="",
    metavar="NAME",
    shell_complete=completing.STRATEGIES,
    help="Only writes of this strategy.",
)
@click.option("--since", default="", metavar="TIME", help="Only later ones: 90s, 10m, 2h, 1d ago, or 2026-01-31T12:00.")
@click.option(
    "--limit", type=click.IntRange(1, 10_000), default=100, show_default=True, help="Show at most so many writes."
)
@options.listing("views.writes:ENTRIES", "wide: with reason and inputs, and whole.")
@options.daemon
def journal(
    pod: str,
    file: str,
    strategy: str,
    since: str,
    limit: int,
    layout: ListingLayout[Any],
    socket: str,
    timeout_s: float,
) -> None:
    """Show what was written: when, by whom, before, after, and how it ended. The newest comes last."""
    from koord.pb.koord import inspect_pb2 as inspect  # noqa: PLC0415
    from koordctl.client import Daemon  # noqa: PLC0415
    from koordctl.output import show_answer, warn  # noqa: PLC0415
    from koordctl.views import writes as view  # noqa: PLC0415

    try:
        start_ns = since_unix_ns(since, datetime.now().astimezone()) if since else 0
    except (ValueError, OverflowError) as error:
        raise click.BadParameter(
            f"{since!r} is neither a time ago (10m, 2h) nor an ISO 8601 time", param_hint="--since"
        ) from error
    request = inspect.JournalRequest(pod=pod, file=file, strategy=strategy, since_unix_ns=start_ns, limit=limit)
    answer = Daemon(socket, timeout_s).ask("Journal", request, inspect.JournalResponse)
    show_answer(answer, layout, view.journal)
    dropped = f"{answer.dropped} entries were dropped since koord-qosd started" if answer.dropped else ""
    warn(filter(None, (answer.problem, dropped)), layout.is_table)


def since_unix_ns(text: str, now: datetime) -> int:
    """Returns ``10m`` (s, m, h, d ago) or an ISO 8601 time (local unless it says otherwise) as Unix time.

    Raises ValueError.
    """
    ago = _AGO.fullmatch(text)
    when = now - timedelta(seconds=int(ago[1]) * _SECONDS[ago[2]]) if ago else datetime.fromisoformat(text)
    return int(when.timestamp() * 1_000_000) * 1000

"""``koordctl node``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from koordctl import guide, options

if TYPE_CHECKING:
    from koordctl.fields import Listing, ListingLayout


def _listing(parameters: Mapping[str, Any]) -> Listing[Any]:
    """Returns the listing of the section; without a section only ``-o`` is known."""
    from koordctl.fields import Listing  # noqa: PLC0415
    from koordctl.views.node import SECTIONS  # noqa: PLC0415

    name, names = parameters.get("section"), ", ".join(SECTIONS)
    if name:
        if name not in SECTIONS:
            raise click.BadParameter(f"there is no section {name!r}; there are {names}.", param_hint="--section")
        return SECTIONS[name]
    if (parameters.get("fields"), parameters.get("sort_by")) != (None, None):
        raise click.UsageError(f"--fields and --sort-by need a --section: {names}.")
    return Listing("", ())


def _sections(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    from koordctl.views.node import SECTIONS  # noqa: PLC0415

    return [name for name in SECTIONS if name.startswith(incomplete)]


@click.command(short_help=guide.summary("node"), epilog=guide.examples("node"))
@click.option(
    "--section",
    default="",
    metavar="NAME",
    shell_complete=_sections,
    help="Only this table: usage, pools, features, front_ends, strategies, loops, cluster or contested.",
)
@options.listing(_listing)
@options.daemon
def node(section: str, layout: ListingLayout[Any], socket: str, timeout_s: float) -> None:
    """Show the node: capacity, usage, CPU pools, features, strategies, and the health of every loop.

    Look first at the policy (the first lines), at the STATE of strategies, and at loops that are failing. A strategy is
    active, disabled (by the policy, or by koordctl disable), switched off (by its feature gate), frozen (its inputs
    are too old) or failed (an error: its last decision holds).
    """
    from koord.pb.koord import inspect_pb2 as inspect  # noqa: PLC0415
    from koordctl.client import Daemon  # noqa: PLC0415
    from koordctl.output import show, show_answer, warn  # noqa: PLC0415
    from koordctl.views import node as view  # noqa: PLC0415

    answer = Daemon(socket, timeout_s).ask("GetNode", inspect.GetNodeRequest(), inspect.GetNodeResponse)
    if section:
        rows = layout.listing.rows(answer)
        show(layout, lambda: layout.table(rows) or f"{section}: none", lambda: {section: layout.objects(rows)})
        return
    show_answer(answer, layout, view.page)
    warn(answer.warnings, layout.is_table)

"""``koordctl pods``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from koordctl import completing, guide, options

if TYPE_CHECKING:
    from koordctl.fields import Listing, ListingLayout


def _listing(parameters: Mapping[str, Any]) -> Listing[Any]:
    from koordctl.views import pods as view  # noqa: PLC0415

    return view.VALUES if parameters.get("output") == "wide" else view.CONTAINERS


@click.command(short_help=guide.summary("pods"), epilog=guide.examples("pods"))
@click.argument("name", required=False, default="", shell_complete=completing.POD_NAMES)
@click.option(
    "-n", "--namespace", default="", shell_complete=completing.NAMESPACES, help="Only pods of this namespace."
)
@options.listing(_listing, "wide: one line per cgroup value, desired and actual, with file and reason; and advice.")
@options.daemon
def pods(name: str, namespace: str, layout: ListingLayout[Any], socket: str, timeout_s: float) -> None:
    """Show pods with QoS class and priority, and for each container desired against actual cgroup values.

    NAME: only pods of that name.
    """
    from koord.pb.koord import inspect_pb2 as inspect  # noqa: PLC0415
    from koordctl.client import Daemon  # noqa: PLC0415
    from koordctl.output import show_answer, warn  # noqa: PLC0415
    from koordctl.views import pods as view  # noqa: PLC0415

    request = inspect.ListPodsRequest(namespace=namespace, name=name, advice=layout.listing is view.VALUES)
    answer = Daemon(socket, timeout_s).ask("ListPods", request, inspect.ListPodsResponse)
    show_answer(answer, layout, view.page)
    warn(answer.warnings, layout.is_table)

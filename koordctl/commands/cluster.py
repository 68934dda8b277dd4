"""``koordctl cluster``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from koordctl import guide, options

if TYPE_CHECKING:
    from koordctl.fields import ListingLayout


@click.command(short_help=guide.summary("cluster"), epilog=guide.examples("cluster"))
@options.listing("cluster.nodes:NODES", "wide: whole, however narrow the terminal is.")
@options.cluster
@options.koord_namespace
@options.timeout
def cluster(kubeconfig: str, context: str, koord_namespace: str, timeout_s: float, layout: ListingLayout[Any]) -> None:
    """Show what each node of the cluster has, uses and offers to batch pods, and whether its services are protected.

    PROTECTION is on, off (NodeSLO says so), stale (the node has stopped reporting) or none (no agent has reported).
    """
    from koordctl.cluster import nodes, state  # noqa: PLC0415
    from koordctl.cluster.connection import Choice, ask  # noqa: PLC0415
    from koordctl.output import show  # noqa: PLC0415

    now = ask(Choice(kubeconfig, context, timeout_s), lambda client: state.read(client, koord_namespace))
    show(layout, lambda: nodes.page(now, layout), lambda: {"nodes": layout.objects(nodes.rows(now))})

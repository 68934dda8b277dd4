"""``koordctl get``."""

from __future__ import annotations

import click

from koordctl import completing, guide, options


def _kind(context: click.Context, parameter: click.Parameter, value: str) -> str:
    from koordctl.cluster.kinds import by_name, names  # noqa: PLC0415

    if by_name(value) is None:
        raise click.BadParameter(f"Koord has no kind {value!r}; there are {', '.join(names())}.")
    return value


def _kinds(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    from koordctl.cluster.kinds import names  # noqa: PLC0415

    return [name for name in names() if name.startswith(incomplete)]


@click.command(short_help=guide.summary("get"), epilog=guide.examples("get"))
@click.argument("kind", callback=_kind, shell_complete=_kinds)
@click.argument("name", default="", shell_complete=completing.OBJECTS)
@options.output
@options.cluster
@options.timeout
def get(kind: str, name: str, output: str, kubeconfig: str, context: str, timeout_s: float) -> None:
    """Show objects of one of Koord's kinds by the fields that matter; json and yaml show them whole.

    KIND is nodemetrics, nodeslos, clustercolocationprofiles or elasticquotas (quotas, for short).
    """
    from koordctl.cluster import kinds, names  # noqa: PLC0415
    from koordctl.cluster.connection import Choice, ask  # noqa: PLC0415
    from koordctl.exits import Refused  # noqa: PLC0415
    from koordctl.output import render  # noqa: PLC0415

    row = kinds.by_name(kind)
    assert row is not None
    if name and not row.kind.namespaced:
        names.check(row.kind, name, "NAME")
    items = ask(Choice(kubeconfig, context, timeout_s), lambda client: kinds.read(client, row, name))
    if name and not items:
        raise Refused(f"there is no {row.kind.name} {name!r}.")
    if output == "table":
        click.echo(row.table(items, options.terminal_width()))
    else:
        click.echo(render(items[0] if name and len(items) == 1 else {"items": items}, output))

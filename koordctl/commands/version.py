"""``koordctl version``."""

from __future__ import annotations

import click

from koordctl import guide, options


@click.command(short_help=guide.summary("version"), epilog=guide.examples("version"))
@options.output
@options.daemon
def version(output: str, socket: str, timeout_s: float) -> None:
    """Print the version of koordctl, and that of koord-qosd or why it does not answer."""
    import koord  # noqa: PLC0415
    from koord.pb.koord import inspect_pb2 as inspect  # noqa: PLC0415
    from koordctl.client import Daemon  # noqa: PLC0415
    from koordctl.output import render  # noqa: PLC0415

    document = {"koordctl": koord.__version__}
    try:
        node = Daemon(socket, timeout_s).ask("GetNode", inspect.GetNodeRequest(), inspect.GetNodeResponse)
    except click.ClickException as error:
        document["problem"] = error.message
    else:
        document["koord-qosd"] = node.daemon.version
    if output != "table":
        click.echo(render(document, output))
        return
    click.echo(f"koordctl    {document['koordctl']}")
    click.echo(f"koord-qosd  {document.get('koord-qosd') or document['problem']}")

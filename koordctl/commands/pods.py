"""``koordctl pods``."""

from __future__ import annotations

import click

from koordctl import options
from koordctl.exits import EPILOG


@click.command(epilog=EPILOG)
@click.argument("name", required=False, default="")
@click.option("-n", "--namespace", default="", help="Only pods of this namespace.")
@options.output("wide", help_text="wide: one line per cgroup value, desired and actual, with file and reason.")
@options.daemon
def pods(name: str, namespace: str, output: str, socket: str, timeout_s: float) -> None:
    """Pods with QoS, priority and, for each container, desired against actual cgroup values.

    NAME limits the list to pods of that name.
    """
    from koord.pb.koord import inspect_pb2 as inspect  # noqa: PLC0415
    from koordctl.client import Daemon  # noqa: PLC0415
    from koordctl.output import show  # noqa: PLC0415
    from koordctl.views import pods as view  # noqa: PLC0415

    request = inspect.ListPodsRequest(namespace=namespace, name=name)
    answer = Daemon(socket, timeout_s).ask("ListPods", request, inspect.ListPodsResponse)
    show(answer, output, view.wide if output == "wide" else view.table)
    if output in ("table", "wide"):
        for warning in answer.warnings:
            click.echo(f"warning: {warning}", err=True)

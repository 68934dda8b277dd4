"""``koordctl explain pod|node|file``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from koordctl import options
from koordctl.exits import EPILOG

if TYPE_CHECKING:
    from koord.pb.koord import inspect_pb2

_COMPLETION_S = 0.5


def _pod_names(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Pods for the shell's completion; none where the daemon cannot be asked."""
    from koord.pb.koord import inspect_pb2 as inspect  # noqa: PLC0415
    from koordctl.client import Daemon  # noqa: PLC0415

    socket = context.params.get("socket") or options.SOCKET
    try:
        answer = Daemon(socket, _COMPLETION_S).ask("ListPods", inspect.ListPodsRequest(), inspect.ListPodsResponse)
    except click.ClickException:
        return []
    names = [f"{pod.namespace}/{pod.name}" for pod in answer.pods] + [pod.name for pod in answer.pods]
    return [name for name in names if name.startswith(incomplete)]


@click.group(epilog=EPILOG)
def explain() -> None:
    """Why a kernel file holds what it holds: inputs, formula, result, age, and who else wrote it."""


@explain.command(epilog=EPILOG)
@click.argument("name", shell_complete=_pod_names)
@click.option("-n", "--namespace", default="", help="The pod's namespace; NAME may be namespace/name instead.")
@options.output()
@options.daemon
def pod(name: str, namespace: str, output: str, socket: str, timeout_s: float) -> None:
    """All files of the pod NAME and its containers."""
    before, slash, after = name.partition("/")
    subject = {"namespace": before, "name": after} if slash else {"namespace": namespace, "name": name}
    _explain({"pod": subject}, output, socket, timeout_s)


@explain.command(epilog=EPILOG)
@options.output()
@options.daemon
def node(output: str, socket: str, timeout_s: float) -> None:
    """The node's own files (those of no pod) and every strategy."""
    _explain({"node": {}}, output, socket, timeout_s)


@explain.command(epilog=EPILOG)
@click.argument("path", type=click.Path())
@options.output()
@options.daemon
def file(path: str, output: str, socket: str, timeout_s: float) -> None:
    """One kernel file, by PATH, or by its cgroup and row name (/kubepods/podX/cpu_quota)."""
    _explain({"file": path}, output, socket, timeout_s)


def _explain(subject: dict[str, Any], output: str, socket: str, timeout_s: float) -> None:
    from koord.pb.koord import inspect_pb2 as inspect  # noqa: PLC0415
    from koordctl.client import Daemon  # noqa: PLC0415
    from koordctl.output import render  # noqa: PLC0415
    from koordctl.plain import plain  # noqa: PLC0415
    from koordctl.views import explain as view  # noqa: PLC0415

    request: inspect_pb2.ExplainRequest = inspect.ExplainRequest(**subject)
    answer = Daemon(socket, timeout_s).ask("Explain", request, inspect.ExplainResponse)
    if output != "table":
        click.echo(render(plain(answer), output))
    else:
        click.echo(view.page(answer))
        for warning in answer.warnings:
            click.echo(f"warning: {warning}", err=True)

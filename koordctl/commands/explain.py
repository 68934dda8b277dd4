"""``koordctl explain pod|node|file|quota``: asks this node's daemon, or a cluster's API server."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from koordctl import completing, guide, options

if TYPE_CHECKING:
    from pathlib import Path

    from koord.pb.koord import inspect_pb2


@click.group(short_help=guide.summary("explain"), epilog=guide.examples("explain"))
def explain() -> None:
    """Say why a kernel file holds what it holds: inputs, formula, result, age, and who else wrote it.

    Start with `koordctl explain pod NAME`. In a cluster it says why the pod is pending or gone.
    """


@explain.command(short_help=guide.summary("explain pod"), epilog=guide.examples("explain pod"))
@click.argument("name", shell_complete=completing.PODS)
@click.option(
    "-n",
    "--namespace",
    default="",
    shell_complete=completing.NAMESPACES,
    help="The pod's namespace; NAME may be namespace/name instead.  [default in a cluster: the context's]",
)
@click.option("--cluster", "in_cluster", is_flag=True, help="Ask the API server, as with --kubeconfig and --context.")
@options.output
@options.scheduler
@options.cluster
@options.koord_namespace
@options.daemon
def pod(
    name: str, namespace: str, in_cluster: bool, output: str, scheduler: str, scheduler_token_file: Path | None,
    kubeconfig: str, context: str, koord_namespace: str, socket: str, timeout_s: float,
) -> None:  # fmt: skip
    """On a node, explain every file of the pod NAME and of its containers. In a cluster, say why it is pending,
    evicted, or otherwise not as it should be, and ask koord-scheduler why it waits or is where it is.

    koordctl asks koord-qosd; where that does not run, it asks the API server, unless you name a socket.
    """
    before, slash, after = name.partition("/")
    namespace, name = (before, after) if slash else (namespace, name)
    if in_cluster or scheduler or kubeconfig or context or (_is_daemon_absent(socket) and _knows_cluster()):
        _explain_in_cluster(
            namespace, name, output, scheduler, scheduler_token_file, kubeconfig, context, koord_namespace, timeout_s
        )
    else:
        _explain({"pod": {"namespace": namespace, "name": name}}, output, socket, timeout_s)


@explain.command(short_help=guide.summary("explain node"), epilog=guide.examples("explain node"))
@click.argument("name", default="", shell_complete=completing.NODES)
@click.option("--overcommit", is_flag=True, help="Explain what NAME offers; a NAME alone means the same.")
@options.output
@options.cluster
@options.koord_namespace
@options.daemon
def node(
    name: str, overcommit: bool, output: str, kubeconfig: str, context: str, koord_namespace: str, socket: str,
    timeout_s: float,
) -> None:  # fmt: skip
    """Explain this node's own files (those of no pod) and every strategy; with NAME, what that node of the cluster
    offers to batch and mid pods."""
    if overcommit and not name:
        raise click.UsageError("--overcommit needs the NAME of a node of the cluster.")
    if name:
        _explain_overcommit(name, output, kubeconfig, context, koord_namespace, timeout_s)
    else:
        _explain({"node": {}}, output, socket, timeout_s)


@explain.command(short_help=guide.summary("explain file"), epilog=guide.examples("explain file"))
@click.argument("path", type=click.Path())
@options.output
@options.daemon
def file(path: str, output: str, socket: str, timeout_s: float) -> None:
    """Explain one kernel file, by its PATH or by cgroup and row name (/kubepods/podX/cpu_quota)."""
    _explain({"file": path}, output, socket, timeout_s)


@explain.command(short_help=guide.summary("explain quota"), epilog=guide.examples("explain quota"))
@click.argument("name")
@options.output
@options.scheduler
@options.cluster
@options.koord_namespace
@options.timeout
def quota(
    name: str, output: str, scheduler: str, scheduler_token_file: Path | None, kubeconfig: str, context: str,
    koord_namespace: str, timeout_s: float,
) -> None:  # fmt: skip
    """Say what the ElasticQuota NAME may use of each resource, and how that comes about, from the cluster down.

    koordctl asks the leading koord-scheduler through the API server, as kubectl port-forward does.
    """
    from koordctl.cluster import connection, quotas  # noqa: PLC0415
    from koordctl.cluster import scheduler as asking  # noqa: PLC0415
    from koordctl.exits import Refused  # noqa: PLC0415
    from koordctl.output import render  # noqa: PLC0415

    choice = asking.SchedulerChoice(koord_namespace, scheduler, timeout_s, scheduler_token_file)
    try:
        page = connection.ask(
            connection.Choice(kubeconfig, context, timeout_s), lambda client: asking.quota(client, choice, name)
        )
    except asking.NotAsked as error:
        raise Refused(f"koord-scheduler: {error}.") from error
    click.echo("\n".join(quotas.lines(page)) if output == "table" else render(quotas.document(page), output))


def _is_daemon_absent(socket: str) -> bool:
    """Returns whether there is no socket at the default path; one that is named is there, or is an error."""
    source = click.get_current_context().get_parameter_source("socket")
    return source is ParameterSource.DEFAULT and not os.path.exists(socket)


def _knows_cluster() -> bool:
    """Returns whether kubectl would know one here."""
    return bool(os.environ.get("KUBECONFIG")) or os.path.exists(os.path.expanduser("~/.kube/config"))


def _explain_in_cluster(
    namespace: str, name: str, output: str, scheduler: str, scheduler_token_file: Path | None, kubeconfig: str,
    context: str, koord_namespace: str, timeout_s: float,
) -> None:  # fmt: skip
    from koordctl.cluster import connection, names, pods  # noqa: PLC0415
    from koordctl.cluster.scheduler import SchedulerChoice  # noqa: PLC0415
    from koordctl.exits import Refused  # noqa: PLC0415
    from koordctl.output import render  # noqa: PLC0415

    choice = connection.Choice(kubeconfig, context, timeout_s)
    key = names.pod(namespace or connection.namespace(choice), name)
    asked = SchedulerChoice(koord_namespace, scheduler, timeout_s, scheduler_token_file)
    found = connection.ask(choice, lambda client: pods.explain(client, key, asked))
    if found is None:
        raise Refused(f"there is no pod {key}, and no Event says that it was evicted.")
    click.echo(found.page() if output == "table" else render(found.document(), output))


def _explain_overcommit(
    name: str, output: str, kubeconfig: str, context: str, koord_namespace: str, timeout_s: float
) -> None:
    from koord.model.readable import did_you_mean  # noqa: PLC0415
    from koordctl.cluster import names, overcommit, state  # noqa: PLC0415
    from koordctl.cluster.connection import Choice, ask, read_names  # noqa: PLC0415
    from koordctl.exits import Refused  # noqa: PLC0415
    from koordctl.output import render  # noqa: PLC0415

    names.check_node(name)
    choice = Choice(kubeconfig, context, timeout_s)
    now = ask(choice, lambda client: state.read(client, koord_namespace, name))
    if name not in now.nodes:
        known = ask(choice, lambda client: read_names(client, "nodes"))
        raise Refused(f"there is no node {name!r}{did_you_mean(name, known)}; there are {names.some(known)}.")
    node = now.nodes[name]
    click.echo(overcommit.page(now, node) if output == "table" else render(overcommit.document(now, node), output))


def _explain(subject: dict[str, Any], output: str, socket: str, timeout_s: float) -> None:
    from koord.pb.koord import inspect_pb2 as inspect  # noqa: PLC0415
    from koordctl.client import Daemon  # noqa: PLC0415
    from koordctl.output import render, warn  # noqa: PLC0415
    from koordctl.plain import plain  # noqa: PLC0415
    from koordctl.views import explain as view  # noqa: PLC0415

    request: inspect_pb2.ExplainRequest = inspect.ExplainRequest(**subject)
    answer = Daemon(socket, timeout_s).ask("Explain", request, inspect.ExplainResponse)
    if output != "table":
        click.echo(render(plain(answer), output))
    else:
        click.echo(view.page(answer, options.terminal_width()))
        warn(answer.warnings, is_table=True)

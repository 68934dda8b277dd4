"""Completes names for the shell: koord-qosd tells those of this node, the API server those of a cluster.

A question that is not answered at once completes nothing: a shell has no place for an error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import click

from koord.model.locations import INSPECT_SOCKET

WAIT_S = 0.5
CLUSTER_WAIT_S = 2.0
Complete = Callable[[click.Context, click.Parameter, str], list[str]]


def of_daemon(method: str, names: Callable[[Any], Iterable[str]]) -> Complete:
    """Completes with the ``names`` in the answer of NodeInspect's ``method``."""

    def complete(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
        from koord.pb.koord import inspect_pb2 as inspect  # noqa: PLC0415
        from koordctl.client import Daemon  # noqa: PLC0415

        request, answer = getattr(inspect, f"{method}Request"), getattr(inspect, f"{method}Response")
        try:
            said = Daemon(context.params.get("socket") or INSPECT_SOCKET, WAIT_S).ask(method, request(), answer)
        except click.ClickException:
            return []
        return sorted({name for name in names(said) if name.startswith(incomplete)})

    return complete


def of_cluster(plural: Callable[[Mapping[str, Any]], str]) -> Complete:
    """Completes with the names of a kind's objects; ``plural``: the kind, by the command's parameters."""

    def complete(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
        from koordctl.cluster import connection  # noqa: PLC0415

        choice = connection.Choice(
            context.params.get("kubeconfig") or "", context.params.get("context") or "", CLUSTER_WAIT_S
        )
        try:
            found = connection.ask(choice, lambda client: connection.read_names(client, plural(context.params)))
        except click.ClickException:
            return []
        return sorted(name for name in found if name.startswith(incomplete))

    return complete


def _qualified(answer: Any) -> list[str]:
    return [f"{pod.namespace}/{pod.name}" for pod in answer.pods]


def _names(answer: Any) -> list[str]:
    return [pod.name for pod in answer.pods]


PODS = of_daemon("ListPods", lambda answer: [*_names(answer), *_qualified(answer)])
POD_NAMES = of_daemon("ListPods", _names)
QUALIFIED_PODS = of_daemon("ListPods", _qualified)
NAMESPACES = of_daemon("ListPods", lambda answer: [pod.namespace for pod in answer.pods])
STRATEGIES = of_daemon("GetNode", lambda answer: [each.name for each in answer.strategies])
STRATEGIES_OR_ALL = of_daemon("GetNode", lambda answer: ["all", *(each.name for each in answer.strategies)])
METRICS = of_daemon("Metrics", lambda answer: [each.name for each in answer.metrics])
NODES = of_cluster(lambda parameters: "nodes")
OBJECTS = of_cluster(lambda parameters: str(parameters.get("kind") or ""))

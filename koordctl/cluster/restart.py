"""Finds whether a kubelet that restarts would end pods: their requests against what their Node offers.

kubelet admits the pods that run again when it starts, one after the other, and ends those that its Node has no room for
any more. It is asked with kubelet's own credential, which may read its Node and the pods that are bound to it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from koord.kube.client import Client, Selection
from koord.kube.kind import NODE, POD, Key
from koord.model.core import Node, Pod
from koord.overcommit import amounts, demand
from koord.overcommit.amounts import BATCH, MID
from koordctl.cluster import connection
from koordctl.cluster.connection import Choice, read_list


def shortages(kubeconfig: str, node: str, timeout_s: float) -> tuple[str, ...]:
    """Returns a sentence for each resource that pods of ``node`` hold more of than it offers. Raises Refused or
    NoAnswer.

    ``kubeconfig``: the file of kubelet's credential.
    """

    async def question(client: Client) -> tuple[str, ...]:
        pods = await read_list(client, POD, Selection(fields=f"spec.nodeName={node}"))
        return tuple(of(await client.get(NODE, Key("", node)), pods))

    return connection.ask(Choice(kubeconfig, "", timeout_s), question)


def of(node: Node, pods: Iterable[Pod]) -> Iterator[str]:
    """Yields such sentences; ``pods``: all that are bound to ``node``."""
    held = demand.held(map(demand.of_pod, pods), lambda _: None)
    for names, of_pods in ((BATCH, held.batch), (MID, held.mid)):
        offered = amounts.read(node.status.allocatable, names).filled()
        if of_pods.cpu_milli > offered.cpu_milli:
            yield _sentence(names.cpu, amounts.cpu_text(of_pods.cpu_milli), amounts.cpu_text(offered.cpu_milli))
        if of_pods.memory_bytes > offered.memory_bytes:
            held_text, offered_text = map(amounts.memory_text, (of_pods.memory_bytes, offered.memory_bytes))
            yield _sentence(names.memory, held_text, offered_text)


def _sentence(resource: str, held: str, offered: str) -> str:
    return f"pods that run here request {held} {resource}, and the Node offers {offered}"

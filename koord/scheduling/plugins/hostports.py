"""NodePorts: no two pods of a node with one port of the node's.

Source: pkg/scheduler/framework/plugins/nodeports.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar

import numpy as np

from koord.scheduling.plugin import Explanation, Plugin, Reason, Rejection, Scope
from koord.scheduling.podinfo import ANY_IP, HostPort, PodInfo
from koord.scheduling.state import ClusterState
from koord.scheduling.table import Bools


class NodePorts(Plugin):
    """Rejects nodes on which a pod has a port already that this one wants."""

    name: ClassVar[str] = "NodePorts"
    filter_scope: ClassVar[Scope] = Scope.PODS
    reason: ClassVar[str] = "node(s) didn't have free ports for the requested pod ports"

    def goes_by_pods(self, state: ClusterState, pod: PodInfo) -> bool:
        return bool(pod.host_ports)

    def rejections(self, state: ClusterState, pod: PodInfo) -> Sequence[Rejection]:
        if not pod.host_ports:
            return ()
        rows = np.zeros(state.length, np.bool_)
        for _, taken in _conflicts(state, pod):
            rows[np.fromiter(taken, np.int64, len(taken))] = True
        return (Rejection(self.reason, rows),)

    def explain(self, state: ClusterState, pod: PodInfo, row: int, feasible: Bools) -> Explanation:
        taken = [port for port, rows in _conflicts(state, pod) if row in rows]
        if not taken:
            return Explanation()
        detail = ", ".join(f"{port.port}/{port.protocol} on {port.ip}" for port in taken)
        return Explanation((Reason(self.reason, True, f"taken: {detail}"),))


def _conflicts(state: ClusterState, pod: PodInfo) -> Iterator[tuple[HostPort, Mapping[int, int]]]:
    """Yields each port that some pod has and this pod cannot have beside it, with the rows on which it is taken."""
    wanted: dict[tuple[str, int], set[str]] = {}
    for port in pod.host_ports:
        wanted.setdefault((port.protocol, port.port), set()).add(port.ip)
    for taken, rows in state.host_ports_of(wanted):
        ips = wanted[taken.protocol, taken.port]
        if taken.ip == ANY_IP or ANY_IP in ips or taken.ip in ips:
            yield taken, rows

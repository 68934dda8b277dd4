"""GetNode: the node as the newest tick saw and left it, and the daemon's own state."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from koord.host.cgroup import Tree
from koord.host.files import Target
from koord.pb.koord import inspect_pb2 as inspect
from qosd.inspect import contested, convert, daemon
from qosd.inspect.inspector import Inspector
from qosd.model.policy import Pool
from qosd.model.snapshot import NodeSnapshot
from qosd.report import TickReport
from qosd.sense.besteffort import BestEffortRow
from qosd.sense.node import NodeRow
from qosd.sense.pressure import NodePressureRow
from qosd.sense.system import SystemRow

_USAGE = (
    NodeRow.cpu_usage_cores,
    NodeRow.memory_usage_bytes,
    NodeRow.page_cache_bytes,
    BestEffortRow.be_cpu_usage_cores,
    BestEffortRow.be_cpu_request_cores,
    BestEffortRow.be_cpu_real_limit_cores,
    SystemRow.system_cpu_usage_cores,
    SystemRow.system_memory_usage_bytes,
    SystemRow.unattributed_cpu_cores,
    NodePressureRow.cpu_pressure_some_avg10_percent,
    NodePressureRow.memory_pressure_full_avg10_percent,
    NodePressureRow.io_pressure_full_avg10_percent,
)


async def answer(inspector: Inspector, request: inspect.GetNodeRequest) -> inspect.GetNodeResponse:
    node = inspector.node
    message = inspect.GetNodeResponse(
        loops=inspector.loops(),
        front_ends=daemon.front_ends(node),
        warnings=inspector.warnings(),
        policy=inspector.policy(),
        cluster=daemon.cluster(node),
    )
    report, tree, dropped, uptime_s = inspector.report, node.locator.tree, node.journal.dropped, inspector.uptime_s
    tiers, policy = node.locator.tiers.values(), node.policy.current

    def read() -> None:
        _add_report(message, report, tree)
        message.features.extend(daemon.features(tree, tiers, policy))
        message.daemon.CopyFrom(daemon.process(node.options, uptime_s, dropped))

    await asyncio.to_thread(read)
    return message


def _add_report(message: inspect.GetNodeResponse, report: TickReport, tree: Tree) -> None:
    """Adds what the newest tick tells; before the first, what is known without one."""
    message.strategies.extend(convert.strategies(report.decisions, daemon.lacking(report)))
    message.contested.extend(_contested(report, tree, target) for target in report.files.contested)
    message.owned_files = len(report.files.owned)
    snapshot = report.snapshot
    if snapshot is not None:
        node = snapshot.policy.node
        message.observed_unix_ns = snapshot.wall_ns
        message.capacity.CopyFrom(_capacity(snapshot))
        for metric in _USAGE:
            if (value := snapshot.value(metric)) is not None:
                message.usage.add(metric=metric.name, unit=metric.unit, value=value, help=metric.help)
        left = snapshot.limits.pools if snapshot.limits.scheduling.cpus else ()
        message.pools.extend([*_pools("LS", node.ls_pools), *_pools("BE", node.be_pools), *_pools("best-effort", left)])


def _capacity(snapshot: NodeSnapshot) -> inspect.Capacity:
    topology, pods = snapshot.topology, snapshot.pods
    return inspect.Capacity(
        cpus=len(topology.cpus),
        cores=len(topology.cores),
        sockets=len({cpu.socket for cpu in topology.cpus}),
        numa_nodes=len(topology.nodes),
        memory_bytes=snapshot.policy.host.memory_total_bytes,
        pods=len(pods),
        containers=sum(not container.is_sandbox for pod in pods for container in pod.containers),
        cpu_requests_milli=sum(pod.cpu_request_milli or 0 for pod in pods),
        memory_requests_bytes=sum(pod.memory_request_bytes or 0 for pod in pods),
    )


def _pools(name: str, pools: Iterable[Pool]) -> list[inspect.Pool]:
    return [inspect.Pool(name=name, socket=pool.socket, numa_node=pool.node, cpus=pool.cpuset) for pool in pools]


def _contested(report: TickReport, tree: Tree, target: Target) -> inspect.Contested:
    path = tree.path(target, for_write=True)
    return inspect.Contested(path=str(path or f"{target.cgroup}/{target.name}"), why=contested.sentence(report, target))

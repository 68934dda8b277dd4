"""GetNode: the node as the newest snapshot has it, and how the daemon fares."""

from __future__ import annotations

from collections.abc import Iterable

from koord.host.files import Target
from koord.pb.koord import inspect_pb2 as inspect
from qosd.hooks.rules import Pool
from qosd.inspect import contested, convert
from qosd.inspect.sources import About, Sources
from qosd.sense.besteffort import BestEffortRow
from qosd.sense.node import NodeRow
from qosd.sense.pressure import NodePressureRow
from qosd.sense.system import SystemRow
from qosd.snapshot import NodeSnapshot

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


def answer(sources: Sources) -> inspect.GetNodeResponse:
    """All of GetNode; without a snapshot, what is known without one."""
    snapshot = sources.snapshot()
    message = inspect.GetNodeResponse(
        daemon=_daemon(sources.about(), sources.journal.dropped),
        features=[inspect.Feature(name=f.name, supported=f.supported, detail=f.detail) for f in sources.features()],
        loops=map(convert.loop, sources.loops()),
        front_ends=[
            inspect.FrontEnd(name=f.name, attached=f.attached, acting=f.acting, detail=f.detail)
            for f in sources.front_ends()
        ],
        strategies=convert.strategies(sources.decisions()),
        contested=[_contested(sources, target) for target in sources.files.contested],
        owned_files=len(sources.files.owned),
        warnings=sources.warnings(),
        policy=convert.policy(sources.policy()),
    )
    if snapshot is not None:
        node = snapshot.rules.node
        message.observed_unix_ns = snapshot.wall_ns
        message.capacity.CopyFrom(_capacity(snapshot))
        message.usage.extend(_usage(snapshot))
        message.pools.extend([*_pools("LS", node.ls_pools), *_pools("BE", node.be_pools)])
    return message


def _daemon(about: About, dropped: int) -> inspect.Daemon:
    return inspect.Daemon(
        version=about.version,
        pid=about.pid,
        uptime_s=about.uptime_s,
        rss_bytes=about.rss_bytes,
        open_files=about.open_files,
        open_files_limit=about.open_files_limit,
        rules_file=about.rules_file,
        runtime_endpoint=about.runtime_endpoint,
        cgroup_root=about.cgroup_root,
        journal_file=about.journal_file,
        journal_dropped=dropped,
        undo_file=about.undo_file,
    )


def _capacity(snapshot: NodeSnapshot) -> inspect.Capacity:
    topology, pods = snapshot.topology, snapshot.pods
    return inspect.Capacity(
        cpus=len(topology.cpus),
        cores=len(topology.cores),
        sockets=len({cpu.socket for cpu in topology.cpus}),
        numa_nodes=len(topology.nodes),
        memory_bytes=snapshot.rules.host.memory_total_bytes,
        pods=len(pods),
        containers=sum(not container.is_sandbox for pod in pods for container in pod.containers),
        cpu_requests_milli=sum(pod.cpu_request_milli or 0 for pod in pods),
        memory_requests_bytes=sum(pod.memory_request_bytes or 0 for pod in pods),
    )


def _usage(snapshot: NodeSnapshot) -> list[inspect.Usage]:
    """Those of _USAGE that have a sample."""
    return [
        inspect.Usage(metric=metric.name, unit=metric.unit, value=value, help=metric.help)
        for metric in _USAGE
        if (value := snapshot.value(metric)) is not None
    ]


def _pools(name: str, pools: Iterable[Pool]) -> list[inspect.Pool]:
    return [inspect.Pool(name=name, socket=pool.socket, numa_node=pool.node, cpus=pool.cpuset) for pool in pools]


def _contested(sources: Sources, target: Target) -> inspect.Contested:
    path = sources.tree.path(target, for_write=True)
    return inspect.Contested(path=str(path or f"{target.group}/{target.name}"), why=contested.sentence(sources, target))

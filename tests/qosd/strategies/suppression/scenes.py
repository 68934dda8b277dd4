"""Snapshots with samples: what pods, host applications and the node use, and how long containers wait."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from msgspec import structs

from koord.host.topology import Topology
from koord.model.slo import CgroupBase, CgroupPath, HostApplication
from qosd.model.besteffort import BestEffortScheduling
from qosd.model.metric import Metric, Scope
from qosd.model.policy import EffectivePolicy
from qosd.model.snapshot import NodeSnapshot, PodView
from qosd.policy.pools import compute_pools
from qosd.policy.scheduling import limits
from qosd.sense.node import NodeRow
from qosd.sense.pids import PIDS
from qosd.sense.runqueue import RunQueueRow
from qosd.sense.stalls import STALLS
from qosd.sense.usage import USAGE
from tests.qosd.contexts import V2, policy, with_pools
from tests.qosd.podviews import machine, snapshot

NAME = "cpuSuppress"
Use = tuple[PodView, float]
WAITED = STALLS[Scope.CONTAINER].cpu_stall_some_us_per_s
THROTTLED = USAGE[Scope.CONTAINER].cpu_throttled_us_per_s
TASKS = PIDS[Scope.CONTAINER].pids


def app(name: str, qos: str, base: CgroupBase = CgroupBase.CGROUP_ROOT) -> HostApplication:
    return HostApplication(name=name, qos=qos, cgroup_path=CgroupPath(base=base, relative_path=name))


def suppressing(
    apps: Sequence[HostApplication] = (),
    pods: Sequence[PodView] = (),
    topology: Topology | None = None,
    node: Mapping[str, Any] | None = None,
    **thresholds: Any,
) -> EffectivePolicy:
    """A policy with suppression on, and the pools of ``topology``."""
    topology = topology or machine(32)
    spec = {"resourceUsedThresholdWithBE": {"enable": True, **thresholds}}
    made = policy(replace(V2, files=frozenset({"cpu.idle"})), spec, **(node or {}))
    made = replace(made, slo=structs.replace(made.slo, host_applications=tuple(apps)))
    return with_pools(made, compute_pools(topology, pods, made.node, {}))


def using(
    by: EffectivePolicy,
    node_cores: float,
    *uses: Use,
    apps: Mapping[str, float] | None = None,
    topology: Topology | None = None,
    waits: Mapping[str, tuple[float, float, float]] | None = None,
    delays_us: Mapping[str, float] | None = None,
    at_s: float = 0.0,
    left: BestEffortScheduling | None = None,
) -> NodeSnapshot:
    """``left``: to best-effort pods, by an earlier tick. ``waits``: by pod (ms waited, ms throttled, tasks), of its
    container ``main``; ``delays_us``: its mean wait."""
    pods = [pod for pod, _ in uses]
    of_pods = {pod.cgroup: cores for pod, cores in uses}
    mains = {pod.name: f"{pod.cgroup}/main" for pod in pods}
    values: dict[Metric, Mapping[str, float]] = {
        NodeRow.cpu_usage_cores: {"": node_cores},
        USAGE[Scope.POD].cpu_usage_cores: of_pods,
        USAGE[Scope.CONTAINER].cpu_usage_cores: {f"{cgroup}/main": cores for cgroup, cores in of_pods.items()},
        USAGE[Scope.HOST_APP].cpu_usage_cores: apps or {},
    }
    for place, metric in enumerate((WAITED, THROTTLED, TASKS)):
        scale = 1 if metric is TASKS else 1000
        values[metric] = {mains[name]: scale * figures[place] for name, figures in (waits or {}).items()}
    values[RunQueueRow.run_queue_delay_us] = {mains[name]: delay for name, delay in (delays_us or {}).items()}
    topology = topology or machine(32)
    in_force, _ = limits({NAME: left} if left else {}, by.node, topology, pods)
    made = snapshot(by, *pods, topology=topology, limits=in_force)
    return structs.replace(made, values=values, monotonic_ns=int(at_s * 1e9), sampled_ns=int(at_s * 1e9))

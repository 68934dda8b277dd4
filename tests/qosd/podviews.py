"""Short ways to say a machine, pods that run on it, and a snapshot of both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from msgspec import structs

from koord.host.topology import CPU, Topology
from koord.model.priority import PriorityClass
from koord.model.qos import KubeQoS, QoSClass
from qosd.model.besteffort import NO_LIMITS, BestEffortLimits
from qosd.model.pod import HookStage, PodContext, Resources, SpecContainer
from qosd.model.policy import EffectivePolicy
from qosd.model.snapshot import ContainerView, NodeSnapshot, PodView
from tests.qosd.contexts import pod

READY, NOT_READY = "SANDBOX_READY", "SANDBOX_NOTREADY"
RUNNING, EXITED = "CONTAINER_RUNNING", "CONTAINER_EXITED"


def machine(cpus: int = 16, nodes: int = 1, smt: bool = False) -> Topology:
    """``cpus`` spread over ``nodes`` sockets of one memory node each; with ``smt`` CPU n's sibling is n + half."""
    cores = cpus // 2 if smt else cpus
    per_node = cores // nodes
    made = [(n, n % cores, min(n % cores // per_node, nodes - 1)) for n in range(cpus)]
    return Topology(tuple(CPU(id=n, core=core, socket=node, node=node, l3=node) for n, core, node in made))


def view(
    name: str,
    qos: str = "",
    tier: str = "Burstable",
    *,
    state: str = READY,
    requested: Resources | None = None,
    containers: Sequence[tuple[str, str]] = (("main", RUNNING),),
    container_requested: Resources | None = None,
    memory_request_bytes: int | None = None,
    cpus: str = "",
    spec: tuple[SpecContainer, ...] | None = None,
    **said: Any,
) -> PodView:
    """A pod of namespace ``default`` with a sandbox and ``containers`` (name, state); ``cpus`` are bound to it."""
    if cpus:
        said["STATUS"] = {"cpuset": cpus}
    context = named(name, pod(qos, tier, HookStage.RUN_SANDBOX, "", requested=requested, **said))
    cgroup = f"{context.request.cgroup_parent.rpartition('/')[0]}/pod{name}"
    sandbox = ContainerView(f"s-{name}", "", f"{cgroup}/s-{name}", state, Resources(), {}, is_sandbox=True)
    made = [
        ContainerView(f"c-{name}-{one}", one, f"{cgroup}/{one}", its, container_requested or Resources(), {})
        for one, its in containers
    ]
    return PodView(
        uid=name,
        namespace="default",
        name=name,
        sandbox_id=sandbox.id,
        state=state,
        cgroup=cgroup,
        context=context,
        kube_qos=context.kube_qos or KubeQoS.BURSTABLE,
        qos=context.raw_qos or QoSClass.LS,
        qos_source="label",
        priority_class=PriorityClass.PROD,
        sub_priority=0,
        containers=(sandbox, *made),
        memory_request_bytes=memory_request_bytes,
        spec_containers=spec,
    )


def named(name: str, context: PodContext) -> PodContext:
    """The same pod under another name, which is its UID too."""
    return structs.replace(context, request=structs.replace(context.request, name=name, uid=name))


def snapshot(
    policy: EffectivePolicy, *pods: PodView, topology: Topology | None = None, limits: BestEffortLimits = NO_LIMITS
) -> NodeSnapshot:
    return NodeSnapshot(
        tick=1,
        wall_ns=0,
        monotonic_ns=0,
        policy=policy,
        limits=limits,
        topology=topology or machine(),
        pods=pods,
        values={},
        ages_s={"pods": 0.0},
    )


def on_v1(policy: EffectivePolicy) -> EffectivePolicy:
    return replace(policy, host=replace(policy.host, cgroup_version=1))

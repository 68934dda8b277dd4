"""Which CPUs a container may use: those bound for it, its class's pool, or whatever kubelet sent.

The decision table of node-qos §10.3 with the design's two changes: under kubelet's CPU manager ``static`` a pod
without a QoS label keeps the set that kubelet sent; where the rules name a BE pool (all CPUs outside LSE), BE pods
get it instead of the empty set, which means "the parent's". A pool that the rules leave out is no opinion.
First match wins.
"""

from __future__ import annotations

from koord.model.qos import KubeQoS, QoSClass
from qosd.hooks.context import PodContext, Stage
from qosd.hooks.edits import UNLIMITED, Edit, Edits, Field
from qosd.hooks.rules import CPUManagerPolicy, Rules, join

_Choice = tuple[str, str] | None  # (CPU list, why); None = no opinion


def decide(pod: PodContext, rules: Rules) -> Edits:
    items = []
    of_sandbox = pod.stage is Stage.SANDBOX_CGROUP
    choice = _cpus(pod, rules) if pod.is_container or of_sandbox else None
    if choice is not None:
        items.append(Edit(Field.CPUSET_CPUS, *choice))
    if pod.bound_cpus and rules.node.unset_cpu_quota and not of_sandbox:
        why = f"CPUs {pod.bound_cpus} are bound for it, so a CFS quota would only throttle"
        items.append(Edit(Field.CPU_QUOTA, UNLIMITED, why))
    return Edits(tuple(items))


def _cpus(pod: PodContext, rules: Rules) -> _Choice:
    static = rules.node.cpu_manager_policy is CPUManagerPolicy.STATIC
    if pod.bound_cpus:
        return pod.bound_cpus, "bound by the scheduler (annotation resource-status)"
    placed = _numa_pool(pod, rules)
    if placed is not None:
        return placed
    if pod.raw_qos is QoSClass.SYSTEM and rules.node.system_cpuset:
        return rules.node.system_cpuset, "SYSTEM pods use the system-QoS CPUs"
    if static and pod.raw_qos is None and not pod.is_free:
        return None
    if pod.treated_as(rules.node.derivation) is QoSClass.BE:
        return _be_pool(pod, rules)
    if static and pod.raw_qos is not QoSClass.LS:
        return None
    pool = join(rules.node.ls_pools)
    why = f"{pod.treated_as(rules.node.derivation)} without bound CPUs uses the LS pool (outside LSE and LSR)"
    return (pool, why) if pool else None


def _numa_pool(pod: PodContext, rules: Rules) -> _Choice:
    is_be = pod.treated_as(rules.node.derivation) is QoSClass.BE
    if not pod.numa_nodes or (is_be and not rules.node.be_cpu_manager):
        return None
    name, pools = ("BE", rules.node.be_pools) if is_be else ("LS", rules.node.ls_pools)
    cpus = join(pools, pod.numa_nodes)
    nodes = ",".join(map(str, sorted(pod.numa_nodes)))
    return (cpus, f"the {name} pool of NUMA node {nodes}, where the scheduler placed it") if cpus else None


def _be_pool(pod: PodContext, rules: Rules) -> _Choice:
    pool = join(rules.node.be_pools)
    who = "free pods" if pod.is_free else "BE pods"
    if pool:
        return pool, f"{who} use the BE pool (outside LSE)"
    if pod.kube_qos is KubeQoS.BEST_EFFORT:
        return "", f"{who} of the BestEffort tier use the tier's CPUs, whatever kubelet sent"
    return None

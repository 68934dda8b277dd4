"""The CPU pools: where LS and BE containers run, by the topology and by the pods that have CPUs of their own.

    BE pool = online − kubelet's exclusive − LSE pods' − reserved − exclusive system-QoS CPUs − isolated
    LS pool = BE pool − CPUs that any pod's annotation ``resource-status`` binds        (per NUMA node)

Kubelet's exclusive CPUs are those of pods that keep what kubelet's CPU manager gave them: not labelled LS or BE, not
free, nothing bound by the scheduler; and those whose owner its file does not name in a known way. If the scheduler
bound a pod to one of them, kubelet's pod has it, and a bound pod that is left with none counts as not bound. CPUs that
kubelet reserves stay in the pools. A pool that the rules file gives is taken as given. A bound pod whose CPU set
another writer fights for has the CPUs that it is kept on.

Invariants: pools hold online CPUs only, LS is within BE, no LSE pod's CPU is in either, and neither is empty while a
CPU is online: where nothing is left, other pods' CPUs are shared, the least protected first, kubelet's last, and a
warning names their owners. Isolated CPUs are a warning, too: the kernel balances no load there, so all threads of a
container would share one of them. So are contradictions (two pods on one CPU, a CPU that is not there).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from koord.host.topology import Topology
from koord.model import cpuset
from koord.model.cpuset import EMPTY, CPUSet, CPUSetError
from koord.model.qos import QoSClass
from qosd.hooks.cpuset import keeps_kubelets
from qosd.model.pod import PodContext
from qosd.model.policy import CPUManagerPolicy, NodeSettings, Pool
from qosd.model.snapshot import PodView, live
from qosd.pods.cpumanager import UNNAMED
from qosd.policy import packing

_NO_CPUS = "no CPU is known, so there are no pools"


@dataclass(frozen=True, slots=True)
class Pools:
    """Both pools by NUMA node, sorted. ``kubelet``: the CPUs of pods that stay on what its CPU manager gave them."""

    ls: tuple[Pool, ...] = ()
    be: tuple[Pool, ...] = ()
    kubelet: CPUSet = EMPTY
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Claim:
    """The CPUs of one pod: ``owner`` is its name with its class, or with "kubelet"."""

    owner: str
    cpus: CPUSet
    qos: QoSClass | None
    by_kubelet: bool = False


def compute_pools(
    topology: Topology,
    pods: Iterable[PodView],
    node: NodeSettings,
    kubelet_cpus: Mapping[str, str],
    expected: Iterable[PodContext] = (),
    fought: Mapping[str, str] = MappingProxyType({}),
) -> Pools:
    """Returns the pools of a node. ``node`` is what the rules file says; ``kubelet_cpus``: CPU lists by pod UID.

    ``expected`` are pods that are being created and that ``pods`` may not have yet. ``fought``: by cgroup, the CPUs of
    containers whose CPU set another writer fights for.
    """
    online = CPUSet.of(cpu.id for cpu in topology.cpus)
    if not online:
        return Pools(node.ls_pools, node.be_pools, warnings=(_NO_CPUS,))
    warnings: list[str] = []
    claims = _claims(pods, expected, kubelet_cpus, fought, warnings)
    if node.cpu_manager_policy is CPUManagerPolicy.NONE and any(claim.by_kubelet for claim in claims):
        warnings.append(
            "kubelet's CPU manager is static (it gave exclusive CPUs), the rules say cpuManagerPolicy: none"
        )
    if UNNAMED in kubelet_cpus:
        warnings.append(
            f"cpu_manager_state keeps CPUs {kubelet_cpus[UNNAMED]} out of its defaultCpuSet and names their owner in "
            "no way that is known here: they are in no pool"
        )
    claims = [_present(claim, online, warnings) for claim in claims]
    _say_conflicts(claims, warnings)
    aside = _set_aside(topology, node, online, warnings)
    isolated = topology.isolated & online
    if isolated:
        warnings.append(
            f"CPUs {isolated} are isolated (isolcpus), where the kernel balances no load: they are in no pool"
        )
    ls, be = _both(online, claims, aside, isolated, warnings)
    if _is_usable("LS", node.ls_pools, online, claims, warnings):
        ls = joined(node.ls_pools) & online
    if _is_usable("BE", node.be_pools, online, claims, warnings):
        be = joined(node.be_pools) & online
    kubelets = _union(claim.cpus for claim in claims if claim.by_kubelet)
    return Pools(by_node(topology, ls), by_node(topology, be), kubelets, tuple(warnings))


def reserved(topology: Topology, node: NodeSettings) -> CPUSet:
    """Returns the node's reserved CPUs: those listed, else ``ceil(quantity)`` CPUs, as kubelet packs them."""
    if node.reserved_cpus:
        return cpuset.parse(node.reserved_cpus)
    return packing.take(topology, math.ceil(node.reserved_cpu_milli / 1000))


def _claims(
    pods: Iterable[PodView],
    expected: Iterable[PodContext],
    kubelet_cpus: Mapping[str, str],
    fought: Mapping[str, str],
    warnings: list[str],
) -> list[_Claim]:
    """Returns the pods that have CPUs of their own, by name; to be safe, also those that only kubelet knows."""
    contexts = {context.request.uid: context for context in expected}
    alive = [pod for pod in pods if live(pod)]
    contexts.update((pod.uid, pod.context) for pod in alive)
    has = {pod.uid: cpus for pod in alive if pod.context.bound_cpus and (cpus := _fought(pod, fought))}
    found = []
    for uid, pod in contexts.items():
        owner, bound = f"{_name(pod)} ({pod.raw_qos or 'no class'})", cpuset.parse(pod.bound_cpus)
        if uid in has and has[uid] != bound:
            warnings.append(
                f"{owner} is bound to CPUs {bound}, but another writer keeps it on {has[uid]}: it has those"
            )
        if bound:
            found.append(_Claim(owner, has.get(uid, bound), pod.raw_qos))
    return sorted([*found, *_kubelets(contexts, kubelet_cpus, warnings)], key=lambda claim: claim.owner)


def _fought(pod: PodView, fought: Mapping[str, str]) -> CPUSet:
    """Returns the CPUs that a bound pod really has if another writer fights for a container's CPU set; else EMPTY."""
    cgroups = [each.cgroup for each in pod.containers if not each.is_sandbox and each.cgroup]
    if not any(cgroup in fought for cgroup in cgroups):
        return EMPTY
    return _union(cpuset.parse(fought.get(cgroup, pod.context.bound_cpus)) for cgroup in cgroups)


def _kubelets(
    contexts: Mapping[str, PodContext], kubelet_cpus: Mapping[str, str], warnings: list[str]
) -> Iterable[_Claim]:
    """Returns the pods that stay on the CPUs that kubelet gave them: those that the hook ``cpuset`` leaves alone."""
    given: dict[str, CPUSet] = {}
    for uid, text in kubelet_cpus.items():
        try:
            given[uid] = cpuset.parse(text)
        except CPUSetError as error:
            warnings.append(f"kubelet's CPUs of {_owner(contexts, uid)}: {error}")
    may = {uid for uid in given if uid not in contexts or keeps_kubelets(contexts[uid])}
    bound = {uid: cpuset.parse(contexts[uid].bound_cpus) for uid in may if uid in contexts}
    stay, taken = set[str](), EMPTY
    while more := {uid for uid in may - stay if bound.get(uid, EMPTY) <= taken}:
        stay |= more
        taken = _union(given[uid] for uid in stay)
    return [_Claim(f"{_owner(contexts, uid)} (kubelet)", given[uid], None, by_kubelet=True) for uid in stay]


def _owner(contexts: Mapping[str, PodContext], uid: str) -> str:
    if uid == UNNAMED:
        return "a pod that cpu_manager_state names in no known way"
    pod = contexts.get(uid)
    return _name(pod) if pod is not None else f"pod {uid}"


def _name(pod: PodContext) -> str:
    return f"{pod.request.namespace}/{pod.request.name}"


def _present(claim: _Claim, online: CPUSet, warnings: list[str]) -> _Claim:
    missing = claim.cpus - online
    if not missing:
        return claim
    warnings.append(f"{claim.owner} is bound to CPUs {missing}, which are not online")
    return _Claim(claim.owner, claim.cpus & online, claim.qos, claim.by_kubelet)


def _say_conflicts(claims: Sequence[_Claim], warnings: list[str]) -> None:
    """Warns once of each pod that shares CPUs which are another pod's alone; BE pods may share those of LSR."""
    kubelets = [claim for claim in claims if claim.by_kubelet]
    bound = [claim for claim in claims if not claim.by_kubelet]
    for claim in bound:
        taken = claim.cpus & _union(other.cpus for other in kubelets)
        if taken:
            left = claim.cpus - taken
            gets = f"it gets CPUs {left}" if left else "it counts as not bound"
            exclusive_to = f"kubelet's exclusive CPUs {taken}{_used_by(kubelets, taken)}"
            warnings.append(f"{claim.owner} is bound to CPUs {claim.cpus}, with {exclusive_to}: {gets}")
    exclusive = [claim for claim in bound if claim.qos is not QoSClass.BE]
    for index, claim in enumerate(exclusive):
        other = next((earlier for earlier in exclusive[:index] if claim.cpus & earlier.cpus), None)
        if other is not None:
            warnings.append(f"{claim.owner} and {other.owner} are both bound to CPUs {claim.cpus & other.cpus}")


def _set_aside(topology: Topology, node: NodeSettings, online: CPUSet, warnings: list[str]) -> CPUSet:
    """Returns the online CPUs that are reserved or of exclusive system QoS."""
    system = cpuset.parse(node.system_cpuset) if node.system_exclusive else EMPTY
    aside = EMPTY
    for what, cpus in (("reserved", reserved(topology, node)), ("system-QoS", system)):
        if not cpus <= online:
            warnings.append(f"{what} CPUs {cpus - online} are not online")
        aside |= cpus & online
    return aside


def _be(online: CPUSet, claims: Sequence[_Claim], aside: CPUSet, isolated: CPUSet) -> tuple[CPUSet, str]:
    """Returns the BE pool, and the owners of CPUs that it has to share ("" = there are none)."""
    kubelets = _union(claim.cpus for claim in claims if claim.by_kubelet)
    lse = _union(claim.cpus for claim in claims if claim.qos is QoSClass.LSE)
    steps = (
        (online - lse - kubelets - aside - isolated, ""),
        (online - lse - kubelets - isolated, "reserved and system-QoS CPUs"),
        (online - lse - kubelets, "isolated CPUs"),
        (online - kubelets, "LSE pods' CPUs"),
        (online, "CPUs that kubelet gave exclusively"),
    )
    return next((cpus, whose) for cpus, whose in steps if cpus)


def _both(
    online: CPUSet, claims: Sequence[_Claim], aside: CPUSet, isolated: CPUSet, warnings: list[str]
) -> tuple[CPUSet, CPUSet]:
    """Returns the LS and the BE pool."""
    be, shared = _be(online, claims, aside, isolated)
    if shared:
        warnings.append(f"no CPU is left for the LS and BE pools: they share the {shared} {be}{_used_by(claims, be)}")
    ls = be - _union(claim.cpus for claim in claims if not claim.by_kubelet)
    if not ls and not shared:
        warnings.append(f"no CPU is left for the LS pool: it shares CPUs {be}{_used_by(claims, be)}")
    return ls or be, be


def _union(sets: Iterable[CPUSet]) -> CPUSet:
    total = EMPTY
    for cpus in sets:
        total |= cpus
    return total


def _used_by(claims: Iterable[_Claim], cpus: CPUSet) -> str:
    names = [claim.owner for claim in claims if claim.cpus & cpus]
    return f" of {', '.join(names)}" if names else ""


def by_node(topology: Topology, cpus: CPUSet) -> tuple[Pool, ...]:
    """Returns ``cpus`` as a pool."""
    members: dict[tuple[int, int], list[int]] = {}
    for cpu in topology.cpus:
        if cpu.id in cpus:
            members.setdefault((cpu.socket, cpu.node), []).append(cpu.id)
    return tuple(Pool(socket, node, str(CPUSet.of(found))) for (socket, node), found in sorted(members.items()))


def joined(pools: Iterable[Pool]) -> CPUSet:
    """Returns the CPUs of a pool."""
    return _union(cpuset.parse(pool.cpuset) for pool in pools)


def _is_usable(
    name: str, pools: tuple[Pool, ...], online: CPUSet, claims: Sequence[_Claim], warnings: list[str]
) -> bool:
    """Returns whether the rules file gives the pool with any CPU that is there. Warns of its other CPUs."""
    wanted = joined(pools)
    if not wanted <= online:
        warnings.append(f"the {name} pool of the rules file has CPUs {wanted - online}, which are not online")
    taken = wanted & _union(claim.cpus for claim in claims if claim.qos is QoSClass.LSE or claim.by_kubelet)
    if taken:
        warnings.append(f"the {name} pool of the rules file has CPUs {taken}{_used_by(claims, taken)}")
    return bool(wanted & online)

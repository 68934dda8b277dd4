"""The limits of best-effort pods, made of all strategies' answers: the CPUs of the BE pool, CPU time, and weights.

Strategies speak of best-effort pods as a whole; the pods decide which part is kubelet's tier's and which a pool's.
Invariants: best-effort pods always have a CPU of their pool; a pool that is not known stays unknown; kubelet's
BestEffort tier has room for its pods that are not covered, or no bound at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from koord.host.topology import Topology
from koord.model import cpuset
from koord.model.cpuset import CPUSet, CPUSetError
from koord.model.qos import KubeQoS
from qosd.model.besteffort import NO_LIMITS, BestEffortLimits, BestEffortScheduling
from qosd.model.policy import NodeSettings, Pool
from qosd.model.snapshot import NodeSnapshot, PodView, is_kata, live
from qosd.policy.pools import by_node, joined

NO_NODE_SETTINGS = NodeSettings()
_RISES = 1.25


def limits(
    by_strategy: Mapping[str, BestEffortScheduling],
    node: NodeSettings,
    topology: Topology | None,
    pods: Iterable[PodView] = (),
    before: BestEffortLimits = NO_LIMITS,
    tier_cpus: str = "",
) -> tuple[BestEffortLimits, tuple[str, ...]]:
    """Returns the limits that ``by_strategy`` gives best-effort pods on a node with these ``pods``, and warnings.

    ``node``: with its pools. ``topology`` None: it is not known yet which memory node has a CPU. ``before``: the limits
    so far. ``tier_cpus``: see ``BestEffortLimits``.
    """
    be_pools = node.be_pools
    if not by_strategy:
        return BestEffortLimits(pools=be_pools, tier_cpus=tier_cpus), ()
    cpus, reasons, warnings = _cpus(by_strategy, joined(be_pools), is_known=topology is not None)
    times = {name: each for name, each in by_strategy.items() if each.cpu_milli}
    cpu_milli, scarcest = min(((each.cpu_milli, name) for name, each in times.items()), default=(0, ""))
    reasons += [scarcest] if scarcest and scarcest not in reasons else []
    reasons = reasons or [name for name, each in by_strategy.items() if each.why]
    scheduling = BestEffortScheduling(
        why="; ".join(f"{name}: {by_strategy[name].why}" for name in reasons),
        cpus=str(cpus) if cpus != joined(be_pools) else "",
        cpu_milli=cpu_milli,
        has_lowest_weight=any(each.has_lowest_weight for each in by_strategy.values()),
        is_idle=any(each.is_idle for each in by_strategy.values()),
        slice_us=max(each.slice_us for each in by_strategy.values()),
        on_trial=_on_trial(by_strategy.values()),
    )
    pools = by_node(topology, cpus) if topology is not None else ((Pool(0, 0, str(cpus)),) if cpus else ())
    has_milli = tier_milli(cpu_milli, pods, node)
    below_milli = below_tier(has_milli, before.below_tier_milli)
    made = BestEffortLimits(scheduling, pools, has_milli, below_milli, tier_cpus, by_strategy)
    return made, tuple(warnings)


def limits_on(snapshot: NodeSnapshot, by_strategy: Mapping[str, BestEffortScheduling]) -> BestEffortLimits:
    """Returns the limits by what strategies leave at this tick; those in force while they leave the same."""
    in_force = snapshot.limits
    if by_strategy == in_force.by_strategy or snapshot.policy.policy_unknown:
        return in_force
    topology = snapshot.topology if "pods" in snapshot.ages_s else None
    return limits(by_strategy, snapshot.policy.node, topology, snapshot.pods, in_force, in_force.tier_cpus)[0]


def _on_trial(each_leaves: Iterable[BestEffortScheduling]) -> str:
    """Returns the field on trial, unless another strategy sets it for good."""
    all_of_them = tuple(each_leaves)
    for one in all_of_them:
        if one.on_trial and not any(getattr(each, one.on_trial) for each in all_of_them if each is not one):
            return one.on_trial
    return ""


def _cpus(
    by_strategy: Mapping[str, BestEffortScheduling], pool: CPUSet, is_known: bool
) -> tuple[CPUSet, list[str], list[str]]:
    """Returns what the strategies, one after the other, leave of ``pool``, the names of those that leave less, and
    warnings.

    A strategy that leaves none of the pool is ignored. Before the pool is known, what an earlier run left stands for
    it: or else the front ends would say "whatever the tier has" of containers that are held, and the runtime would
    widen them.
    """
    leavers, warnings = list[str](), list[str]()
    for name, each in by_strategy.items():
        try:
            theirs = cpuset.parse(each.cpus)
        except CPUSetError as error:
            warnings.append(f"{name}: {error}")
            continue
        if not theirs or (not pool and is_known):
            continue
        left = pool & theirs if pool else theirs
        if not left:
            why = f"{name} leaves CPUs {theirs} to best-effort pods, of which none is in the BE pool {pool}"
            warnings.append(why)
        elif left != pool:
            pool = left
            leavers.append(name)
    return pool, leavers, warnings


def tier_milli(cpu_milli: int, pods: Iterable[PodView], node: NodeSettings = NO_NODE_SETTINGS) -> int:
    """Returns the CPU of kubelet's BestEffort tier: ``cpu_milli``, and what its other pods may use; 0 = no bound.

    A tier's quota throttles every pod in it. So pods that suppression does not cover count with their limits, not with
    what they use now: they may need more within the next millisecond. If one has no limit, the tier has none. The
    best-effort pods among them are then bounded one by one.
    """
    if not cpu_milli:
        return 0
    others = [pod for pod in pods if is_uncovered(pod, node)]
    limits = [_limit_milli(pod) for pod in others]
    return cpu_milli + sum(limits) if all(limits) else 0


def below_tier(tier_milli: int, before_milli: int) -> int:
    """Returns the largest quota that stands below a tier with ``tier_milli``; ``before_milli``: so far.

    It falls with the tier's at once and rises only by a quarter at least: a tier that moves about the limit of a
    container would else take the container's quota off and put it back each time.
    """
    is_near = before_milli <= tier_milli < before_milli * _RISES
    return before_milli if is_near else tier_milli


def is_covered(pod: PodView, node: NodeSettings) -> bool:
    """Returns whether the pod is a best-effort pod that is held back. A pod in a virtual machine is not: its cgroups
    hold the machine.
    """
    return pod.context.is_best_effort and not is_kata(pod, node)


def is_uncovered(pod: PodView, node: NodeSettings) -> bool:
    """Returns whether the pod is in kubelet's BestEffort tier, but not covered: an LS or a mid pod, or one in a virtual
    machine.
    """
    return pod.kube_qos is KubeQoS.BEST_EFFORT and live(pod) and not is_covered(pod, node)


def _limit_milli(pod: PodView) -> int:
    """Returns the limit of a pod with mid resources if all of its containers have one; else 0."""
    names = [container.name for container in pod.containers if not container.is_sandbox]
    amounts = [pod.context.amounts_of(name) for name in {*names, *pod.context.extended}]
    limits = [0 if each is None else each.cpu_limit_milli for each in amounts]
    return sum(limits) if all(limits) else 0

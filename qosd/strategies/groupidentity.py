"""Group identity of all that runs: kubelet's tiers, pods, containers, host applications, and the kernel's own switch.

    kernel.sched_core                     0, for the two exclude each other
    kernel.sched_group_identity_enabled   1
    cpu.bvt_warp_ns                       tiers: Guaranteed, the root of all, 0, Burstable as LS, BestEffort as BE;
                                          pods as the hook says, containers as their pod, host applications as
                                          their class

It is one strategy because these files change together: the kernel forgets every cgroup's identity when the switch is
off. Containers are written on both cgroup versions, because a container older than its pod's identity does not inherit
it. ``koord.host.order`` has the order of writes. Files that the kernel lacks, or that ``systemStrategy`` sets, are left
out. Invariant: while the feature is off, for any reason, there is no opinion, so every file goes back to its base.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import ClassVar

from koord.host.files import Target
from koord.host.order import CORE_SCHED, GROUP_IDENTITY
from koord.model.crifields import Field
from koord.model.formulas import FORMULA
from koord.model.qos import KubeQoS
from qosd.decide.decision import Decision, Opinion, Stage, Strategy
from qosd.hooks import engine, groupidentity
from qosd.hooks.table import hooks_of
from qosd.model.policy import EffectivePolicy
from qosd.model.snapshot import PODS_MAX_AGE_S, NodeSnapshot, PodView
from qosd.strategies.hostapps import BadPath, cgroup_of
from qosd.strategies.memo import Memo, decide_anew
from qosd.strategies.perpod import PodMemo, PodOpinions, decide_each
from qosd.strategies.reconciler import cgroups_of, pod_cgroup

FILE = groupidentity.FILE
_HOOKS = hooks_of(groupidentity.HOOK)
_Values = Iterator[tuple[Target, int, str]]


@dataclass(frozen=True, slots=True)
class _Memo:
    """The last decisions on pods, on everything else, and on both together."""

    pods: PodMemo
    node: Memo
    both: Memo


class GroupIdentity(Strategy[_Memo]):
    """The strategy ``groupIdentity``, behind upstream's gate, as the hook of that name is."""

    name: ClassVar[str] = groupidentity.HOOK
    stage: ClassVar[Stage] = Stage.SPEC
    gate: ClassVar[str] = groupidentity.GATE
    rows: ClassVar[frozenset[str]] = frozenset({FILE, CORE_SCHED, GROUP_IDENTITY})
    needs: ClassVar[Mapping[str, float]] = MappingProxyType({"pods": PODS_MAX_AGE_S})
    grants: ClassVar[tuple[str, ...]] = (groupidentity.GATE,)

    def enabled(self, snapshot: NodeSnapshot) -> bool:
        return groupidentity.wanted(snapshot.policy)

    def decide(self, snapshot: NodeSnapshot, last: _Memo | None) -> tuple[Decision, _Memo]:
        of_pods, pods = decide_each(
            snapshot, None if last is None else last.pods, partial(_of_pod, policy=snapshot.policy)
        )
        inputs = (snapshot.policy, snapshot.tiers)
        of_node, node = decide_anew(None if last is None else last.node, inputs, partial(_of_node, *inputs))
        parts = (of_node, of_pods)
        decision, both = decide_anew(None if last is None else last.both, parts, partial(_together, *parts))
        if last is not None and pods is last.pods and node is last.node and both is last.both:
            return decision, last
        return decision, _Memo(pods, node, both)


def _of_pod(pod: PodView, policy: EffectivePolicy) -> PodOpinions:
    edit = engine.decide(pod_cgroup(pod), policy, hooks=_HOOKS).get(Field.UNIFIED, FILE)
    if edit is None:
        return PodOpinions()
    value = int(edit.value)
    opinion = Opinion.set(value, f"{edit.hook}: {edit.why}", {FORMULA: "given", "value": value}, pod.key)
    return PodOpinions({Target(cgroup, FILE): opinion for cgroup, _ in cgroups_of(pod, policy.node)})


def _together(of_node: Decision, of_pods: Decision) -> Decision:
    if not of_node.opinions and not of_pods.opinions:
        return of_node
    sentence = f"{of_node.sentence}; pods: {of_pods.sentence}"
    return Decision(sentence, {**of_node.opinions, **of_pods.opinions})


def _of_node(policy: EffectivePolicy, tiers: Mapping[KubeQoS, str]) -> Decision:
    """Returns the decision on switches, tiers and host applications; without opinions it says why there are none."""
    why_off = groupidentity.why_off(policy)
    if why_off:
        return Decision(f"nobody has a group identity: {why_off}")
    values = [*_switches(policy), *_of_tiers(policy, tiers), *_of_applications(policy, tiers)]
    opinions = {target: Opinion.set(value, why, {FORMULA: "given", "value": value}) for target, value, why in values}
    shown = ", ".join(f"{tier} {groupidentity.of_tier(policy, tier)[0]}" for tier in tiers)
    return Decision(f"tiers: {shown or 'none is known'}", opinions)


def _switches(policy: EffectivePolicy) -> _Values:
    """Yields the switches that the kernel has. The strategy ``systemConfig`` writes NodeSLO's own setting."""
    if CORE_SCHED in policy.host.system_files:
        yield Target("", CORE_SCHED), 0, "group identity and core scheduling exclude each other"
    by_operator = policy.system_strategy.sched_group_identity_enabled is not None
    if GROUP_IDENTITY in policy.host.system_files and not by_operator:
        yield Target("", GROUP_IDENTITY), 1, "classes have group identities"


def _of_tiers(policy: EffectivePolicy, tiers: Mapping[KubeQoS, str]) -> _Values:
    for tier, cgroup in tiers.items():
        yield Target(cgroup, FILE), *groupidentity.of_tier(policy, tier)


def _of_applications(policy: EffectivePolicy, tiers: Mapping[KubeQoS, str]) -> _Values:
    """Yields the values of host applications. The strategy ``hostApplications`` reports a bad path."""
    for application in policy.slo.host_applications or ():
        qos = application.qos_class
        try:
            cgroup = cgroup_of(application, tiers)
        except BadPath:
            continue
        if qos is not None:
            value, why = groupidentity.of_class(policy, qos)
            yield Target(cgroup, FILE), value, f"host application {application.name}: {why}"

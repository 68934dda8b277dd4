"""Keeps containers and sandboxes in the resctrl group of their pod's QoS class, also if the runtime did not do so.

The runtime (by its RDT class), NRI or the actor that moves tasks may bring them there; the actor moves only tasks that
are missing. So it moves containers from before NRI's registration too, and releases none when a front end comes or
goes. Only groups that exist count, of classes with ``resctrlQOS`` enabled; a pod with a group of its own, and a pod or
container that names a class, stays where it is. Without resctrl it wants nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from types import MappingProxyType
from typing import ClassVar

from koord.host.placement import Membership
from qosd.decide.decision import Decision, Stage, Strategy
from qosd.hooks import resctrl
from qosd.model.policy import EffectivePolicy
from qosd.model.snapshot import PODS_MAX_AGE_S, NodeSnapshot, PodView, has_cgroup, live
from qosd.strategies.memo import Memo, decide_anew

HOOK = "resctrl"
_NO_GROUPS = Decision("no resctrl group of a QoS class is there")


class ResctrlGroups(Strategy[Memo]):
    """The strategy ``resctrl``, on with the hook of that name and behind upstream's gate."""

    name: ClassVar[str] = HOOK
    stage: ClassVar[Stage] = Stage.SPEC
    gate: ClassVar[str] = resctrl.GATE
    rows: ClassVar[frozenset[str]] = frozenset()
    needs: ClassVar[Mapping[str, float]] = MappingProxyType({"pods": PODS_MAX_AGE_S})

    def enabled(self, snapshot: NodeSnapshot) -> bool:
        return snapshot.policy.enabled(HOOK)

    def decide(self, snapshot: NodeSnapshot, last: Memo | None) -> tuple[Decision, Memo]:
        """Decides from pods and policy alone."""
        inputs = (snapshot.policy, snapshot.pods)
        return decide_anew(last, inputs, partial(_decision, *inputs))


def _decision(policy: EffectivePolicy, pods: tuple[PodView, ...]) -> Decision:
    if not policy.host.resctrl_groups:
        return _NO_GROUPS
    memberships = tuple(membership for pod in pods for membership in _of_pod(pod, policy))
    counts: dict[str, int] = {}
    for membership in memberships:
        counts[membership.resctrl_group] = counts.get(membership.resctrl_group, 0) + 1
    sentence = ", ".join(f"{name}: {count} cgroups" for name, count in sorted(counts.items()))
    return Decision(sentence or "no pod belongs to a resctrl group", acts=memberships)


def _of_pod(pod: PodView, policy: EffectivePolicy) -> Iterator[Membership]:
    """Yields every cgroup of the pod that exists and has tasks, with the group where they belong."""
    resctrl_group, why = resctrl.group_of(pod.context, policy)
    if not resctrl_group or not live(pod):
        return
    for one in pod.containers:
        there = bool(one.cgroup) and (one.is_sandbox or has_cgroup(one.state))
        if there and not resctrl.names_class(pod.context, one.name, one.annotations):
            yield Membership(one.cgroup, resctrl_group, why, pod.key)

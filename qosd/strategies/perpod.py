"""Makes opinions pod by pod, again only for pods that changed.

A pod's opinions follow from its view, the policy and the limits of best-effort pods alone, and these keep their
identity while they are unchanged. So a tick at which nothing happened costs two comparisons and returns the same
objects, and a new container costs the work for one pod. Invariant: the opinions are those of all pods of the snapshot,
as if none had been remembered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from msgspec import structs

from koord.host.files import Target
from koord.host.order import QUOTA
from koord.model.qos import KubeQoS
from qosd.decide.decision import Decision, Opinion
from qosd.hooks import tierquota
from qosd.model.besteffort import NO_LIMITS, BestEffortLimits
from qosd.model.policy import EffectivePolicy
from qosd.model.snapshot import NodeSnapshot, PodView

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class PodOpinions:
    """The opinions on one pod's files, and sentences on values that were refused."""

    opinions: Mapping[Target, Opinion] = field(default_factory=dict)
    refused: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PodMemo:
    """The last decision, and the objects that it was made from."""

    policy: EffectivePolicy
    limits: BestEffortLimits
    pods: tuple[PodView, ...]
    by_uid: Mapping[str, tuple[PodView, PodOpinions]]
    decision: Decision


def decide_each(
    snapshot: NodeSnapshot,
    memo: PodMemo | None,
    of_pod: Callable[[PodView], PodOpinions],
    limits: BestEffortLimits = NO_LIMITS,
) -> tuple[Decision, PodMemo]:
    """Returns the decision from every pod's opinions. ``memo``: what the last call returned.

    ``limits``: those of best-effort pods, where ``of_pod`` depends on them and not on the policy alone.
    """
    policy, pods = snapshot.policy, snapshot.pods
    if memo is not None and memo.policy is policy and memo.limits is limits and memo.pods is pods:
        return memo.decision, memo
    known = _valid(memo, policy, limits) if memo is not None else {}
    by_uid = of_each(pods, known, of_pod)
    decision = _decision([found for _, found in by_uid.values()], memo)
    return decision, PodMemo(policy, limits, pods, by_uid, decision)


def _valid(
    memo: PodMemo, policy: EffectivePolicy, limits: BestEffortLimits
) -> Mapping[str, tuple[PodView, PodOpinions]]:
    """Returns the opinions that hold: best-effort limits move each second while best-effort pods are suppressed.

    They concern only best-effort pods and kubelet's tier of that name; a change of CPU time alone concerns at most
    those of them with a quota.
    """
    if memo.policy is not policy:
        return {}
    if memo.limits is limits:
        return memo.by_uid
    is_time = _differ_in_time_alone(memo.limits, limits)
    if is_time and not tierquota.depends_on_tier(policy):
        return memo.by_uid
    return {
        uid: (pod, found)
        for uid, (pod, found) in memo.by_uid.items()
        if not _is_best_effort(pod) or (is_time and not _has_quota(found))
    }


def _is_best_effort(pod: PodView) -> bool:
    """Is it a best-effort pod, or in kubelet's tier of that name?"""
    return pod.context.is_best_effort or pod.kube_qos is KubeQoS.BEST_EFFORT


def _differ_in_time_alone(one: BestEffortLimits, other: BestEffortLimits) -> bool:
    """Do the limits differ only in CPU time, with no CPU set whose reason would change with it?"""
    both = {structs.replace(each.scheduling, cpu_milli=0, why="") for each in (one, other)}
    is_same = (one.pools, one.tier_cpus) == (other.pools, other.tier_cpus)
    return not other.scheduling.cpus and is_same and len(both) == 1


def _has_quota(found: PodOpinions) -> bool:
    """Has the pod an opinion on a quota, or a refused value that may have been one?"""
    return bool(found.refused) or any(target.name == QUOTA for target in found.opinions)


def of_each(
    pods: Iterable[PodView], known: Mapping[str, tuple[PodView, T]], of_pod: Callable[[PodView], T]
) -> dict[str, tuple[PodView, T]]:
    """Returns ``of_pod`` of each pod by UID; of a pod that is the same as in ``known``, the known value."""
    by_uid: dict[str, tuple[PodView, T]] = {}
    for pod in pods:
        entry = known.get(pod.uid)
        by_uid[pod.uid] = entry if entry is not None and entry[0] is pod else (pod, of_pod(pod))
    return by_uid


def _decision(pods: list[PodOpinions], memo: PodMemo | None) -> Decision:
    """Returns the decision; the last one itself if the new one equals it."""
    opinions: dict[Target, Opinion] = {}
    for of_pod in pods:
        opinions.update(of_pod.opinions)
    refused = [why for of_pod in pods for why in of_pod.refused]
    concerned = sum(1 for of_pod in pods if of_pod.opinions)
    sentence = "; ".join((f"{count(len(opinions), 'value')} of {count(concerned, 'pod')}", *refused))
    if memo is None:
        return Decision(sentence, opinions)
    same = memo.decision.opinions == opinions
    if same and memo.decision.sentence == sentence:
        return memo.decision
    return Decision(sentence, memo.decision.opinions if same else opinions)


def count(number: int, noun: str) -> str:
    """Returns the number with its noun, for people."""
    return f"{number} {noun}{'' if number == 1 else 's'}"

"""CPU burst: a container that its own quota throttles may use more for a while, as long as the node has idle CPU.

    container   cpu_quota      at least a value that moves one step a second (steps), while its tokens (bucket) and the
                               pool of shared CPUs allow
    pod         cpu_quota      as much more as its containers have more
    both        cpu.max.burst  the kernel's own burst buffer: quota that one period leaves, a later one may use

The pod's opinion adds an amount to what the earlier stages make of its quota, which is unknown here; so nothing drifts.
A change between two beats (a ratio, a limit, a policy) takes effect at once, for containers and pod together: v1
refuses a container's quota above its pod's. Invariants: one step a second, however often the node is sampled; a
container back at its base has no opinion, so its file is released; a container that is gone is forgotten. A quota that
is held below what the burst wanted does not grow. A round without throttled containers and bursts costs two look-ups
for each candidate, and returns the same decision object.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from operator import is_
from types import MappingProxyType
from typing import ClassVar

from koord.host.order import BURST, QUOTA
from koord.model.formulas import FORMULA, Formula, Inputs
from koord.model.qos_settings import CPUBurstConfig as CPUBurstSettings
from qosd.decide.decision import NO_OPINIONS, Decision, Opinion, Opinions, Stage, Strategy
from qosd.model.snapshot import PODS_MAX_AGE_S, NodeSnapshot, Window
from qosd.strategies.burst import steps
from qosd.strategies.burst.candidates import BurstPlan, PodCandidates, is_wanted, planned
from qosd.strategies.burst.rounds import Bursts, Round
from qosd.strategies.burst.sharepool import NODE_USAGE, POD_USAGE

ROUND_NS = 750_000_000
"""A second, less what a beat may come early; an urgent tick between two beats is no round."""
SAMPLES_MAX_AGE_S = 5.0


@dataclass(frozen=True, slots=True)
class BurstOpinions:
    """The opinions on a pod's files, and the containers' opinions (``parts``) that they were made from."""

    pod: PodCandidates
    parts: tuple[Opinion | None, ...]
    opinions: Opinions


@dataclass(frozen=True, slots=True)
class BurstMemo:
    """The decision of the last round, and what it was made from."""

    plan: BurstPlan
    round_ns: int
    bursts: Bursts
    by_uid: Mapping[str, BurstOpinions]
    decision: Decision


class BurstStrategy(Strategy[BurstMemo]):
    """The strategy ``cpuBurst``, on with a policy of the node or of a pod."""

    name: ClassVar[str] = "cpuBurst"
    stage: ClassVar[Stage] = Stage.BURST
    gate: ClassVar[str] = "CPUBurst"
    rows: ClassVar[frozenset[str]] = frozenset({QUOTA, BURST})
    needs: ClassVar[Mapping[str, float]] = MappingProxyType({"pods": PODS_MAX_AGE_S, "usage": SAMPLES_MAX_AGE_S})
    windows: ClassVar[tuple[Window, ...]] = (NODE_USAGE, POD_USAGE)
    counts_samples: ClassVar[bool] = True
    formulas: ClassVar[tuple[Formula, ...]] = steps.FORMULAS

    def enabled(self, snapshot: NodeSnapshot) -> bool:
        of_node = snapshot.policy.slo.cpu_burst
        return _asks(of_node) or any(_asks(pod.context.annotations.cpu_burst) for pod in snapshot.pods)

    def decide(self, snapshot: NodeSnapshot, last: BurstMemo | None) -> tuple[Decision, BurstMemo]:
        elapsed_ns = 0 if last is None else snapshot.sampled_ns - last.round_ns
        is_whole = last is None or elapsed_ns >= ROUND_NS
        plan = planned(snapshot, None if last is None else last.plan)
        if last is not None and last.plan is plan and not is_whole:
            return last.decision, last
        current = Round(snapshot, plan, None if last is None else last.bursts, elapsed_ns, is_whole)
        bursts = current.bursts()
        if last is not None and last.plan.eligible is plan.eligible and last.bursts is bursts and not bursts:
            return last.decision, last if last.plan is plan else replace(last, plan=plan)
        by_uid = _opinions_by_uid(plan, bursts, {} if last is None else last.by_uid)
        pool = f"the share pool is {current.pool.state}" if _raised(bursts) else ""
        decision = _decision(_sentence(plan, bursts, pool), by_uid, last)
        round_ns = snapshot.sampled_ns if last is None or is_whole else last.round_ns
        return decision, BurstMemo(plan, round_ns, bursts, by_uid, decision)


def _asks(settings: CPUBurstSettings | None) -> bool:
    return settings is not None and is_wanted(settings.policy)


def _opinions_by_uid(plan: BurstPlan, bursts: Bursts, last: Mapping[str, BurstOpinions]) -> Mapping[str, BurstOpinions]:
    """Returns the opinions on each eligible pod's files, by its uid. What was made of the same objects is the object
    in ``last``: a pod's entry, or ``last`` itself.
    """
    found = {}
    for uid, pod in plan.eligible:
        before = last.get(uid)
        parts = tuple([None if (burst := bursts.get(each.id)) is None else burst.opinion for each in pod.containers])
        is_same = before is not None and before.pod is pod and all(map(is_, before.parts, parts))
        found[uid] = before if before is not None and is_same else BurstOpinions(pod, parts, _of_pod(pod, bursts))
    is_same = len(found) == len(last) and all(last.get(uid) is entry for uid, entry in found.items())
    return last if is_same else found


def _of_pod(pod: PodCandidates, bursts: Bursts) -> Opinions:
    opinions, more_us = dict(pod.buffers), {}
    for each in pod.containers:
        burst = bursts.get(each.id)
        if burst is not None and burst.opinion is not None:
            opinions[each.quota] = burst.opinion
            more_us[f"{each.name}_us"] = burst.more_us
    if more_us and pod.quota is not None:
        inputs: Inputs = {FORMULA: steps.SUM_FORMULA, **more_us}
        why = "what its containers have more than their quotas"
        opinions[pod.quota] = Opinion.add(sum(more_us.values()), why, inputs, pod.key)
    return opinions


def _decision(sentence: str, by_uid: Mapping[str, BurstOpinions], last: BurstMemo | None) -> Decision:
    """Returns the decision; an equal one, or equal opinions, are the last objects themselves."""
    if last is not None and last.by_uid is by_uid:
        opinions = last.decision.opinions
    else:
        opinions = {target: each for entry in by_uid.values() for target, each in entry.opinions.items()}
        if last is not None and last.decision.opinions == opinions:
            opinions = last.decision.opinions
    if last is not None and last.decision.opinions is opinions and last.decision.sentence == sentence:
        return last.decision
    return Decision(sentence, opinions or NO_OPINIONS)


def _raised(bursts: Bursts) -> int:
    return sum(burst.opinion is not None for burst in bursts.values())


def _sentence(plan: BurstPlan, bursts: Bursts, pool: str) -> str:
    buffers = sum(len(pod.buffers) for _, pod in plan.eligible)
    lacks_file = any(pod.settings.buffers and not pod.buffers for _, pod in plan.eligible)
    parts = [f"{_raised(bursts)} of {plan.count} containers with a CFS quota burst"]
    if pool:
        parts.append(pool)
    if buffers:
        parts.append(f"{buffers} burst buffers")
    if lacks_file:
        parts.append("no burst buffers on this kernel")
    return "; ".join(parts)

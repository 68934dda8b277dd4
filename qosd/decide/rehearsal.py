"""Rehearses relief (``node.evictionDryRun``): the same engine chooses the same steps, and none is taken.

The steps become acts that an actor shows and journals. A rehearsal goes on to the last step: none helps, since none is
taken, so the next one follows each; and a pod that would have been evicted counts as about to go for as long as the
shortage lasts, so that no pod is named twice for it, and no other pod in its place.

Invariant: the result has no opinion, no one-shot write and no eviction.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
from msgspec.structs import replace

from koord.host.evictions import EVICTION
from koord.host.files import Target
from koord.model.formulas import NO_INPUTS, Inputs
from koord.model.lattice import Value
from qosd.decide.decision import NO_OPINIONS, Acts
from qosd.decide.relief import relieve
from qosd.decide.reliefstate import Relief, ReliefState, Victim
from qosd.decide.shortage import ShortageClaim
from qosd.model.snapshot import EvictionPhase, EvictionState, NodeSnapshot

STOPPED = "stopped"
_NEVER_NS = 1 << 63


class Rehearsed(msgspec.Struct, frozen=True):
    """A value that would be written to ``target``; for the target ``pod.eviction``, an eviction of the pod."""

    target: Target
    value: Value
    why: str
    inputs: Inputs = NO_INPUTS
    pod: str = ""


def rehearse(claims: tuple[ShortageClaim, ...], node: NodeSnapshot, state: ReliefState) -> tuple[Relief, ReliefState]:
    """Works like ``relieve``, but returns the steps as acts that are not carried out."""
    going = {
        uid: _about_to_go(uid, victim)
        for uid, victim in state.victims.items()
        if victim.keys is not None and victim.keys & state.episodes.keys()
    }
    relief, after = relieve(claims, replace(node, evictions={**node.evictions, **going}), state)
    acts: Acts = tuple(_acts(relief, after))
    if not acts:
        return relief, after
    if acts == state.rehearsed:
        acts = state.rehearsed
    return Relief(f"dry run, nothing is done: {relief.sentence}", NO_OPINIONS, acts), replace(after, rehearsed=acts)


def _about_to_go(uid: str, victim: Victim) -> EvictionState:
    pod = victim.eviction.pod if victim.eviction is not None else ""
    return EvictionState(uid, pod, EvictionPhase.STOPPING, 1, victim.since_ns, _NEVER_NS)


def _acts(relief: Relief, after: ReliefState) -> Iterator[Rehearsed]:
    for target, opinion in relief.opinions.items():
        assert isinstance(opinion.value, int), "relief sets and bounds numbers"
        yield Rehearsed(target, opinion.value, opinion.why, opinion.inputs, opinion.pod)
    for write in relief.one_shots:
        yield Rehearsed(write.target, write.value, write.why, write.inputs, write.pod)
    for victim in after.victims.values():
        if (eviction := victim.eviction) is not None:
            yield Rehearsed(Target(eviction.cgroup, EVICTION), STOPPED, eviction.why, eviction.inputs, eviction.pod)

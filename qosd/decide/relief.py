"""One ladder for every shortage: reclaim, throttle, freeze and, only if all that was not enough, evict.

Strategies state what lacks; if each took its victims itself, two of them would take twice what lacked once, and a step
would be repeated before its effect can be seen. So one engine makes all steps, and waits for samples after each:

    reclaim     memory that is idle is taken back, once
    throttle    usage is bounded below what it was: memory.high of the pod, CPU quota of its containers
    freeze      the pod stands still, for ``FREEZE_MOST_NS`` at most
    evict       as few pods, in the claim's order, as cover what lacks, and of the rate ``EVICTIONS_PER_MINUTE`` allows

An episode of a claim begins when it is first stated and ends when it has not been for ``CALM_NS``. In it a mild rung is
taken at most once, and what it bounded stays bounded. What is on its way already counts before anybody is chosen: pods
that go, for every claim; mild steps of other claims of the same resource, until their effect can be measured.

Invariants: pure, and independent of the order of the pod list. No step on samples that are not newer than the last
step, the last eviction and the last pod that went. It fails to the side of doing nothing: without a pod list in force,
without samples, without the kernel's files it chooses nobody; a freeze ends by the clock alone, whatever happens.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Self

import msgspec
from msgspec.structs import replace

from qosd.decide.decision import NO_OPINIONS, Decision, Eviction, OneShot, Opinion, Opinions
from qosd.decide.rungs import (
    EVICTIONS_PER_MINUTE,
    FLOORS,
    FREEZE_MOST_NS,
    HIGH,
    NO_GIFTS,
    NO_STEP,
    RUNGS,
    SECOND_NS,
    UNITS,
    Case,
    Freeze,
    Step,
    Throttle,
    pods,
    throttled,
)
from qosd.decide.shortage import Claim, Key, Measure, Resource, Rung
from qosd.decide.victims import Amounts, candidates, is_pending, pending_amount
from qosd.model.snapshot import EvictionPhase, EvictionState, NodeSnapshot, PodView, live

CALM_NS = 30 * SECOND_NS
"""Released at once, what was bounded would grow back and lack again: a shortage is over when it stays away."""
_MINUTE_NS = 60 * SECOND_NS


class Episode(msgspec.Struct, frozen=True, eq=False):
    """How far the ladder of a claim is. ``gives``: by UID what the last mild step is to give until ``wait_ns``."""

    stated_ns: int
    rung: Rung = Rung.RECLAIM
    """The lowest that may still be taken."""
    sampled_ns: int = 0
    wait_ns: int = 0
    measure: Measure = Measure.USAGE
    gives: Mapping[str, int] = NO_GIFTS
    throttles: Mapping[str, Throttle] = MappingProxyType({})


class Victim(msgspec.Struct, frozen=True, eq=False):
    """A pod that was evicted. ``keys``: for whom, as far as these episodes last; None: nobody knows any more."""

    keys: frozenset[Key] | None
    since_ns: int
    floors: tuple[Throttle, ...] = ()


class ReliefState(msgspec.Struct, frozen=True, eq=False):
    """All that is remembered between ticks; by UID what is of pods.

    ``pending``: the pods that were about to go at the last tick. ``settled_ns``: samples up to then do not show the
    last eviction, or the end of one of those pods.
    """

    episodes: Mapping[Key, Episode] = MappingProxyType({})
    freezes: Mapping[str, Freeze] = MappingProxyType({})
    victims: Mapping[str, Victim] = MappingProxyType({})
    evicted_ns: tuple[int, ...] = ()
    """When, of the last minute."""
    pending: frozenset[str] = frozenset()
    settled_ns: int = 0
    opinions: Opinions = NO_OPINIONS

    @property
    def is_empty(self) -> bool:
        return not (self.episodes or self.freezes or self.victims or self.evicted_ns)


NOTHING_DONE = ReliefState()


class Relief(Decision, frozen=True):
    """What is done about all shortages of a tick. ``evictions`` are of this tick alone."""

    evictions: tuple[Eviction, ...] = ()

    def lasting(self) -> Self:
        lasting = super().lasting()
        return replace(lasting, evictions=()) if lasting.evictions else lasting


_NO_RELIEF = Relief("no shortage", NO_OPINIONS)


def relieve(claims: tuple[Claim, ...], node: NodeSnapshot, state: ReliefState) -> tuple[Relief, ReliefState]:
    """The steps of one tick; ``claims`` in the order in which they are served."""
    if not claims and state.is_empty and not node.evictions:
        return _NO_RELIEF, NOTHING_DONE
    tick = _Tick(node, state, claims)
    if node.knows_pods and node.rules.host.files is not None:
        tick.follow_pods()
        sentences = [tick.serve(claim) for claim in claims]
        tick.hold_victims()
    else:
        unknown = "what this kernel can do" if node.knows_pods else "which pods run"
        sentences = [f"nobody can tell {unknown}: what is in force stays, and nobody is chosen"]
    return tick.result(sentences)


class _Tick:
    """The state on its way through one tick."""

    def __init__(self, node: NodeSnapshot, state: ReliefState, claims: Sequence[Claim]) -> None:
        self._node, self._before = node, state
        self._now_ns = node.monotonic_ns
        self._freezes = {uid: _aged(freeze, node.evictions.get(uid), node) for uid, freeze in state.freezes.items()}
        self._victims = dict(state.victims)
        self._evicted_ns = [at_ns for at_ns in state.evicted_ns if self._now_ns - at_ns < _MINUTE_NS]
        self._pending, self._settled_ns = state.pending, state.settled_ns
        self._episodes = self._stated(claims)
        self._amounts = Amounts(node, {})
        self._pods: Mapping[str, PodView] = {}
        self._steps: dict[Key, Step] = {}
        self._one_shots: list[OneShot] = []
        self._evictions: list[Eviction] = []
        self._is_settled = False

    def _stated(self, claims: Iterable[Claim]) -> dict[Key, Episode]:
        """The episodes that last. Without a pod list in force none ends."""
        episodes = dict(self._before.episodes)
        if self._node.knows_pods:
            episodes = {key: each for key, each in episodes.items() if self._now_ns - each.stated_ns < CALM_NS}
        for claim in claims:
            episode = episodes.get(claim.key)
            stated = Episode(self._now_ns) if episode is None else replace(episode, stated_ns=self._now_ns)
            episodes[claim.key] = stated
        return episodes

    def follow_pods(self) -> None:
        """Forget who is gone, bound containers that are new, and count who is about to go."""
        self._pods = {pod.uid: pod for pod in self._node.pods if live(pod)}
        for key, episode in self._episodes.items():
            self._episodes[key] = replace(episode, throttles=self._followed(episode.throttles))
        self._freezes = {
            uid: freeze for uid, freeze in self._freezes.items() if uid in self._pods and freeze.key in self._episodes
        }
        self._amounts = Amounts(self._node, self._held_milli())
        self._pending = frozenset([pod.uid for pod in self._pods.values() if is_pending(pod, self._node)])
        if self._before.pending - self._pending:
            self._settled_ns = self._now_ns  # the samples may still show what went with it
        self._is_settled = self._node.sampled_ns > self._settled_ns

    def _followed(self, throttles: Mapping[str, Throttle]) -> Mapping[str, Throttle]:
        """``throttles`` as the pods are now; the very same object if nothing changed."""
        if all(self._pods.get(uid) is throttle.pod for uid, throttle in throttles.items()):
            return throttles
        present = ((self._pods.get(uid), throttle) for uid, throttle in throttles.items())
        return {pod.uid: self._for_view(throttle, pod) for pod, throttle in present if pod is not None}

    def _for_view(self, throttle: Throttle, pod: PodView) -> Throttle:
        if pod is throttle.pod:
            return throttle
        return throttled(self._node, pod, throttle.resource, throttle.allowance, throttle.why, throttle.used_milli)

    def _held_milli(self) -> Mapping[str, int]:
        """What pods used whose CPU is held down."""
        held = {
            uid: freeze.used_milli for uid, freeze in self._freezes.items() if freeze.is_felt(self._node.sampled_ns)
        }
        for episode in self._episodes.values():
            for uid, throttle in episode.throttles.items():
                if throttle.resource is Resource.CPU_MILLI:
                    held[uid] = max(held.get(uid, 0), throttle.used_milli)
        return held

    def serve(self, claim: Claim) -> str:
        """The next step for ``claim``, if it is time for one; and what stands."""
        episode = self._episodes[claim.key]
        need = claim.shortage.amount - self._covered(claim)
        if need <= 0:
            remark = "what is on its way covers it"
        elif not self._is_settled or self._node.sampled_ns <= episode.sampled_ns:
            remark = "the next step waits for newer samples"
        elif self._now_ns < episode.wait_ns:
            remark = "the next step waits for the effect of the last one"
        else:
            remark = self._take(claim, need)
        return self._sentence(claim, remark)

    def _covered(self, claim: Claim) -> int:
        """What is on its way: pods that go, and others' mild steps whose effect cannot be measured yet."""
        shortage = claim.shortage
        going = self._pending.union([eviction.uid for eviction in self._evictions])
        mild: dict[str, int] = {}
        for key, episode in self._episodes.items():
            is_alike = key[1] is shortage.resource and episode.measure is shortage.measure
            if key != claim.key and is_alike and self._now_ns < episode.wait_ns:
                for uid, part in episode.gives.items():
                    mild[uid] = max(part, mild.get(uid, 0))
        of_going = sum([pending_amount(self._pods[uid], shortage, self._amounts) for uid in going])
        return of_going + sum([part for uid, part in mild.items() if uid not in going])

    def _take(self, claim: Claim, need: int) -> str:
        """The mildest step that is left to the claim and can do anything; what remains to be said of it."""
        evicted = {eviction.uid for eviction in self._evictions}
        able = candidates(claim.shortage, self._node, self._amounts)
        left = EVICTIONS_PER_MINUTE - len(self._evicted_ns)
        case = Case(
            claim,
            self._node,
            need,
            tuple([each for each in able if each.pod.uid not in evicted]),
            self._amounts,
            self._freezes,
            left,
        )
        episode = self._episodes[claim.key]
        for rung, act in RUNGS.items():
            if rung in claim.shortage.rungs and rung >= episode.rung:
                step = act(case)
                if step is not None:
                    if step.is_any:
                        self._record(claim, step)
                    return step.remark
        return "nothing is left to do" if case.candidates else "no pod is left to be chosen"

    def _record(self, claim: Claim, step: Step) -> None:
        episode = self._episodes[claim.key]
        self._episodes[claim.key] = replace(
            episode,
            rung=Rung.EVICT if step.rung is Rung.EVICT else Rung(step.rung + 1),
            sampled_ns=self._node.sampled_ns,
            wait_ns=self._now_ns + step.wait_ns,
            measure=claim.shortage.measure,
            gives=step.gives,
            throttles={**episode.throttles, **step.throttles},
        )
        self._steps[claim.key] = step
        self._one_shots += step.one_shots
        self._freezes |= step.freezes
        for eviction in step.evictions:
            self._evictions.append(eviction)
            self._evicted_ns.append(self._now_ns)
            known = self._victims.get(eviction.uid, Victim(None, self._now_ns))
            self._victims[eviction.uid] = replace(known, keys=(known.keys or frozenset()) | {claim.key})
        if step.evictions:
            self._settled_ns = self._now_ns

    def hold_victims(self) -> None:
        """Evicted pods whose containers kubelet starts again stay at the floor while their episodes last."""
        under_way = self._node.evictions
        for uid, state in under_way.items():
            if state.phase is EvictionPhase.RESTARTED and uid in self._pods:
                self._victims.setdefault(uid, Victim(None, self._now_ns))
        for uid, victim in list(self._victims.items()):
            keys = None if victim.keys is None else victim.keys & self._episodes.keys()
            if uid not in self._pods or not (keys or uid in under_way):
                del self._victims[uid]
                continue
            is_back = uid in under_way and under_way[uid].phase is EvictionPhase.RESTARTED
            lacks = self._lacking(victim, keys) if is_back else frozenset()
            self._victims[uid] = Victim(keys, victim.since_ns, self._floors(self._pods[uid], victim.floors, lacks))

    def _lacking(self, victim: Victim, keys: frozenset[Key] | None) -> frozenset[Resource]:
        """What the pod must not take again. After a restart of the daemon nobody knows: CPU."""
        if keys is not None:
            return frozenset([resource for _, resource in keys])
        lasts = bool(self._episodes) or self._now_ns - victim.since_ns < CALM_NS
        return frozenset({Resource.CPU_MILLI}) if lasts else frozenset()

    def _floors(self, pod: PodView, floors: Sequence[Throttle], lacks: Iterable[Resource]) -> tuple[Throttle, ...]:
        present = {throttle.resource: throttle for throttle in floors}
        wanted = []
        for resource in sorted(lacks):
            if resource is Resource.MEMORY_BYTES and HIGH not in (self._node.rules.host.files or ()):
                continue
            throttle = present.get(resource)
            if throttle is None:
                floor = FLOORS[resource]
                why = f"{pod.key} was evicted and runs again: {resource} stays at {floor} {UNITS[resource]}"
                wanted.append(throttled(self._node, pod, resource, floor, why, 0))
            else:
                wanted.append(self._for_view(throttle, pod))
        return tuple(wanted)

    def result(self, sentences: Sequence[str]) -> tuple[Relief, ReliefState]:
        opinions = self._opinions()
        if opinions == self._before.opinions:
            opinions = self._before.opinions
        state = ReliefState(
            episodes=self._episodes,
            freezes=self._freezes,
            victims=self._victims,
            evicted_ns=tuple(self._evicted_ns),
            pending=self._pending,
            settled_ns=self._settled_ns,
            opinions=opinions,
        )
        said = [*sentences, *self._aftermath()] or ["no shortage"]
        relief = Relief("; ".join(said), opinions, one_shots=tuple(self._one_shots), evictions=tuple(self._evictions))
        return relief, NOTHING_DONE if state.is_empty else state

    def _opinions(self) -> Opinions:
        """All that is in force; of two bounds on one file the lower."""
        throttles = [each for episode in self._episodes.values() for each in episode.throttles.values()]
        throttles += [each for victim in self._victims.values() for each in victim.floors]
        opinions = {freeze.target: freeze.opinion for freeze in self._freezes.values() if freeze.over_ns is None}
        for throttle in throttles:
            for target, opinion in throttle.opinions.items():
                other = opinions.get(target)
                if other is None or _bound(opinion) < _bound(other):
                    opinions[target] = opinion
        return opinions or NO_OPINIONS

    def _sentence(self, claim: Claim, remark: str) -> str:
        shortage, unit = claim.shortage, UNITS[claim.shortage.resource]
        lacks = f"{shortage.resource}: {shortage.amount} {unit} lack ({claim.strategy}: {shortage.why})"
        stands = [*self._stands(claim.key), *([remark] if remark else [])]
        return f"{lacks}: {', '.join(stands)}" if stands else lacks

    def _stands(self, key: Key) -> list[str]:
        """What is in force for the claim, and what goes at this tick."""
        step = self._steps.get(key, NO_STEP)
        frozen = [each for each in self._freezes.values() if each.key == key and each.over_ns is None]
        phases = Counter(each.phase for each in self._node.evictions.values())
        under_way = phases[EvictionPhase.STOPPING]
        counts = {
            "reclaiming memory of": len(step.one_shots),
            "throttling": len(self._episodes[key].throttles),
            "freezing": len(frozen),
            "evicting": len(step.evictions),
        }
        said = [f"{verb} {pods(count)}" for verb, count in counts.items() if count]
        return [*said, *([f"{under_way} eviction{'s' * (under_way > 1)} under way"] if under_way else [])]

    def _aftermath(self) -> list[str]:
        """What stays in force of shortages that nobody states now."""
        said = []
        for key, episode in self._episodes.items():
            if episode.stated_ns < self._now_ns and (stands := self._stands(key)):
                said.append(f"{key[1]}: no shortage now ({key[0]}): {', '.join(stands)}")
        held = sum(1 for victim in self._victims.values() if victim.floors)
        return [*said, f"{pods(held)} evicted before and running again, held at the floor"] if held else said


def _aged(freeze: Freeze, eviction: EvictionState | None, node: NodeSnapshot) -> Freeze:
    """Over when its time is, or one tick after the pod's eviction was first seen: by then its containers are dead."""
    is_under_way = eviction is not None and (
        eviction.phase is EvictionPhase.STOPPING or eviction.since_ns >= freeze.since_ns
    )
    over_ns, now_ns = freeze.over_ns, node.monotonic_ns
    if over_ns is None and (freeze.is_under_way or now_ns - freeze.since_ns >= FREEZE_MOST_NS):
        over_ns = now_ns
    return replace(freeze, is_under_way=is_under_way or freeze.is_under_way, over_ns=over_ns)


def _bound(opinion: Opinion) -> int:
    return opinion.value if isinstance(opinion.value, int) else 0

"""Takes the same steps for every shortage: reclaim, throttle, freeze and, only if that was not enough, evict.

Strategies state shortages; if each chose its victims itself, two of them would free twice what lacked once, and would
repeat a step before its effect can be seen. So one engine takes all steps, and waits for samples after each:

    reclaim     the kernel takes idle memory back, once
    throttle    usage is bounded below what it was: memory.high of the pod, CPU quota of its containers
    freeze      the pod stands still, for ``FREEZE_MOST_NS`` at most
    evict       as few pods, in the claim's order, as cover what lacks, of the rate ``EVICTIONS_PER_MINUTE`` allows, and
                ``COOL_NS`` after the last round for the resource

An episode of a claim begins when it is first stated and ends when it has not been stated for ``CALM_NS``. In an episode
a mild step is taken at most once, and its bounds stay. Relief that is on its way counts before a pod is chosen: pods
that go in time, for every claim; mild steps of other claims of the same resource, until their effect can be measured.
If it is soon too late (``Shortage.left_s``), the engine waits for no step longer than that.

Invariants: pure, and independent of the order of the pod list. No step is taken on samples that are not newer than the
last step, the last eviction and the last pod that went. When in doubt it does nothing: without a valid pod list,
samples or the kernel's files it chooses no pod; freezes and episodes end by the clock alone in any case.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set

from msgspec.structs import replace

from qosd.decide.decision import NO_OPINIONS, Eviction, OneShot, Opinion, Opinions
from qosd.decide.reliefstate import NO_RELIEF, Episode, Relief, ReliefState, Victim
from qosd.decide.reliefsteps import (
    COOL_NS,
    EVICTIONS_PER_MINUTE,
    FLOORS,
    HIGH,
    NO_EFFECTS,
    SECOND_NS,
    STEPS,
    Case,
    Freeze,
    StepEffects,
    Throttle,
    pods,
    throttled,
)
from qosd.decide.shortage import Key, Measure, ReliefStep, Resource, ShortageClaim
from qosd.decide.victims import (
    Amounts,
    Owner,
    candidates,
    gives_soon,
    has_given_request,
    is_pending,
    owner_of,
    pending_amount,
)
from qosd.model.snapshot import EvictionPhase, EvictionState, NodeSnapshot, PodView, live

CALM_NS = 30 * SECOND_NS
"""A shortage is over when it stays away for so long: bounded pods that are released at once would grow back."""
_MINUTE_NS = 60 * SECOND_NS
_USAGE = "usage"
"""The collector by which pods' amounts are known."""


def relieve(claims: tuple[ShortageClaim, ...], node: NodeSnapshot, state: ReliefState) -> tuple[Relief, ReliefState]:
    """Takes the steps of one tick; serves ``claims`` in their order."""
    state = _begun(state, node)
    if not claims and state.is_empty and not node.evictions:
        return NO_RELIEF, _watching(state, node)
    tick = _Tick(node, state, claims)
    if node.knows_pods and node.policy.host.files is not None:
        tick.follow_pods()
        sentences = [tick.serve(claim) for claim in claims]
        tick.hold_victims()
    else:
        tick.let_go()
        unknown = "what this kernel can do" if node.knows_pods else "which pods run"
        sentences = [f"nobody can tell {unknown}: what is in force stays for its time, and nobody is chosen"]
    return tick.result(sentences)


def _begun(state: ReliefState, node: NodeSnapshot) -> ReliefState:
    """Returns ``state``; at the first tick, recent evictions of an earlier run count in the rate."""
    if state.started_ns is not None:
        return state
    now_ns = node.monotonic_ns
    recent = [each.since_ns for each in node.evictions.values() if now_ns - each.since_ns < _MINUTE_NS]
    return replace(state, started_ns=now_ns, evicted_ns=tuple(sorted(recent)))


def _watching(state: ReliefState, node: NodeSnapshot) -> ReliefState:
    """Returns ``state`` while nothing lacks: it follows only the pods that are deleted, which free resources."""
    if not node.knows_pods:
        return state
    pending = frozenset(
        [pod.uid for pod in node.pods if pod.facts.deletion_unix_s is not None and is_pending(pod, node)]
    )
    if pending == state.pending:
        return state
    settled_ns = node.monotonic_ns if state.pending - pending else state.settled_ns
    return replace(state, pending=pending, settled_ns=settled_ns)


class _Tick:
    """The state on its way through one tick."""

    def __init__(self, node: NodeSnapshot, state: ReliefState, claims: Sequence[ShortageClaim]) -> None:
        self._node, self._before = node, state
        self._now_ns = node.monotonic_ns
        self._sampled_ns = node.sampled_by(_USAGE)
        self._freezes = {
            uid: _aged(freeze, node.evictions.get(uid), self._now_ns) for uid, freeze in state.freezes.items()
        }
        self._victims = dict(state.victims)
        self._evicted_ns = [at_ns for at_ns in state.evicted_ns if self._now_ns - at_ns < _MINUTE_NS]
        self._rounds_ns = dict(state.rounds_ns)
        self._pending, self._settled_ns = state.pending, state.settled_ns
        self._episodes = self._stated(claims)
        self._amounts = Amounts(node, {})
        self._pods: Mapping[str, PodView] = {}
        self._effects: dict[Key, StepEffects] = {}
        self._one_shots: list[OneShot] = []
        self._evictions: list[Eviction] = []
        self._taken: Counter[Owner] = Counter()
        self._shown_from_ns = 0

    def _stated(self, claims: Iterable[ShortageClaim]) -> dict[Key, Episode]:
        """Returns the episodes that last. No step is made again on the samples of an episode that ends."""
        before = self._before.episodes
        episodes = {key: each for key, each in before.items() if self._now_ns - each.stated_ns < CALM_NS}
        ended_ns = [each.sampled_ns for key, each in before.items() if key not in episodes]
        self._settled_ns = max([self._settled_ns, *ended_ns])
        for claim in claims:
            episode = episodes.get(claim.key)
            stated = Episode(self._now_ns) if episode is None else replace(episode, stated_ns=self._now_ns)
            episodes[claim.key] = stated
        return episodes

    def let_go(self) -> None:
        """Forgets evicted pods whose episodes have ended, while pods are unknown."""
        self._victims = {
            uid: victim
            for uid, victim in self._victims.items()
            if victim.keys is None or victim.keys & self._episodes.keys()
        }

    def follow_pods(self) -> None:
        """Forgets pods that are gone, bounds new containers, and finds the pods that are about to go."""
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
        self._shown_from_ns = self._settled_ns
        self._taken = Counter([owner_of(self._pods[uid]) for uid in self._node.evictions if uid in self._pods])

    def _followed(self, throttles: Mapping[str, Throttle]) -> Mapping[str, Throttle]:
        """Returns ``throttles`` for the present views of the pods; the same object if nothing changed."""
        if all(self._pods.get(uid) is throttle.pod for uid, throttle in throttles.items()):
            return throttles
        present = ((self._pods.get(uid), throttle) for uid, throttle in throttles.items())
        return {pod.uid: self._for_view(throttle, pod) for pod, throttle in present if pod is not None}

    def _for_view(self, throttle: Throttle, pod: PodView) -> Throttle:
        if pod is throttle.pod:
            return throttle
        return throttled(self._node, pod, throttle.resource, throttle.allowance, throttle.why, throttle.used_milli)

    def _held_milli(self) -> Mapping[str, int]:
        """Returns by UID the CPU that pods used before theirs was held down."""
        held = {uid: freeze.used_milli for uid, freeze in self._freezes.items() if freeze.is_felt(self._sampled_ns)}
        for episode in self._episodes.values():
            for uid, throttle in episode.throttles.items():
                if throttle.resource is Resource.CPU_MILLI:
                    held[uid] = max(held.get(uid, 0), throttle.used_milli)
        return held

    def serve(self, claim: ShortageClaim) -> str:
        """Takes the next step for ``claim`` if it is time for one; returns a sentence on the claim."""
        shortage, episode = claim.shortage, self._episodes[claim.key]
        sampled_ns = self._sampled_for(claim)
        rest_ns = episode.wait_ns - self._now_ns
        is_soon_late = shortage.left_s is not None and rest_ns > shortage.left_s * SECOND_NS
        need = shortage.amount - self._covered(claim)
        if need <= 0:
            remark = "what is on its way covers it"
        elif sampled_ns <= max(self._shown_from_ns, episode.sampled_ns):
            remark = "the next step waits for newer samples"
        elif rest_ns > 0 and not is_soon_late:
            remark = "the next step waits for the effect of the last one"
        else:
            remark = self._take(claim, need)
        return self._sentence(claim, remark)

    def _sampled_for(self, claim: ShortageClaim) -> int:
        """Returns the instant of the oldest samples that a step for ``claim`` rests on."""
        stated_ns = claim.shortage.sampled_ns
        return self._sampled_ns if stated_ns is None else min(stated_ns, self._sampled_ns)

    def _covered(self, claim: ShortageClaim) -> int:
        """Returns the amount on its way: of pods that go, and of other claims' mild steps not measured yet."""
        shortage = claim.shortage
        soon = [uid for uid in self._pending if gives_soon(self._pods[uid], self._node, shortage.left_s)]
        going = {*soon, *(eviction.uid for eviction in self._evictions)}
        if shortage.measure is Measure.REQUEST:
            given = [uid for uid, each in self._node.evictions.items() if has_given_request(each, self._node)]
            going = going.union([uid for uid in given if uid in self._pods])
        mild: dict[str, int] = {}
        for key, episode in self._episodes.items():
            is_alike = key[1] is shortage.resource and episode.measure is shortage.measure
            if key != claim.key and is_alike and self._now_ns < episode.wait_ns:
                for uid, part in episode.gives.items():
                    mild[uid] = max(part, mild.get(uid, 0))
        of_going = sum([pending_amount(self._pods[uid], shortage, self._amounts) for uid in going])
        return of_going + sum([part for uid, part in mild.items() if uid not in going])

    def _rests_ns(self, resource: Resource) -> int:
        """Returns how long evictions for ``resource`` rest: after the last round, and for CPU after the start."""
        since_ns = self._before.rounds_ns.get(resource)
        if since_ns is None and resource is Resource.CPU_MILLI:
            since_ns = self._before.started_ns
        return 0 if since_ns is None else since_ns + COOL_NS[resource] - self._now_ns

    def _take(self, claim: ShortageClaim, need: int) -> str:
        """Takes the mildest step that is left to the claim and has an effect; returns a remark on it."""
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
            self._taken,
            self._rests_ns(claim.shortage.resource),
        )
        episode = self._episodes[claim.key]
        for step, act in STEPS.items():
            if step in claim.shortage.steps and step >= episode.step:
                effects = act(case)
                if effects is not None and not case.waits_in_vain(effects):
                    if effects.is_any:
                        self._record(claim, effects)
                    return effects.remark
        return "nothing is left to do" if case.candidates else "no pod is left to be chosen"

    def _record(self, claim: ShortageClaim, effects: StepEffects) -> None:
        episode = self._episodes[claim.key]
        self._episodes[claim.key] = replace(
            episode,
            step=ReliefStep.EVICT if effects.step is ReliefStep.EVICT else ReliefStep(effects.step + 1),
            sampled_ns=self._sampled_for(claim),
            wait_ns=self._now_ns + effects.wait_ns,
            measure=claim.shortage.measure,
            gives=effects.gives,
            throttles={**episode.throttles, **effects.throttles},
        )
        self._effects[claim.key] = effects
        self._one_shots += effects.one_shots
        self._freezes |= effects.freezes
        for eviction in effects.evictions:
            self._evictions.append(eviction)
            self._evicted_ns.append(self._now_ns)
            self._taken[owner_of(self._pods[eviction.uid])] += 1
            known = self._victims.get(eviction.uid, Victim(None, self._now_ns))
            keys = (known.keys or frozenset()) | {claim.key}
            self._victims[eviction.uid] = replace(known, keys=keys, eviction=eviction)
        if effects.evictions:
            self._settled_ns = self._rounds_ns[claim.shortage.resource] = self._now_ns

    def hold_victims(self) -> None:
        """Holds evicted pods that run again, and their replacements, at the floor while their episodes last."""
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
            lacks = self._lacking(keys) if is_back else frozenset()
            floors = self._floors(self._pods[uid], victim.floors, lacks)
            self._victims[uid] = Victim(keys, victim.since_ns, floors, victim.eviction if keys else None)

    def _lacking(self, keys: Set[Key] | None) -> frozenset[Resource]:
        """Returns the resources that the pod must not take again; all that lack if ``keys`` is None (unknown).

        After a start of the daemon it is unknown what lacked before: then CPU, for as long as an episode may last.
        """
        lacking = frozenset([self._held(each) for _, each, _ in (self._episodes.keys() if keys is None else keys)])
        is_start = self._now_ns - (self._before.started_ns or 0) < CALM_NS
        return lacking or frozenset({Resource.CPU_MILLI} if keys is None and is_start else ())

    def _held(self, resource: Resource) -> Resource:
        """Returns the resource to hold down so that a pod does not take ``resource`` again: CPU without memory.high."""
        is_throttled = resource is not Resource.MEMORY_BYTES or HIGH in (self._node.policy.host.files or ())
        return resource if is_throttled else Resource.CPU_MILLI

    def _floors(self, pod: PodView, floors: Sequence[Throttle], lacks: Iterable[Resource]) -> tuple[Throttle, ...]:
        present = {throttle.resource: throttle for throttle in floors}
        wanted = []
        for resource in sorted(lacks):
            throttle = present.get(resource)
            if throttle is None:
                floor = FLOORS[resource]
                why = f"{pod.key} was evicted and runs again: {resource} stays at {resource.said(floor)}"
                wanted.append(throttled(self._node, pod, resource, floor, why, 0))
            else:
                wanted.append(self._for_view(throttle, pod))
        return tuple(wanted)

    def result(self, sentences: Sequence[str]) -> tuple[Relief, ReliefState]:
        opinions = self._opinions()
        if opinions == self._before.opinions:
            opinions = self._before.opinions
        state = ReliefState(
            started_ns=self._before.started_ns,
            episodes=self._episodes,
            freezes=self._freezes,
            victims=self._victims,
            evicted_ns=tuple(self._evicted_ns),
            rounds_ns=self._rounds_ns,
            pending=self._pending,
            settled_ns=self._settled_ns,
            opinions=opinions,
            is_rehearsal=self._before.is_rehearsal,
        )
        said = [*sentences, *self._aftermath()] or ["no shortage"]
        relief = Relief("; ".join(said), opinions, one_shots=tuple(self._one_shots), evictions=tuple(self._evictions))
        return relief, state.emptied() if state.is_empty else state

    def _opinions(self) -> Opinions:
        """Returns the opinions of all freezes and throttles in force; of two bounds on one file the lower."""
        throttles = [each for episode in self._episodes.values() for each in episode.throttles.values()]
        throttles += [each for victim in self._victims.values() for each in victim.floors]
        opinions = {freeze.target: freeze.opinion for freeze in self._freezes.values() if freeze.over_ns is None}
        for throttle in throttles:
            for target, opinion in throttle.opinions.items():
                other = opinions.get(target)
                if other is None or _bound(opinion) < _bound(other):
                    opinions[target] = opinion
        return opinions or NO_OPINIONS

    def _sentence(self, claim: ShortageClaim, remark: str) -> str:
        shortage, said = claim.shortage, claim.shortage.resource.said
        lacks = f"{shortage.resource}: {said(shortage.amount)} must be freed ({claim.strategy}: {shortage.why})"
        stands = [*self._stands(claim.key), *([remark] if remark else [])]
        return f"{lacks}: {', '.join(stands)}" if stands else lacks

    def _stands(self, key: Key) -> list[str]:
        """Returns phrases on what is in force for the claim, and on evictions."""
        effects = self._effects.get(key, NO_EFFECTS)
        frozen = [each for each in self._freezes.values() if each.key == key and each.over_ns is None]
        phases = Counter(each.phase for each in self._node.evictions.values())
        under_way = phases[EvictionPhase.STOPPING]
        counts = {
            "reclaiming memory of": len(effects.one_shots),
            "throttling": len(self._episodes[key].throttles),
            "freezing": len(frozen),
            "evicting": len(effects.evictions),
        }
        said = [f"{verb} {pods(count)}" for verb, count in counts.items() if count]
        return [*said, *([f"{under_way} eviction{'s' * (under_way > 1)} under way"] if under_way else [])]

    def _aftermath(self) -> list[str]:
        """Returns sentences on what stays in force of shortages that are not stated now."""
        said = []
        for key, episode in self._episodes.items():
            if episode.stated_ns < self._now_ns and (stands := self._stands(key)):
                said.append(f"{key[1]}: no shortage now ({key[0]}): {', '.join(stands)}")
        held = sum(1 for victim in self._victims.values() if victim.floors)
        return [*said, f"{pods(held)} evicted before and running again, held at the floor"] if held else said


def _aged(freeze: Freeze, eviction: EvictionState | None, now_ns: int) -> Freeze:
    is_just_over = freeze.over_ns is None and freeze.is_over(eviction, now_ns)
    return replace(freeze, over_ns=now_ns) if is_just_over else freeze


def _bound(opinion: Opinion) -> int:
    return opinion.value if isinstance(opinion.value, int) else 0

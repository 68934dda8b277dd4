"""Every rule of eviction, checked at each step of the model against what the daemon saw and what it did.

Written from Koordinator's formulas and from the promises of the pages, without the product's code: who may be a
victim, in which order and how many; which step, how often and how soon after the last one; what holds for how long.
Invariant: nothing here reads the product's state; what was done before is known from what it said and did.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from koord.host.files import Target
from qosd.decide.decision import Opinion
from qosd.decide.reliefstate import Relief
from qosd.decide.runner import Decisions
from qosd.model.snapshot import EvictionPhase, EvictionState, NodeSnapshot, PodView
from tests.fakes.clock import S
from tests.qosd.eviction.choice import (
    CALM_S,
    COOL_S,
    CPU_FLOOR,
    FREEZE_S,
    LATE_S,
    LEAST_PART,
    MEMORY_FLOOR,
    MINUTE_S,
    MOST,
    STOP_S,
    WAIT_S,
    Candidate,
    Episode,
    Frozen,
    Owner,
)
from tests.qosd.eviction.demands import (
    EVICT,
    FREEZE,
    RECLAIM,
    STEPS,
    STRATEGIES,
    THROTTLE,
    Demand,
    demands,
    is_live,
    oldest_ns,
)
from tests.qosd.eviction.standing import Standing, Violation, knows_pods

_STEP = re.compile(r"; (reclaim|throttle|freeze|evict): default/(\w+) ")


class Oracle(Standing):
    """``check`` looks at one step."""

    def _begin(self, at: NodeSnapshot) -> None:
        """What is under way at the first step may have been ordered a moment before."""
        now_ns = self.started_ns = at.monotonic_ns
        self.evicted_ns = [each.since_ns for each in at.evictions.values() if now_ns - each.since_ns < MINUTE_S * S]

    # one step

    def check(self, at: NodeSnapshot, decisions: Decisions) -> None:
        """Raises Violation."""
        relief = decisions.results[-1].decision
        assert isinstance(relief, Relief)
        if self.started_ns is None:
            self._begin(at)
        stated = self._stated(at, decisions)
        self.evicted_ns = [each for each in self.evicted_ns if at.monotonic_ns - each < MINUTE_S * S]
        is_rehearsal = at.policy.node.eviction_dry_run
        if is_rehearsal is not self.was_rehearsal:
            self.was_rehearsal = is_rehearsal
            self.forget()
        if is_rehearsal:
            self.check_rehearsal(at, relief)
            self.opinions = relief.opinions
            return
        if knows_pods(at):
            self._look(at, stated)
            self._check_steps(at, stated, relief)
            self.check_opinions(at, relief)
        else:
            self.check_stillness(at, stated, relief)
        self.check_freezes(at, relief)
        if relief.opinions == self.opinions and relief.opinions is not self.opinions and self.opinions:
            raise Violation("equal opinions are other objects")
        self.opinions = relief.opinions

    # what is stated

    def _stated(self, at: NodeSnapshot, decisions: Decisions) -> tuple[Demand, ...]:
        """The demands of the strategies, which must be those of the formulas."""
        expected = demands(at, self.everybody, lambda gate: self.evictable_bytes(gate, at))
        for gate, each in expected.items():
            self.counts[f"{gate} demands"] += bool(each)
            self.counts["demands that no eviction could meet"] += any(one.is_in_vain for one in each)
        for gate, strategy in STRATEGIES.items():
            result = next(each for each in decisions.results if each.name == strategy)
            said = {
                (each.extended_resource, str(each.resource), each.amount, each.left_s)
                for each in result.decision.shortages
            }
            wanted = {
                (each.extended_resource, each.resource, each.amount, each.left_s) for each in expected.get(gate, ())
            }
            if said != wanted:
                raise Violation(f"{gate} states {said}, the formula says {wanted}: {result.sentence}")
            for shortage in result.decision.shortages:
                if shortage.victims.gate != gate or shortage.amount <= 0:
                    raise Violation(f"{gate} states {shortage}")
        return tuple([each for gate in STRATEGIES for each in expected.get(gate, ())])

    # what goes on by itself

    def _look(self, at: NodeSnapshot, stated: Sequence[Demand]) -> None:
        now_ns = at.monotonic_ns
        self.views = {view.uid: view for view in at.pods if is_live(view)}
        for key in [key for key, each in self.episodes.items() if now_ns - each.stated_ns >= CALM_S * S]:
            del self.episodes[key]
        for demand in stated:
            self.episodes.setdefault(demand.key, Episode(now_ns)).stated_ns = now_ns
        for episode in self.episodes.values():
            episode.throttled = {uid: used for uid, used in episode.throttled.items() if uid in self.views}
        self.frozen = {
            uid: each for uid, each in self.frozen.items() if uid in self.views and each.key in self.episodes
        }
        for uid, each in self.frozen.items():
            if each.over_ns is None and self._is_thawed(each, at.evictions.get(uid), now_ns):
                each.over_ns = now_ns
        pending = frozenset([uid for uid, view in self.views.items() if self._is_terminating(view, at)])
        if self.pending - pending:
            self.settled_ns = now_ns
        self.pending = pending

    @staticmethod
    def _is_thawed(each: Frozen, eviction: EvictionState | None, now_ns: int) -> bool:
        if now_ns - each.since_ns >= FREEZE_S * S:
            return True
        if eviction is None or eviction.since_ns < each.since_ns:
            return False
        return eviction.phase is not EvictionPhase.STOPPING or now_ns - eviction.since_ns >= STOP_S * S

    @staticmethod
    def _is_terminating(view: PodView, at: NodeSnapshot) -> bool:
        eviction = at.evictions.get(view.uid)
        if eviction is not None and eviction.phase is EvictionPhase.STOPPED:
            return False
        if eviction is not None and eviction.phase is EvictionPhase.STOPPING:
            return True
        by_s = view.facts.deletion_unix_s
        return by_s is not None and at.wall_ns < (by_s + LATE_S) * S

    # steps

    def _check_steps(self, at: NodeSnapshot, stated: Sequence[Demand], relief: Relief) -> None:
        said = [each for each in _steps(relief, self.opinions) if not self._shows_late(*each)]
        gone: list[str] = []
        settled_ns, rounds_ns = self.settled_ns, dict(self.rounds_ns)
        taken = Counter([self.owner_of(self.views[uid]) for uid in at.evictions if uid in self.views])
        known = {demand.strategy for demand in stated}
        for strategy, step, uid, _ in said:
            if strategy not in known:
                raise Violation(f"{strategy}: {step} of {uid}, and it lacks nothing")
        for demand in stated:
            mine = [(step, uid, value) for strategy, step, uid, value in said if self._is_of(demand, strategy, uid)]
            went = [uid for step, uid, _ in mine if step == EVICT]
            need = self._need(demand, at, gone)
            self._check_step(demand, at, mine, need, gone, taken, settled_ns, rounds_ns)
            gone += went
            taken.update([self.owner_of(self.views[uid]) for uid in went])
        if len(gone) != len(set(gone)):
            raise Violation(f"evicted twice at once: {gone}")
        self._note_evictions(at, gone)

    def _shows_late(self, strategy: str, step: str, uid: str, value: int) -> bool:
        """A bound that was hidden by a lower one."""
        mine = [each for key, each in self.episodes.items() if key[0] == strategy]
        return step == THROTTLE and any(uid in each.bounded for each in mine)

    def _is_of(self, demand: Demand, strategy: str, uid: str) -> bool:
        """A strategy of the ledger has a demand for each band."""
        if strategy != demand.strategy:
            return False
        if "Allocatable" not in demand.gate:
            return True
        return f"/{self.everybody[uid].kind}-" in demand.extended_resource

    def _need(self, demand: Demand, at: NodeSnapshot, gone: Sequence[str]) -> int:
        """What nothing on its way covers."""
        going = {*self.giving(demand, at), *gone}
        self.counts["demands that did not wait for a grace period"] += len(self.pending - going) > 0
        if demand.extended_resource:
            for uid, each in at.evictions.items():
                is_given = each.phase in (EvictionPhase.STOPPING, EvictionPhase.STOPPED) or (
                    each.phase is EvictionPhase.RESTARTED and at.monotonic_ns < each.retry_ns
                )
                if is_given and uid in self.views:
                    going.add(uid)
        covered = 0
        for uid in going:
            if not demand.extended_resource or self.belongs_to(self.everybody[uid], self.views[uid], demand, at):
                covered += self.amount(uid, demand, at) or 0
        mild: dict[str, int] = {}
        for key, episode in self.episodes.items():
            is_other = key != demand.key and key[1] == demand.resource and not key[2] and not demand.extended_resource
            if is_other and at.monotonic_ns < episode.wait_ns:
                for uid, part in episode.gives.items():
                    mild[uid] = max(part, mild.get(uid, 0))
        covered += sum(part for uid, part in mild.items() if uid not in going)
        return demand.amount - covered

    def _check_step(
        self,
        demand: Demand,
        at: NodeSnapshot,
        mine: Sequence[tuple[str, str, int]],
        need: int,
        gone: Sequence[str],
        taken: Counter[Owner],
        settled_ns: int,
        rounds_ns: Mapping[str, int],
    ) -> None:
        now_ns, episode = at.monotonic_ns, self.episodes[demand.key]
        steps = {step for step, _, _ in mine}
        sampled_ns = min(demand.sampled_ns, oldest_ns(at, *(["usage"] if "usage" in at.ages_s else [])))
        may = (
            need > 0
            and sampled_ns > settled_ns
            and sampled_ns > episode.sampled_ns
            and (now_ns >= episode.wait_ns or self._hurries(demand, episode.wait_ns - now_ns))
        )
        if steps and not may:
            raise Violation(
                f"{demand}: {mine} although need {need}, samples of {sampled_ns} after {settled_ns} and "
                f"{episode.sampled_ns}, waits {(episode.wait_ns - now_ns) / S} s"
            )
        if not may:
            self.counts["steps that waited"] += need > 0
            return
        expected = self._next_step(demand, at, need, taken, episode, rounds_ns, gone)
        if expected is None:
            if steps:
                raise Violation(f"{demand}: {mine}, and nothing was to be done")
            return
        step, parts = expected
        if steps != ({step} if parts else set()) and not self._is_hidden(step, parts, steps):
            raise Violation(f"{demand}, need {need}: {steps or 'nothing'} instead of {step} of {parts}: {mine}")
        self._compare(demand, step, parts, mine, at)
        if parts or step == FREEZE:
            self._take(demand, step, parts, sampled_ns, at)

    @staticmethod
    def _hurries(demand: Demand, rest_ns: int) -> bool:
        return demand.left_s is not None and rest_ns > demand.left_s * S

    @staticmethod
    def _is_hidden(step: str, parts: Mapping[str, int], steps: set[str]) -> bool:
        """A bound that is not below another one that is in force does not show."""
        return step == THROTTLE and not steps and bool(parts)

    def _next_step(
        self,
        demand: Demand,
        at: NodeSnapshot,
        need: int,
        taken: Counter[Owner],
        episode: Episode,
        rounds_ns: Mapping[str, int],
        gone: Sequence[str],
    ) -> tuple[str, Mapping[str, int]] | None:
        """The mildest step that can do anything, and its parts by UID; none of them while evictions rest."""
        able = [each for each in self.candidates(demand, at) if each.uid not in gone]
        for step in STEPS[episode.step :]:
            if step not in demand.steps:
                continue
            parts, stops = self._parts(demand, step, able, need, at, taken)
            is_late = demand.left_s is not None and not stops and WAIT_S[step] > demand.left_s
            if parts and is_late:
                self.counts["steps that would have been too late"] += 1
            if parts and not is_late:
                if step == EVICT:
                    parts = self._allowed(demand, parts, at, rounds_ns, len(gone))
                return step, parts
            if step == FREEZE and demand.resource == "memory" and self._waits_for_nobody(demand, able, need, at):
                self.counts["freezes of nobody, since nobody grew"] += 1
                return step, {}
            if step == RECLAIM and able and not parts:
                self.counts["reclaims that could free nothing"] += 1
        return None

    def _allowed(
        self, demand: Demand, parts: Mapping[str, int], at: NodeSnapshot, rounds_ns: Mapping[str, int], gone: int
    ) -> Mapping[str, int]:
        since_ns = rounds_ns.get(demand.resource, self.started_ns if demand.resource == "cpu" else None)
        if since_ns is not None and at.monotonic_ns < since_ns + COOL_S[demand.resource] * S:
            self.counts[f"evictions for {demand.resource} that rested"] += 1
            return {}
        left = MOST - len(self.evicted_ns) - gone
        if len(parts) > left:
            self.counts["evictions beyond the rate"] += 1
        return dict(list(parts.items())[: max(0, left)])

    def _parts(
        self, demand: Demand, step: str, able: Sequence[Candidate], need: int, at: NodeSnapshot, taken: Counter[Owner]
    ) -> tuple[Mapping[str, int], bool]:
        """By UID what each gives, in their order; and whether they have no more of it from then on."""
        host = at.policy.host
        assert host.files is not None
        if step == RECLAIM:
            row = {1: "memory.force_empty", 2: "memory.reclaim"}[host.cgroup_version]
            if demand.resource != "memory" or row not in host.files:
                return {}, False
            takes = [replace(each, amount=self.reclaimable(each, at)) for each in able]
            parts: Mapping[str, int] = {each.uid: part for each, part in self.chosen(demand, takes, need, at, taken)}
            return (parts if sum(parts.values()) * LEAST_PART >= need else {}), False
        running = [each for each in able if self.runs(each.view)]
        if step == THROTTLE and demand.resource == "memory" and "memory.high" not in host.files:
            busy = [each for each in running if (self.usage(each.uid, "cpu", at) or 0) > CPU_FLOOR]
            return self._growing(busy, need, at), False
        if step == THROTTLE:
            floor = MEMORY_FLOOR if demand.resource == "memory" else CPU_FLOOR
            return self._with_growing(demand, able if floor > CPU_FLOOR else running, need, at, taken, floor), True
        if step == FREEZE:
            if "cgroup.freeze" not in host.files:
                return {}, True
            thawed = {uid for uid, each in self.frozen.items() if each.over_ns is not None}
            able = [each for each in able if each.uid not in thawed]
            if demand.resource == "memory":
                parts = self._growing(able, need, at)
            else:
                parts = {each.uid: part for each, part in self.chosen(demand, able, need, at, taken)}
            return {uid: part for uid, part in parts.items() if uid not in self.frozen}, True
        return {each.uid: part for each, part in self._evictable(demand, able, need, at, taken)}, True

    def _evictable(
        self, demand: Demand, able: Sequence[Candidate], need: int, at: NodeSnapshot, taken: Counter[Owner]
    ) -> list[tuple[Candidate, int]]:
        """Counts which rules have decided."""
        chosen = self.chosen(demand, able, need, at, taken)
        names = [each.uid for each, _ in chosen]
        for rule, amount in self.spared.items():
            self.counts[f"evictions that spared {rule}"] += bool(amount)
        for rule, twins in (
            ("owners", [self.without_owner(each) for each in able]),
            ("lost work", [replace(each, worked_s=0.0) for each in able]),
        ):
            if names != [each.uid for each, _ in self.chosen(demand, twins, need, at, taken)]:
                self.counts[f"evictions that {rule} decided"] += 1
        return chosen

    def _growing(self, able: Sequence[Candidate], need: int, at: NodeSnapshot) -> Mapping[str, int]:
        """Only who takes more and more is held: what is held gives nothing back."""
        growing = {each.uid: min(each.amount, need) for each in able if self.grows(each, need, at)}
        self.counts["pods that were stopped because they grow"] += len(growing)
        return growing

    def _waits_for_nobody(self, demand: Demand, able: Sequence[Candidate], need: int, at: NodeSnapshot) -> bool:
        """Nobody can be frozen, and there is time for as long as a freeze is felt."""
        thawed = {uid for uid, each in self.frozen.items() if each.over_ns is not None}
        growing = self._growing([each for each in able if each.uid not in thawed], need, at)
        has_time = demand.left_s is None or WAIT_S[FREEZE] <= demand.left_s
        return bool(able) and not growing and has_time and "cgroup.freeze" in (at.policy.host.files or ())

    def _with_growing(
        self,
        demand: Demand,
        able: Sequence[Candidate],
        need: int,
        at: NodeSnapshot,
        taken: Counter[Owner],
        floor: int,
    ) -> Mapping[str, int]:
        parts = {each.uid: part for each, part in self.chosen(demand, able, need, at, taken, floor)}
        if demand.left_s is not None:
            growing = [each.uid for each in able if self.grows(each, need, at) and each.uid not in parts]
            self.counts["pods that were stopped because they grow"] += len(growing)
            parts |= dict.fromkeys(growing, 0)
        return parts

    def _compare(
        self,
        demand: Demand,
        step: str,
        parts: Mapping[str, int],
        mine: Sequence[tuple[str, str, int]],
        at: NodeSnapshot,
    ) -> None:
        """What was done is what the rules say, pod by pod and in their order."""
        done = [uid for _, uid, _ in mine]
        if step in (EVICT, RECLAIM, FREEZE):
            if done != list(parts) if step != FREEZE else set(done) != set(parts):
                raise Violation(f"{demand}: {step} of {done} instead of {list(parts)}")
        elif not set(done) <= parts.keys():
            raise Violation(f"{demand}: {step} of {done} instead of {list(parts)}")
        is_v2 = at.policy.host.cgroup_version == 2
        for _, uid, value in mine:
            if step == RECLAIM and value != (parts[uid] if is_v2 else 0):
                raise Violation(f"{demand}: {value} bytes of {uid} are reclaimed instead of {parts[uid]}")
        self.counts[f"{step}s"] += len(done)
        if step == EVICT:
            self.counts[f"{demand.gate} evictions"] += len(done)
        if step == THROTTLE and demand.resource == "memory":
            kind = "memory.high" if "memory.high" in (at.policy.host.files or ()) else "little CPU"
            self.counts[f"throttles of memory by {kind}"] += len(done)

    def _take(self, demand: Demand, step: str, parts: Mapping[str, int], sampled_ns: int, at: NodeSnapshot) -> None:
        now_ns, episode = at.monotonic_ns, self.episodes[demand.key]
        is_cpu = demand.resource == "cpu"
        gives = parts if step == RECLAIM or (step == THROTTLE and self._throttles(demand, at)) else {}
        if step == FREEZE and is_cpu:
            gives = parts
        if step == THROTTLE and (is_cpu or not self._throttles(demand, at)):
            episode.throttled |= {uid: self.usage(uid, "cpu", at) or 0 for uid in parts}
        if step == THROTTLE:
            episode.bounded |= parts.keys()
        if step == FREEZE:
            for uid in parts:
                self.frozen[uid] = Frozen(demand.key, now_ns, self.usage(uid, "cpu", at) or 0)
        episode.gives, episode.sampled_ns = gives, sampled_ns
        episode.wait_ns = now_ns + WAIT_S[step] * S
        episode.step = STEPS.index(EVICT) if step == EVICT else STEPS.index(step) + 1
        if step == EVICT:
            self.rounds_ns[demand.resource] = now_ns

    @staticmethod
    def _throttles(demand: Demand, at: NodeSnapshot) -> bool:
        return demand.resource == "cpu" or "memory.high" in (at.policy.host.files or ())

    def _note_evictions(self, at: NodeSnapshot, gone: Sequence[str]) -> None:
        now_ns = at.monotonic_ns
        self.evicted_ns += [now_ns] * len(gone)
        if len(self.evicted_ns) > MOST:
            raise Violation(f"{len(self.evicted_ns)} evictions within a minute")
        if gone:
            self.settled_ns = now_ns
        for uid in gone:
            eviction = at.evictions.get(uid)
            if eviction is not None and (now_ns < eviction.retry_ns or eviction.phase is EvictionPhase.STOPPED):
                raise Violation(f"{uid} is evicted again too soon: {eviction}")


def _steps(relief: Relief, before: Mapping[Target, Opinion]) -> Iterator[tuple[str, str, str, int]]:
    """Strategy, step, UID and value of what is new at this tick, in its order."""
    for order in relief.one_shots:
        yield _step(order.why, int(order.value))
    for target, opinion in relief.opinions.items():
        earlier = before.get(target)
        if (earlier is None or earlier.why != opinion.why) and " was evicted and runs again" not in opinion.why:
            assert isinstance(opinion.value, int)
            yield _step(opinion.why, opinion.value)
    for eviction in relief.evictions:
        strategy, step, uid, _ = _step(eviction.why, 0)
        if STRATEGIES[eviction.gate] != strategy or uid != eviction.uid:
            raise Violation(f"an eviction of {uid} for {strategy} says {eviction.gate} of {eviction.uid}")
        yield strategy, step, uid, 0


def _step(why: str, value: int) -> tuple[str, str, str, int]:
    found = _STEP.search(why)
    assert found is not None, why
    return why.partition(":")[0], found[1], found[2], value

"""What holds over any history of a node."""

from __future__ import annotations

import random
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st
from msgspec import structs

from qosd.decide.decision import Opinion
from qosd.decide.relief import CALM_NS, relieve
from qosd.decide.reliefstate import Relief, ReliefState
from qosd.decide.reliefsteps import EVICTIONS_PER_MINUTE, FREEZE_MOST_NS, MEMORY_FLOOR_BYTES
from qosd.decide.shortage import Measure, ReliefStep, ShortageClaim
from qosd.decide.victims import is_pending
from qosd.model.snapshot import EvictionState, NodeSnapshot
from tests.fakes.clock import S
from tests.qosd.decide.relief.threepods import EVICT, FAILED, RECLAIM, RESTARTED, STOPPED, STOPPING
from tests.qosd.decide.scenes import CPU, MEMORY, MIB, Run, be, evicted, lacks, node


class World:
    """A node whose pods use what they use; evictions go as ``luck`` has it."""

    def __init__(self, uses: list[int], luck: random.Random) -> None:
        self.luck, self.now_ns, self.sampled_ns = luck, S, S
        self.pods = {f"p{number}": be(f"p{number}", cpu_request_milli=use) for number, use in enumerate(uses)}
        self.uses = {f"p{number}": use for number, use in enumerate(uses)}
        self.evictions: dict[str, EvictionState] = {}
        self.run = Run()
        self.freezes: dict[str, int] = {}
        self.evicted_ns: list[int] = []
        self.stepped: dict[str, int] = {}
        self.stated: dict[str, int] = {}
        self.steps: dict[str, ReliefStep] = {}

    def snapshot(self, is_known: bool) -> NodeSnapshot:
        pods = list(self.pods.values())
        self.luck.shuffle(pods)
        made = node(
            0,
            pods,
            {name: use * MIB for name, use in self.uses.items()},
            self.uses,
            evictions=self.evictions.values(),
            is_known=is_known,
        )
        return structs.replace(made, monotonic_ns=self.now_ns, sampled_ns=self.sampled_ns)

    def pass_time(self, by_ns: int, samples: bool) -> None:
        self.now_ns += by_ns
        if samples:
            self.sampled_ns = self.now_ns - self.luck.choice([0, S // 10])
        for uid, eviction in list(self.evictions.items()):
            if eviction.phase is STOPPING:
                phase = self.luck.choice([STOPPING, STOPPED, STOPPED, RESTARTED, FAILED])
                self.evictions[uid] = structs.replace(eviction, phase=phase, retry_ns=self.now_ns + 20 * S)
            elif eviction.phase is STOPPED and self.luck.random() < 0.5:
                del self.evictions[uid]
                self.pods.pop(uid, None)

    def carry_out(self, relief: Relief) -> None:
        """Some orders are lost."""
        for eviction in relief.evictions:
            if self.luck.random() < 0.8:
                self.evictions[eviction.uid] = EvictionState(eviction.uid, eviction.pod, STOPPING, 1, self.now_ns, 0)

    def grown(self, claim: ShortageClaim) -> ShortageClaim:
        """What lacks changes from tick to tick."""
        amount = claim.shortage.amount * self.luck.choice([1, 1, 1, 2, 5])
        return structs.replace(claim, shortage=structs.replace(claim.shortage, amount=amount))


def _steps(names: frozenset[ReliefStep], claim: ShortageClaim) -> ShortageClaim:
    return structs.replace(claim, shortage=structs.replace(claim.shortage, steps=names))


SOME = st.builds(
    _steps,
    st.frozensets(st.sampled_from(ReliefStep), min_size=1)
    | st.sampled_from([frozenset(ReliefStep), frozenset({EVICT})]),
    st.builds(
        lacks,
        st.integers(1, 2500),
        st.just(CPU),
        strategy=st.sampled_from(["cpuEvict", "satisfaction"]),
        measure=st.sampled_from(Measure),
    )
    | st.builds(lambda mebibytes: lacks(mebibytes * MIB), st.integers(1, 2500)),
)
CLAIMS = st.lists(SOME, min_size=1, max_size=3, unique_by=lambda claim: claim.key)
OFTEN = st.integers(0, 9).map(lambda number: number > 0)
STATED = st.lists(OFTEN, min_size=3, max_size=3)
PHASE = st.tuples(st.integers(1, 25), STATED, st.sampled_from([1, 2, 2, 2, 9, 40]), OFTEN, OFTEN)
"""So many ticks: which claims are stated, half seconds between ticks, are there new samples, a pod list in force."""
HISTORIES = st.lists(PHASE, min_size=1, max_size=6)


def check_evictions(world: World, there: NodeSnapshot, claims: list[ShortageClaim], relief: Relief) -> None:
    """Nobody under way is ordered again; who was last was needed; the rate is kept."""
    going = {pod.uid for pod in there.pods if is_pending(pod, there)}
    assert not going & set(evicted(relief))
    assert not [uid for uid in evicted(relief) if uid in there.evictions and there.monotonic_ns < _retry(there, uid)]
    units = {claim.strategy: MIB if claim.shortage.resource is MEMORY else 1 for claim in claims}
    amounts = {claim.strategy: claim.shortage.amount for claim in claims}
    before = set(going)
    for claim in claims:
        batch = [each.uid for each in relief.evictions if each.why.startswith(f"{claim.strategy}:")]
        enough = sum(world.uses[uid] * units[claim.strategy] for uid in (*before, *batch[:-1]))
        assert not batch or enough < amounts[claim.strategy], "the last victim was not needed"
        before.update(batch)
    world.evicted_ns += [there.monotonic_ns] * len(relief.evictions)
    recent = [at_ns for at_ns in world.evicted_ns if there.monotonic_ns - at_ns < 60 * S]
    assert len(recent) <= EVICTIONS_PER_MINUTE


def _retry(there: NodeSnapshot, uid: str) -> int:
    return there.evictions[uid].retry_ns


def check_freezes(world: World, there: NodeSnapshot, relief: Relief) -> None:
    frozen = {opinion.pod for target, opinion in relief.opinions.items() if target.name == "cgroup.freeze"}
    world.freezes = {pod: world.freezes.get(pod, there.monotonic_ns) for pod in frozen}
    assert all(there.monotonic_ns - since_ns < FREEZE_MOST_NS for since_ns in world.freezes.values())


def check_stillness(before: ReliefState, relief: Relief) -> None:
    """Nothing is held that was not, or lower; where a bound ends with its episode, one that it hid may show."""
    for target, opinion in relief.opinions.items():
        assert bound(opinion) >= bound(before.opinions[target])


def bound(opinion: Opinion) -> int:
    assert isinstance(opinion.value, int)
    return opinion.value


def check_size(world: World, there: NodeSnapshot, relief: Relief) -> None:
    """What is remembered is of pods that are there and of claims that were stated lately."""
    state, pods = world.run.state, {pod.uid for pod in there.pods}
    held = {uid for episode in state.episodes.values() for uid in episode.throttles}
    assert held | state.freezes.keys() | state.victims.keys() | state.pending <= pods
    assert len(state.episodes) <= 3 and len(state.evicted_ns) <= EVICTIONS_PER_MINUTE
    assert len(relief.opinions) <= 3 * len(pods)
    for target, opinion in relief.opinions.items():
        floors = {"cpu_quota": 1000, "memory.high": MEMORY_FLOOR_BYTES, "cgroup.freeze": 1}
        assert isinstance(opinion.value, int) and opinion.value >= floors[target.name]


def check_samples(world: World, there: NodeSnapshot, fresh: set[tuple[str, str]], relief: Relief) -> None:
    """Nobody steps twice on the same samples, or on such as are not newer than a batch."""
    for who in {who for who, _ in fresh}:
        assert there.sampled_ns > world.stepped.get(who, 0)
        world.stepped[who] = there.sampled_ns
    if fresh:
        assert all(there.sampled_ns > at_ns for at_ns in world.evicted_ns if at_ns < there.monotonic_ns)


def check_once(world: World, there: NodeSnapshot, claims: list[ShortageClaim], fresh: set[tuple[str, str]]) -> None:
    """In one episode a claim takes each mild step at most once, and in their order."""
    for who in [who for who, at_ns in world.stated.items() if there.monotonic_ns - at_ns >= CALM_NS]:
        del world.stated[who], world.steps[who]
    for claim in claims:
        world.stated[claim.strategy] = there.monotonic_ns
        world.steps.setdefault(claim.strategy, RECLAIM)
    for who, step_name in fresh:
        step = ReliefStep[step_name.upper()]
        assert step >= world.steps[who]
        world.steps[who] = EVICT if step is EVICT else ReliefStep(step + 1)


def fresh_steps(before: ReliefState, after: ReliefState, relief: Relief) -> set[tuple[str, str]]:
    """Who takes which steps at this tick, as the reasons say it."""
    whys = reasons(after) - reasons(before)
    whys |= {shot.why for shot in relief.one_shots} | {eviction.why for eviction in relief.evictions}
    return {(why.partition(":")[0], why.rpartition("); ")[2].partition(":")[0]) for why in whys}


def reasons(state: ReliefState) -> set[str]:
    """Of all throttles, also of those that a lower bound hides, and of all freezes."""
    throttles = {throttle.why for episode in state.episodes.values() for throttle in episode.throttles.values()}
    return throttles | {freeze.opinion.why for freeze in state.freezes.values()}


ALL_RUNGS = [_steps(frozenset(ReliefStep), lacks(MIB))]
STATES, IS_CALM = [True, False, False], [False, False, False]


@example([1], ALL_RUNGS, [(1, STATES, 1, False, True), (2, IS_CALM, 40, False, True), (1, STATES, 1, False, True)], 0)
@example([1], ALL_RUNGS, [(1, STATES, 1, False, True), (2, IS_CALM, 40, False, False), (1, STATES, 1, True, True)], 0)
@given(st.lists(st.integers(0, 1500), min_size=1, max_size=30), CLAIMS, HISTORIES, st.integers(0, 2**32))
def test_any_history(uses: list[int], all_claims: list[ShortageClaim], history: list[Any], seed: int) -> None:
    world = World(uses, random.Random(seed))
    for stated, halves, samples, is_known in (tick for count, *tick in history for _ in range(count)):
        claims = [world.grown(claim) for claim, is_stated in zip(all_claims, stated, strict=False) if is_stated]
        there = world.snapshot(is_known)
        before = world.run.state
        relief = world.run.tick(there, *claims)
        twin = structs.replace(there, pods=tuple(reversed(there.pods)))
        assert relieve(tuple(claims), twin, before)[0] == relief
        if not is_known:
            assert not relief.evictions and not relief.one_shots
            check_stillness(before, relief)
        else:
            check_size(world, there, relief)
        fresh = fresh_steps(before, world.run.state, relief)
        check_evictions(world, there, claims, relief)
        check_samples(world, there, fresh, relief)
        check_once(world, there, claims, fresh)
        check_freezes(world, there, relief)
        if relief.opinions == before.opinions:
            assert relief.opinions is before.opinions
        world.carry_out(relief)
        world.pass_time(halves * S // 2, samples)
    world.pass_time(CALM_NS, True)
    there = world.snapshot(True)
    quiet = world.run.tick(there)
    held = {opinion.pod.removeprefix("default/") for opinion in quiet.opinions.values()}
    assert held <= {uid for uid, each in there.evictions.items() if each.phase is RESTARTED}
    world.evictions.clear()
    world.pass_time(60 * S, True)
    assert not world.run.tick(world.snapshot(True)).opinions
    assert world.run.state.is_empty

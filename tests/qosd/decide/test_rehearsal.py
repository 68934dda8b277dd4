"""Relief as a rehearsal: the same steps, none of them taken, each pod named once."""

from __future__ import annotations

import dataclasses

from msgspec import structs

from koord.host.evictions import EVICTION
from qosd.decide.decision import NO_OPINIONS, Decision, Stage
from qosd.decide.rehearsal import Rehearsed
from qosd.decide.reliefstate import Relief
from qosd.decide.runner import NO_STATES, Decisions, StrategyResult, StrategyStates, StrategyStatus, with_relief
from qosd.decide.shortage import ReliefStep, ShortageClaim
from qosd.model.snapshot import EvictionPhase, NodeSnapshot
from tests.qosd.decide.scenes import MEMORY, MIB, WHO, be, evicted, lacks, node, under_way

RECLAIM, THROTTLE, FREEZE, EVICT = ReliefStep
USES = {"a": 300 * MIB, "b": 200 * MIB, "c": 100 * MIB}
PODS = [be(name) for name in USES]


def at(at_s: float, is_rehearsal: bool = True, **said: object) -> NodeSnapshot:
    there = node(at_s, PODS, USES, **said)  # type: ignore[arg-type]
    policy = dataclasses.replace(there.policy.node, eviction_dry_run=is_rehearsal)
    return structs.replace(there, policy=dataclasses.replace(there.policy, node=policy))


class Run:
    """Ticks one after another, through the frame."""

    def __init__(self) -> None:
        self.states: StrategyStates = NO_STATES

    def tick(self, there: NodeSnapshot, *claims: ShortageClaim) -> Relief:
        stated = Decision("", shortages=tuple(claim.shortage for claim in claims))
        results = (StrategyResult(WHO, Stage.RELIEF, StrategyStatus.ACTIVE, stated),)
        decisions, self.states = with_relief(there, Decisions(1, 0, there.monotonic_ns, results), {}, self.states)
        relief = decisions.results[-1].decision
        assert isinstance(relief, Relief)
        return relief


def steps(relief: Relief) -> list[tuple[str, str, object]]:
    """Pod, file and value of what is rehearsed; and that nothing is done."""
    assert (relief.opinions, relief.one_shots, relief.evictions) == (NO_OPINIONS, (), ())
    acts = [act for act in relief.acts if isinstance(act, Rehearsed)]
    return [(act.pod.removeprefix("default/"), act.target.name, act.value) for act in acts]


def test_the_way_to_the_end_step_by_step() -> None:
    run, claim = Run(), lacks(200 * MIB)
    relief = run.tick(at(1), claim)
    assert steps(relief) == [("a", "memory.reclaim", 200 * MIB)]
    assert relief.sentence.startswith("dry run, nothing is done: memory: 200 MiB must be freed (memoryEvict: too much)")
    assert steps(run.tick(at(2), claim)) == [], "an order is given once"
    assert steps(run.tick(at(3), claim)) == [("a", "memory.high", 100 * MIB)]
    assert steps(run.tick(at(8), claim)) == [("a", "cgroup.freeze", 1), ("a", "memory.high", 100 * MIB)]
    assert ("a", EVICTION, "stopped") in steps(run.tick(at(13), claim))
    for second in (15, 20, 45):
        assert steps(run.tick(at(second), claim)) == [
            ("a", "memory.high", 100 * MIB),
            ("a", EVICTION, "stopped"),
        ], "it counts as about to go, so nobody is named twice, and nobody else"


def test_a_greater_need_names_more() -> None:
    run = Run()
    assert steps(run.tick(at(1), lacks(200 * MIB, MEMORY, EVICT))) == [("a", EVICTION, "stopped")]
    more = lacks(400 * MIB, MEMORY, EVICT)
    assert steps(run.tick(at(5), more)) == [("a", EVICTION, "stopped"), ("b", EVICTION, "stopped")]


def test_when_the_shortage_is_over_so_is_what_was_rehearsed_of_it() -> None:
    run, claim = Run(), lacks(200 * MIB, MEMORY, EVICT)
    run.tick(at(1), claim)
    assert steps(run.tick(at(30.9)))
    run.tick(at(31))
    assert (steps(run.tick(at(32))), run.tick(at(33)).sentence) == ([], "no shortage")
    assert steps(run.tick(at(70), claim)) == [("a", EVICTION, "stopped")]


def test_so_it_is_of_a_pod_that_had_been_evicted_before() -> None:
    run, claim = Run(), lacks(200 * MIB, MEMORY, EVICT)
    restarted = under_way("a", EvictionPhase.RESTARTED)
    assert ("a", EVICTION, "stopped") in steps(run.tick(at(1, evictions=[restarted]), claim))
    run.tick(at(31, evictions=[restarted]))
    assert ("a", EVICTION, "stopped") not in steps(run.tick(at(32, evictions=[restarted])))


def test_while_nothing_changes_the_very_same_acts_are_returned() -> None:
    run, claim = Run(), lacks(200 * MIB, MEMORY, EVICT)
    first, second = run.tick(at(1), claim), run.tick(at(2), claim)
    assert first.acts is second.acts and first.acts


def test_what_is_under_way_for_real_counts_there_too() -> None:
    run, claim = Run(), lacks(300 * MIB, MEMORY, EVICT)
    assert steps(run.tick(at(1, evictions=[under_way("a", EvictionPhase.STOPPING)]), claim)) == []


def test_what_was_rehearsed_has_not_happened() -> None:
    run, claim = Run(), lacks(200 * MIB, MEMORY, EVICT)
    run.tick(at(1), claim)
    assert evicted(run.tick(at(5, is_rehearsal=False), claim)) == ["a"], "but it counts in the rate"


def test_what_was_in_force_is_let_go_where_a_rehearsal_begins() -> None:
    run, claim = Run(), lacks(200 * MIB, MEMORY, THROTTLE)
    assert run.tick(at(1, is_rehearsal=False), claim).opinions
    assert steps(run.tick(at(2), claim)) == [("a", "memory.high", 100 * MIB)]

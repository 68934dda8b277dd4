"""What the engine does of shortages, rung by rung; then what holds over any history of a node."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from koord.host import files
from koord.host.files import Target
from koord.model.formulas import FORMULA, recompute
from koord.model.qos import QoSClass
from qosd.decide.decision import Op
from qosd.decide.relief import CALM_NS, relieve
from qosd.decide.reliefstate import Relief, ReliefState
from qosd.decide.rungs import (
    CPU_FLOOR_MILLI,
    EVICTIONS_PER_MINUTE,
    FREEZE_MOST_NS,
    FREEZE_WAIT_NS,
    MEMORY_FLOOR_BYTES,
    RECLAIM_WAIT_NS,
    ROWS,
    THROTTLE_WAIT_NS,
)
from qosd.decide.shortage import Claim, Measure, Resource, Rung, Victims
from qosd.decide.victims import is_pending
from qosd.model.metric import Scope
from qosd.model.snapshot import Aggregate, EvictionPhase, EvictionState, NodeSnapshot, PodView, Window
from qosd.sense.usage import USAGE
from tests.fakes.clock import S
from tests.qosd.decide.scenes import (
    CPU,
    FILES_V1,
    FILES_V2,
    GATE,
    MEMORY,
    MIB,
    WHO,
    Run,
    be,
    bounds,
    evicted,
    lacks,
    node,
    orders,
    under_way,
)
from tests.qosd.podviews import EXITED, RUNNING

RECLAIM, THROTTLE, FREEZE, EVICT = Rung
STOPPING, STOPPED, RESTARTED, FAILED = EvictionPhase
A, B, C = be("a"), be("b"), be("c")
USES = {"a": 300 * MIB, "b": 200 * MIB, "c": 100 * MIB}
CPU_USES = {"a": 3000, "b": 2000, "c": 1000}
NEWEST_NS = max(RECLAIM_WAIT_NS, THROTTLE_WAIT_NS, FREEZE_WAIT_NS)


def at(at_s: float, **said: Any) -> NodeSnapshot:
    return node(at_s, [A, B, C], USES, CPU_USES, **said)


# -- one rung at a time


@pytest.mark.parametrize(
    ("amount", "is_v1", "shots"),
    [
        (250 * MIB, False, [("a", "memory.reclaim", 250 * MIB)]),
        (400 * MIB, False, [("a", "memory.reclaim", 300 * MIB), ("b", "memory.reclaim", 100 * MIB)]),
        (300 * MIB, True, [("a", "memory.force_empty", 0)]),
        (301 * MIB, True, [("a", "memory.force_empty", 0), ("b", "memory.force_empty", 0)]),
    ],
)
def test_reclaim(amount: int, is_v1: bool, shots: list[tuple[str, str, int]]) -> None:
    there = at(1, files=FILES_V1, version=1) if is_v1 else at(1)
    relief = Run().tick(there, lacks(amount, MEMORY, RECLAIM))
    assert (orders(relief), dict(relief.opinions), relief.evictions) == (shots, {}, ())


@pytest.mark.parametrize(
    ("cache", "swap", "shots"),
    [
        ({}, 0, []),  # nothing but anonymous memory
        ({"a": 9 * MIB}, 0, []),  # less than an eighth of what lacks
        ({"a": 10 * MIB}, 0, [("a", "memory.reclaim", 10 * MIB)]),
        ({"a": 5 * MIB, "b": 5 * MIB}, 0, [("a", "memory.reclaim", 5 * MIB), ("b", "memory.reclaim", 5 * MIB)]),
        ({"a": 90 * MIB, "b": 70 * MIB}, 0, [("a", "memory.reclaim", 80 * MIB)]),
        ({"a": 90 * MIB, "b": 70 * MIB}, 4 * MIB, [("a", "memory.reclaim", 80 * MIB)]),
        ({}, 10 * MIB, [(name, "memory.reclaim", 10 * MIB) for name in "abc"]),
    ],
)
def test_reclaim_takes_what_the_kernel_can_give_and_is_passed_where_that_is_nothing(
    cache: Mapping[str, int], swap: int, shots: list[tuple[str, str, int]]
) -> None:
    there = node(1, [A, B, C], USES, cache=cache, swap_free=swap)
    assert orders(Run().tick(there, lacks(80 * MIB, MEMORY, RECLAIM))) == shots


@pytest.mark.parametrize("files_there", [FILES_V1, frozenset({"cgroup.freeze"})])
def test_without_memory_high_who_gives_memory_is_held_to_little_cpu(files_there: frozenset[str]) -> None:
    run, claim = Run(), lacks(301 * MIB, MEMORY, THROTTLE, EVICT)
    relief = run.tick(at(1, files=files_there, version=1), claim)
    assert bounds(relief) == {("a/main", "cpu_quota"): 10_000, ("b/main", "cpu_quota"): 10_000}
    assert {opinion.op for opinion in relief.opinions.values()} == {Op.AT_MOST}
    why = next(iter(relief.opinions.values())).why
    assert why.endswith("; without memory.high by its CPU, so that it grows slower")
    assert not run.tick(at(5, files=files_there, version=1), claim).evictions
    relief = run.tick(at(6, files=files_there, version=1), claim)
    assert evicted(relief) == ["a", "b"], "it has freed nothing"
    assert bounds(relief) == {("a/main", "cpu_quota"): 10_000, ("b/main", "cpu_quota"): 10_000}


def test_who_does_not_feel_little_cpu_is_not_held_to_it() -> None:
    there = node(1, [A, B], USES, {"a": CPU_FLOOR_MILLI, "b": CPU_FLOOR_MILLI + 1}, files=FILES_V1, version=1)
    relief = Run().tick(there, lacks(999 * MIB, MEMORY, THROTTLE))
    assert bounds(relief) == {("b/main", "cpu_quota"): 10_000}


@pytest.mark.parametrize(
    ("amount", "values"),
    [
        (50 * MIB, {("a", "memory.high"): 250 * MIB}),
        (284 * MIB, {("a", "memory.high"): MEMORY_FLOOR_BYTES}),
        (300 * MIB, {("a", "memory.high"): MEMORY_FLOOR_BYTES, ("b", "memory.high"): 184 * MIB}),
        (1, {("a", "memory.high"): 300 * MIB - 4096}),
        (
            9999 * MIB,
            {(name, "memory.high"): MEMORY_FLOOR_BYTES for name in "abc"},
        ),
    ],
)
def test_throttle_of_memory(amount: int, values: Mapping[tuple[str, str], int]) -> None:
    relief = Run().tick(at(1), lacks(amount, MEMORY, THROTTLE))
    assert bounds(relief) == values
    assert {opinion.op for opinion in relief.opinions.values()} == {Op.AT_MOST}


PAIR = (("x", RUNNING), ("y", RUNNING), ("z", EXITED))


@pytest.mark.parametrize(
    ("amount", "containers", "quotas"),
    [
        (1000, {"p/x": 1500, "p/y": 500}, {"p/x": 75_000, "p/y": 25_000}),
        (1000, {}, {"p/x": 50_000, "p/y": 50_000}),
        (1000, {"p/x": 1500}, {"p/x": 50_000, "p/y": 50_000}),
        (1000, {"p/x": 2000, "p/y": 0}, {"p/x": 100_000, "p/y": 1000}),
        (9000, {"p/x": 1000, "p/y": 1000}, {"p/x": 5000, "p/y": 5000}),
    ],
)
def test_throttle_of_cpu_bounds_running_containers(
    amount: int, containers: Mapping[str, int], quotas: Mapping[str, int]
) -> None:
    there = node(1, [be("p", containers=PAIR)], cpu={"p": 2000}, containers=containers, files=frozenset())
    relief = Run().tick(there, lacks(amount, CPU, THROTTLE))
    assert bounds(relief) == {(cgroup, "cpu_quota"): value for cgroup, value in quotas.items()}


def test_a_bound_stays_while_its_pod_does_whatever_its_containers_use_now() -> None:
    run, claim = Run(), lacks(2500, CPU, THROTTLE)
    pods = [be(name, containers=PAIR) for name in "pq"]
    shares = {"p/x": 1500, "p/y": 500, "q/x": 1500, "q/y": 500}
    before = run.tick(node(1, pods, cpu={"p": 2000, "q": 2000}, containers=shares), claim)
    renewed = [pods[0], be("q", containers=PAIR)]
    after = run.tick(node(2, renewed, containers={"p/x": 1, "p/y": 1, "q/x": 1, "q/y": 1}), claim)
    assert (
        before.opinions[Target(f"{pods[0].cgroup}/x", "cpu_quota")]
        is after.opinions[Target(f"{pods[0].cgroup}/x", "cpu_quota")]
    )
    assert bounds(before)["q/x", "cpu_quota"] != bounds(after)["q/x", "cpu_quota"]


def test_throttle_follows_containers_that_come_and_go_and_forgets_pods() -> None:
    run = Run()
    claim = lacks(1000, CPU, THROTTLE)
    run.tick(node(1, [be("p")], cpu={"p": 2000}), claim)
    after = run.tick(node(2, [be("p", containers=(("new", RUNNING), ("main", EXITED)))], cpu={"p": 1000}), claim)
    assert bounds(after) == {("p/new", "cpu_quota"): 100_000}
    assert not run.tick(node(3, []), claim).opinions
    assert not run.state.episodes[claim.key].throttles


@pytest.mark.parametrize(
    ("resource", "amount", "frozen"), [(MEMORY, 300 * MIB, "a"), (MEMORY, 301 * MIB, "ab"), (CPU, 5500, "abc")]
)
def test_freeze(resource: Resource, amount: int, frozen: str) -> None:
    relief = Run().tick(at(1), lacks(amount, resource, FREEZE))
    assert bounds(relief) == {(name, "cgroup.freeze"): 1 for name in frozen}
    assert {opinion.op for opinion in relief.opinions.values()} == {Op.SET}


@pytest.mark.parametrize(
    ("amount", "victims"),
    [(1, "a"), (300 * MIB, "a"), (300 * MIB + 1, "ab"), (500 * MIB, "ab"), (9999 * MIB, "abc")],
)
def test_evict_is_the_shortest_prefix_that_covers(amount: int, victims: str) -> None:
    relief = Run().tick(at(1), lacks(amount, MEMORY, EVICT))
    assert "".join(evicted(relief)) == victims
    eviction = relief.evictions[0]
    assert (eviction.pod, eviction.cgroup, eviction.grace_s) == ("default/a", A.cgroup, 0)
    assert eviction.inputs == {"limit": 70}
    assert all(word in eviction.why for word in (WHO, "evict", "too much", str(amount), str(300 * MIB)))


def test_evict_by_request() -> None:
    pods = [be(name, cpu_request_milli=4000) for name in "abc"]
    claim = lacks(6000, CPU, EVICT, measure=Measure.REQUEST)
    assert evicted(Run().tick(node(1, pods, cpu=CPU_USES), claim)) == ["a", "b"]


def test_opinions_name_pod_and_reason_and_a_formula_that_makes_their_value() -> None:
    claims = (
        lacks(99 * MIB, MEMORY, THROTTLE),
        lacks(500, CPU, THROTTLE, strategy="cpuEvict"),
        lacks(9, MEMORY, FREEZE),
    )
    for claim in claims:
        relief = Run().tick(at(1), claim)
        for target, opinion in relief.opinions.items():
            assert target.name in ROWS
            assert opinion.pod == "default/a"
            assert all(word in opinion.why for word in (claim.strategy, "too much", str(claim.shortage.amount)))
            assert opinion.inputs[FORMULA] and recompute(opinion.inputs) == opinion.value
            assert isinstance(opinion.value, int)
            files.row(target.name).check(opinion.value, 2)


# -- the ladder


def test_the_whole_ladder() -> None:
    run, claim = Run(), lacks(200 * MIB)
    assert orders(run.tick(at(1), claim)) == [("a", "memory.reclaim", 200 * MIB)]
    waiting = run.tick(at(2), claim)
    assert not waiting.opinions
    assert "waits for the effect" in waiting.sentence
    assert bounds(run.tick(at(3), claim)) == {("a", "memory.high"): 100 * MIB}
    assert bounds(run.tick(at(7), claim)) == {("a", "memory.high"): 100 * MIB}
    assert bounds(run.tick(at(8), claim)) == {("a", "memory.high"): 100 * MIB, ("a", "cgroup.freeze"): 1}
    assert not run.tick(at(12), claim).evictions
    assert evicted(run.tick(at(13), claim)) == ["a"]


def idle(**said: Any) -> NodeSnapshot:
    """Pods with memory, which do nothing with it."""
    return node(1, [A, B, C], USES, dict.fromkeys("abc", CPU_FLOOR_MILLI), **said)


def test_a_rung_that_serves_nothing_is_passed_at_once() -> None:
    nothing = frozenset[str]()
    started = be("s", containers=(("main", "CONTAINER_CREATED"),))
    for there, claim, opinions, victims in (
        (at(1, files=nothing), lacks(1), 1, []),
        (at(1, files=nothing), lacks(1, CPU), 1, []),
        (at(1), lacks(1, CPU), 1, []),
        (idle(files=nothing), lacks(1), 0, ["a"]),
        (idle(files=frozenset({"memory.reclaim"}), version=1), lacks(1), 0, ["a"]),
        (idle(swap_free=0), lacks(1), 1, []),
        (at(1), lacks(1, MEMORY, FREEZE, EVICT), 1, []),
        (node(1, [started], cpu={"s": 500}, files=nothing), lacks(1, CPU), 0, ["s"]),
        (node(1, [be("s")], cpu={"s": CPU_FLOOR_MILLI}, files=nothing), lacks(1, CPU), 0, ["s"]),
        (node(1, [be("s")], cpu={"s": CPU_FLOOR_MILLI}), lacks(1, CPU), 1, []),
    ):
        relief = Run().tick(there, claim)
        assert (len(relief.opinions), evicted(relief), relief.one_shots) == (opinions, victims, ())


def test_a_rung_is_not_passed_while_there_is_nobody_yet() -> None:
    run, claim = Run(), lacks(1)
    assert "no pod is left to be chosen" in run.tick(node(1, [A]), claim).sentence
    assert orders(run.tick(node(2, [A], USES), claim)) == [("a", "memory.reclaim", 1)]


def test_no_step_without_samples_nor_twice_on_the_same() -> None:
    run, claim = Run(), lacks(400 * MIB, MEMORY, RECLAIM, EVICT)
    assert not run.tick(at(1, sampled_s=0), claim).one_shots
    assert run.tick(at(2, sampled_s=2), claim).one_shots
    late = run.tick(at(9, sampled_s=2), claim)
    assert (late.evictions, late.one_shots) == ((), ())
    assert "waits for newer samples" in late.sentence
    assert evicted(run.tick(at(9.5, sampled_s=9), claim)) == ["a", "b"]


def test_after_a_batch_nobody_is_chosen_before_newer_samples() -> None:
    run, claim = Run(), lacks(1, MEMORY, EVICT)
    assert evicted(run.tick(at(2, sampled_s=1.5), claim)) == ["a"]
    assert not run.tick(at(2.5, sampled_s=1.9), claim, lacks(1, MEMORY, EVICT, strategy="other")).evictions
    assert not run.tick(at(6, sampled_s=2), claim).evictions
    assert evicted(run.tick(at(7, sampled_s=2.1), claim)) == ["a"]  # nobody has carried it out


def test_the_end_of_a_pod_is_to_be_sampled_before_the_next_step() -> None:
    run, claim = Run(), lacks(250 * MIB, MEMORY, EVICT)
    run.tick(at(1), claim)
    going, gone = under_way("a", STOPPING), under_way("a", STOPPED)
    assert not run.tick(at(2, evictions=[going]), claim).evictions
    assert not run.tick(at(5, sampled_s=4.5, evictions=[gone]), claim).evictions
    assert evicted(run.tick(at(6, evictions=[gone]), claim)) == ["b", "c"]


def test_the_end_of_a_pod_that_somebody_else_deletes_is_to_be_sampled_too() -> None:
    """It was going before anything lacked."""
    run, claim, going = Run(), lacks(1, MEMORY, EVICT), be("d", is_going=True)
    run.tick(node(1, [A, going], USES))
    assert not run.tick(at(2), claim).evictions
    assert evicted(run.tick(at(3), claim)) == ["a"]


@pytest.mark.parametrize(
    ("pod_a", "evictions", "amount", "victims"),
    [
        (A, [under_way("a", STOPPING)], 300 * MIB, ""),
        (A, [under_way("a", STOPPING)], 301 * MIB, "b"),
        (be("a", is_going=True), [], 300 * MIB, ""),
        (be("a", is_going=True), [], 301 * MIB, "b"),
        (be("a", qos="LS", is_going=True), [], 300 * MIB, ""),
        (A, [under_way("a", STOPPED)], 1, "b"),
        (A, [under_way("a", FAILED, retry_s=99)], 1, "b"),
        (A, [under_way("a", RESTARTED, retry_s=99)], 1, "b"),
        (A, [under_way("a", FAILED)], 1, "a"),
        (A, [under_way("a", RESTARTED)], 1, "a"),
    ],
)
def test_who_goes_already_counts(pod_a: PodView, evictions: list[EvictionState], amount: int, victims: str) -> None:
    there = node(1, [pod_a, B, C], USES, evictions=evictions)
    assert "".join(evicted(Run().tick(there, lacks(amount, MEMORY, EVICT)))) == victims


@pytest.mark.parametrize(
    ("second", "victims"),
    [
        (lacks(300 * MIB, MEMORY, EVICT, strategy="other"), "a"),
        (lacks(301 * MIB, MEMORY, EVICT, strategy="other"), "ab"),
        (lacks(3000, CPU, EVICT, strategy="other"), "a"),
        (lacks(3001, CPU, EVICT, strategy="other"), "ab"),
        (lacks(1, CPU, EVICT, strategy="other", measure=Measure.REQUEST), "ab"),  # nobody tells a's request
    ],
)
def test_an_eviction_counts_for_every_later_claim(second: Claim, victims: str) -> None:
    pods = [A, be("b", cpu_request_milli=1), C]
    there = node(1, pods, USES, CPU_USES)
    assert "".join(evicted(Run().tick(there, lacks(1, MEMORY, EVICT), second))) == victims


@pytest.mark.parametrize("rung", [RECLAIM, THROTTLE])
def test_a_mild_step_counts_for_other_claims_of_the_resource_until_it_is_measured(rung: Rung) -> None:
    run, first, second = Run(), lacks(9 * MIB, MEMORY, rung), lacks(9 * MIB, MEMORY, rung, EVICT, strategy="other")
    relief = run.tick(at(1), first, second)
    assert len(relief.one_shots) + len(relief.opinions) == 1
    assert "on its way" in relief.sentence
    wait_s = {RECLAIM: RECLAIM_WAIT_NS, THROTTLE: THROTTLE_WAIT_NS}[rung] // S
    assert not run.tick(at(1 + wait_s - 0.5), first, second).one_shots
    later = run.tick(at(1 + wait_s), first, second)
    assert len(later.one_shots) + len(later.opinions) == 1 and not later.evictions


def test_a_mild_step_counts_only_for_what_it_gives() -> None:
    pods = [be(name, cpu_request_milli=500) for name in "ab"]
    there = node(1, pods, USES, CPU_USES)
    of_usage = lacks(500, CPU, EVICT, strategy="other")
    relief = Run().tick(there, lacks(500, CPU, THROTTLE, measure=Measure.REQUEST), of_usage)
    assert evicted(relief) == ["a"]
    relief = Run().tick(there, lacks(1, MEMORY, FREEZE), lacks(1, MEMORY, EVICT, strategy="other"))
    assert evicted(relief) == ["a"], "a frozen pod gives no memory back"


def test_two_claims_freeze_no_more_than_one_would() -> None:
    relief = Run().tick(at(1), lacks(1, MEMORY, FREEZE), lacks(1, MEMORY, FREEZE, strategy="other"))
    assert bounds(relief) == {("a", "cgroup.freeze"): 1}


def test_of_two_bounds_on_a_file_the_lower_is_in_force() -> None:
    run = Run()
    run.tick(at(1), lacks(MIB, MEMORY, THROTTLE))
    relief = run.tick(at(7), lacks(MIB, MEMORY, THROTTLE), lacks(9 * MIB, MEMORY, THROTTLE, strategy="other"))
    assert bounds(relief) == {("a", "memory.high"): 291 * MIB}
    relief = run.tick(at(13), lacks(MIB, MEMORY, THROTTLE), lacks(99 * MIB, MEMORY, THROTTLE, strategy="third"))
    assert bounds(relief) == {("a", "memory.high"): 201 * MIB}


# -- freezes end


def test_a_freeze_ends_by_the_clock_and_is_not_renewed() -> None:
    run, claim = Run(), lacks(1, MEMORY, FREEZE)
    frozen = [bool(run.tick(at(second), claim).opinions) for second in range(1, 40)]
    assert frozen == [second < 1 + FREEZE_MOST_NS // S for second in range(1, 40)]


def test_a_freeze_is_not_renewed_for_another_claim_either() -> None:
    run, first, second = Run(), lacks(1, MEMORY, FREEZE), lacks(1, MEMORY, FREEZE, strategy="other")
    run.tick(at(1), first)
    assert run.tick(at(7), first, second).opinions
    relief = run.tick(at(11), first, second)
    assert ("a", "cgroup.freeze") not in bounds(relief)


def test_a_freeze_ends_even_if_nobody_knows_the_pods() -> None:
    run, claim = Run(), lacks(200 * MIB, MEMORY, FREEZE)
    run.tick(at(1), claim)
    assert run.tick(at(10, is_known=False), claim).opinions
    assert not run.tick(at(11, is_known=False), claim).opinions


@pytest.mark.parametrize(
    ("phase", "since_s", "at_s", "is_frozen"),
    [
        (STOPPING, 6, 6.02, True),
        (STOPPING, 6, 7.99, True),
        (STOPPING, 6, 8, False),
        (STOPPED, 6, 6.02, False),
        (FAILED, 6, 6.02, False),
        (RESTARTED, 6, 6.02, False),
        (STOPPING, 7, 8.99, True),
        (STOPPING, 0.9, 10, True),  # an earlier eviction; this freeze began later
        (STOPPING, 10, 11, False),  # the freeze is over whatever happens
    ],
)
def test_an_evicted_pod_is_killed_before_it_is_thawed(
    phase: EvictionPhase, since_s: float, at_s: float, is_frozen: bool
) -> None:
    """A frozen process of cgroup v1 ends when it is thawed; before it is killed it would go on where it stood."""
    run, claim = Run(), lacks(1, MEMORY, FREEZE, EVICT)
    run.tick(at(1), claim)
    relief = run.tick(at(6), claim)
    assert (evicted(relief), bounds(relief)) == (["a"], {("a", "cgroup.freeze"): 1})
    relief = run.tick(at(at_s, evictions=[under_way("a", phase, since_s=since_s)]), claim)
    assert (("a", "cgroup.freeze") in bounds(relief)) is is_frozen


def test_cpu_of_a_frozen_pod_counts_as_it_was() -> None:
    run, claim = Run(), lacks(3000, CPU, FREEZE, EVICT)
    run.tick(at(1), claim)
    still = node(6, [A, B, C], cpu={**CPU_USES, "a": 0})
    assert evicted(run.tick(still, claim)) == ["a"]


def test_cpu_of_a_throttled_pod_counts_as_it_was() -> None:
    run, claim = Run(), lacks(2500, CPU, THROTTLE, EVICT)
    run.tick(at(1), claim)
    slow = node(6, [A, B, C], cpu={**CPU_USES, "a": 500})
    second = lacks(2001, CPU, EVICT, strategy="other", order=())
    assert evicted(run.tick(slow, second)) == ["a"]


def test_cpu_of_a_thawed_pod_counts_as_it_was_until_it_is_measured() -> None:
    run, claim = Run(), lacks(3000, CPU, FREEZE)
    run.tick(at(1), claim)
    second = lacks(3000, CPU, EVICT, strategy="other")
    thawed = {**CPU_USES, "a": 0}
    assert not run.tick(node(11, [A, B, C], cpu=thawed, sampled_s=10.5), claim).opinions
    assert evicted(run.tick(node(11.5, [A, B, C], cpu=thawed, sampled_s=11.5), second)) == ["a"]
    run = Run()
    run.tick(at(1), claim)
    run.tick(node(11, [A, B, C], cpu=thawed), claim)
    assert evicted(run.tick(node(13, [A, B, C], cpu=thawed), second)) == ["b", "c"]


# -- where it is soon too late


def lately(amount: int, left_s: float | None, *rungs: Rung) -> Claim:
    return lacks(amount, MEMORY, *rungs, left_s=left_s, growth=GROWTH)


GROWTH = Window(USAGE[Scope.POD].memory_usage_bytes, 4.0)


@pytest.mark.parametrize(
    ("left_s", "files_there", "step"),
    [
        (None, FILES_V2, "reclaim"),
        (2, FILES_V2, "reclaim"),
        (1.9, FILES_V2, "throttle"),  # memory.high holds at once
        (0, FILES_V2, "throttle"),
        (2, FILES_V1, "reclaim"),
        (1.9, FILES_V1, "freeze"),  # little CPU holds nobody for sure
        (0, frozenset({"memory.force_empty"}), "evict"),
    ],
)
def test_a_step_that_would_be_felt_too_late_is_passed(
    left_s: float | None, files_there: frozenset[str], step: str
) -> None:
    there = at(1, files=files_there, version=2 if "memory.high" in files_there else 1)
    relief = Run().tick(there, lately(9 * MIB, left_s))
    names = {"memory.high": "throttle", "cpu_quota": "throttle", "cgroup.freeze": "freeze"}
    steps = {names[target.name] for target in relief.opinions}
    steps |= {"reclaim"} if relief.one_shots else set()
    assert steps | ({"evict"} if relief.evictions else set()) == {step}


@pytest.mark.parametrize(
    ("at_s", "left_s", "is_next"), [(2.9, None, False), (3, None, True), (1.5, 1.5, False), (1.5, 1.4, True)]
)
def test_no_effect_is_waited_for_longer_than_there_is_time(at_s: float, left_s: float | None, is_next: bool) -> None:
    run = Run()
    run.tick(at(1), lately(9 * MIB, 60))
    relief = run.tick(at(at_s), lately(9 * MIB, left_s))
    assert bool(relief.opinions) is is_next


def test_newer_samples_are_waited_for_all_the_same() -> None:
    run = Run()
    run.tick(at(1), lately(9 * MIB, 60))
    assert not run.tick(at(1.5, sampled_s=1), lately(9 * MIB, 0)).opinions


@pytest.mark.parametrize(
    ("left_s", "slopes", "frozen"),
    [
        (5, {}, "a"),
        (5, {"a": 9.0, "c": 1 * MIB}, "ac"),  # in ten seconds more than an eighth of what lacks
        (5, {"c": 80 * MIB / 80}, "ac"),
        (5, {"c": 79 * MIB / 80}, "a"),
        (None, {"c": 9 * MIB}, "a"),
    ],
)
def test_whoever_grows_is_stopped_too(left_s: float | None, slopes: Mapping[str, float], frozen: str) -> None:
    """Whose turn it is by its order has nothing to do with who is about to take the rest."""
    growth = {f"{A.cgroup[:-1]}{name}": Aggregate(4, 0.0, 0.0, slope) for name, slope in slopes.items()}
    there = structs.replace(at(1), windows={GROWTH: growth})
    relief = Run().tick(there, lately(80 * MIB, left_s, FREEZE))
    assert bounds(relief) == {(name, "cgroup.freeze"): 1 for name in frozen}


def test_whoever_grows_is_held_to_what_it_has() -> None:
    growth = {C.cgroup: Aggregate(4, 0.0, 0.0, 50.0 * MIB)}
    there = structs.replace(at(1), windows={GROWTH: growth})
    relief = Run().tick(there, lately(80 * MIB, 5, THROTTLE))
    assert bounds(relief) == {("a", "memory.high"): 220 * MIB, ("c", "memory.high"): 100 * MIB}


# -- how often


@pytest.mark.parametrize(("resource", "cool_s"), [(MEMORY, 4), (CPU, 20)])
def test_after_a_round_evictions_for_its_resource_rest(resource: Resource, cool_s: int) -> None:
    run, claim = Run(), lacks(1, resource, EVICT)
    other = lacks(1, CPU if resource is MEMORY else MEMORY, EVICT, strategy="other")
    assert evicted(run.tick(at(1), claim)) == ["a"]
    relief = run.tick(at(1 + cool_s - 0.5), claim)
    assert not relief.evictions
    assert f"evictions for {resource} rest for 0.5 s more" in relief.sentence
    assert evicted(run.tick(at(1 + cool_s - 0.4), claim, other)) == ["a"], "for another resource they do not"
    assert evicted(run.tick(at(1 + cool_s), claim)) == ["a"]


def test_a_rest_keeps_no_other_step_waiting() -> None:
    run, claim = Run(), lacks(1, MEMORY, EVICT)
    run.tick(at(1), claim)
    relief = run.tick(at(2), claim, lacks(9 * MIB, MEMORY, FREEZE, strategy="other"))
    assert ("a", "cgroup.freeze") in bounds(relief)


@pytest.mark.parametrize(("resource", "first_s"), [(MEMORY, 0), (CPU, 20)])
def test_after_the_start_evictions_for_cpu_rest_as_after_a_round(resource: Resource, first_s: int) -> None:
    run, claim = Run(), lacks(1, resource, EVICT)
    run.state = ReliefState()
    at_s = [second for second in range(26) if run.tick(at(100 + second), claim).evictions]
    assert at_s[0] == first_s


def test_what_an_earlier_run_had_under_way_counts_in_the_rate() -> None:
    pods = [be(f"p{number:02}") for number in range(25)]
    uses = {pod.name: 100.0 for pod in pods}
    adopted = [under_way(f"p{number:02}", STOPPING, since_s=90) for number in range(7)]
    run, claim = Run(), lacks(10_000, MEMORY, EVICT)
    run.state = ReliefState()
    assert len(evicted(run.tick(node(100, pods, uses, evictions=adopted), claim))) == 3
    assert not evicted(run.tick(node(149.5, pods, uses, evictions=adopted), claim))
    assert len(evicted(run.tick(node(150, pods, uses, evictions=adopted), claim))) == 7


# -- samples that a claim rests on


@pytest.mark.parametrize(
    ("stated_s", "usage_age_s", "is_step"),
    [(None, None, True), (1.0, None, False), (1.1, None, True), (None, 1.0, False), (None, 0.9, True), (2, 1, False)],
)
def test_a_step_needs_newer_samples_of_all_that_its_claim_rests_on(
    stated_s: float | None, usage_age_s: float | None, is_step: bool
) -> None:
    """A batch is new although one of the collectors failed in it."""
    run = Run()
    run.tick(at(1), lacks(1, MEMORY, RECLAIM, EVICT))
    stated_ns = None if stated_s is None else int(stated_s * S)
    there = at(2, sampled_s=2)
    ages_s = {**there.ages_s, **({} if usage_age_s is None else {"usage": usage_age_s})}
    late = structs.replace(there, ages_s=ages_s, monotonic_ns=2 * S)
    claim = lacks(1, MEMORY, RECLAIM, EVICT, sampled_ns=stated_ns, left_s=0)
    assert bool(run.tick(late, claim).evictions) is is_step


@pytest.mark.parametrize(
    ("eviction", "victims"),
    [
        (under_way("a", STOPPING), ""),
        (under_way("a", STOPPED), ""),
        (under_way("a", RESTARTED, retry_s=31), ""),
        (under_way("a", RESTARTED, retry_s=30), "a"),
        (under_way("a", FAILED, retry_s=31), "b"),
    ],
)
def test_an_evicted_pods_request_counts_as_given_although_it_stays_listed(
    eviction: EvictionState, victims: str
) -> None:
    """Its object stays until somebody deletes it: nobody else goes for what cannot be got from it."""
    pods = [be(name, cpu_request_milli=4000) for name in "abc"]
    there = node(30, pods, cpu=CPU_USES, evictions=[eviction])
    relief = Run().tick(there, lacks(4000, CPU, EVICT, measure=Measure.REQUEST))
    assert "".join(evicted(relief)) == victims


# -- the rate


def test_evictions_a_minute() -> None:
    pods = [be(f"p{number:02}") for number in range(25)]
    uses = {pod.name: 100.0 for pod in pods}
    run, claim = Run(), lacks(10_000, MEMORY, EVICT)
    relief = run.tick(node(1, pods, uses), claim)
    assert len(relief.evictions) == EVICTIONS_PER_MINUTE
    assert "15 pods more would go, but 10 evictions a minute are the most" in relief.sentence
    left, of_others = pods[10:], lacks(100, MEMORY, EVICT, strategy="other")
    for second in (60.8, 60.9):  # on the same samples too
        waiting = run.tick(node(second, left, uses, sampled_s=60.8), claim, of_others)
        assert not waiting.evictions
        assert waiting.sentence.count("10 evictions a minute are the most") == 2
    assert len(run.tick(node(61, left, uses), claim).evictions) == EVICTIONS_PER_MINUTE


# -- episodes


def test_calm() -> None:
    run, claim = Run(), lacks(MIB, MEMORY, RECLAIM, THROTTLE, EVICT)
    run.tick(at(1), claim)
    stands = run.tick(at(3), claim).opinions
    assert run.tick(at(20)).opinions is stands
    relief = run.tick(at(32.9))
    assert relief.opinions is stands
    assert relief.sentence == f"memory: no shortage now ({WHO}): throttling 1 pod"
    relief = run.tick(at(33))
    assert (dict(relief.opinions), relief.sentence, run.state.is_empty) == ({}, "no shortage", True)
    assert run.tick(at(34), claim).one_shots, "the next shortage begins at the first rung"


def test_a_claim_that_comes_back_in_time_goes_on_at_its_rung() -> None:
    run, claim = Run(), lacks(MIB, MEMORY, RECLAIM, THROTTLE, EVICT)
    run.tick(at(1), claim)
    run.tick(at(3), claim)
    run.tick(at(32))
    relief = run.tick(at(32.5), claim)
    assert (evicted(relief), len(relief.opinions)) == (["a"], 1)
    assert run.tick(at(62)).opinions, "calm counts from the last time it was stated"


def test_a_claim_that_comes_back_too_late_begins_anew_even_if_no_tick_was_between() -> None:
    run, claim = Run(), lacks(MIB, MEMORY, THROTTLE, EVICT)
    run.tick(at(1), claim)
    relief = run.tick(at(31), claim)
    assert (evicted(relief), len(relief.opinions)) == ([], 1)


# -- pods that come back


@pytest.mark.parametrize(
    ("resource", "files_there", "values"),
    [
        (CPU, FILES_V2, {("a/main", "cpu_quota"): 10_000}),
        (MEMORY, FILES_V2, {("a", "memory.high"): MEMORY_FLOOR_BYTES}),
        (MEMORY, FILES_V1, {("a/main", "cpu_quota"): 10_000}),
    ],
)
def test_a_pod_that_runs_again_stays_at_the_floor(
    resource: Resource, files_there: frozenset[str], values: Mapping[tuple[str, str], int]
) -> None:
    run, claim = Run(), lacks(1, resource, EVICT)
    run.tick(at(1), claim)
    back = [under_way("a", RESTARTED, since_s=1, retry_s=999)]
    relief = run.tick(at(2, evictions=back, files=files_there))
    assert bounds(relief) == values
    assert bounds(run.tick(at(30, evictions=back, files=files_there))) == values
    assert not run.tick(at(31, evictions=back, files=files_there)).opinions
    other = lacks(1, CPU, EVICT, strategy="other")
    assert not run.tick(at(32, evictions=back, files=files_there), other).opinions
    run.tick(at(70))
    assert run.tick(at(120)).opinions == {} and run.state.is_empty


def test_a_pod_that_runs_again_for_both_claims_is_bounded_for_both() -> None:
    run, back = Run(), [under_way("a", RESTARTED, retry_s=2)]
    run.tick(at(1), lacks(1, MEMORY, EVICT))
    run.tick(at(2, evictions=back), lacks(1, CPU, EVICT, strategy="other"))
    relief = run.tick(at(3, evictions=back))
    assert bounds(relief) == {("a", "memory.high"): MEMORY_FLOOR_BYTES, ("a/main", "cpu_quota"): 10_000}
    assert relief.opinions is run.tick(at(4, evictions=back)).opinions


def test_after_a_restart_of_the_daemon_its_cpu_stays_at_the_floor_until_calm() -> None:
    run, back = Run(), [under_way("a", RESTARTED, retry_s=999)]
    for second, is_bounded in ((1, True), (30, True), (31, False), (40, False)):
        assert bounds(run.tick(at(second, evictions=back))) == ({("a/main", "cpu_quota"): 10_000} if is_bounded else {})
    assert not run.tick(at(41)).opinions and run.state.is_empty


# -- what is said, and what it costs


@pytest.mark.parametrize(
    ("claims", "evictions", "sentence"),
    [
        ((), [], "no shortage"),
        (
            (lacks(7340032),),
            [],
            "memory: 7340032 bytes lack (memoryEvict: too much): reclaiming memory of 1 pod",
        ),
        (
            (lacks(300 * MIB, MEMORY, THROTTLE),),
            [],
            "memory: 314572800 bytes lack (memoryEvict: too much): throttling 2 pods",
        ),
        (
            (lacks(400 * MIB, MEMORY, EVICT),),
            [under_way("a", STOPPING)],
            "memory: 419430400 bytes lack (memoryEvict: too much): evicting 1 pod, 1 eviction under way",
        ),
        (
            (lacks(1, MEMORY, EVICT), lacks(1, CPU, FREEZE, strategy="cpuEvict")),
            [],
            "memory: 1 bytes lack (memoryEvict: too much): evicting 1 pod; "
            "cpu: 1 milli-CPU lack (cpuEvict: too much): what is on its way covers it",
        ),
        (
            (lacks(1, MEMORY, EVICT, victims=Victims(frozenset({QoSClass.LSE}), GATE)),),
            [],
            "memory: 1 bytes lack (memoryEvict: too much): no pod is left to be chosen",
        ),
    ],
)
def test_sentence(claims: tuple[Claim, ...], evictions: list[EvictionState], sentence: str) -> None:
    assert Run().tick(at(1, evictions=evictions), *claims).sentence == sentence


def test_without_a_pod_list_in_force_nobody_is_chosen_and_all_stays() -> None:
    run, claim = Run(), lacks(MIB, MEMORY, THROTTLE, EVICT)
    assert not run.tick(at(1, is_known=False), claim).opinions
    stands = run.tick(at(2), claim).opinions
    for second in (8, 30, 90):
        relief = run.tick(at(second, is_known=False))
        assert relief.opinions is stands and stands
        assert "nobody can tell which pods run" in relief.sentence
    assert not run.tick(at(91)).opinions


def test_before_anybody_knows_the_kernels_files_nobody_is_chosen() -> None:
    """A daemon that starts before kubelet has its cgroups would take every mild step for impossible, and evict."""
    run, claim, now = Run(), lacks(MIB, MEMORY), at(1)
    host = dataclasses.replace(now.rules.host, files=None)
    relief = run.tick(structs.replace(now, rules=dataclasses.replace(now.rules, host=host)), claim)
    assert (relief.opinions, relief.one_shots, relief.evictions) == ({}, (), ())
    assert relief.sentence.startswith("nobody can tell what this kernel can do")
    assert run.tick(at(2), claim).one_shots


def test_nothing_costs_nothing() -> None:
    first, state = relieve((), at(1), ReliefState())
    second, again = relieve((), at(2), state)
    assert first is second
    assert state is again and state.is_empty


# -- any history


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
        self.rungs: dict[str, Rung] = {}

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

    def grown(self, claim: Claim) -> Claim:
        """What lacks changes from tick to tick."""
        amount = claim.shortage.amount * self.luck.choice([1, 1, 1, 2, 5])
        return structs.replace(claim, shortage=structs.replace(claim.shortage, amount=amount))


def _rungs(names: frozenset[Rung], claim: Claim) -> Claim:
    return structs.replace(claim, shortage=structs.replace(claim.shortage, rungs=names))


SOME = st.builds(
    _rungs,
    st.frozensets(st.sampled_from(Rung), min_size=1) | st.sampled_from([frozenset(Rung), frozenset({EVICT})]),
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


def check_evictions(world: World, there: NodeSnapshot, claims: list[Claim], relief: Relief) -> None:
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


def check_once(world: World, there: NodeSnapshot, claims: list[Claim], fresh: set[tuple[str, str]]) -> None:
    """In one episode a claim takes each mild rung at most once, and in their order."""
    if there.knows_pods:
        ended = [who for who, at_ns in world.stated.items() if there.monotonic_ns - at_ns >= CALM_NS]
        for who in ended:
            del world.stated[who], world.rungs[who]
    for claim in claims:
        world.stated[claim.strategy] = there.monotonic_ns
        world.rungs.setdefault(claim.strategy, RECLAIM)
    for who, rung_name in fresh:
        rung = Rung[rung_name.upper()]
        assert rung >= world.rungs[who]
        world.rungs[who] = EVICT if rung is EVICT else Rung(rung + 1)


def fresh_steps(before: ReliefState, after: ReliefState, relief: Relief) -> set[tuple[str, str]]:
    """Who takes which rungs at this tick, as the reasons say it."""
    whys = reasons(after) - reasons(before)
    whys |= {shot.why for shot in relief.one_shots} | {eviction.why for eviction in relief.evictions}
    return {(why.partition(":")[0], why.rpartition("); ")[2].partition(":")[0]) for why in whys}


def reasons(state: ReliefState) -> set[str]:
    """Of all throttles, also of those that a lower bound hides, and of all freezes."""
    throttles = {throttle.why for episode in state.episodes.values() for throttle in episode.throttles.values()}
    return throttles | {freeze.opinion.why for freeze in state.freezes.values()}


@given(st.lists(st.integers(0, 1500), min_size=1, max_size=30), CLAIMS, HISTORIES, st.integers(0, 2**32))
def test_any_history(uses: list[int], all_claims: list[Claim], history: list[Any], seed: int) -> None:
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
            assert relief.opinions.items() <= before.opinions.items()
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

"""From step to step: when the next one is taken, and what a step that is under way counts for."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from qosd.decide.reliefsteps import CPU_FLOOR_MILLI, RECLAIM_WAIT_NS, THROTTLE_WAIT_NS
from qosd.decide.shortage import Measure, ReliefStep, ShortageClaim
from qosd.model.snapshot import EvictionState, NodeSnapshot, PodView
from tests.fakes.clock import S
from tests.qosd.decide.relief.threepods import (
    CPU_USES,
    EVICT,
    FAILED,
    FREEZE,
    RECLAIM,
    RESTARTED,
    STOPPED,
    STOPPING,
    THROTTLE,
    USES,
    A,
    B,
    C,
    at,
)
from tests.qosd.decide.scenes import CPU, MEMORY, MIB, Run, be, bounds, evicted, lacks, node, orders, under_way


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
def test_an_eviction_counts_for_every_later_claim(second: ShortageClaim, victims: str) -> None:
    pods = [A, be("b", cpu_request_milli=1), C]
    there = node(1, pods, USES, CPU_USES)
    assert "".join(evicted(Run().tick(there, lacks(1, MEMORY, EVICT), second))) == victims


@pytest.mark.parametrize("step", [RECLAIM, THROTTLE])
def test_a_mild_step_counts_for_other_claims_of_the_resource_until_it_is_measured(step: ReliefStep) -> None:
    run, first, second = Run(), lacks(9 * MIB, MEMORY, step), lacks(9 * MIB, MEMORY, step, EVICT, strategy="other")
    relief = run.tick(at(1), first, second)
    assert len(relief.one_shots) + len(relief.opinions) == 1
    assert "on its way" in relief.sentence
    wait_s = {RECLAIM: RECLAIM_WAIT_NS, THROTTLE: THROTTLE_WAIT_NS}[step] // S
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

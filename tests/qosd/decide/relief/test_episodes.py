"""Calm, claims that come back, and pods that run again after their eviction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from msgspec import structs

from qosd.decide.reliefstate import ReliefState
from qosd.decide.reliefsteps import MEMORY_FLOOR_BYTES
from qosd.decide.shortage import Resource, ShortageClaim
from qosd.model.snapshot import NodeSnapshot
from tests.fakes.clock import S
from tests.qosd.decide.relief.threepods import EVICT, RECLAIM, RESTARTED, THROTTLE, at
from tests.qosd.decide.scenes import CPU, FILES_V1, FILES_V2, MEMORY, MIB, WHO, Run, bounds, evicted, lacks, under_way


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
    assert run.tick(at(34), claim).one_shots, "the next shortage begins at the first step"


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
    run.state = ReliefState(started_ns=1 * S)
    for second, is_bounded in ((1, True), (30, True), (31, False), (40, False)):
        assert bounds(run.tick(at(second, evictions=back))) == ({("a/main", "cpu_quota"): 10_000} if is_bounded else {})
    assert not run.tick(at(41)).opinions and run.state.is_empty


@pytest.mark.parametrize(
    ("claims", "values"),
    [
        ((), {}),
        ((lacks(1, MEMORY, EVICT),), {("b", "memory.high"): MEMORY_FLOOR_BYTES}),
        ((lacks(1, CPU, EVICT),), {("b/main", "cpu_quota"): 10_000}),
        (
            (lacks(1, MEMORY, EVICT), lacks(1, CPU, EVICT, strategy="other")),
            {("b", "memory.high"): MEMORY_FLOOR_BYTES, ("b/main", "cpu_quota"): 10_000},
        ),
    ],
)
def test_the_next_pod_of_a_controller_stays_at_the_floor_of_all_that_lacks(
    claims: Sequence[ShortageClaim], values: Mapping[tuple[str, str], int]
) -> None:
    run = Run()
    back = [structs.replace(under_way("b", RESTARTED, since_s=1, retry_s=999), is_replacement=True)]
    for second in (1, 2):
        assert bounds(run.tick(at(second, evictions=back, sampled_s=0), *claims)) == values
    assert bounds(run.tick(at(31.9, evictions=back))) == values
    assert not run.tick(at(32, evictions=back)).opinions


@pytest.mark.parametrize("known", ["pods", "files"])
def test_what_was_bounded_ends_by_the_clock_although_nobody_can_tell_of_pods(known: str) -> None:
    run, claim = Run(), lacks(MIB, MEMORY, THROTTLE, EVICT)
    stands = run.tick(at(1), claim).opinions
    assert stands

    def blind(second: float) -> NodeSnapshot:
        there = at(second, is_known=known != "pods")
        host = replace(there.policy.host, files=None if known == "files" else there.policy.host.files)
        return structs.replace(there, policy=replace(there.policy, host=host))

    assert run.tick(blind(30.9)).opinions is stands
    assert not run.tick(blind(31)).opinions


def test_a_floor_ends_by_the_clock_although_nobody_can_tell_of_pods() -> None:
    run, claim = Run(), lacks(1, CPU, EVICT)
    run.tick(at(1), claim)
    back = [under_way("a", RESTARTED, since_s=1, retry_s=999)]
    assert run.tick(at(2, evictions=back)).opinions
    assert not run.tick(at(31, evictions=back, is_known=False)).opinions

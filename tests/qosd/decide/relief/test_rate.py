"""How often pods are evicted."""

from __future__ import annotations

import pytest

from qosd.decide.reliefstate import ReliefState
from qosd.decide.reliefsteps import EVICTIONS_PER_MINUTE
from qosd.decide.shortage import Resource
from tests.qosd.decide.relief.threepods import EVICT, FREEZE, STOPPING, at
from tests.qosd.decide.scenes import CPU, MEMORY, MIB, Run, be, bounds, evicted, lacks, node, under_way


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

"""A freeze ends, whatever happens; what a held pod used counts meanwhile."""

from __future__ import annotations

import pytest

from qosd.decide.reliefsteps import FREEZE_MOST_NS
from qosd.model.snapshot import EvictionPhase
from tests.fakes.clock import S
from tests.qosd.decide.relief.threepods import (
    CPU_USES,
    EVICT,
    FAILED,
    FREEZE,
    RESTARTED,
    STOPPED,
    STOPPING,
    THROTTLE,
    A,
    B,
    C,
    at,
)
from tests.qosd.decide.scenes import CPU, MEMORY, MIB, Run, bounds, evicted, lacks, node, under_way


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

"""Steps that are passed, and pods that are stopped, where it is soon too late."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from msgspec import structs

from qosd.decide.shortage import ReliefStep, ShortageClaim
from qosd.model.metric import Scope
from qosd.model.snapshot import Aggregate, NodeSnapshot, Window
from qosd.sense.usage import USAGE
from tests.qosd.decide.relief.threepods import EVICT, FREEZE, THROTTLE, A, C, at
from tests.qosd.decide.scenes import FILES_V1, FILES_V2, MEMORY, MIB, Run, bounds, evicted, lacks


def lately(amount: int, left_s: float | None, *steps: ReliefStep) -> ShortageClaim:
    return lacks(amount, MEMORY, *steps, left_s=left_s, growth=GROWTH)


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
        (1.9, frozenset({"cgroup.freeze"}), "freeze"),
        (0, frozenset({"memory.force_empty"}), "evict"),
    ],
)
def test_a_step_that_would_be_felt_too_late_is_passed(
    left_s: float | None, files_there: frozenset[str], step: str
) -> None:
    there = at(1, files=files_there, version=2 if "memory.high" in files_there else 1)
    there = structs.replace(there, windows={GROWTH: {A.cgroup: Aggregate(4, 0.0, 0.0, 1.0 * MIB)}})
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
        (5, {}, ""),
        (5, {"a": 9.0, "c": 1 * MIB}, "c"),  # in ten seconds more than an eighth of what lacks
        (5, {"c": 80 * MIB / 80}, "c"),
        (5, {"c": 79 * MIB / 80}, ""),
        (None, {"c": 9 * MIB, "b": 9 * MIB}, "bc"),
        (None, {"c": -9 * MIB}, ""),
        (None, {}, ""),
    ],
)
def test_only_who_grows_is_frozen_for_memory(left_s: float | None, slopes: Mapping[str, float], frozen: str) -> None:
    """A freeze frees nothing: whose turn it is by its order has nothing to do with who is about to take the rest."""
    relief = Run().tick(growing(1, slopes), lately(80 * MIB, left_s, FREEZE))
    assert bounds(relief) == {(name, "cgroup.freeze"): 1 for name in frozen}
    assert ("none of them grows, so none is frozen: nobody is evicted for 5 s" in relief.sentence) is (not frozen)


@pytest.mark.parametrize(
    ("slopes", "held"), [({}, ""), ({"c": 9 * MIB}, "c"), ({"a": 9 * MIB, "b": 9 * MIB, "c": -9 * MIB}, "ab")]
)
def test_without_memory_high_only_who_grows_is_held_to_little_cpu(slopes: Mapping[str, float], held: str) -> None:
    relief = Run().tick(growing(1, slopes, files=FILES_V1, version=1), lately(80 * MIB, None, THROTTLE))
    assert {name for name, _ in bounds(relief)} == {f"{name}/main" for name in held}


def test_where_nobody_grows_the_shortage_has_as_long_to_pass_as_a_freeze_would_take() -> None:
    run, claim = Run(), lately(80 * MIB, None, FREEZE, EVICT)
    assert not [run.tick(at(at_s), claim).evictions for at_s in (1, 2, 5.9)][-1]
    assert evicted(run.tick(at(6), claim)) == ["a"]
    assert evicted(Run().tick(at(1), lately(80 * MIB, 4, FREEZE, EVICT))) == ["a"], "it is not waited for in a hurry"


def growing(at_s: float, slopes: Mapping[str, float], **said: Any) -> NodeSnapshot:
    growth = {f"{A.cgroup[:-1]}{name}": Aggregate(4, 0.0, 0.0, slope) for name, slope in slopes.items()}
    return structs.replace(at(at_s, **said), windows={GROWTH: growth})


def test_whoever_grows_is_held_to_what_it_has() -> None:
    growth = {C.cgroup: Aggregate(4, 0.0, 0.0, 50.0 * MIB)}
    there = structs.replace(at(1), windows={GROWTH: growth})
    relief = Run().tick(there, lately(80 * MIB, 5, THROTTLE))
    assert bounds(relief) == {("a", "memory.high"): 220 * MIB, ("c", "memory.high"): 100 * MIB}

"""A slice of the simulation, and what shows that it can fail: `make simulate-proxy` runs more of it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hpack.exceptions import HPACKError

from tests.runtimeproxy.simulation.call import Violation
from tests.runtimeproxy.simulation.life import guarded
from tests.runtimeproxy.simulation.mutants import MUTANTS
from tests.runtimeproxy.simulation.raw import life_of
from tests.runtimeproxy.simulation.soak import lives, quiet
from tests.support.mutants import Mutant, mutated

pytestmark = pytest.mark.exhaustive

STEPS = 25_000
STEPS_TO_A_FAULT = 1_000_000


@pytest.mark.parametrize("seed", range(1, 5))
def test_no_rule_is_broken(seed: int, record_property: Callable[[str, object], None]) -> None:
    result = lives(seed, STEPS)
    record_property("count", f"simulated relay: {result.told()}")
    assert result.failure is None, result.failure.told()
    assert result.steps >= STEPS


@pytest.mark.parametrize("mutant", MUTANTS, ids=[mutant.name for mutant in MUTANTS])
def test_the_simulation_finds_that(mutant: Mutant) -> None:
    with mutated(mutant):
        result = lives(1, STEPS_TO_A_FAULT)
    assert result.failure is not None, f"not found in {result.steps} steps"
    assert isinstance(result.failure.error, Violation | HPACKError)


@pytest.mark.parametrize("seed", range(20, 23))
def test_a_seed_gives_the_same_life_again_and_its_trace_too(seed: int) -> None:
    with quiet():
        first, second, third = life_of(seed), life_of(seed), life_of(seed)
        assert guarded(first, first.run) is None
        assert guarded(second, second.run) is None
        assert guarded(third, lambda: third.replay(first.trace)) is None
    assert first.trace == second.trace == third.trace
    assert first.counts == second.counts
    assert [vars_of(call) for call in first.calls] == [vars_of(c) for c in second.calls]


def vars_of(call: object) -> list[object]:
    return [repr(getattr(call, name)) for name in call.__slots__]  # type: ignore[attr-defined]


def test_a_failure_is_told_with_its_seed_and_a_short_way_to_it() -> None:
    mutant = next(each for each in MUTANTS if each.name == "END_STREAM is lost")
    with mutated(mutant), quiet():
        result = lives(1, STEPS_TO_A_FAULT)
        assert result.failure is not None
        told = result.failure.told().splitlines()
    assert told[0].startswith(f"life {result.failure.seed}: Violation: waiting although everything was delivered")
    assert len(told) - 2 < len(result.failure.trace)

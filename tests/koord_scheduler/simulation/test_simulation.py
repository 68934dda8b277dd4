"""A slice of the simulation, and what shows that it can fail: ``make soak-scheduler`` runs more of it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.koord_scheduler.simulation.mutants import MUTANTS
from tests.koord_scheduler.simulation.soak import lives
from tests.support.mutants import Mutant, mutated

pytestmark = pytest.mark.exhaustive

STEPS = 6000
STEPS_TO_A_FAULT = 60_000


@pytest.mark.parametrize("seed", range(1, 3))
def test_no_rule_is_broken(seed: int, record_property: Callable[[str, object], None]) -> None:
    result = lives(seed, STEPS)
    record_property("count", f"simulated scheduler: {result.steps} steps, {result.summary()}")
    assert not result.failure
    assert result.steps == STEPS and result.counts["events Scheduled"]


@pytest.mark.parametrize("mutant", MUTANTS, ids=[mutant.name for mutant in MUTANTS])
def test_the_simulation_finds_that(mutant: Mutant) -> None:
    with mutated(mutant):
        result = lives(1, STEPS_TO_A_FAULT)
    assert result.failure, f"not found in {result.steps} steps"
    assert "Violation" in result.failure


def test_a_seed_gives_the_same_life_again() -> None:
    first, second = (lives(7, 2000) for _ in range(2))
    assert first.counts == second.counts and first.counts["pods created"]

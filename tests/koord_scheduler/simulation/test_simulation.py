"""A slice of the simulation, and what shows that it can fail: ``make soak-scheduler`` runs more of it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.koord_scheduler.simulation.kinds import KINDS, Kind
from tests.koord_scheduler.simulation.mutants import MUTANTS
from tests.koord_scheduler.simulation.soak import lives
from tests.support.mutants import Mutant, mutated

pytestmark = pytest.mark.exhaustive

STEPS = 1500
STEPS_TO_A_FAULT = 40_000


@pytest.mark.parametrize("kind", KINDS, ids=[kind.name for kind in KINDS])
def test_no_rule_is_broken(kind: Kind, record_property: Callable[[str, object], None]) -> None:
    result = lives(1, STEPS, kind)
    record_property("count", f"simulated scheduler: {result.steps} steps, {result.summary()}")
    assert not result.failure
    assert result.steps == STEPS and result.counts["events Scheduled"]


@pytest.mark.parametrize(("kind", "mutant"), MUTANTS, ids=[mutant.name for _, mutant in MUTANTS])
def test_the_simulation_finds_that(kind: Kind, mutant: Mutant) -> None:
    with mutated(mutant):
        result = lives(1, STEPS_TO_A_FAULT, kind)
    assert result.failure, f"not found in {result.steps} steps"
    assert "Violation" in result.failure


def test_a_seed_gives_the_same_life_again() -> None:
    first, second = (lives(7, 2000) for _ in range(2))
    assert first.counts == second.counts and first.counts["pods created"]

"""Slices of the eviction model; ``make soak-eviction`` runs more of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.qosd.eviction.life import Life
from tests.qosd.eviction.soak import lives

pytestmark = pytest.mark.exhaustive

STEPS = 2000


@pytest.mark.parametrize("seed", range(1, 4))
def test_no_rule_is_broken(seed: int, record_property: Callable[[str, object], None]) -> None:
    result = lives(seed, STEPS)
    record_property("count", f"eviction model: {result.steps} node steps, {result.counts['evicts']} evictions")
    assert not result.failure
    assert result.steps == STEPS and result.counts["evicts"] and result.counts["freezes"]


@settings(max_examples=60)
@given(st.randoms(use_true_random=False), st.integers(1, 25))
def test_no_small_history_breaks_a_rule(chance: Random, steps: int) -> None:
    """Whatever happens, chosen by whoever looks for the smallest history that does."""
    Life(chance, Counter()).run(steps)


def test_a_seed_gives_the_same_life_again() -> None:
    first, second = (lives(7, 600) for _ in range(2))
    assert first.counts == second.counts and first.counts["pods that came"]

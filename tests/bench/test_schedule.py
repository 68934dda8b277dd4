"""The open loop's plan: when which socket is called."""

from __future__ import annotations

import statistics
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.schedule import TURN_S, schedule

SIDES = st.lists(st.text("abc", min_size=1, max_size=3), min_size=1, max_size=4, unique=True)


@given(SIDES, st.floats(0.1, 5), st.floats(1, 500), st.integers(0, 9))
def test_every_round_has_every_side_once(sides: list[str], seconds: float, rate_per_s: float, seed: int) -> None:
    turns = schedule(sides, seconds, rate_per_s, seed)
    rounds = [turns[start : start + len(sides)] for start in range(0, len(turns), len(sides))]
    assert len(rounds) == max(1, round(seconds / TURN_S))
    assert all(sorted(turn.side for turn in each) == sorted(sides) for each in rounds)


@given(st.floats(0.5, 500), st.integers(0, 9))
def test_instants_rise_and_every_turn_has_one(rate_per_s: float, seed: int) -> None:
    for turn in schedule(["a", "b"], 3, rate_per_s, seed):
        assert turn.due_us
        assert all(before < after for before, after in pairwise((0, *turn.due_us)))
        assert all(instant < TURN_S * 1e6 for instant in turn.due_us[1:])


def test_calls_are_as_many_as_the_rate_says_and_as_irregular_as_poisson_s() -> None:
    gaps_us = [after - before for turn in schedule(["a"], 200, 200) for before, after in pairwise(turn.due_us)]
    assert len(gaps_us) == pytest.approx(200 * 200, rel=0.03)
    assert statistics.mean(gaps_us) == pytest.approx(5_000, rel=0.05)
    assert statistics.stdev(gaps_us) == pytest.approx(5_000, rel=0.1)


def test_order_varies_between_rounds_and_a_seed_gives_it_again() -> None:
    turns = schedule(["a", "b", "c"], 20, 50)
    firsts = {turn.side for turn in turns[::3]}
    assert firsts == {"a", "b", "c"}
    assert turns == schedule(["a", "b", "c"], 20, 50)
    assert turns != schedule(["a", "b", "c"], 20, 50, seed=2)

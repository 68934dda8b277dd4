"""What is shown shrinks at once and grows by averages."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koord.overcommit.amounts import CPUMemory
from koord.overcommit.publish import Averaged, GrowthState, grow

TENTH = Fraction(1, 10)
NEVER = GrowthState()


def both(amount: int | None) -> CPUMemory | None:
    return None if amount is None else CPUMemory(amount, amount)


@pytest.mark.parametrize(
    ("shown", "averaged", "fresh", "held_s", "is_due", "result"),
    [
        pytest.param(None, 50, None, None, False, 50, id="appears"),
        pytest.param(None, 50, 40, None, False, 40, id="appears at the lower one"),
        pytest.param(50, None, 40, None, False, None, id="removed without an averaged report"),
        pytest.param(None, None, None, None, False, None, id="stays away"),
        pytest.param(100, 89, None, None, False, 89, id="shrinks by averages"),
        pytest.param(100, 120, 89, None, False, 89, id="shrinks by the fresh one"),
        pytest.param(100, 90, 90, None, False, 100, id="a tenth is not enough"),
        pytest.param(100, 90, 95, None, True, 90, id="unless a write is due"),
        pytest.param(100, 111, 120, None, False, 111, id="grows to the lower one"),
        pytest.param(100, 120, 111, None, False, 111, id="grows to the fresh one if that is lower"),
        pytest.param(100, 110, None, None, False, 100, id="a tenth more is not enough"),
        pytest.param(100, 110, None, None, True, 110, id="unless a write is due, too"),
        pytest.param(50, 100, 100, 1000, False, 50, id="no report since it was held"),
        pytest.param(50, 100, 100, 900, False, 50, id="the report by which it was held"),
        pytest.param(50, 100, 100, 899, False, 100, id="a report since"),
        pytest.param(50, 100, 100, 1000, True, 50, id="no growth before, even if a write is due"),
        pytest.param(50, 100, 20, 1000, False, 20, id="shrinks further"),
        pytest.param(0, 1, 1, None, False, 1, id="from 0"),
    ],
)
def test_one_step(
    shown: int | None, averaged: int | None, fresh: int | None, held_s: int | None, is_due: bool, result: int | None
) -> None:
    """The averaged report came in at 900, now is 1010."""
    state = GrowthState(held_s, held_s)
    published, after = grow(both(shown), Averaged(both(averaged), 900), both(fresh), state, 1010, TENTH, is_due)
    assert published == both(result)
    if shown is None or averaged is None:
        assert after == NEVER
    else:
        is_held = min(averaged, averaged if fresh is None else fresh) <= shown
        assert after == (GrowthState(1010, 1010) if is_held else state)


def test_no_resource_waits_for_the_other() -> None:
    published, state = grow(
        CPUMemory(100, 100), Averaged(CPUMemory(100, 200), 900), CPUMemory(50, 200), NEVER, 1000, TENTH
    )
    assert (published, state) == (CPUMemory(50, 200), GrowthState(1000, None))
    published, state = grow(published, Averaged(CPUMemory(100, 300), 900), CPUMemory(100, 300), state, 1005, TENTH)
    assert (published, state) == (CPUMemory(50, 300), GrowthState(1000, None)), "CPU waits, memory does not"
    published, state = grow(published, Averaged(CPUMemory(90, 300), 1010), CPUMemory(100, 300), state, 1010, TENTH)
    assert (published, state) == (CPUMemory(90, 300), GrowthState(1000, 1010))


def test_what_differs_little_goes_along_with_a_write() -> None:
    published, state = grow(CPUMemory(100, 100), Averaged(CPUMemory(50, 95), 900), None, NEVER, 1000, TENTH)
    assert (published, state) == (CPUMemory(50, 95), GrowthState(1000, 1000))


def test_growth_that_must_wait_takes_nothing_along() -> None:
    published, _ = grow(
        CPUMemory(50, 100), Averaged(CPUMemory(100, 105), 900), None, GrowthState(1000, None), 1010, TENTH
    )
    assert published == CPUMemory(50, 100)


NOISE = st.integers(-100, 100)


@given(st.lists(st.tuples(NOISE, NOISE, st.booleans()), max_size=60))
def test_noise_below_the_threshold_writes_nothing(noise: list[tuple[int, int, bool]]) -> None:
    shown, state, arrival_s = both(1000), NEVER, 0.0
    for now_s, (averaged, fresh, is_new) in enumerate(noise):
        arrival_s = now_s if is_new else arrival_s
        published, state = grow(
            shown, Averaged(both(1000 + averaged), arrival_s), both(1000 + fresh), state, now_s, TENTH
        )
        assert published == shown


def steps(period_s: int, up_s: int, down_s: int, low: int) -> Iterator[tuple[int, CPUMemory, int, int]]:
    """Each second: the time, what is shown then, and of the last averaged report its time and what it offers.

    1000 is offered by what the node uses, but ``low`` from ``up_s`` until ``down_s``. The averaged report of every
    ``period_s`` is the mean of the seconds since the one before.
    """
    shown, state = CPUMemory(1000, 1000), NEVER
    averaged, arrival_s, since = 1000, 0, list[int]()
    for now_s in range(1, down_s + 4 * period_s):
        fresh = low if up_s <= now_s < down_s else 1000
        since.append(fresh)
        if now_s % period_s == 0:
            averaged, arrival_s, since = sum(since) // len(since), now_s, []
        published, state = grow(shown, Averaged(both(averaged), arrival_s), both(fresh), state, now_s, TENTH)
        assert published is not None
        shown = published
        yield now_s, shown, arrival_s, averaged


@given(
    period_s=st.integers(5, 60),
    up_s=st.integers(2, 100),
    length_s=st.integers(1, 100),
    low=st.integers(0, 800),
)
def test_a_step_of_use(period_s: int, up_s: int, length_s: int, low: int) -> None:
    down_s = up_s + length_s
    first_s = -(-down_s // period_s) * period_s
    """The first averaged report after the step down."""
    history = [CPUMemory(1000, 1000)]
    for now_s, shown, arrival_s, averaged in steps(period_s, up_s, down_s, low):
        history.append(shown)
        if now_s < up_s:
            assert shown == both(1000)
        elif now_s < first_s:
            assert shown == both(low), "it shrinks at the next step, and stays until there is a report"
        elif arrival_s == first_s:
            assert shown == both(averaged if averaged * 10 > low * 11 else low), "with the burst in the average"
        else:
            assert shown.cpu_milli * 11 >= 1000 * 10, "in the end all of it, but for the threshold"
    assert sum(before != after for before, after in itertools.pairwise(history)) <= 3


@given(st.data())
def test_it_never_rises_above_the_lower_offer(data: st.DataObject) -> None:
    shown, state = both(data.draw(st.integers(0, 1000))), NEVER
    for now_s in range(10):
        averaged, fresh = data.draw(st.integers(0, 1000)), data.draw(st.none() | st.integers(0, 1000))
        before = shown
        arrival_s = data.draw(st.integers(0, now_s))
        shown, state = grow(before, Averaged(both(averaged), arrival_s), both(fresh), state, now_s, TENTH)
        lower = averaged if fresh is None else min(averaged, fresh)
        assert before is not None and shown is not None
        assert shown.cpu_milli <= max(lower, before.cpu_milli)
        if lower * 10 < before.cpu_milli * 9:
            assert shown == both(lower), "down at once"

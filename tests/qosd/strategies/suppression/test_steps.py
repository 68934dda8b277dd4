"""The steps on a plant: what helps is kept, what does not is undone, and a limit finds its place and stays there."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from qosd.strategies.suppression.regulator import PATIENCE_MOST_NS, SECOND_NS, Limit
from qosd.strategies.suppression.steps import CALM_NS, REFUSED_NS, REST_NS, SuppressionState, SuppressionStep
from qosd.strategies.suppression.trial import DWELL_NS, SAMPLES
from tests.qosd.strategies.suppression.plant import CAPACITY_MILLI, EVERY, OTHERS, Others, Plant

LIFTED_S, PATIENCE_MOST_S = 90, PATIENCE_MOST_NS // SECOND_NS
"""As docs/cpu-suppression.md says."""
MOVES_MOST = 100
"""In 240 s; most of them falls under a load that really rises by CPUs."""
TRIAL_S, CALM_S = DWELL_NS // SECOND_NS, CALM_NS // SECOND_NS
NOTICED_S = SAMPLES + 2


def steady(pain_ms: float) -> Plant:
    return Plant(lambda _: pain_ms)


def by_use(plant: Plant) -> float:
    """The wait grows with what best-effort pods use beyond 4 CPUs: 20 ms/s at 6.5, 44 at all that there is."""
    return max(0.0, (plant.used_milli - 4000) / 1000 * 8)


class TestSteps:
    @pytest.mark.parametrize("pain_ms", [0.0, 15.0, 22.0])
    def test_nothing_is_tried_while_nobody_suffers(self, pain_ms: float) -> None:
        assert not any(steps for *_, steps in steady(pain_ms).run(300).history)

    def test_the_first_is_tried_after_enough_samples_to_compare_with(self) -> None:
        plant = steady(60.0).run(SAMPLES - 1)
        assert plant.state.in_force == set()
        assert plant.run(1).state.in_force == {SuppressionStep.SLICES}

    def test_severe_pain_does_not_wait_so_long(self) -> None:
        assert steady(400.0).run(3).state.in_force == {SuppressionStep.SLICES}

    def test_what_helps_stays_and_is_enough(self) -> None:
        plant = Plant(lambda it: 12.0 if it.has(SuppressionStep.SLICES) else 40.0).run(NOTICED_S + TRIAL_S + 300)
        assert (plant.state.taken, plant.state.tried) == ({SuppressionStep.SLICES}, None)
        outcome = plant.state.helped[SuppressionStep.SLICES]
        assert outcome.after < 20_000 < outcome.before
        assert all(steps <= {SuppressionStep.SLICES} for *_, steps in plant.history)

    def test_what_has_helped_is_forgotten_when_nothing_hurts_any_more(self) -> None:
        plant = Plant(lambda it: 12.0 if it.has(SuppressionStep.SLICES) else 40.0).run(NOTICED_S + TRIAL_S)
        plant.run(2 * CALM_S)
        assert plant.state.taken == {SuppressionStep.SLICES}, "it hurts, if little: perhaps because of the step"
        plant.hurt = lambda _: 0.5
        plant.run(CALM_S)
        assert plant.state.taken == {SuppressionStep.SLICES}
        plant.run(60)
        assert (plant.state.taken, plant.state.helped) == (set(), {})

    @pytest.mark.parametrize("ms_per_cpu", [5, 10, 20, 40])
    @pytest.mark.parametrize("delay_s", [0, 1, 2, 3])
    def test_no_step_is_praised_for_what_a_limit_does_beside_it(self, delay_s: int, ms_per_cpu: int) -> None:
        """A wait that falls because the limit goes down says nothing of another step."""
        resumed = SuppressionState(taken=frozenset({SuppressionStep.TIME}), limit=Limit(9000, 0))
        plant = Plant(lambda _: 0.0, delay_s, 0.0, state=resumed).run(2)
        plant.hurt = lambda it: it.used_milli / 1000 * ms_per_cpu
        plant.run(300)
        assert plant.state.taken == {SuppressionStep.TIME}

    def test_what_helps_a_little_is_followed_by_the_next(self) -> None:
        plant = Plant(lambda it: 60.0 - 20 * it.has(SuppressionStep.SLICES) - 30 * it.has(SuppressionStep.IDLE)).run(
            120
        )
        assert plant.state.taken == {SuppressionStep.SLICES, SuppressionStep.IDLE}

    def test_what_does_not_help_is_undone_and_remembered(self) -> None:
        plant = steady(60.0).run(len(EVERY) * (NOTICED_S + TRIAL_S + 2))
        assert (plant.state.taken, plant.state.in_force, plant.state.limit) == (set(), set(), None)
        assert set(plant.state.refused) == set(EVERY)
        tried = [steps for *_, steps in plant.run(600).history[-600:] if steps]
        assert not tried, "not again with these workloads"

    def test_the_order_is_from_the_cheapest_on_and_only_what_this_node_has(self) -> None:
        plant = replace_steps(steady(60.0), SuppressionStep.IDLE, SuppressionStep.TIME).run(120)
        seen = [step for *_, steps in plant.history for step in steps]
        assert list(dict.fromkeys(seen)) == [SuppressionStep.IDLE, SuppressionStep.TIME]

    def test_harm_ends_a_trial_before_its_time(self) -> None:
        plant = Plant(lambda it: 400.0 if it.has(SuppressionStep.SLICES) else 40.0, noise=0.05).run(60)
        harmed = sum(SuppressionStep.SLICES in steps for *_, steps in plant.history)
        assert 0 < harmed < TRIAL_S

    def test_other_workloads_are_another_matter_but_not_at_once(self) -> None:
        plant = replace_steps(steady(60.0), SuppressionStep.SLICES).run(30)
        assert SuppressionStep.SLICES in plant.state.refused
        plant.workloads = frozenset({"web", "other"})
        begun = plant.state.refused[SuppressionStep.SLICES].at_ns / SECOND_NS
        while not plant.state.in_force:
            plant.tick()
        assert plant.now_s - begun == pytest.approx(REST_NS / SECOND_NS, abs=2)

    def test_in_the_end_it_is_tried_again_with_the_same(self) -> None:
        plant = replace_steps(steady(60.0), SuppressionStep.SLICES).run(30)
        begun = plant.state.refused[SuppressionStep.SLICES].at_ns / SECOND_NS
        while not plant.state.in_force:
            plant.tick()
        assert plant.now_s - begun == pytest.approx(REFUSED_NS / SECOND_NS, abs=2)


def replace_steps(plant: Plant, *steps: SuppressionStep) -> Plant:
    plant.steps = steps
    return plant


@pytest.mark.parametrize("delay_s", [0, 1, 2, 3])
@pytest.mark.parametrize("noise", [0.0, 0.1, 0.3])
class TestLimit:
    """Best-effort work hurts by what it uses, and only less of it helps."""

    def settled(self, delay_s: int, noise: float) -> Plant:
        plant = Plant(by_use, delay_s, noise, steps=(SuppressionStep.TIME,), chance=Random(delay_s))
        return plant.run(240)

    def test_it_finds_its_place_and_stays_there(self, delay_s: int, noise: float) -> None:
        plant = self.settled(delay_s, noise)
        assert plant.state.taken == {SuppressionStep.TIME}
        plant.run(600)
        last = plant.history[-600:]
        assert plant.reversals(600) <= 10, "one a minute"
        waits = [by_use(replaced(plant, limit)) for *_, limit, _ in last]
        assert sum(waits) / len(waits) < 25, "at the set point, or below it"
        used = [min(limit, CAPACITY_MILLI - plant.load_milli) for *_, limit, _ in last]
        assert sum(used) / len(used) > 4500

    def test_less_pain_gives_it_back_within_15_s(self, delay_s: int, noise: float) -> None:
        plant = self.settled(delay_s, noise)
        plant.load_milli, plant.hurt = 2_000, lambda _: 0.0
        plant.run(15 + delay_s)
        assert plant.used_milli >= 0.9 * min(plant.ceiling_milli, CAPACITY_MILLI - plant.load_milli)
        plant.run(60)
        assert (plant.state.limit, plant.state.taken) == (None, set()), "then nothing is bounded any more"

    def test_more_load_shrinks_it_within_3_s(self, delay_s: int, noise: float) -> None:
        plant = self.settled(delay_s, noise)
        before = plant.limit_milli
        plant.load_milli = 11_000
        plant.hurt = lambda it: max(0.0, (it.used_milli - 1000) / 1000 * 30)
        plant.run(3 + delay_s)
        assert plant.limit_milli <= max(plant.ceiling_milli, 0.55 * before)

    def test_bounds_hold_whatever_happens(self, delay_s: int, noise: float) -> None:
        plant = self.settled(delay_s, noise)
        for number in range(200):
            plant.load_milli = plant.chance.randrange(0, CAPACITY_MILLI)
            level = plant.chance.choice([0.0, 10.0, 20.0, 100.0, 1000.0])
            plant.hurt = lambda _, level=level: level  # type: ignore[misc]
            plant.tick(plant.chance.choice([0.2, 1.0, 5.0]))
            if plant.state.limit is not None:
                assert 20 <= plant.limit_milli <= max(20, plant.ceiling_milli), number


@given(seed=st.integers(0, 10_000), calm_s=st.integers(40, 400), delay_s=st.integers(0, 3))
@settings(max_examples=5)
@pytest.mark.parametrize("step", [SuppressionStep.TIME, SuppressionStep.CPUS])
@pytest.mark.parametrize("others", OTHERS.values(), ids=OTHERS)
def test_a_limit_without_pain_is_gone_whatever_the_others_do(
    others: Others, step: SuppressionStep, seed: int, calm_s: int, delay_s: int
) -> None:
    plant = Plant(by_use, delay_s, steps=(step,), others=others, chance=Random(seed)).run(calm_s)
    plant.hurt = lambda _: 0.0
    was_patient = plant.state.limit is not None and plant.state.limit.hurt_milli > 0
    plant.run(LIFTED_S + (PATIENCE_MOST_S if was_patient else 0))
    assert (plant.state.limit, plant.state.in_force) == (None, set())
    plant.run(120)
    assert not any(steps for *_, steps in plant.history[-120:]), "nor does it come back"


@pytest.mark.parametrize("others", OTHERS.values(), ids=OTHERS)
def test_a_limit_at_its_ceiling_is_not_written_each_second(others: Others) -> None:
    """A wait between calm and too much keeps the limit where it is."""
    limited = SuppressionState(taken=frozenset({SuppressionStep.TIME}), limit=Limit(CAPACITY_MILLI, 0))
    plant = Plant(lambda _: 18.0, steps=(SuppressionStep.TIME,), others=others, noise=0.0, state=limited).run(300)
    assert plant.state.limit is not None
    assert plant.moves(240) <= MOVES_MOST


class TestWaitsAnyway:
    """A service whose own threads wait for each other: a part of that is put down to best-effort work all the same."""

    @pytest.mark.parametrize("seed", range(5))
    @pytest.mark.parametrize("anyway_ms", [60, 200, 900])
    def test_best_effort_work_is_not_held_back_for_it(self, anyway_ms: int, seed: int) -> None:
        plant = Plant(lambda _: 0.0, anyway_ms=anyway_ms, rest_milli=2000, chance=Random(seed))
        used = [plant.run(1).used_milli for _ in range(3600)]
        assert plant.history[-1][1] > 20, "it waits as ever"
        assert not plant.state.taken.intersection({SuppressionStep.TIME, SuppressionStep.CPUS})
        assert sum(used) / len(used) >= 0.98 * (CAPACITY_MILLI - plant.load_milli)

    @pytest.mark.parametrize("seed", range(5))
    def test_where_best_effort_work_adds_to_it_only_that_is_regulated(self, seed: int) -> None:
        plant = Plant(
            lambda it: it.used_milli / 1000 * 8,
            1,
            0.03,
            steps=(SuppressionStep.TIME,),
            anyway_ms=60,
            chance=Random(seed),
        ).run(300)
        assert plant.state.taken == {SuppressionStep.TIME}
        plant.run(600)
        used = [limit for *_, limit, _ in plant.history[-600:]]
        assert 1500 < sum(used) / len(used) < 5000, "20 ms/s of its own are at 2500"

    def test_a_limit_at_its_floor_that_does_not_help_is_undone(self) -> None:
        plant = Plant(by_use, 1, 0.0, steps=(SuppressionStep.TIME,)).run(60)
        assert plant.state.taken == {SuppressionStep.TIME}
        plant.hurt = lambda _: 100.0
        plant.run(60)
        assert (plant.state.taken, plant.state.limit) == (set(), None)
        assert SuppressionStep.TIME in plant.state.refused


def replaced(plant: Plant, limit_milli: int) -> Plant:
    """The plant with that limit, for what it hurts."""
    limit = plant.state.limit
    other = Plant(plant.hurt, load_milli=plant.load_milli)
    if limit is not None:
        other.state = replace(other.state, limit=replace(limit, milli=limit_milli))
    return other


def test_a_load_that_hurts_at_a_fixed_place_is_not_tried_again_and_again() -> None:
    """The longer it hurts there, the longer it is left alone."""
    plant = Plant(lambda it: 60.0 if it.used_milli > 5000 else 5.0, steps=(SuppressionStep.TIME,)).run(1200)
    pairs = pairwise((now, limit) for now, _, limit, _ in plant.history)
    grown = [now for (_, before), (now, after) in pairs if before <= 5000 < after]
    gaps = [after - before for before, after in pairwise(grown)]
    assert len(grown) <= 6
    assert gaps == sorted(gaps)

"""From opinions to a value, stage by stage."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koord.host.files import Value
from koord.model.formulas import recompute
from koord.model.lattice import Numbers
from qosd.act.composition import Composed, StagedOpinion, compose
from qosd.decide.decision import Opinion, Stage

SPEC, RATIO, BURST, CAP = Stage.SPEC, Stage.NORMALIZATION, Stage.BURST, Stage.SUPPRESSION
RATIO_1_2 = Fraction(6, 5)
RELEASE = Opinion.release("gone")


def to(value: Value) -> Opinion:
    return Opinion.set(value, "spec", {"formula": "given", "value": value})


def times(factor: Fraction | int) -> Opinion:
    return Opinion.scale(Fraction(factor), "")


def more(amount: int) -> Opinion:
    return Opinion.add(amount, "")


def at_most(value: Value) -> Opinion:
    return Opinion.at_most(value, "")


def at_least(value: Value) -> Opinion:
    return Opinion.at_least(value, "")


def composed(name: str, opinions: dict[Stage, Opinion], base: Value | None) -> Composed:
    staged = [StagedOpinion(f"s{stage.value}", stage, opinion) for stage, opinion in sorted(opinions.items())]
    return compose(name, staged, base)


@pytest.mark.parametrize(
    ("opinions", "base", "value"),
    [
        ({}, 5000, None),
        ({SPEC: RELEASE, BURST: RELEASE}, 5000, None),
        ({SPEC: to(200_000)}, None, 200_000),
        ({SPEC: to(-1)}, 5000, -1),
        ({SPEC: to(-1), RATIO: times(1 / RATIO_1_2), BURST: times(3)}, 5000, -1),
        ({SPEC: to(-1), CAP: at_most(50_000)}, 5000, 50_000),
        ({SPEC: to(200_000), RATIO: times(1 / RATIO_1_2)}, -1, 166_667),
        ({SPEC: to(120_000), RATIO: times(1 / RATIO_1_2)}, -1, 100_000),
        ({SPEC: to(200_000), RATIO: times(1 / RATIO_1_2), BURST: times(RATIO_1_2)}, -1, 200_000),
        ({SPEC: to(200_000), BURST: times(3), CAP: at_most(250_000)}, -1, 250_000),
        ({SPEC: to(200_000), CAP: at_most(10)}, -1, 1000),
        ({SPEC: to(200_000), CAP: at_most(300_000)}, -1, 200_000),
        ({SPEC: to(200_000), CAP: at_least(300_000)}, -1, 300_000),
        ({SPEC: to(200_000), CAP: at_least(-1)}, -1, -1),
        ({BURST: at_least(300_000), CAP: at_most(250_000)}, 100_000, 250_000),
        ({BURST: more(20_000)}, 300_000, 320_000),
        ({RATIO: times(1 / RATIO_1_2), BURST: more(20_000), CAP: at_most(250_000)}, 300_000, 250_000),
        ({BURST: more(-40_000)}, 40_500, 1000),
        ({BURST: more(20_000)}, -1, -1),
        ({RATIO: times(Fraction(1, 2))}, 100_000, 50_000),
        ({RATIO: times(Fraction(1, 2))}, 1500, 1000),
        ({RATIO: times(Fraction(1, 2))}, -1, -1),
        ({SPEC: RELEASE, BURST: times(Fraction(3, 2))}, 100_000, 150_000),
        ({SPEC: RELEASE, CAP: at_most(40_000)}, -1, 40_000),
    ],
)
def test_quota(opinions: dict[Stage, Opinion], base: Value | None, value: Value | None) -> None:
    result = composed("cpu_quota", opinions, base)
    assert (result.value, result.keep, result.refused) == (value, False, ())


@pytest.mark.parametrize(
    ("name", "opinions", "base", "value"),
    [
        ("cpuset_cpus", {SPEC: to("0-7"), CAP: at_most("2-9")}, "", "2-7"),
        ("cpuset_cpus", {CAP: at_most("0-3")}, "", "0-3"),
        ("cpuset_cpus", {CAP: at_most("")}, "0-3", "0-3"),
        ("cpuset_cpus", {SPEC: to("0-1"), CAP: at_least("4")}, "", "0-1,4"),
        ("cpuset_cpus", {CAP: at_least("4")}, "", ""),
        ("cpu_shares", {SPEC: to(2048), CAP: at_most(2)}, 1024, 2),
        ("cpu_shares", {CAP: at_most(0)}, 1024, 2),
        ("cpu_shares", {BURST: times(2)}, 1024, 2048),
        ("io.weight", {CAP: at_most(50)}, 100, 50),
        ("memory_limit_in_bytes", {CAP: at_most(1 << 30)}, -1, 1 << 30),
        ("memory_limit_in_bytes", {SPEC: to(1 << 30), CAP: at_least(2 << 30)}, -1, 2 << 30),
        ("memory.high", {BURST: times(2)}, 4096, 8192),
        ("memory.low", {SPEC: to(0), CAP: at_least(4096)}, 0, 4096),
        ("io.max.rbps@8:0", {CAP: at_most(1 << 20)}, -1, 1 << 20),
    ],
)
def test_every_operator_on_every_kind_of_value(
    name: str, opinions: dict[Stage, Opinion], base: Value, value: Value
) -> None:
    result = composed(name, opinions, base)
    assert (result.value, result.refused) == (value, ())
    if len(result.trail) > 1:
        assert recompute(result.inputs) == value


@pytest.mark.parametrize("steps", range(1, 7))
def test_the_steps_of_a_burst(steps: int) -> None:
    """A fifth more at each step: 120000 144000 172800 207360 248832 298598."""
    result = composed("cpu_quota", {SPEC: to(100_000), BURST: times(RATIO_1_2**steps)}, None)
    assert result.value == (120_000, 144_000, 172_800, 207_360, 248_832, 298_598)[steps - 1]


@pytest.mark.parametrize(
    ("name", "opinions", "base", "value", "refused"),
    [
        ("cpuset_cpus", {SPEC: to("0-1"), CAP: at_most("4-7")}, "0-7", "0-1", "s3: 0-1 and 4-7 have no CPU in common"),
        ("cpuset_cpus", {SPEC: to("0-1"), CAP: at_most("x")}, "0-7", "0-1", "s3: 'x'"),
        ("cpuset_cpus", {BURST: times(2)}, "0-3", None, "s2: a set of CPUs cannot be scaled"),
        ("cpuset_cpus", {BURST: more(2)}, "0-3", None, "s2: a set of CPUs has no amount to add to"),
        ("cpuset.cpus.partition", {CAP: at_most("root")}, "member", None, "s3: its values have no order"),
        ("cpu.bvt_warp_ns", {CAP: at_most(0)}, 2, None, "s3: its values have no order"),
        ("no such row", {CAP: at_most(0)}, 2, None, "s3: 'no such row'"),
        ("cpu_quota", {SPEC: to(5000), BURST: times(0)}, -1, 5000, "s2: factor 0 is not positive"),
        ("cpu_quota", {SPEC: to(5000), BURST: times(-2)}, -1, 5000, "s2: factor -2 is not positive"),
        ("cpu_quota", {SPEC: to("all"), CAP: at_most(5000)}, -1, "all", "s3: 'all' is not a whole number"),
        ("cpu_quota", {SPEC: to(5000), CAP: at_most("all")}, -1, 5000, "s3: 'all' is not a whole number"),
        ("cpu_quota", {BURST: times(2)}, None, None, "s2: there is no value to work on"),
    ],
)
def test_a_senseless_stage_is_left_out(
    name: str, opinions: dict[Stage, Opinion], base: Value | None, value: Value | None, refused: str
) -> None:
    result = composed(name, opinions, base)
    assert result.value == value
    ((who, why),) = result.refused
    stage, _, reason = refused.partition(": ")
    assert who == stage
    assert why.partition(f" of {name}: ")[2].startswith(reason)


def test_an_unresolved_keep_leaves_the_file_alone() -> None:
    result = composed("cpu_quota", {SPEC: Opinion.keep("frozen"), BURST: times(2)}, 5000)
    assert (result.value, result.keep, result.why) == (None, True, "frozen")


def test_the_trail_says_who_made_what() -> None:
    halved = Opinion.scale(Fraction(1, 2), "ratio 2")
    result = composed("cpu_quota", {RATIO: halved, CAP: Opinion.at_most(30_000, "busy", pod="a/b")}, 100_000)
    assert [(step.strategy, step.value) for step in result.trail] == [("", 100_000), ("s1", 50_000), ("s3", 30_000)]
    assert result.by == "s1, s3"
    assert result.pod == "a/b"
    assert result.why == "100000 (what someone else wrote last) → 50000 (ratio 2: s1) → 30000 (busy: s3)"


QUOTAS = st.just(-1) | st.integers(1000, 10_000_000)
AMOUNTS = st.integers(-1_000_000, 1_000_000)
FACTORS = st.fractions(Fraction(1, 100), 10).filter(bool)
STAGES = st.fixed_dictionaries(
    {},
    optional={
        SPEC: st.builds(to, QUOTAS) | st.just(RELEASE),
        RATIO: st.builds(times, FACTORS) | st.just(RELEASE),
        BURST: st.builds(times, FACTORS) | st.builds(more, AMOUNTS) | st.builds(at_least, QUOTAS),
        CAP: st.builds(at_most, QUOTAS),
    },
)


@given(STAGES, QUOTAS)
def test_the_value_can_be_computed_from_the_inputs(opinions: dict[Stage, Opinion], base: int) -> None:
    result = composed("cpu_quota", opinions, base)
    if result.value is not None:
        assert recompute(result.inputs) == result.value == result.trail[-1].value
        assert result.value == -1 or int(result.value) >= 1000


@given(QUOTAS, FACTORS)
def test_scaling_is_exact_to_the_unit_and_rounds_towards_what_there_was(quota: int, factor: Fraction) -> None:
    value = Numbers(1000).scale(quota, factor)
    exact = quota * factor
    rounded = math.ceil(exact) if factor < 1 else math.floor(exact)
    assert value == (-1 if quota < 0 else max(1000, rounded))

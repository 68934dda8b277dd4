"""From opinions to a value, stage by stage."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koord.host.files import Value
from koord.model import cfs
from koord.model.formulas import recompute
from qosd.act.composition import StagedOpinion, compose
from qosd.decide.decision import Cap, Keep, Opinion, Release, Scale, Set, Stage

SPEC, RATIO, BURST, CAP = Stage.SPEC, Stage.NORMALIZATION, Stage.BURST, Stage.SUPPRESSION


def given_value(value: Value) -> Set:
    return Set(value, "spec", {"formula": "given", "value": value})


def spoken(opinions: dict[Stage, Opinion]) -> list[StagedOpinion]:
    return [StagedOpinion(f"s{stage.value}", stage, opinion) for stage, opinion in sorted(opinions.items())]


@pytest.mark.parametrize(
    ("opinions", "base", "value"),
    [
        ({}, 5000, None),
        ({SPEC: Release("gone"), BURST: Release("gone")}, 5000, None),
        ({SPEC: given_value(200_000)}, None, 200_000),
        ({SPEC: given_value(500)}, -1, 1000),
        ({SPEC: given_value(0)}, -1, 1000),
        ({SPEC: given_value(-1)}, 5000, -1),
        ({SPEC: given_value(-1), RATIO: Scale(1 / 1.2, ""), BURST: Scale(3.0, "")}, 5000, -1),
        ({SPEC: given_value(-1), CAP: Cap(50_000, "")}, 5000, 50_000),
        ({SPEC: given_value(200_000), RATIO: Scale(1 / 1.2, "")}, -1, 166_667),
        ({SPEC: given_value(120_000), RATIO: Scale(1 / 1.2, "")}, -1, 100_000),
        ({SPEC: given_value(200_000), RATIO: Scale(1 / 1.2, ""), BURST: Scale(1.2, "")}, -1, 200_000),
        ({SPEC: given_value(200_000), BURST: Scale(3.0, ""), CAP: Cap(250_000, "")}, -1, 250_000),
        ({SPEC: given_value(200_000), CAP: Cap(10, "")}, -1, 1000),
        ({SPEC: given_value(200_000), CAP: Cap(300_000, "")}, -1, 200_000),
        ({RATIO: Scale(0.5, "")}, 100_000, 50_000),
        ({RATIO: Scale(0.5, "")}, 1500, 1000),
        ({RATIO: Scale(0.5, "")}, -1, -1),
        ({SPEC: Release("gone"), BURST: Scale(1.5, "")}, 100_000, 150_000),
        ({SPEC: Release("gone"), CAP: Cap(40_000, "")}, -1, 40_000),
    ],
)
def test_quota(opinions: dict[Stage, Opinion], base: Value | None, value: Value | None) -> None:
    made = compose("cpu_quota", spoken(opinions), base)
    assert (made.value, made.keep, made.refused) == (value, False, ())


@pytest.mark.parametrize("step", [1.2**n for n in range(1, 7)])
def test_the_steps_of_a_burst(step: float) -> None:
    """node-qos §5: 120000 144000 172800 207360 248832 298598."""
    made = compose("cpu_quota", spoken({SPEC: given_value(100_000), BURST: Scale(step, "")}), None)
    assert made.value == math.floor(100_000 * Fraction(step).limit_denominator(1_000_000))
    assert made.value in (120_000, 144_000, 172_800, 207_360, 248_832, 298_598)


@pytest.mark.parametrize(
    ("name", "opinions", "base", "value", "refused"),
    [
        ("cpuset_cpus", {SPEC: given_value("0-1"), CAP: Cap(1, "")}, "0-3", "0-1", "s3"),
        ("memory.high", {BURST: Scale(2.0, "")}, 4096, None, "s2"),
        ("cpu_quota", {SPEC: given_value(5000), BURST: Scale(0.0, "")}, -1, 5000, "s2"),
        ("cpu_quota", {SPEC: given_value(5000), BURST: Scale(math.nan, "")}, -1, 5000, "s2"),
        ("cpu_quota", {SPEC: given_value(5000), BURST: Scale(math.inf, "")}, -1, 5000, "s2"),
        ("cpu_quota", {SPEC: given_value("all")}, -1, None, "s0"),
        ("cpu_quota", {BURST: Scale(2.0, "")}, None, None, "s2"),
    ],
)
def test_a_senseless_stage_is_left_out(
    name: str, opinions: dict[Stage, Opinion], base: Value | None, value: Value | None, refused: str
) -> None:
    made = compose(name, spoken(opinions), base)
    assert made.value == value
    assert [who for who, _ in made.refused] == [refused]


def test_an_unresolved_keep_leaves_the_file_alone() -> None:
    made = compose("cpu_quota", spoken({SPEC: Keep("frozen"), BURST: Scale(2.0, "")}), 5000)
    assert (made.value, made.keep, made.why) == (None, True, "frozen")


def test_the_trail_says_who_made_what() -> None:
    made = compose("cpu_quota", spoken({RATIO: Scale(0.5, "ratio 2"), CAP: Cap(30_000, "busy", pod="a/b")}), 100_000)
    assert [(one.who, one.value) for one in made.trail] == [("", 100_000), ("s1", 50_000), ("s3", 30_000)]
    assert made.by == "s1, s3"
    assert made.pod == "a/b"
    assert made.why == "100000 (what someone else wrote last) → 50000 (ratio 2: s1) → 30000 (busy: s3)"


QUOTAS = st.just(-1) | st.integers(1000, 10_000_000)
STAGES = st.fixed_dictionaries(
    {},
    optional={
        SPEC: st.builds(given_value, QUOTAS) | st.builds(Release, st.just("")),
        RATIO: st.builds(Scale, st.floats(0.01, 1.0), st.just("")) | st.builds(Release, st.just("")),
        BURST: st.builds(Scale, st.floats(1.0, 10.0), st.just("")),
        CAP: st.builds(Cap, QUOTAS, st.just("")),
    },
)


@given(STAGES, QUOTAS)
def test_the_value_can_be_computed_from_the_inputs(opinions: dict[Stage, Opinion], base: int) -> None:
    made = compose("cpu_quota", spoken(opinions), base)
    if made.value is not None:
        assert recompute(made.inputs) == made.value == made.trail[-1].value
        assert made.value == -1 or int(made.value) >= 1000


@given(QUOTAS, st.integers(101, 999))
def test_scaling_by_the_inverse_of_a_ratio_is_normalization(quota: int, percent: int) -> None:
    ratio = Fraction(percent, 100)
    assert cfs.scale_quota_us(quota, float(1 / ratio)) == cfs.normalize_quota_us(quota, ratio)

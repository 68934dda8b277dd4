"""Fractions in what people wrote: bounds that are in or out, whole numbers, and what is no number."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Meta

from koord.model import schema
from koord.model.problem import Problem
from koord.model.schema import SchemaError, json_name


class Ratios(msgspec.Struct, frozen=True, kw_only=True, rename=json_name):
    closed_ratio: Annotated[float, Meta(ge=1, le=5)] | None = None
    open_ratio: Annotated[float, Meta(gt=0, lt=1)] | None = None
    any_ratio: float | None = None
    by_name: Mapping[str, Annotated[float, Meta(ge=1)]] | None = None


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"closedRatio": 0.99}, "closedRatio: 0.99 is less than 1"),
        ({"closedRatio": 5.01}, "closedRatio: 5.01 is more than 5"),
        ({"openRatio": 0}, "openRatio: 0 is not more than 0"),
        ({"openRatio": 1.0}, "openRatio: 1.0 is not less than 1"),
        ({"anyRatio": "0.5"}, "anyRatio: '0.5' is not a number"),
        ({"anyRatio": True}, "anyRatio: True is not a number"),
        ({"anyRatio": []}, "anyRatio: a list is not a number"),
        ({"anyRatio": math.inf}, "anyRatio: inf is not a finite number"),
        ({"anyRatio": math.nan}, "anyRatio: nan is not a finite number"),
        ({"anyRatio": -(10**400)}, "anyRatio: a very large number is not a finite number"),
        ({"byName": {"cpu": 1.5, "memory": 0.5}}, "byName.memory: 0.5 is less than 1"),
    ],
)
def test_a_fraction_out_of_bounds_is_named(document: object, message: str) -> None:
    with pytest.raises(SchemaError) as caught:
        schema.read(Ratios, document)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("document", "ratios"),
    [
        ({"closedRatio": 1, "openRatio": 0.001}, Ratios(closed_ratio=1.0, open_ratio=0.001)),
        ({"closedRatio": 5.0, "openRatio": 0.999}, Ratios(closed_ratio=5.0, open_ratio=0.999)),
        ({"anyRatio": -7}, Ratios(any_ratio=-7.0)),
        ({"anyRatio": None}, Ratios()),
        ({"byName": {"cpu": 1, "memory": None}}, Ratios(by_name={"cpu": 1.0})),
    ],
)
def test_a_fraction_within_bounds(document: object, ratios: Ratios) -> None:
    assert schema.read(Ratios, document) == ratios


def test_a_whole_number_is_read_as_a_fraction() -> None:
    assert isinstance(schema.read(Ratios, {"anyRatio": 2}).any_ratio, float)


def test_a_bad_fraction_counts_as_absent_for_who_listens() -> None:
    told: list[Problem] = []
    document = {"closedRatio": 9, "anyRatio": 2.5, "byName": {"cpu": 0, "memory": 3}}
    assert schema.read(Ratios, document, bad=told.append) == Ratios(any_ratio=2.5, by_name={"memory": 3.0})
    assert [each.path for each in told] == ["closedRatio", "byName.cpu"]


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_every_finite_fraction_survives(value: float) -> None:
    ratios = Ratios(any_ratio=value)
    assert schema.read(Ratios, schema.parse_json(schema.encode(ratios))) == ratios

"""The named formulas: what they make of their inputs, and what they refuse."""

from __future__ import annotations

import pytest

from koord.model.formulas import FORMULA, FORMULAS, FormulaError, Inputs, recompute
from koord.model.lattice import Value


@pytest.mark.parametrize(
    ("inputs", "says"),
    [
        ({}, "None is no formula"),
        ({FORMULA: "magic"}, "'magic' is no formula; there are given, "),
        ({FORMULA: "cpu_shares"}, "input request_milli of cpu_shares is None"),
        ({FORMULA: "cpu_quota", "limit_milli": 1.5}, "1.5, which is no whole number"),
        ({FORMULA: "given", "value": 1.5}, "input value is 1.5"),
    ],
)
def test_what_cannot_be_computed(inputs: Inputs, says: str) -> None:
    with pytest.raises(FormulaError, match=says):
        recompute(inputs)


@pytest.mark.parametrize(
    ("name", "inputs", "result"),
    [
        ("given", {"value": "0-3"}, "0-3"),
        ("cpu_shares", {"request_milli": 500}, 512),
        ("cpu_quota", {"limit_milli": 500, "period_us": 100_000}, 50_000),
        ("cpu_quota", {"limit_milli": 0}, -1),
        ("cpu_quota_normalized", {"quota_us": 100_000, "ratio": "6/5"}, 83_334),
        ("cpu_quota_normalized", {"limit_milli": 1000, "period_us": 100_000, "ratio": "1.2"}, 83_334),
        ("memory_share", {"request_bytes": 1000, "percent": 20, "floor_bytes": 300}, 300),
        ("memory_share", {"request_bytes": 1000, "percent": 0, "floor_bytes": 300}, 0),
        (
            "memory_high",
            {"request_bytes": 4096, "ceiling_bytes": 40_960, "percent": 50, "page_bytes": 4096, "floor_bytes": 0},
            20_480,
        ),
        ("composed", {"value": 200_000, "burst_factor": "3/2", "suppression_at_most": 250_000}, 250_000),
        ("composed", {"value": 200_000, "burst_factor": "1/1000", "minimum": 1000}, 1000),
        ("composed", {"value": "0-7", "suppression_at_most": "0-3", "spec_at_least": "9"}, "0-3,9"),
        ("composed", {"value": -1, "burst_factor": "3/2"}, -1),
        ("composed", {"value": 300_000, "normalization_factor": "5/6", "burst_added": 20_000}, 270_000),
        ("composed", {"value": -1, "burst_added": 20_000}, -1),
    ],
)
def test_results(name: str, inputs: Inputs, result: Value) -> None:
    assert recompute({FORMULA: name, **inputs}) == result
    assert FORMULAS[name].text

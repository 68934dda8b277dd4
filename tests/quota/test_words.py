"""Why a quota may use what it may use, in words."""

from __future__ import annotations

import pytest

from koord.quota import words
from koord.quota.division import Claim, Division
from koord.quota.forest import Level

A, B, C = Claim(40_000, 90_000, 60_000), Claim(30_000, 50_000, 30_000), Claim(20_000, 5_000, 10_000)


@pytest.mark.parametrize(
    ("total", "claims", "name", "text"),
    [
        (100_000, [A, B, C], "A", "min 40, and 16667m of 25 that is left, by weight 60 of 90; it requests 33333m more"),
        (100_000, [A, B, C], "C", "request 5, within min 20; the rest is lent"),
        (100_000, [A, B._replace(request=35_000), C], "B", "all that it requests: min 30, and 5 more"),
        (100_000, [A, B, C._replace(lends=False)], "C", "min 20, which it does not lend"),
        (
            60_000, [A._replace(minimum=80_000), B._replace(minimum=40_000)], "A",
            "min 80 x 60 / 120 = 40, as all minima come to more than there is; of 0 that is left it gets nothing",
        ),
        (
            100_000, [A._replace(guarantee=70_000), B], "A",
            "70, which is guaranteed; of 0 that is left it gets nothing",
        ),
        (100_000, [A._replace(weight=0), C], "A", "min 40; of 55 that is left it gets nothing, having no weight"),
    ],
)  # fmt: skip
def test_why(total: int, claims: list[Claim], name: str, text: str) -> None:
    division = Division()
    for each, claim in zip("ABC", claims, strict=False):
        division.put(each, claim)
    level = Level(name, "p", division.claim(name), division.summary(total), division.share(name, total))
    assert words.why(level, "cpu") == text


def test_the_lines_go_from_the_tree_down() -> None:
    division = Division()
    division.put("A", A)
    level = Level("A", "koordinator-root-quota", A, division.summary(100_000), division.share("A", 100_000))
    assert list(words.lines([level], "cpu")) == [
        "A: 90 of 100 cpu of the tree: all that it requests: min 40, and 50 more"
    ]

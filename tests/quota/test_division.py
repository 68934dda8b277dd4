"""One parent's amount, divided: the worked examples, and the edges of each rule."""

from __future__ import annotations

from random import Random

import pytest

from koord.quota.division import Claim, Division, divide

A, B, C = Claim(40_000, 90_000, 60), Claim(30_000, 50_000, 30), Claim(20_000, 5_000, 10)


@pytest.mark.parametrize(
    ("total", "claims", "runtimes"),
    [
        pytest.param(100_000, [A, B, C], [56_667, 38_333, 5_000], id="C lends; the unit that is over is A's"),
        pytest.param(
            100_000, [A, B._replace(request=35_000), C], [60_000, 35_000, 5_000], id="B has enough: 3333 go back to A"
        ),
        pytest.param(
            100_000, [A, B, C._replace(lends=False)], [46_667, 33_333, 20_000], id="C does not lend what it has"
        ),
        pytest.param(10, [Claim(0, 9, 1), Claim(0, 9, 1), Claim(0, 9, 1)], [4, 3, 3], id="equal remainders, by name"),
        pytest.param(11, [Claim(0, 9, 1), Claim(0, 9, 1), Claim(0, 9, 1)], [4, 4, 3], id="two units over"),
        pytest.param(10, [Claim(0, 9, 0), Claim(0, 4, 1)], [0, 4], id="no weight, no share of what is left"),
        pytest.param(10, [Claim(0, 9, 0), Claim(2, 9, 0)], [0, 2], id="no weights at all: what is left is left"),
        pytest.param(60, [Claim(80, 90, 1), Claim(40, 90, 1)], [40, 20], id="minima are scaled: 80 * 60 / 120"),
        pytest.param(61, [Claim(80, 90, 1), Claim(40, 90, 1)], [41, 20], id="what scaling rounds off is divided"),
        pytest.param(60, [Claim(80, 10, 1), Claim(40, 90, 1)], [10, 50], id="scaled, and lent"),
        pytest.param(60, [Claim(80, 90, 1, True, 70), Claim(40, 90, 1)], [70, 20], id="a guarantee is not scaled"),
        pytest.param(0, [Claim(80, 90, 1), Claim(40, 90, 1)], [0, 0], id="nothing to divide"),
        pytest.param(-5, [Claim(80, 90, 1), Claim(0, 90, 1)], [0, 0], id="less than nothing"),
        pytest.param(100, [], [], id="nobody"),
        pytest.param(
            2**50, [Claim(0, 2**62, 2**46), Claim(0, 2**62, 2**46 - 1)], [2**49 + 4, 2**49 - 4], id="large amounts"
        ),
    ],
)
def test_examples(total: int, claims: list[Claim], runtimes: list[int]) -> None:
    assert list(divide(total, dict(zip("ABC", claims, strict=False))).values()) == runtimes


def test_minima_that_are_not_scaled_may_come_to_more_than_there_is() -> None:
    assert divide(60, {"A": Claim(80, 90, 1), "B": Claim(40, 10, 1)}, scales=False) == {"A": 80, "B": 10}


def test_a_division_says_why() -> None:
    division = Division()
    for name, claim in (("A", A), ("B", B), ("C", C)):
        division.put(name, claim)
    assert division.share("A", 100_000) == (40_000, 50_000, 16_667, 56_667)
    assert division.share("C", 100_000) == (20_000, 0, 0, 5_000)
    assert division.summary(100_000) == (100_000, 90_000, False, 25_000, 70_000, 90)


def test_who_goes_short_and_asks_for_more_changes_nothing() -> None:
    """Also where it asked for less than it got before, or asks for less than it got now."""
    division, claims = Division(), {"A": A, "B": B, "C": C}
    for request in (90_000, 95_000, 56_667, 56_668, 56_666, 40_001, 39_999, 90_000, 57_000):
        claims["A"] = A._replace(request=request)
        for name, claim in claims.items():
            division.put(name, claim)
        assert {name: division.runtime(name, 100_000) for name in claims} == divide(100_000, claims), request


def test_who_has_no_claim_any_more_gets_nothing() -> None:
    division = Division()
    division.put("A", A)
    division.put("B", B)
    assert division.runtime("A", 100_000) == 60_000
    division.remove("B")
    division.remove("nobody")
    assert (division.runtime("A", 100_000), division.runtime("B", 100_000)) == (90_000, 0)


def test_whether_a_child_may_use_as_much_is_by_its_runtime() -> None:
    for seed in range(300):
        draw = Random(seed)
        claims = {
            f"c{index}": Claim(draw.randrange(9), draw.randrange(30), draw.randrange(4), draw.random() < 0.7)
            for index in range(draw.randrange(1, 7))
        }
        total = draw.randrange(60)
        runtimes = divide(total, claims)
        for name, claim in claims.items():
            for amount in range(35):
                division = Division()
                for each, other in claims.items():
                    division.put(each, other)
                assert division.allows(name, amount, total) is (amount <= runtimes[name]), (seed, name, claim, amount)

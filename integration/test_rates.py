from __future__ import annotations

from collections import Counter
from math import isclose
from random import Random

import pytest

from integration.harness.rates import FALSE_ALARM, compare, compare_counts, excess, fisher, power

SEEN, NOT_SEEN = {"kind"}, set[str]()


@pytest.mark.parametrize(
    ("direct", "proxied", "lives", "chance"),
    [
        (0, 0, 8, 1.0),
        (8, 8, 8, 1.0),
        (8, 0, 8, 1.0),
        (0, 1, 8, 1 / 2),
        (0, 8, 8, 1 / 12_870),  # one of the ways to choose 8 of 16
        (1, 8, 8, 8 / 11_440),  # 9 of 16: both sides' lives but one of the direct ones
        (4, 4, 8, 8_885 / 12_870),
    ],
)
def test_the_chance_of_a_table(direct: int, proxied: int, lives: int, chance: float) -> None:
    assert isclose(fisher(direct, lives, proxied, lives), chance)


@pytest.mark.parametrize(
    ("direct", "proxied", "alarm"),
    [(0, 10, True), (1, 10, True), (0, 2, False), (10, 10, False), (9, 10, False), (10, 0, False)],
)
def test_what_is_an_alarm(direct: int, proxied: int, alarm: bool) -> None:
    sides = [[SEEN] * count + [NOT_SEEN] * (10 - count) for count in (direct, proxied)]
    (found,) = compare(*sides)
    assert (found.direct, found.proxied, found.alarm) == (direct, proxied, alarm)


def test_the_more_kinds_there_are_the_more_each_has_to_show() -> None:
    noise = {f"noise {number}" for number in range(200)}
    direct, proxied = [noise] * 10, [noise | SEEN] * 8 + [noise] * 2
    assert not any(each.alarm for each in compare(direct, proxied))
    assert [each.kind for each in compare([NOT_SEEN] * 10, [SEEN] * 8 + [NOT_SEEN] * 2) if each.alarm] == ["kind"]


def test_sides_that_are_alike_raise_an_alarm_as_seldom_as_is_said() -> None:
    """Twelve kinds, each with a rate of its own on both sides; with 1,000 rounds, three deviations are 0.95 %."""
    chance, rounds = Random(1), 1_000
    rates = {f"kind {number}": number / 12 for number in range(12)}

    def life() -> set[str]:
        return {kind for kind, rate in rates.items() if chance.random() < rate}

    alarms = sum(
        any(each.alarm for each in compare([life() for _ in range(8)], [life() for _ in range(8)]))
        for _ in range(rounds)
    )
    assert alarms / rounds <= FALSE_ALARM + 0.0095


def test_power_is_what_a_simulation_finds() -> None:
    chance, rounds, rate, lives = Random(1), 2_000, 0.8, 8
    direct = [NOT_SEEN] * lives
    found = sum(
        compare(direct, [SEEN if chance.random() < rate else NOT_SEEN for _ in range(lives)])[0].alarm
        for _ in range(rounds)
    )
    assert abs(found / rounds - power(rate, lives, 1)) < 0.04
    assert power(1.0, lives, 12) == 1.0
    assert power(1.0, 2, 12) == 0.0


@pytest.mark.parametrize(
    ("pairs", "chance"),
    [
        ([], 1.0),
        ([(0, 0)] * 9, 1.0),
        ([(3, 3)] * 9, 1.0),
        ([(0, 1)] * 10, 1 / 1_024),
        ([(1, 0)] * 10, 1.0),
        ([(0, 1_000)], 1 / 2),
        ([(1, 3), (2, 1), (0, 1)], 3 / 8),  # 5 or more: 3+2+0, 3+1+1, 3+2+1
    ],
)
def test_the_chance_of_counts_in_pairs(pairs: list[tuple[int, int]], chance: float) -> None:
    assert isclose(excess(pairs), chance)


@pytest.mark.parametrize(
    ("direct", "proxied", "alarm"),
    [([1] * 10, [100] * 10, True), ([1, 0] * 5, [0, 1] * 5, False), ([0] * 10, [0] * 9 + [1_000], False)],
    ids=["more each time", "as many", "once"],
)
def test_counts_that_differ(direct: list[int], proxied: list[int], alarm: bool) -> None:
    (found,) = compare_counts([Counter(code=n) for n in direct], [Counter(code=n) for n in proxied])
    assert found.alarm == alarm

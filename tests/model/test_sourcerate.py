"""SourceRate: each source waits for its own, and who would wait for too long is refused."""

from __future__ import annotations

import pytest

from koord.model import sourcerate
from koord.model.sourcerate import SourceRate


class Clock:
    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.mark.parametrize(
    ("at_once", "most_wait_s", "delays_ms"),
    [
        (1, 0.03, [0, 10, 20, 30, None, None]),
        (3, 0.03, [0, 0, 0, 10, 20, 30, None]),
        (2, 0.0, [0, 0, None]),
    ],
)
def test_who_comes_again_and_again_waits_and_is_refused(
    at_once: int, most_wait_s: float, delays_ms: list[int | None]
) -> None:
    rate = SourceRate(100.0, at_once, most_wait_s + 1e-9, Clock())
    found = [rate.delay_s("a") for _ in delays_ms]
    assert [None if delay_s is None else round(delay_s * 1e3) for delay_s in found] == delays_ms
    assert rate.delay_s("b") == 0.0, "others wait for nothing"


def test_who_was_refused_has_lost_nothing() -> None:
    clock = Clock()
    rate = SourceRate(100.0, 1, 0.0, clock)
    assert [rate.delay_s("a") for _ in range(50)] == [0.0, *[None] * 49]
    clock.now_s += 0.0101
    assert rate.delay_s("a") == 0.0


def test_a_pause_gives_no_more_at_once_than_there_may_be() -> None:
    clock = Clock()
    rate = SourceRate(100.0, 3, 1e-9, clock)
    for _ in range(2):
        *delays_s, refused = (rate.delay_s("a") for _ in range(4))
        assert delays_s == [pytest.approx(0.0)] * 3 and refused is None
        clock.now_s += 3600


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sourcerate, "_MOST_REMEMBERED", 10)
    clock = Clock()
    rate = SourceRate(100.0, 1, 1.0, clock)
    for number in range(1000):
        rate.delay_s(f"a{number}")
        clock.now_s += 0.005
    assert len(rate._next_s) <= 12

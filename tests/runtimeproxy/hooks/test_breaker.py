"""A hook server that keeps failing is asked less and less, and one success makes good."""

from __future__ import annotations

from runtimeproxy.hooks.breaker import FAILURES, LONGEST_PAUSE_S, Breaker
from tests.runtimeproxy.hooks.doubles import Clock


def opened(clock: Clock) -> Breaker:
    breaker = Breaker(clock)
    for _ in range(FAILURES):
        assert breaker.allows()
        breaker.failed()
    return breaker


def pauses(breaker: Breaker, clock: Clock, count: int) -> list[float]:
    """How long it stays shut, ``count`` failed probes in a row."""
    found = []
    for _ in range(count):
        begun = clock.now
        while not breaker.allows():
            clock.now += 0.5
        breaker.failed()
        found.append(clock.now - begun)
    return found


def test_it_opens_only_after_failures_in_a_row() -> None:
    breaker = Breaker(Clock())
    for _ in range(FAILURES - 1):
        breaker.failed()
    breaker.succeeded()
    for _ in range(FAILURES - 1):
        breaker.failed()
    assert breaker.allows()


def test_the_pause_grows_to_its_bound() -> None:
    clock = Clock()
    assert pauses(opened(clock), clock, 7) == [1, 2, 4, 8, 16, LONGEST_PAUSE_S, LONGEST_PAUSE_S]


def test_one_probe_at_a_time() -> None:
    clock = Clock()
    breaker = opened(clock)
    assert not breaker.allows()
    clock.now += 1
    assert breaker.allows()
    assert not breaker.allows()


def test_a_probe_given_up_makes_room_for_another() -> None:
    clock = Clock()
    breaker = opened(clock)
    clock.now += 1
    assert breaker.allows()
    breaker.abandoned()
    assert breaker.allows()


def test_a_failure_that_began_before_it_opened_does_not_extend_the_pause() -> None:
    clock = Clock()
    breaker = opened(clock)
    clock.now += 0.9
    breaker.failed()
    clock.now += 0.1
    assert breaker.allows()


def test_success_closes_it_and_resets_the_pause() -> None:
    clock = Clock()
    breaker = opened(clock)
    pauses(breaker, clock, 3)
    while not breaker.allows():
        clock.now += 0.5
    breaker.succeeded()
    for _ in range(FAILURES):
        breaker.failed()
    clock.now += 1
    assert breaker.allows()

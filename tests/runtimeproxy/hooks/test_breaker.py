"""A hook server that keeps failing is asked less and less, and one success makes good."""

from __future__ import annotations

import pytest

from runtimeproxy.hooks.breaker import FAILURES, LONGEST_PAUSE_S, Breaker, Breakers
from runtimeproxy.hooks.stages import CallStage
from tests.fakes.clock import Clock


def opened(clock: Clock) -> Breaker:
    breaker = Breaker(clock.now)
    for _ in range(FAILURES):
        assert breaker.allows()
        breaker.failed()
    return breaker


def pauses(breaker: Breaker, clock: Clock, count: int) -> list[float]:
    """How long it stays shut, ``count`` failed probes in a row."""
    found = []
    for _ in range(count):
        begun = clock.now()
        while not breaker.allows():
            clock.advance(0.5)
        breaker.failed()
        found.append(clock.now() - begun)
    return found


def test_it_opens_only_after_failures_in_a_row() -> None:
    breaker = Breaker(Clock().now)
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
    clock.advance(1)
    assert breaker.allows()
    assert not breaker.allows()


def test_a_probe_given_up_makes_room_for_another() -> None:
    clock = Clock()
    breaker = opened(clock)
    clock.advance(1)
    assert breaker.allows()
    breaker.abandoned()
    assert breaker.allows()


def test_a_failure_that_began_before_it_opened_does_not_extend_the_pause() -> None:
    clock = Clock()
    breaker = opened(clock)
    clock.advance(0.9)
    breaker.failed()
    clock.advance(0.1)
    assert breaker.allows()


def test_success_closes_it_and_resets_the_pause() -> None:
    clock = Clock()
    breaker = opened(clock)
    pauses(breaker, clock, 3)
    while not breaker.allows():
        clock.advance(0.5)
    breaker.succeeded()
    for _ in range(FAILURES):
        breaker.failed()
    clock.advance(1)
    assert breaker.allows()


# of a server's stages

A, B = CallStage.PRE_CREATE, CallStage.PRE_RUN_POD


def after(clock: Clock, *outcomes: tuple[str, CallStage]) -> Breakers:
    """Breakers of a server whose calls ended so, ``FAILURES`` times each."""
    breakers = Breakers(clock.now)
    for outcome, stage in outcomes:
        for _ in range(FAILURES):
            assert breakers.allows(stage)
            getattr(breakers, outcome)(stage)
    return breakers


@pytest.mark.parametrize(
    ("outcome", "stages"),
    [("succeeded", [A, B]), ("abandoned", [A, B]), ("failed", [B]), ("unreachable", [])],
)
def test_what_a_stages_outcomes_mean_for_the_others(outcome: str, stages: list[CallStage]) -> None:
    breakers = after(Clock(), (outcome, A))
    assert [stage for stage in (A, B) if breakers.allows(stage)] == stages


def test_a_stage_that_fails_among_others_that_do_not_opens_by_itself() -> None:
    breakers = Breakers(Clock())
    for _ in range(FAILURES):
        for stage, outcome in ((A, breakers.failed), (B, breakers.succeeded)):
            assert breakers.allows(stage)
            outcome(stage)
    assert [breakers.allows(A), breakers.allows(B)] == [False, True]


def test_a_server_that_is_back_is_asked_at_all_stages_after_one_probe() -> None:
    clock = Clock()
    breakers = after(clock, ("unreachable", A))
    clock.advance(LONGEST_PAUSE_S)
    assert [breakers.allows(B), breakers.allows(A)] == [True, False]
    breakers.succeeded(B)
    assert [breakers.allows(A), breakers.allows(B)] == [True, True]


def test_a_server_that_is_back_and_late_is_back() -> None:
    clock = Clock()
    breakers = after(clock, ("unreachable", A))
    clock.advance(LONGEST_PAUSE_S)
    assert breakers.allows(B)
    breakers.failed(B)
    assert breakers.allows(A)


def test_the_servers_probe_is_not_spent_on_a_stage_that_is_open() -> None:
    clock = Clock()
    breakers = after(clock, ("failed", A))
    for _ in range(FAILURES):
        assert breakers.allows(B)
        breakers.unreachable(B)
    clock.advance(1)
    assert breakers.allows(A)  # both pauses are over
    breakers.failed(A)
    for _ in range(FAILURES):
        assert breakers.allows(B)
        breakers.unreachable(B)
    clock.advance(1.5)  # the server's pause is over, the stage's is not
    assert [breakers.allows(A), breakers.allows(B)] == [False, True]


def test_given_up_probes_leave_both_free() -> None:
    clock = Clock()
    breakers = after(clock, ("unreachable", A))
    clock.advance(LONGEST_PAUSE_S)
    assert breakers.allows(A)
    breakers.abandoned(A)
    assert breakers.allows(A)

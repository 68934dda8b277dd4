"""While nothing can be noted, nothing new is written, and all that is held is given back."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from koord.host.files import Target, Value
from qosd.decide.decision import Opinion
from tests.qosd.act.rig import CPUS, IDLE, QUOTA, SHARES, Rig, wants


@contextmanager
def full(rig: Rig) -> Iterator[None]:
    """No line fits into the record any more. The kernel's files are short."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, ((rig.root / "undo").stat().st_size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


@pytest.mark.parametrize(
    ("target", "value", "base"), [(QUOTA, 50_000, -1), (SHARES, 2, 1024), (CPUS, "0-1", "0-3"), (IDLE, 1, 0)]
)
@pytest.mark.parametrize("crashes", [False, True])
def test_what_is_held_goes_back_without_room_for_a_note(
    rig: Rig, target: Target, value: Value, base: Value, crashes: bool
) -> None:
    rig.say("hooks", (target, wants(value)))
    rig.tick()
    assert rig.holds(target) == value
    with full(rig):
        if crashes:
            rig.crash()
        rig.say("hooks")
        rig.tick()
        assert rig.holds(target) == base
        assert set(rig.journal.results()) == {"done"}
        rig.tick(seconds=60)
    rig.crash()
    rig.tick()
    assert (rig.holds(target), rig.undo.entries) == (base, ())


def test_the_shares_come_back_with_the_end_of_idle(rig: Rig) -> None:
    rig.say("hooks", (IDLE, wants(1)), (SHARES, wants(2)))
    rig.tick()
    rig.put(SHARES, "3")  # as the kernel does
    rig.see(SHARES, IDLE)
    rig.tick()
    with full(rig):
        rig.say("hooks")
        rig.tick()
        assert (rig.holds(IDLE), rig.holds(SHARES)) == (0, 1024)


@pytest.mark.parametrize("wanted", [20_000, 70_000])
def test_a_value_that_the_record_does_not_tell_of_waits(rig: Rig, wanted: int) -> None:
    rig.say("hooks", (QUOTA, wants(50_000)))
    rig.tick()
    with full(rig):
        rig.say("hooks", (QUOTA, wants(wanted)))
        rig.tick()
        assert (rig.holds(QUOTA), rig.journal.results()[-1]) == (50_000, "refused")
    rig.tick(seconds=2)
    assert rig.holds(QUOTA) == wanted


def test_a_value_of_somebody_else_is_not_overwritten_unnoted(rig: Rig) -> None:
    rig.say("hooks", (QUOTA, wants(50_000)))
    rig.tick()
    rig.put(QUOTA, "30000")
    rig.see(QUOTA)
    with full(rig):
        rig.tick()
        assert rig.holds(QUOTA) == 30_000
        rig.say("hooks", (QUOTA, Opinion.release("over")))
        rig.tick(seconds=60)
        assert rig.holds(QUOTA) == 30_000


def test_the_value_before_the_last_one_needs_no_note(rig: Rig) -> None:
    rig.say("hooks", (QUOTA, wants(50_000)))
    rig.tick()
    rig.say("hooks", (QUOTA, wants(40_000)))
    rig.tick()
    with full(rig):
        rig.say("hooks", (QUOTA, wants(50_000)))
        rig.tick()
        assert rig.holds(QUOTA) == 50_000
    rig.crash()
    rig.say("hooks")
    rig.tick()
    assert rig.holds(QUOTA) == -1

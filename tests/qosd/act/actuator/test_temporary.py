"""A value of relief is for a time only: the record tells at any moment what the file is to hold without it."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from koord.host import temporary
from koord.host.files import Target, Value
from qosd.act.ownership import Ownership
from qosd.decide.decision import Opinion, Stage
from tests.qosd.act.rig import BURST, OWNERS, POD, QUOTA, Rig, wants

FREEZE, HIGH = Target(POD, "cgroup.freeze"), Target(POD, "memory.high")
RELIEF = Ownership(Stage.RELIEF, frozenset({"cpu_quota", "memory.high", "cgroup.freeze"}))


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    rig = Rig(tmp_path, 2, owners={**OWNERS, "eviction": RELIEF})
    for target, text in ((QUOTA, "max 100000"), (BURST, "0"), (FREEZE, "0"), (HIGH, "max")):
        rig.put(target, f"{text}\n")
    return rig


def relieve(rig: Rig, *opinions: tuple[Target, Opinion]) -> None:
    rig.say("eviction", *opinions)
    rig.tick()


def at_most(value: Value) -> Opinion:
    return Opinion.at_most(value, "for a while")


@pytest.mark.parametrize(
    ("target", "spec", "opinion", "held", "lasting"),
    [
        (FREEZE, None, wants(1), 1, 0),
        (HIGH, None, at_most(64 << 20), 64 << 20, -1),
        (QUOTA, None, at_most(10_000), 10_000, -1),
        (QUOTA, wants(50_000), at_most(10_000), 10_000, 50_000),
        (QUOTA, wants(50_000), at_most(80_000), 50_000, 50_000),
    ],
)
def test_what_it_is_without(
    rig: Rig, target: Target, spec: Opinion | None, opinion: Opinion, held: Value, lasting: Value
) -> None:
    if spec is not None:
        rig.say("hooks", (target, spec))
        rig.tick()
    relieve(rig, (target, opinion))
    assert rig.holds(target) == held
    temporary.take_back(rig.writer, rig.undo)
    assert rig.holds(target) == lasting
    assert [entry.target for entry in rig.undo.entries] == ([target] if spec else [])


@pytest.mark.parametrize(("before", "after"), [(50_000, 80_000), (80_000, 50_000), (10_000, 80_000)])
def test_it_follows_what_the_others_want_meanwhile(rig: Rig, before: int, after: int) -> None:
    rig.say("hooks", (QUOTA, wants(before)))
    relieve(rig, (QUOTA, at_most(10_000)))
    rig.say("hooks", (QUOTA, wants(after)))
    rig.tick()
    assert rig.holds(QUOTA) == 10_000
    rig.crash()
    temporary.take_back(rig.writer, rig.undo)
    assert rig.holds(QUOTA) == after


def test_its_end_leaves_nothing_to_take_back(rig: Rig) -> None:
    rig.say("hooks", (QUOTA, wants(50_000)))
    relieve(rig, (QUOTA, at_most(10_000)), (FREEZE, wants(1)))
    relieve(rig)
    assert [entry.lasting for entry in rig.undo.entries] == [50_000], "which is what the file holds"
    rig.crash()
    assert temporary.take_back(rig.writer, rig.undo) == ()
    assert (rig.holds(QUOTA), rig.holds(FREEZE)) == (50_000, 0)


def test_a_burst_comes_back_with_its_quota(rig: Rig) -> None:
    rig.put(BURST, "80000\n")
    rig.say("hooks", (QUOTA, wants(100_000)))
    rig.tick()
    relieve(rig, (QUOTA, at_most(10_000)))
    assert (rig.holds(QUOTA), rig.holds(BURST)) == (10_000, 10_000)
    rig.crash()
    temporary.take_back(rig.writer, rig.undo)
    assert (rig.holds(QUOTA), rig.holds(BURST)) == (100_000, 80_000)


@pytest.mark.parametrize(("helps", "left"), [(False, -1), (True, 30_000)])
def test_a_trial_ends_with_the_daemon_unless_it_has_helped(rig: Rig, helps: bool, left: int) -> None:
    trial = Opinion.at_most(30_000, "on trial")
    for is_temporary in (True, not helps):
        rig.say("suppress", (QUOTA, replace(trial, is_temporary=is_temporary)))
        rig.tick()
    rig.crash()
    temporary.take_back(rig.writer, rig.undo)
    assert rig.holds(QUOTA) == left


def test_a_next_run_takes_over_what_lasts(rig: Rig) -> None:
    rig.say("hooks", (QUOTA, wants(50_000)))
    relieve(rig, (QUOTA, at_most(10_000)), (FREEZE, wants(1)))
    rig.crash()
    temporary.take_back(rig.writer, rig.undo)
    rig.crash()
    rig.say("eviction")
    rig.tick()
    assert (rig.holds(QUOTA), rig.holds(FREEZE)) == (50_000, 0)
    rig.say("hooks")
    rig.tick()
    assert (rig.holds(QUOTA), rig.undo.entries) == (-1, ())


def test_taken_back_beside_the_daemon_it_is_no_other_writers_value(rig: Rig) -> None:
    """Whoever ends a pod does that before the daemon hears of it."""
    rig.say("hooks", (QUOTA, wants(50_000)))
    relieve(rig, (QUOTA, at_most(10_000)))
    rig.put(QUOTA, "50000 100000\n")
    rig.see(QUOTA)
    rig.tick()
    assert (rig.holds(QUOTA), "foreign" in rig.journal.results()) == (10_000, False)
    relieve(rig)
    rig.say("hooks")
    rig.tick()
    assert rig.holds(QUOTA) == -1


def test_a_limit_that_the_kernel_takes_late_is_ours(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not read back, and then stands there without anybody's doing: relief that is over lifts it."""
    late: list[tuple[Target, Value]] = []
    with monkeypatch.context() as patch:
        patch.setattr(rig.writer, "write", lambda target, value: late.append((target, value)))
        relieve(rig, (HIGH, at_most(64 << 20)))
    for target, value in late:
        rig.writer.write(target, value)
    rig.see(HIGH)
    rig.tick()
    assert [(entry.base, entry.lasting) for entry in rig.undo.entries] == [(-1, -1)]
    relieve(rig)
    rig.tick()
    assert (rig.holds(HIGH), list(rig.undo.entries)) == (-1, [])

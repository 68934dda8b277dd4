"""The state machine of one kernel file, as a table: state, what is found, what is wanted, and what follows."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from koord.host.files import Value
from koord.host.reconcile.state import FREE, FileState, Phase
from koord.host.reconcile.step import FIGHT_WITHIN_NS, FORGIVEN_AFTER_NS, Observed, Transition, step, step_shares
from koord.host.reconcile.wanted import Wanted
from koord.host.writer import Reading

NOW_NS = 10_000 * 1_000_000_000
PATH, INODE = "/cg/cpu.cfs_quota_us", 7
RELEASE, KEEP = Wanted(why="nobody"), Wanted(keep=True, why="frozen")
HELD = FileState(Phase.HELD, PATH, INODE, base=-1, written=50, by="hooks", since_ns=5)
CONTESTED = FileState(Phase.CONTESTED, PATH, INODE, since_ns=NOW_NS - 1, contested="fights")


@dataclass
class Exact:
    """Values are the same if they are equal; ``attainable`` changes nothing."""

    def same(self, wanted: Value, reading: Value) -> bool:
        return wanted == reading

    def comes_of(self, written: Value, reading: Value) -> bool:
        return written == reading

    def attainable(self, value: Value) -> Value:
        return value


def want(value: Value) -> Wanted:
    return Wanted(value, "hooks", "spec")


def observed(state: FileState, reading: Value | None, wanted: Wanted, inode: int = INODE) -> Observed:
    file = None if reading is None else Reading(PATH, inode, reading)
    return Observed(state, file, lambda base: wanted, ((1, "hooks"),), Exact(), NOW_NS)


def told(transition: Transition) -> tuple[Phase, Value | None, Phase]:
    """Phase without the write, the write, and the phase after it."""
    return transition.state.phase, transition.write, transition.after.phase


_FREE, _HELD, _CONTESTED = Phase.FREE, Phase.HELD, Phase.CONTESTED


@pytest.mark.parametrize(
    ("state", "reading", "wanted", "expected"),
    [
        (FREE, 100, want(100), (_HELD, None, _FREE)),
        (FREE, 100, want(50), (_FREE, 50, _HELD)),
        (FREE, 100, RELEASE, (_FREE, None, _FREE)),
        (FREE, 100, KEEP, (_FREE, None, _FREE)),
        (FREE, None, want(50), (_FREE, None, _FREE)),
        (HELD, 50, want(50), (_HELD, None, _FREE)),
        (HELD, 50, want(60), (_HELD, 60, _HELD)),
        (HELD, 50, RELEASE, (_HELD, -1, _FREE)),
        (HELD, 50, KEEP, (_HELD, None, _FREE)),
        (HELD, None, want(50), (_FREE, None, _FREE)),
        (HELD, 99, want(50), (_HELD, 50, _HELD)),
        (HELD, 99, want(99), (_HELD, None, _FREE)),
        (HELD, 99, RELEASE, (_FREE, None, _FREE)),
        (HELD, 99, KEEP, (_HELD, None, _FREE)),
        (CONTESTED, 99, want(50), (_CONTESTED, None, _FREE)),
        (CONTESTED, 50, want(50), (_HELD, None, _FREE)),
        (CONTESTED, 99, RELEASE, (_FREE, None, _FREE)),
        (CONTESTED, 99, KEEP, (_CONTESTED, None, _FREE)),
    ],
)
def test_what_follows(
    state: FileState, reading: Value | None, wanted: Wanted, expected: tuple[Phase, Value | None, Phase]
) -> None:
    assert told(step(observed(state, reading, wanted))) == expected


def test_another_file_of_the_same_path_is_free_and_the_record_outdated() -> None:
    transition = step(observed(HELD, 50, want(50), inode=INODE + 1))
    assert (transition.state.base, transition.is_outdated, transition.write) == (50, True, None)
    assert told(step(observed(CONTESTED, 99, want(50), inode=INODE + 1))) == (_FREE, 50, _HELD)


def test_a_foreign_value_is_the_base_from_now_on() -> None:
    transition = step(observed(HELD, 99, want(50)))
    assert (transition.after.base, transition.state.base, transition.is_foreign) == (99, 99, True)
    assert transition.is_outdated


def test_an_unchanged_file_keeps_the_very_same_state() -> None:
    claimed = step(observed(FREE, 50, want(50))).state
    assert step(observed(claimed, 50, want(50))).state is claimed


@pytest.mark.parametrize(
    ("times", "same_times", "value", "ago_ns", "gives_up"),
    [
        (1, 1, 99, 0, False),
        (2, 2, 99, FIGHT_WITHIN_NS - 1, True),
        (2, 2, 99, FIGHT_WITHIN_NS, False),
        (2, 2, 98, 0, False),
        (4, 1, 99, 0, False),
        (5, 1, 98, FIGHT_WITHIN_NS - 1, True),
        (9, 9, 99, FIGHT_WITHIN_NS, False),
    ],
)
def test_who_writes_the_same_soon_a_third_time_or_anything_a_sixth_time_has_the_file(
    times: int, same_times: int, value: int, ago_ns: int, gives_up: bool
) -> None:
    state = FileState(
        Phase.HELD, PATH, INODE, -1, 50, restored_ns=NOW_NS - ago_ns,
        restored_times=times, restored_same_times=same_times, restored_value=value,
    )  # fmt: skip
    transition = step(observed(state, 99, want(50)))
    assert transition.gives_up is gives_up
    assert told(transition) == ((_CONTESTED, None, _FREE) if gives_up else (_HELD, 50, _HELD))


@pytest.mark.parametrize(
    ("since_ns", "tried"), [(NOW_NS - FORGIVEN_AFTER_NS + 1, False), (NOW_NS - FORGIVEN_AFTER_NS, True)]
)
def test_a_contested_file_is_tried_once_when_it_is_forgiven(since_ns: int, tried: bool) -> None:
    state = FileState(Phase.CONTESTED, PATH, INODE, since_ns=since_ns, contested="fights")
    transition = step(observed(state, 99, want(50)))
    assert told(transition) == ((_CONTESTED, 50, _HELD) if tried else (_CONTESTED, None, _FREE))
    if tried:  # one more foreign value, and it is left alone at once
        assert step(observed(replace(transition.after, written=50), 99, want(50))).gives_up


def test_what_systemd_makes_of_a_value_is_not_foreign() -> None:
    state = FileState(Phase.HELD, PATH, INODE, -1, 33_333, systemd_value=34_000)
    assert not step(observed(state, 34_000, want(33_333))).is_foreign


@pytest.mark.parametrize(
    ("state", "wanted", "idle", "ours", "expected"),
    [
        (HELD, RELEASE, True, False, (_FREE, None, _FREE)),
        (HELD, RELEASE, True, True, (_HELD, None, _FREE)),
        (HELD, want(60), True, False, (_HELD, None, _FREE)),
        (HELD, want(60), False, True, (_HELD, 60, _HELD)),
        (HELD, RELEASE, False, True, (_HELD, -1, _FREE)),
        (FREE, want(60), True, True, (_HELD, None, _FREE)),
    ],
)
def test_shares_follow_idle(
    state: FileState, wanted: Wanted, idle: bool, ours: bool, expected: tuple[Phase, Value | None, Phase]
) -> None:
    transition = step_shares(observed(state, 3, wanted), idle, ours)
    assert told(transition) == expected
    assert transition.state.follows is transition.state.is_held


_VALUES = st.sampled_from([-1, 50, 60, 99])
_WANTED = st.one_of(st.builds(want, _VALUES), st.just(RELEASE), st.just(KEEP))


@given(st.lists(st.tuples(_WANTED, st.none() | _VALUES, st.integers(0, 2 * FORGIVEN_AFTER_NS)), max_size=30))
def test_what_is_put_back_is_always_what_someone_else_wrote_last(
    history: list[tuple[Wanted, Value | None, int]],
) -> None:
    """A file and another writer, with every transition's write carried out."""
    state, now_ns = FREE, NOW_NS
    holds: Value = -1
    theirs: Value = -1
    for wanted, foreign, pause_ns in history:
        now_ns += pause_ns
        if foreign is not None and foreign != holds:  # the same value again is seen by nobody
            holds = theirs = foreign
        transition = step(
            Observed(state, Reading(PATH, INODE, holds), lambda base, w=wanted: w, (), Exact(), now_ns)  # type: ignore[misc]
        )
        state = transition.state
        if transition.write is not None:
            state, holds = transition.after, transition.write
            if state.is_held:
                state = replace(state, written=holds)
        if state.is_held:
            assert state.base == theirs
        if state is FREE and not wanted.keep:
            assert holds == theirs

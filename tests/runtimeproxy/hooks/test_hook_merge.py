"""What counts as an opinion: everything said by a server with presence, only differences of any other."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtimeproxy.hooks.edits import ANNOTATIONS, ENVS, HUGEPAGE_LIMITS, RESOURCE_INTS, UNIFIED, Edits, Slot, value
from runtimeproxy.hooks.merge import wanted_edits

QUOTA, SHARES, PERIOD, OOM = (Slot(name) for name in ("cpu_quota", "cpu_shares", "cpu_period", "oom_score_adj"))
MEMORY, CPUS, MEMS = Slot("memory_limit_in_bytes"), Slot("cpuset_cpus"), Slot("cpuset_mems")
NOTE, ENV = Slot(ANNOTATIONS, "note"), Slot(ENVS, "A")
HUGE, HIGH = Slot(HUGEPAGE_LIMITS, "2MB"), Slot(UNIFIED, "memory.high")

SHOWN: Edits = {
    QUOTA: 100_000,
    PERIOD: 100_000,
    SHARES: 2,
    OOM: 1000,
    CPUS: "0-7",
    NOTE: "x",
    ENV: b"1",
    HUGE: 0,
    HIGH: "max",
}
ECHO = dict(SHOWN)


def less(*slots: Slot) -> Edits:
    return {slot: said for slot, said in ECHO.items() if slot not in slots}


@pytest.mark.parametrize(
    ("said", "edits"),
    [
        pytest.param({}, {}, id="silence"),
        pytest.param(ECHO, {}, id="echo"),
        pytest.param({SHARES: 1024}, {SHARES: 1024}, id="a sparse answer clears nothing"),
        pytest.param({**ECHO, QUOTA: 0}, {}, id="zero is no opinion"),
        pytest.param(less(OOM), {}, id="oom_score_adj does not come back: no opinion"),
        pytest.param({**ECHO, OOM: 0}, {}, id="oom_score_adj 0 counts only if it was 0"),
        pytest.param(less(CPUS), {CPUS: ""}, id="an echo without the CPU set clears it"),
        pytest.param(less(CPUS, SHARES), {}, id="no full echo, no clearing"),
        pytest.param(
            {QUOTA: 1, PERIOD: 1, SHARES: 1, OOM: 1},
            {QUOTA: 1, PERIOD: 1, SHARES: 1, OOM: 1},
            id="nothing comes back as it was: no echo",
        ),
        pytest.param(less(NOTE, ENV, HUGE, HIGH), {}, id="missing entries are never deletions"),
        pytest.param({**ECHO, QUOTA: -1}, {QUOTA: -1}, id="no quota"),
        pytest.param({**ECHO, MEMORY: -1, SHARES: -5}, {}, id="other negatives are none"),
        pytest.param({**ECHO, OOM: -500}, {OOM: -500}, id="oom_score_adj may be negative"),
        pytest.param(
            {**ECHO, NOTE: "y", ENV: b"2", HIGH: "1"}, {NOTE: "y", ENV: b"2", HIGH: "1"}, id="changed entries"
        ),
        pytest.param({**ECHO, Slot(ENVS, "B"): b""}, {Slot(ENVS, "B"): b""}, id="a new empty variable"),
        pytest.param({**ECHO, HUGE: 7}, {HUGE: 7}, id="hugepages"),
    ],
)
def test_a_server_without_presence(said: Edits, edits: Edits) -> None:
    assert wanted_edits(SHOWN, said, {}, presence=False) == edits


def test_without_presence_removed_lists_do_not_exist() -> None:
    assert wanted_edits(SHOWN, ECHO, {NOTE: None}, presence=False) == {}


def test_nothing_to_recognise_an_echo_by() -> None:
    assert wanted_edits({CPUS: "0-3"}, {}, {}, presence=False) == {}


@pytest.mark.parametrize(
    ("said", "removed", "edits"),
    [
        pytest.param({}, {}, {}, id="absent is untouched"),
        pytest.param({QUOTA: 0}, {}, {QUOTA: 0}, id="explicit zero"),
        pytest.param({CPUS: ""}, {}, {CPUS: ""}, id="explicit empty"),
        pytest.param({MEMORY: 0, MEMS: ""}, {}, {}, id="zero where nothing was"),
        pytest.param({}, {NOTE: None, ENV: None}, {NOTE: None, ENV: None}, id="deletions"),
        pytest.param({}, {Slot(ENVS, "missing"): None}, {}, id="deletion of nothing"),
        pytest.param({MEMORY: -1}, {}, {MEMORY: -1}, id="unlimited memory"),
        pytest.param({OOM: 0}, {}, {OOM: 0}, id="oom_score_adj 0"),
        pytest.param({QUOTA: 100_000}, {}, {}, id="what it is already"),
        pytest.param({HUGE: 0}, {}, {}, id="hugepages as they are"),
    ],
)
def test_a_server_with_presence(said: Edits, removed: Edits, edits: Edits) -> None:
    assert wanted_edits(SHOWN, said, removed, presence=True) == edits


scalars = st.dictionaries(st.sampled_from(RESOURCE_INTS).map(Slot), st.integers(-2, 3))


@given(scalars, scalars, st.booleans())
def test_every_edit_changes_something(shown: Edits, said: Edits, presence: bool) -> None:
    for slot, new in wanted_edits(shown, said, {}, presence=presence).items():
        assert new != value(shown, slot)


@given(scalars, scalars)
def test_without_presence_no_edit_is_a_zero(shown: Edits, said: Edits) -> None:
    assert 0 not in wanted_edits(shown, said, {}, presence=False).values()

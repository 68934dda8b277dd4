"""The table of states against a plain dict: what it lists besides follows from the states."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from koord.host.files import Target
from koord.host.reconcile.state import FREE, FileState, FileStates, Phase, Retry, backoff_ns

TARGETS = [Target(f"/g{number}", "cpu_quota") for number in range(4)]
_STATES = st.builds(
    lambda phase, path, due_ns: FileState(
        phase, path, retry=None if due_ns is None else Retry(5, 1, due_ns, "refused")
    ),
    st.sampled_from(Phase),
    st.sampled_from(["/a", "/b"]),
    st.none() | st.integers(0, 20),
)


@given(
    st.lists(st.one_of(st.tuples(st.sampled_from(TARGETS), _STATES), st.sampled_from(TARGETS)), max_size=40),
    st.integers(0, 20),
)
def test_what_is_listed_follows_from_the_states(acts: list[tuple[Target, FileState] | Target], now_ns: int) -> None:
    """A target alone: it was looked at."""
    states = FileStates({})
    model: dict[Target, FileState] = {}
    order: list[Target] = []
    for act in acts:
        if isinstance(act, Target):
            states.seen(act)
            order = [each for each in order if each != act] + ([act] if act in order else [])
            continue
        target, state = act
        states.put(target, state)
        model[target] = state
        watched = state.phase is not Phase.FREE
        order = [each for each in order if each != target or watched]
        order += [target] if watched and target not in order else []
        assert states.due(now_ns) == [
            each for each in states if (retry := states[each].retry) is not None and retry.due_ns <= now_ns
        ]
    kept = {target: state for target, state in model.items() if state.phase is not Phase.FREE or state.retry}
    assert dict(states) == kept
    assert [*states.longest_unseen(len(TARGETS))] == order
    assert states.watched == len(order)
    for path in ("/a", "/b"):
        assert {*states.at(path)} == {each for each in order if kept[each].path == path}


def test_what_says_nothing_is_not_kept() -> None:
    states = FileStates({TARGETS[0]: FREE})
    assert (dict(states), states.at("")) == ({}, ())


def test_a_failed_attempt_waits_longer_each_time_and_at_most_a_minute() -> None:
    state, waits = FREE, []
    for _ in range(9):
        state = state.delayed(5, 0, "refused")
        assert state.retry is not None
        waits.append(state.retry.due_ns // 1_000_000_000)
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60, 60]
    assert backoff_ns(10_000) == 60 * 1_000_000_000

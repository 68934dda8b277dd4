"""Whose connection goes where there are too many."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from koord.model.connectionlimit import ConnectionLimit


def test_who_has_most_makes_room() -> None:
    limit = ConnectionLimit[str](4)
    assert [limit.add(f"flood-{number}", "flood") for number in range(4)] == [None] * 4
    assert limit.add("api", "server") == "flood-0"
    assert limit.add("flood-4", "flood") == "flood-1", "a source that comes again gives its own"
    assert limit.add("scraper", "monitoring") == "flood-2"
    assert len(limit) == 4


def test_what_was_of_use_goes_last() -> None:
    limit = ConnectionLimit[str](2)
    limit.add("first", "a")
    limit.add("second", "a")
    limit.use("first")
    assert limit.add("third", "b") == "second"


def test_of_sources_with_as_many_the_longest_waiting_goes() -> None:
    limit = ConnectionLimit[str](2)
    limit.add("first", "a")
    limit.add("second", "b")
    assert limit.add("third", "c") == "first"
    assert limit.add("fourth", "c") == "third"


def test_a_connection_that_is_closed_gives_its_place() -> None:
    limit = ConnectionLimit[str](1)
    limit.add("first", "a")
    limit.discard("first")
    limit.discard("first")
    limit.use("first")
    assert limit.add("second", "b") is None


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["add", "use", "close"])), max_size=60))
def test_there_are_never_too_many_and_nobody_gives_while_another_has_more(steps: list[tuple[str, str]]) -> None:
    limit, open_, most = ConnectionLimit[int](5), dict[int, str](), 5
    for number, (source, what) in enumerate(steps):
        if what == "add":
            open_[number] = source
            gone = limit.add(number, source)
            if gone is not None:
                counts = Counter(open_.values())
                assert counts[open_[gone]] == max(counts.values())
                del open_[gone]
        elif open_:
            key = next((key for key, owner in open_.items() if owner == source), next(iter(open_)))
            if what == "use":
                limit.use(key)
            else:
                limit.discard(key)
                del open_[key]
        assert len(limit) == len(open_) <= most

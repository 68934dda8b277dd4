"""Whose connection goes where there are too many."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from koord.model.connectionlimit import FORGOTTEN_S, STANDING_S, ConnectionLimit


def test_who_has_most_makes_room() -> None:
    limit = ConnectionLimit[str](4, lambda: 0.0)
    assert [limit.add(f"flood-{number}", "flood") for number in range(4)] == [None] * 4
    assert limit.add("api", "server") == "flood-0"
    assert limit.add("flood-4", "flood") == "flood-1", "a source that comes again gives its own"
    assert limit.add("scraper", "monitoring") == "flood-2"
    assert len(limit) == 4


def test_what_was_of_use_goes_last() -> None:
    limit = ConnectionLimit[str](2, lambda: 0.0)
    limit.add("first", "a")
    limit.add("second", "a")
    limit.use("first")
    assert limit.add("third", "b") == "second"


def test_of_sources_with_as_many_the_longest_waiting_goes() -> None:
    limit = ConnectionLimit[str](2, lambda: 0.0)
    limit.add("first", "a")
    limit.add("second", "b")
    assert limit.add("third", "c") == "first"
    assert limit.add("fourth", "c") == "third"


def test_a_connection_that_is_closed_gives_its_place() -> None:
    limit = ConnectionLimit[str](1, lambda: 0.0)
    limit.add("first", "a")
    limit.discard("first")
    limit.discard("first")
    limit.use("first")
    assert limit.add("second", "b") is None


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["add", "use", "close"])), max_size=60))
def test_there_are_never_too_many_and_nobody_gives_while_another_has_more(steps: list[tuple[str, str]]) -> None:
    limit, open_, most = ConnectionLimit[int](5, lambda: 0.0), dict[int, str](), 5
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


def test_networks_give_before_addresses_of_a_smaller_one() -> None:
    limit = ConnectionLimit[str](6, lambda: 0.0)
    for number in range(4):
        limit.add(f"tenant-{number}", f"2001:db8::{number + 1}")
    limit.add("api-0", "10.0.0.1")
    limit.add("api-1", "10.0.0.1")
    assert limit.add("api-2", "10.0.0.1") == "tenant-0"
    assert limit.add("api-3", "10.0.0.2") == "api-0", "of one network the address with most"


def test_who_was_of_use_for_long_keeps_places_however_many_networks_come() -> None:
    now_s = 0.0
    limit = ConnectionLimit[str](64, lambda: now_s)
    for at_s in (0.0, STANDING_S):
        now_s = at_s
        limit.add(f"api-{at_s:g}", "10.0.0.1")
        limit.use(f"api-{at_s:g}")
    given = []
    for number in range(200):
        key = f"stranger-{number}"
        given.append(limit.add(key, f"172.16.{number}.1"))
        limit.use(key)
    assert [key for key in given if key is not None and key.startswith("api")] == []
    now_s += FORGOTTEN_S
    given = [limit.add(f"late-{number}", f"172.17.{number}.1") for number in range(4)]
    assert given[0] == "api-0", "it has not been of use since"


def test_strangers_give_before_those_who_are_known_and_keep_a_part() -> None:
    limit = ConnectionLimit[str](8, lambda: 0.0)
    for number in range(7):
        limit.add(f"known-{number}", "10.0.0.1", is_known=True)
    limit.add("stranger-0", "10.1.0.1")
    assert limit.add("stranger-1", "10.2.0.1") == "stranger-0"
    assert limit.add("known-7", "10.0.0.1", is_known=True) == "known-0", "one part of eight is the strangers'"
    limit.discard("stranger-1")
    assert limit.add("known-8", "10.0.0.2", is_known=True) is None
    assert limit.add("known-9", "10.0.0.1", is_known=True) == "known-1"

"""Equal parts of many objects: one of them is kept, in a table that does not grow without bound."""

from __future__ import annotations

from koord_manager.kept.parts import Parts


def test_the_first_of_all_that_are_equal() -> None:
    parts = Parts()
    first, second = {"a": "1"}, {"a": "1"}
    assert parts.one(first) is first
    assert parts.one(second) is first
    assert parts.one({"a": "2"}) == {"a": "2"}


def test_equal_texts_of_different_kinds_are_not_one() -> None:
    """An empty tuple and an empty list read alike in JSON."""
    parts = Parts()
    assert [parts.one(()), parts.one([])] == [(), []]


def test_the_table_is_bounded() -> None:
    parts = Parts(most=10)
    for number in range(1000):
        assert parts.one(str(number)) == str(number)
        assert len(parts) <= 10

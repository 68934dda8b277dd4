"""The first few of many: none is left out without being counted."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koord.model.excerpt import shorten_list


@pytest.mark.parametrize(
    ("items", "most", "expected"),
    [
        ([], 2, ()),
        (["a", "b"], 2, ("a", "b")),
        (["a", "b", "c"], 2, ("a", "b", "and 1 more")),
        (["a", "b"], 0, ("and 2 more",)),
    ],
)
def test_few(items: list[str], most: int, expected: tuple[str, ...]) -> None:
    assert shorten_list(items, most) == expected


def test_the_rest_in_other_words() -> None:
    assert shorten_list(["a", "b", "c"], 1, "more nodes", "here: ") == ("a", "here: and 2 more nodes")


@given(st.lists(st.text()), st.integers(0, 10))
def test_every_item_is_there_or_counted(items: list[str], most: int) -> None:
    shown = shorten_list(items, most)
    assert list(shown[:most]) == items[:most]
    assert list(shown[most:]) == ([f"and {len(items) - most} more"] if len(items) > most else [])

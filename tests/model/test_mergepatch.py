"""Merge patches: the ones that are made, and that applying one gives what it was made for."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koord.model import mergepatch

SCALARS = st.integers(0, 3) | st.sampled_from(["", "a"]) | st.booleans()
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.dictionaries(st.sampled_from("abc"), inner, max_size=3) | st.lists(inner, max_size=2),
    max_leaves=8,
)
DOCUMENTS = st.dictionaries(st.sampled_from("abc"), VALUES, max_size=3)


def applied(document: Any, patch: Any) -> Any:
    """RFC 7386, section 2."""
    if not isinstance(patch, dict):
        return patch
    result = dict(document) if isinstance(document, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = applied(result.get(key), value)
    return result


@pytest.mark.parametrize(
    ("before", "after", "patch"),
    [
        ({}, {}, {}),
        ({"a": 1}, {"a": 1}, {}),
        ({"a": 1}, {"a": 2}, {"a": 2}),
        ({"a": 1}, {}, {"a": None}),
        ({"a": {"b": 1, "c": 2}}, {"a": {"b": 1}}, {"a": {"c": None}}),
        ({"a": [1, 2]}, {"a": [1]}, {"a": [1]}),
        ({"a": {"b": 1}}, {"a": {}}, {"a": {"b": None}}),
        ({"a": 1}, {"a": {"b": 1}}, {"a": {"b": 1}}),
        ({"a": {"b": 1}}, {"a": 1}, {"a": 1}),
        ({}, {"a": {}}, {"a": {}}),
        ({"a": 1}, {"a": True}, {"a": True}),
        ({"a": [0, 0]}, {"a": [0, False]}, {"a": [0, False]}),
        ({"a": [{"b": [1]}]}, {"a": [{"b": [True]}]}, {"a": [{"b": [True]}]}),
        ({"a": [{"b": 1}]}, {"a": [{"b": 1}]}, {}),
    ],
)
def test_diff(before: dict[str, Any], after: dict[str, Any], patch: dict[str, Any]) -> None:
    made = mergepatch.diff(before, after)
    assert repr(made) == repr(patch)


@given(DOCUMENTS, DOCUMENTS)
def test_applying_gives_what_it_was_made_for(before: dict[str, Any], after: dict[str, Any]) -> None:
    patch = mergepatch.diff(before, after)
    assert repr(_sorted(applied(before, patch))) == repr(_sorted(after))
    assert mergepatch.diff(after, after) == {}


def _sorted(value: Any) -> Any:
    return {key: _sorted(value[key]) for key in sorted(value)} if isinstance(value, dict) else value

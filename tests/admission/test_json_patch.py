"""JSON Patch: the difference of any two documents, applied by an applier of the tests' own, gives the second."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koord.admission import jsonpatch
from koord.admission.jsonpatch import diff
from tests.admission.objects import patched

KEYS = st.sampled_from(["a", "b", "a/b", "m~n", "~1", "", "0", "-"])
SCALARS = st.none() | st.booleans() | st.integers(-2, 2) | st.sampled_from([0.0, 1.0, 1.5]) | st.text(max_size=2)
DOCUMENTS = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4), max_leaves=12
)


@pytest.mark.parametrize(
    ("before", "after", "operations"),
    [
        pytest.param({}, {}, [], id="equal"),
        pytest.param({"a": None}, {"a": None}, [], id="null-equals-null"),
        pytest.param({"a": 1}, {}, [{"op": "remove", "path": "/a"}], id="removed"),
        pytest.param({}, {"a": None}, [{"op": "add", "path": "/a", "value": None}], id="null-is-a-value"),
        pytest.param({"a": 1}, {"a": True}, [{"op": "replace", "path": "/a", "value": True}], id="1-is-not-true"),
        pytest.param({"a": 0}, {"a": 0.0}, [{"op": "replace", "path": "/a", "value": 0.0}], id="0-is-not-0.0"),
        pytest.param([1], {"0": 1}, [{"op": "replace", "path": "", "value": {"0": 1}}], id="the-whole"),
        pytest.param(
            {"metadata": {}},
            {"metadata": {"labels": {"koordinator.sh/qosClass": "BE"}}},
            [{"op": "add", "path": "/metadata/labels", "value": {"koordinator.sh/qosClass": "BE"}}],
            id="the-missing-parent-comes-with-it",
        ),
        pytest.param(
            {"l": {"a.b/c": "x", "m~n": "y"}},
            {"l": {"a.b/c": "z"}},
            [{"op": "replace", "path": "/l/a.b~1c", "value": "z"}, {"op": "remove", "path": "/l/m~0n"}],
            id="escapes",
        ),
        pytest.param(
            {"c": [1, 2, 3, 4]},
            {"c": [1, 5]},
            [
                {"op": "replace", "path": "/c/1", "value": 5},
                {"op": "remove", "path": "/c/3"},
                {"op": "remove", "path": "/c/2"},
            ],
            id="shorter-from-the-end",
        ),
        pytest.param(
            [{"a": 1}],
            [{"a": 2}, 3, 4],
            [
                {"op": "replace", "path": "/0/a", "value": 2},
                {"op": "add", "path": "/1", "value": 3},
                {"op": "add", "path": "/2", "value": 4},
            ],
            id="longer-at-the-end",
        ),
    ],
)
def test_operations(before: Any, after: Any, operations: list[dict[str, Any]]) -> None:
    assert diff(before, after) == operations


@pytest.mark.parametrize("many", [0, 2, 16])
@given(before=DOCUMENTS, after=DOCUMENTS)
def test_applied_it_gives_the_second_document(many: int, before: Any, after: Any) -> None:
    """Whatever is compared by its encoding first."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jsonpatch, "_MANY", many)
        operations = diff(before, after)
    assert json.dumps(patched(before, operations), sort_keys=True) == json.dumps(after, sort_keys=True)


@pytest.mark.parametrize("many", [0, 16])
@given(document=DOCUMENTS)
def test_without_a_difference_it_is_empty(many: int, document: Any) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jsonpatch, "_MANY", many)
        assert diff(document, json.loads(json.dumps(document))) == []

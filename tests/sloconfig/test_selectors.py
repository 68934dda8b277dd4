"""Whether one node can match several selectors: against every node that there could be."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koord.model import schema
from koord.model.selector import LabelSelector, Operator, Requirement
from koord.sloconfig import selectors


def of(document: Any) -> LabelSelector:
    return schema.read(LabelSelector, document)


def expression(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


X1, X2, Y1 = ({"matchLabels": labels} for labels in ({"x": "1"}, {"x": "2"}, {"y": "1"}))


@pytest.mark.parametrize(
    ("documents", "labels"),
    [
        pytest.param([X1], {"x": "1"}, id="one"),
        pytest.param([X1, X1], {"x": "1"}, id="alike"),
        pytest.param([X1, X2], None, id="two values of one label"),
        pytest.param([X1, Y1], {"x": "1", "y": "1"}, id="two labels"),
        pytest.param([X1, {}], {"x": "1"}, id="everything"),
        pytest.param([{}, {}], {}, id="everything twice"),
        pytest.param([X1, expression("x", "In", "2", "1")], {"x": "1"}, id="in the list"),
        pytest.param([X1, expression("x", "In", "2", "3")], None, id="not in the list"),
        pytest.param([expression("x", "In", "1", "2"), expression("x", "In", "2", "3")], {"x": "2"}, id="two lists"),
        pytest.param([X1, expression("x", "NotIn", "2")], {"x": "1"}, id="not excluded"),
        pytest.param([X1, expression("x", "NotIn", "1")], None, id="excluded"),
        pytest.param([expression("x", "NotIn", "1"), expression("x", "NotIn", "2")], {}, id="absent is not in"),
        pytest.param(
            [expression("x", "Exists"), expression("x", "NotIn", "any-0", "any-1")],
            {"x": "any-2"},
            id="some value that is not excluded",
        ),
        pytest.param([X1, expression("x", "Exists")], {"x": "1"}, id="exists"),
        pytest.param([X1, expression("x", "DoesNotExist")], None, id="does not exist"),
        pytest.param([expression("x", "Exists"), expression("x", "DoesNotExist")], None, id="contradiction"),
        pytest.param([expression("x", "DoesNotExist"), Y1], {"y": "1"}, id="another label"),
        pytest.param(
            [expression("x", "In", "1", "2"), expression("x", "NotIn", "1"), expression("x", "NotIn", "2")],
            None,
            id="only three together exclude it",
        ),
    ],
)
def test_a_node_that_all_match(documents: list[Any], labels: dict[str, str] | None) -> None:
    assert selectors.example([of(document) for document in documents]) == labels


KEYS, VALUES = ["x", "y"], ["1", "2"]
ABSENT_OR_VALUES = [None, *VALUES, "other"]
REQUIREMENTS = st.builds(
    lambda key, operator, values: Requirement(
        key=key, operator=operator, values=tuple(values) if operator in (Operator.IN, Operator.NOT_IN) else ()
    ),
    st.sampled_from(KEYS),
    st.sampled_from(list(Operator)),
    st.lists(st.sampled_from(VALUES), min_size=1, max_size=2),
)
SELECTORS = st.builds(
    LabelSelector,
    match_labels=st.dictionaries(st.sampled_from(KEYS), st.sampled_from(VALUES), max_size=1),
    match_expressions=st.lists(REQUIREMENTS, max_size=3).map(tuple),
)


NODES = [
    {key: value for key, value in zip(KEYS, values, strict=True) if value is not None}
    for values in itertools.product(ABSENT_OR_VALUES, repeat=len(KEYS))
]


@given(st.lists(SELECTORS, min_size=1, max_size=3))
def test_it_is_exact(group: list[LabelSelector]) -> None:
    labels = selectors.example(group)
    can_be = any(all(selector.matches(node) for selector in group) for node in NODES)
    assert (labels is not None) == can_be
    assert labels is None or all(selector.matches(labels) for selector in group)


@given(SELECTORS, SELECTORS)
def test_disjoint_values_rule_every_example_out(first: LabelSelector, second: LabelSelector) -> None:
    if selectors.are_disjoint(selectors.listed(first), selectors.listed(second)):
        assert selectors.example([first, second]) is None


@given(SELECTORS, SELECTORS)
def test_what_is_implied_is_exact(selector: LabelSelector, other: LabelSelector) -> None:
    matched = [node for node in NODES if selector.matches(node)]
    if matched:
        assert selectors.implies(selector, other) == all(other.matches(node) for node in matched)

"""Label selectors: what Kubernetes refuses never matches and is named; the rest matches as Kubernetes has it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koord.model import schema, selector
from koord.model.schema import SchemaError
from koord.model.selector import LabelSelector, Requirement

LABELS = {"app": "web", "tier": "", "example.com/zone": "a1"}


def of(document: Any) -> LabelSelector:
    return schema.read(LabelSelector, document)


def one(key: str, operator: str, *values: str) -> LabelSelector:
    return of({"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]})


REFUSED = [
    pytest.param(one("app", "Gt", "1"), "'app' cannot be used: operator 'Gt' is not one of In, NotIn,", id="operator"),
    pytest.param(one("app", "in", "web"), "operator 'in' is not one of", id="case of an operator"),
    pytest.param(one("app", "", "web"), "operator '' is not one of", id="no operator"),
    pytest.param(one("app", "In"), "operator In lacks values", id="In nothing"),
    pytest.param(one("none", "NotIn"), "operator NotIn lacks values", id="NotIn nothing"),
    pytest.param(one("app", "Exists", "web"), "operator Exists has values", id="Exists with values"),
    pytest.param(one("none", "DoesNotExist", ""), "operator DoesNotExist has values", id="absent with values"),
    pytest.param(one("a b", "DoesNotExist"), "'a b' is not the key of a label", id="space in a key"),
    pytest.param(one("", "DoesNotExist"), "'' is not the key of a label", id="no key"),
    pytest.param(one("-a", "NotIn", "x"), "'-a' is not the key of a label", id="dash first"),
    pytest.param(one("/a", "DoesNotExist"), "'/a' is not the key of a label", id="empty prefix"),
    pytest.param(one("Example.com/a", "DoesNotExist"), "is not the key of a label", id="capital in a prefix"),
    pytest.param(one("a/b/c", "DoesNotExist"), "is not the key of a label", id="two slashes"),
    pytest.param(one("a" * 64, "DoesNotExist"), "is not the key of a label", id="long key"),
    pytest.param(one(f"{'a' * 254}/b", "DoesNotExist"), "is not the key of a label", id="long prefix"),
    pytest.param(one("app", "NotIn", "x y"), "'x y' is not the value of a label", id="space in a value"),
    pytest.param(one("app", "NotIn", "ok", "a" * 64), "is not the value of a label", id="long value"),
    pytest.param(one("app", "NotIn", "web\n"), "is not the value of a label", id="line end in a value"),
    pytest.param(of({"matchLabels": {"a b": "x"}}), "matchLabels: 'a b' cannot be used", id="key in matchLabels"),
    pytest.param(of({"matchLabels": {"app": "x y"}}), "'x y' is not the value of a label", id="value in matchLabels"),
]


@pytest.mark.parametrize(("refused", "why"), REFUSED)
def test_what_kubernetes_refuses_is_named_and_matches_nothing(refused: LabelSelector, why: str) -> None:
    with pytest.raises(SchemaError) as caught:
        selector.check(refused, "spec.selector")
    assert str(caught.value).startswith("spec.selector.match")
    assert why in str(caught.value)
    for labels in ({}, LABELS, {"a b": "x"}, {"app": "x y"}):
        assert not refused.matches(labels)


def test_the_place_of_an_expression_is_named() -> None:
    second = LabelSelector(
        match_expressions=(Requirement(key="a", operator="Exists"), Requirement(key="b", operator="x"))
    )
    with pytest.raises(SchemaError) as caught:
        selector.check(second, "nodeSelector")
    assert caught.value.path == "nodeSelector.matchExpressions[1]"


@pytest.mark.parametrize(
    ("selects", "matches"),
    [
        pytest.param(of({}), True, id="empty: everything"),
        pytest.param(of({"matchLabels": None, "matchExpressions": None}), True, id="null members"),
        pytest.param(of({"matchLabels": {"app": "web"}}), True, id="label"),
        pytest.param(of({"matchLabels": {"app": "api"}}), False, id="another value"),
        pytest.param(of({"matchLabels": {"none": ""}}), False, id="absent is not empty"),
        pytest.param(of({"matchLabels": {"tier": ""}}), True, id="empty value"),
        pytest.param(of({"matchLabels": {"app": "web", "tier": "x"}}), False, id="each label"),
        pytest.param(of({"matchLabels": {"example.com/zone": "a1"}}), True, id="prefix"),
        pytest.param(one("app", "In", "api", "web"), True, id="In"),
        pytest.param(one("app", "In", "api"), False, id="not In"),
        pytest.param(one("none", "In", ""), False, id="In: absent is not empty"),
        pytest.param(one("tier", "In", ""), True, id="In: empty value"),
        pytest.param(one("app", "NotIn", "api"), True, id="NotIn"),
        pytest.param(one("app", "NotIn", "api", "web"), False, id="not NotIn"),
        pytest.param(one("none", "NotIn", "api"), True, id="NotIn: absent"),
        pytest.param(one("tier", "Exists"), True, id="Exists, even empty"),
        pytest.param(one("none", "Exists"), False, id="not Exists"),
        pytest.param(one("none", "DoesNotExist"), True, id="DoesNotExist"),
        pytest.param(one("tier", "DoesNotExist"), False, id="not DoesNotExist"),
        pytest.param(
            of({"matchLabels": {"app": "web"}, "matchExpressions": [{"key": "tier", "operator": "DoesNotExist"}]}),
            False,
            id="labels and expressions",
        ),
        pytest.param(
            of({"matchExpressions": [{"key": "app", "operator": "Exists"}, {"key": "x", "operator": "Exists"}]}),
            False,
            id="each expression",
        ),
    ],
)
def test_matching(selects: LabelSelector, matches: bool) -> None:
    selector.check(selects, "selector")
    assert selects.matches(LABELS) is matches


@pytest.mark.parametrize(
    "key", ["a", "A1", "a.b_c-d", "koordinator.sh/qosClass", "a-b.c/D", "a" * 63, f"{'a' * 253}/b"]
)
def test_keys_that_labels_have(key: str) -> None:
    assert selector.label_error(key) == ""
    assert one(key, "Exists").matches({key: ""})


@pytest.mark.parametrize(
    ("document", "empty"), [({}, True), ({"matchLabels": {"a": "b"}}, False), ({"matchExpressions": []}, True)]
)
def test_empty(document: Any, empty: bool) -> None:
    assert of(document).is_empty is empty


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ([], "a list is not an object"),
        ({"matchLabels": {"a": 1}}, "matchLabels.a: 1 is not a string"),
        ({"matchExpressions": {}}, "matchExpressions: an object is not a list"),
        ({"matchExpressions": [{"operator": "Exists"}]}, "matchExpressions[0]: an object lacks key"),
        ({"matchExpressions": [{"key": "a"}]}, "matchExpressions[0]: an object lacks operator"),
    ],
)
def test_documents_that_are_no_selector(document: Any, message: str) -> None:
    with pytest.raises(SchemaError) as caught:
        of(document)
    assert message in str(caught.value)


WORDS = st.sampled_from(["a", "b", "c"])


@given(key=WORDS, values=st.lists(WORDS, min_size=1), labels=st.dictionaries(WORDS, WORDS))
def test_each_operator_is_the_opposite_of_another(key: str, values: list[str], labels: dict[str, str]) -> None:
    assert one(key, "In", *values).matches(labels) is not one(key, "NotIn", *values).matches(labels)
    assert one(key, "Exists").matches(labels) is not one(key, "DoesNotExist").matches(labels)


@given(labels=st.dictionaries(WORDS, WORDS), wanted=st.dictionaries(WORDS, WORDS))
def test_match_labels_are_expressions_in_short(labels: dict[str, str], wanted: dict[str, str]) -> None:
    expressions = [{"key": key, "operator": "In", "values": [value]} for key, value in wanted.items()]
    assert of({"matchLabels": wanted}).matches(labels) is of({"matchExpressions": expressions}).matches(labels)

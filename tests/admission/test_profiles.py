"""Which profiles match, in which order, and to which share of the pods they apply."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koord.admission import profiles
from koord.admission.profiles import is_chosen, matches, sampling_key
from koord.model.core import ObjectMeta
from koord.model.profile import ClusterColocationProfile, ProfileSpec
from koord.model.selector import LabelSelector, Requirement
from tests.admission.objects import profile

ORDER = "config.koordinator.sh/order"
LOTS = [f"uid-{number}" for number in range(20_000)]


def names(found: profiles.Matches) -> list[str]:
    return [each.metadata.name for each in found.profiles]


def unchecked(**spec: Any) -> ClusterColocationProfile:
    """As no reader would let it through."""
    return ClusterColocationProfile(metadata=profile("odd").metadata, spec=ProfileSpec(**spec))


@pytest.mark.parametrize(
    ("selector", "why"),
    [
        (Requirement(key="a", operator="Near"), "operator 'Near' is not one of"),
        (Requirement(key="a", operator="In"), "operator In lacks values"),
        (Requirement(key="a", operator="Exists", values=("b",)), "operator Exists has values"),
    ],
)
@pytest.mark.parametrize("field", ["selector", "namespace_selector"])
def test_a_selector_that_cannot_be_used_matches_nothing_and_stops_nobody(
    selector: Requirement, why: str, field: str
) -> None:
    odd = unchecked(**{field: LabelSelector(match_expressions=(selector,))})
    found = matches([odd, profile("good")], {"a": "b"}, {"a": "b"})
    assert names(found) == ["good"]
    assert len(found.problems) == 1
    assert (
        found.problems[0].startswith("ClusterColocationProfile odd matches no pod: spec.") and why in found.problems[0]
    )


@pytest.mark.parametrize(
    ("found", "faults"),
    [
        (profile("good", probability="70%", selector={"matchLabels": {"a": "b"}}), []),
        (unchecked(probability="70"), ["odd is not applied: probability"]),
        (
            unchecked(namespace_selector=LabelSelector(match_expressions=(Requirement(key="a", operator="in"),))),
            ["odd matches no pod: spec.namespaceSelector"],
        ),
        (profile("unsure", {ORDER: "first"}), ["unsure: config.koordinator.sh/order: 'first'"]),
    ],
    ids=["good", "probability", "selector", "order"],
)
def test_what_is_wrong_whatever_pods_come(found: ClusterColocationProfile, faults: list[str]) -> None:
    said = profiles.faults(found)
    assert len(said) == len(faults)
    assert all(part in sentence for part, sentence in zip(faults, said, strict=True)), said


def test_a_namespace_with_unknown_labels() -> None:
    wants = profile("wants", namespaceSelector={"matchLabels": {"a": "b"}})
    no_matter = profile("no-matter", namespaceSelector={})
    not_this_pod = profile(
        "not-this", namespaceSelector={"matchLabels": {"a": "b"}}, selector={"matchLabels": {"x": "y"}}
    )
    found = matches([wants, no_matter, not_this_pod], {}, None)
    assert names(found) == ["no-matter"]
    assert found.problems == (
        "ClusterColocationProfile wants does not match this pod: the labels of the pod's namespace are not known yet",
    )


@pytest.mark.parametrize(
    ("spec", "pod_labels", "namespace_labels", "is_match"),
    [
        pytest.param({}, {}, {}, True, id="no-selectors-match-everything"),
        pytest.param({"selector": {}, "namespaceSelector": {}}, {}, {}, True, id="empty-ones-too"),
        pytest.param({"selector": None, "namespaceSelector": None}, {}, {}, True, id="null-ones-too"),
        pytest.param({"selector": {"matchLabels": {"a": "1"}}}, {"a": "1", "b": "2"}, {}, True, id="pod"),
        pytest.param({"selector": {"matchLabels": {"a": "1"}}}, {"a": "2"}, {"a": "1"}, False, id="not-this-pod"),
        pytest.param({"namespaceSelector": {"matchLabels": {"a": "1"}}}, {}, {"a": "1"}, True, id="namespace"),
        pytest.param({"namespaceSelector": {"matchLabels": {"a": "1"}}}, {"a": "1"}, {}, False, id="not-that-one"),
        pytest.param(
            {"selector": {"matchExpressions": [{"key": "a", "operator": "NotIn", "values": ["1"]}]}},
            {}, {}, True, id="not-in-holds-for-absent",
        ),
        pytest.param(
            {"selector": {"matchLabels": {"a": "1"}}, "namespaceSelector": {"matchLabels": {"n": "1"}}},
            {"a": "1"}, {"n": "2"}, False, id="both-must-match",
        ),
    ],
)  # fmt: skip
def test_what_matches(
    spec: dict[str, Any], pod_labels: dict[str, str], namespace_labels: dict[str, str], is_match: bool
) -> None:
    assert bool(matches([profile(**spec)], pod_labels, namespace_labels).profiles) is is_match


@pytest.mark.parametrize(
    ("orders", "expected", "problem_count"),
    [
        pytest.param({"b": None, "a": None, "c": None}, "abc", 0, id="by-name"),
        pytest.param({"a": "1", "b": "-1", "c": None}, "bca", 0, id="by-order-then-name"),
        pytest.param({"a": "10", "b": "9"}, "ba", 0, id="as-numbers"),
        pytest.param({"a": "first", "b": "-1"}, "ba", 1, id="what-is-no-number-counts-as-0"),
        pytest.param({"a": "1_0", "b": "9" * 10, "c": "+1"}, "abc", 2, id="nor-are-these-numbers"),
    ],
)
def test_order(orders: dict[str, str | None], expected: str, problem_count: int) -> None:
    items = [profile(name, {} if text is None else {ORDER: text}) for name, text in orders.items()]
    found = matches(items, {}, {})
    assert names(found) == list(expected)
    assert len(found.problems) == problem_count
    assert all("config.koordinator.sh/order: " in each and "is not a whole number" in each for each in found.problems)


@pytest.mark.parametrize(
    ("probability", "share_percent"),
    [
        (None, 100), (100, 100), ("100%", 100), (250, 100), (0, 0), ("0%", 0), (-5, 0),
        (1, 1), (30, 30), ("70%", 70), (99, 99),
    ],
)  # fmt: skip
def test_probability_is_the_share_of_the_pods(probability: int | str | None, share_percent: int) -> None:
    item = profile(probability=probability)
    share = 100 * sum(is_chosen(item, lot) for lot in LOTS) / len(LOTS)
    if share_percent in (0, 100):
        assert share == share_percent
    else:
        assert share == pytest.approx(share_percent, abs=1.2), "4 standard deviations of 20,000 draws"


def test_exactly_that_many_of_the_hundred_draws() -> None:
    """The draw is below p for p of the numbers 0..99; with Koordinator's comparison it would be p + 1."""
    for percent in (0, 1, 50, 99):
        item = profile(probability=percent)
        chosen = {profiles._draw("p", lot) for lot in LOTS[:3000] if is_chosen(item, lot)}
        assert chosen == set(range(percent))


@pytest.mark.parametrize("probability", ["", "most", "70 %", "7.5%"])
def test_a_probability_that_is_none(probability: str) -> None:
    with pytest.raises(ValueError, match="percentage"):
        is_chosen(unchecked(probability=probability), "x")


@given(st.text(max_size=8), st.integers(1, 99))
def test_the_same_pod_always_draws_the_same_lot(lot: str, percent: int) -> None:
    assert is_chosen(profile(probability=percent), lot) is is_chosen(profile(probability=percent), lot)


def test_two_profiles_draw_apart() -> None:
    a, b = profile("a", probability=50), profile("b", probability=50)
    both = sum(is_chosen(a, lot) and is_chosen(b, lot) for lot in LOTS) / len(LOTS)
    assert both == pytest.approx(0.25, abs=0.02)


def test_replicas_of_a_job_do_not_fall_the_same_way() -> None:
    lots = {sampling_key(ObjectMeta(namespace="batch-demo"), f"request-{number}") for number in range(100)}
    assert len(lots) == 100


@pytest.mark.parametrize(
    ("metadata", "lot"),
    [
        (ObjectMeta(uid="u", name="n", namespace="ns"), "u"),
        (ObjectMeta(name="n", namespace="ns"), "ns/n"),
        (ObjectMeta(namespace="ns"), "ns/request"),
    ],
)
def test_what_tells_pods_apart(metadata: ObjectMeta, lot: str) -> None:
    assert sampling_key(metadata, "request") == lot

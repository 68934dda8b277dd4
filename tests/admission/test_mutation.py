"""What a created pod gets: refusals, each member in its order, and what holds of any pod."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koord.admission import AdmissionContext, apply
from koord.admission.errors import AdmissionError, ProfileError, UnreadableError
from koord.model.profile import ClusterColocationProfile, ProfileSpec
from tests.admission.objects import (
    BATCH_CPU,
    BATCH_MEMORY,
    CLASSES,
    EXTENDED_SPEC,
    QOS,
    SKIP,
    SUB_PRIORITY,
    context,
    mutation_of,
    pod,
    profile,
)
from tests.support.kubernetes import container

UNKNOWN: dict[str, Any] = {
    "lifecycle": {"preStop": {"sleep": {"seconds": 5}}},
    "futureMember": [{"a": None}, 1.5, True],
}
EVICT = {"scheduling.koordinator.sh/eviction-cost": "7"}


def mutated(document: dict[str, Any], *items: ClusterColocationProfile, **facts: Any) -> dict[str, Any]:
    result = mutation_of(document, context(*items, **facts))
    assert result.problems == ()
    return result.pod


# failures


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ({"priorityClassName": "koord-gold"}, "there is no PriorityClass 'koord-gold'"),
        ({"patch": {"spec": {"priorityClassName": "koord-gold"}}}, "there is no PriorityClass 'koord-gold'"),
        ({"patch": {"spec": {"containers": [{"image": "x"}]}}}, "spec.patch: spec.containers: name: None is neither"),
        ({"patch": {"spec": {"containers": 3}}}, "spec.patch: pod cannot be read: Expected `array`, got `int`"),
    ],
)
def test_a_profile_that_cannot_be_applied_refuses_the_pod_by_its_name(spec: dict[str, Any], why: str) -> None:
    with pytest.raises(ProfileError, match=f"ClusterColocationProfile broken cannot be applied: {why}") as error:
        mutated(pod(), profile("broken", **spec))
    assert error.value.code == 403


@pytest.mark.parametrize(
    ("broken", "why"),
    [
        ({"metadata": []}, r"Expected `object`, got `array` - at `\$.metadata`"),
        ({"metadata": {"labels": {"a": 1}}}, r"Expected `str`, got `int`"),
        ({"spec": {"containers": {}}}, r"Expected `array`, got `object`"),
        ({"spec": {"containers": [{"resources": {"limits": []}}]}}, r"Expected `object`, got `array`"),
    ],
)
def test_what_is_no_pod(broken: dict[str, Any], why: str) -> None:
    with pytest.raises(UnreadableError, match=why) as error:
        mutated(broken, profile(labels={"a": "b"}))
    assert error.value.code == 400


def test_a_probability_that_is_none_is_said_and_the_next_profile_applies() -> None:
    odd = ClusterColocationProfile(
        metadata=profile("odd").metadata, spec=ProfileSpec(probability="most", labels={"a": "1"})
    )
    result = mutation_of(pod(labels={}), context(odd, profile("p", labels={"b": "2"})))
    assert result.pod["metadata"]["labels"] == {"b": "2"}
    assert len(result.problems) == 1
    assert result.problems[0].startswith("ClusterColocationProfile odd is not applied: probability ")


# each member


@pytest.mark.parametrize(
    ("spec", "labels", "expected"),
    [
        pytest.param({"labels": {"t": "1"}}, {"t": "0", "u": "0"}, {"t": "1", "u": "0"}, id="labels-overwrite"),
        pytest.param({"labelKeysMapping": {"a": "b"}}, {"a": "1", "b": "0"}, {"a": "1", "b": "1"}, id="mapping"),
        pytest.param({"labelKeysMapping": {"z": "b"}}, {"a": "1", "b": "0"}, {"a": "1", "b": "0"}, id="of-nothing"),
        pytest.param(
            {"labelKeysMapping": {"a": "b", "b": "c"}}, {"a": "1", "b": "2"}, {"a": "1", "b": "1", "c": "2"},
            id="mappings-do-not-follow-each-other",
        ),
        pytest.param(
            {"labelKeysMapping": {"a": "c", "b": "c"}}, {"a": "1", "b": "2"}, {"a": "1", "b": "2", "c": "2"},
            id="the-last-source-counts",
        ),
        pytest.param({"labelSuffixes": {"v": "-x"}}, {"v": "1"}, {"v": "1-x"}, id="a label that is there"),
        pytest.param({"labelSuffixes": {"v": "-x"}}, {"u": "1"}, {"u": "1"}, id="a label that is missing"),
        pytest.param(
            {"labels": {"a": "1"}, "labelKeysMapping": {"a": "b"}, "labelSuffixes": {"b": "-x"}}, {},
            {"a": "1", "b": "1-x"}, id="labels-then-mappings-then-suffixes",
        ),
        pytest.param(
            {"qosClass": "LS", "labels": {QOS: "BE"}, "labelSuffixes": {QOS: "-x"}}, {}, {QOS: "LS"},
            id="class-after-suffixes",
        ),
        pytest.param(
            {"koordinatorPriority": -7, "labels": {SUB_PRIORITY: "1"}}, {}, {SUB_PRIORITY: "-7"}, id="sub-priority"
        ),
        pytest.param({"koordinatorPriority": 0}, {}, {SUB_PRIORITY: "0"}, id="sub-priority-0"),
        pytest.param(
            {"qosClass": "LS", "patch": {"metadata": {"labels": {QOS: "LSR", "x": "y"}}}}, {"w": "1"},
            {"w": "1", QOS: "LSR", "x": "y"}, id="patch-last",
        ),
        pytest.param({"patch": {"metadata": {"labels": {"w": None}}}}, {"w": "1"}, {}, id="patch-deletes"),
        pytest.param({"patch": {}}, {"w": "1"}, {"w": "1"}, id="patch-of-nothing"),
    ],
)  # fmt: skip
def test_labels(spec: dict[str, Any], labels: dict[str, str], expected: dict[str, str]) -> None:
    assert mutated(pod(labels=labels), profile(**spec))["metadata"]["labels"] == expected


@pytest.mark.parametrize(
    ("spec", "annotations", "expected"),
    [
        ({"annotations": EVICT}, {"a": "1"}, {"a": "1", **EVICT}),
        ({"annotations": {"a": "2"}, "annotationKeysMapping": {"a": "b", "z": "y"}}, {"a": "1"}, {"a": "2", "b": "2"}),
        ({"labels": {"a": "9"}, "annotationKeysMapping": {"a": "b"}}, {"c": "1"}, {"c": "1"}),
    ],
)
def test_annotations(spec: dict[str, Any], annotations: dict[str, str], expected: dict[str, str]) -> None:
    assert mutated(pod(annotations=annotations), profile(**spec))["metadata"]["annotations"] == expected


@pytest.mark.parametrize("absent", [{}, {"labels": None, "annotations": None}])
def test_metadata_that_is_absent_is_made(absent: dict[str, Any]) -> None:
    document = {"metadata": absent, "spec": {"containers": [container()]}}
    result = mutated(document, profile(labels={"a": "1"}, annotations={"b": "2"}))
    assert result["metadata"] == {"labels": {"a": "1"}, "annotations": {"b": "2"}}
    assert mutated({"metadata": absent}) == {"metadata": absent}, "and not without a need"


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        pytest.param(
            {"schedulerName": "koord-scheduler"}, {"schedulerName": "koord-scheduler", "priority": 0}, id="scheduler"
        ),
        pytest.param(
            {"priorityClassName": "koord-batch"},
            {"priorityClassName": "koord-batch", "priority": 5000, "preemptionPolicy": "PreemptLowerPriority"},
            id="all-three-of-the-priority-class",
        ),
        pytest.param(
            {"priorityClassName": "koord-prod", "patch": {"spec": {"priorityClassName": "polite"}}},
            {"priorityClassName": "polite", "priority": 5100, "preemptionPolicy": "Never"},
            id="value-and-policy-follow-a-patched-name",
        ),
        pytest.param(
            {"patch": {"spec": {"tolerations": [{"operator": "Exists"}]}}},
            {"priority": 0, "tolerations": [{"operator": "Exists"}]},
            id="patch-of-the-spec",
        ),
    ],
)
def test_spec(spec: dict[str, Any], expected: dict[str, Any]) -> None:
    document = pod(priority=0)
    assert mutated(document, profile(**spec))["spec"] == {"containers": document["spec"]["containers"], **expected}


def test_a_patch_merges_containers_by_name() -> None:
    patch = {"spec": {"containers": [{"name": "main", "env": [{"name": "A", "value": "1"}]}]}}
    result = mutated(pod(container(**UNKNOWN), container("log")), profile(patch=patch))
    assert result["spec"]["containers"] == [
        {"name": "main", "image": "i", **UNKNOWN, "env": [{"name": "A", "value": "1"}]},
        {"name": "log", "image": "i"},
    ]


def test_a_later_profile_overwrites() -> None:
    a, b = profile("a", labels={"t": "1", "u": "1"}), profile("b", labels={"t": "2"})
    assert mutated(pod(), b, a)["metadata"]["labels"] == {"t": "2", "u": "1"}


def test_selectors_see_the_labels_as_they_were_submitted() -> None:
    first = profile("a", labels={"x": "1"})
    second = profile("b", selector={"matchLabels": {"x": "1"}}, labels={"y": "1"})
    assert mutated(pod(), first, second)["metadata"]["labels"] == {"x": "1"}


# resources


AMOUNTS = {"cpu": "2", "memory": "4Gi"}
TRANSLATED = {BATCH_CPU: "2k", BATCH_MEMORY: "4Gi"}
BATCH: dict[str, Any] = {"qosClass": "BE", "priorityClassName": "koord-batch"}
PROD: dict[str, Any] = {"qosClass": "LS", "priorityClassName": "koord-prod"}


@pytest.mark.parametrize(
    ("items", "labels", "priority", "expected"),
    [
        pytest.param([], {QOS: "BE"}, 5000, AMOUNTS, id="no-profile-no-translation"),
        pytest.param([profile()], {QOS: "BE"}, 5000, TRANSLATED, id="any-profile-translates"),
        pytest.param([profile(**BATCH)], {}, 0, TRANSLATED, id="by-the-class-after-injection"),
        pytest.param([profile(**PROD)], {QOS: "BE"}, 5000, AMOUNTS, id="by-the-class-after-injection-prod"),
        pytest.param([profile(labels={"t": "1"})], {QOS: "LS"}, 9000, AMOUNTS, id="prod stays native"),
        pytest.param([profile(qosClass="BE")], {}, 0, TRANSLATED, id="BE-without-priority-is-batch"),
        pytest.param([profile(qosClass="BE", priorityClassName="koord-free")], {}, 0, AMOUNTS, id="free stays native"),
        pytest.param([profile(probability=0, **BATCH)], {}, 0, AMOUNTS, id="probability 0 applies nothing"),
        pytest.param([profile(probability=0)], {QOS: "BE"}, 5000, TRANSLATED, id="probability 0 yet translates"),
        pytest.param([profile(probability="0%")], {QOS: "BE"}, 5000, TRANSLATED, id="probability 0 % yet translates"),
        pytest.param([profile("a", **BATCH), profile("b", {SKIP: ""})], {}, 0, AMOUNTS, id="one-forbids-it"),
        pytest.param(
            [profile("a", **BATCH), profile("b", {SKIP: ""}, probability=0)], {}, 0, AMOUNTS,
            id="one-that-is-not-applied-forbids-it",
        ),
        pytest.param(
            [profile("a", **BATCH), profile("b", {SKIP: ""}, selector={"matchLabels": {"x": "y"}})], {}, 0, TRANSLATED,
            id="one-that-does-not-match-forbids-nothing",
        ),
    ],
)  # fmt: skip
def test_when_resources_are_translated(
    items: list[ClusterColocationProfile], labels: dict[str, str], priority: int, expected: dict[str, str]
) -> None:
    document = pod(container(requests=dict(AMOUNTS), limits=dict(AMOUNTS)), labels=labels, priority=priority)
    resources = mutated(document, *items)["spec"]["containers"][0]["resources"]
    assert resources == {"requests": expected, "limits": expected}


def test_a_plain_best_effort_pod_that_a_profile_matches_has_nothing_to_translate() -> None:
    document = pod()
    assert mutated(document, profile()) == document


@pytest.mark.parametrize("gates", [{"ColocationProfileSkipMutatingResources": True}, {"AllAlpha": True}])
def test_the_gate_that_leaves_resources(gates: dict[str, bool]) -> None:
    document = pod(container(requests=dict(AMOUNTS)))
    result = mutated(document, profile(**BATCH), feature_gates=gates)
    assert result["spec"]["containers"] == document["spec"]["containers"]


@pytest.mark.parametrize(
    ("gates", "is_written"),
    [({}, True), ({"DisableExtendedResourceSpec": True}, False), ({"DisableExtendedResourceSpec": False}, True),
     ({"AllAlpha": True, "DisableExtendedResourceSpec": False}, True)],
)  # fmt: skip
def test_the_gate_of_the_annotation(gates: dict[str, bool], is_written: bool) -> None:
    result = mutated(pod(container(requests={BATCH_CPU: "1k"})), feature_gates=gates)
    assert (EXTENDED_SPEC in result["metadata"].get("annotations", {})) is is_written


# what holds of any pod

KEYS = st.sampled_from(["a", "b", "c"])
TEXTS = st.dictionaries(KEYS, st.sampled_from(["1", "2"]), max_size=3)
QUANTITIES = st.sampled_from(["1", "500m", "1.5", "0", 2, "4Gi", "100M", "1e3", "0.0001"])
RESOURCES = st.dictionaries(st.sampled_from(["cpu", "memory", "nvidia.com/gpu", BATCH_CPU]), QUANTITIES, max_size=4)
CONTAINERS = st.builds(
    container,
    st.just("main"),
    st.none() | RESOURCES,
    st.none() | RESOURCES,
    unknown=st.just(UNKNOWN),
)
PODS = st.builds(
    pod,
    CONTAINERS,
    labels=st.none() | st.dictionaries(KEYS | st.just(QOS), st.sampled_from(["1", "BE", "LSR"]), max_size=3),
    annotations=st.none() | TEXTS,
    priority=st.sampled_from([None, 0, 5000, 7500, 3000, 9000]),
    unknown=st.just(UNKNOWN),
)
SETTLED = st.fixed_dictionaries(
    {},
    optional={
        "labels": TEXTS,
        "annotations": TEXTS,
        "labelKeysMapping": st.dictionaries(st.just("a"), st.sampled_from(["x", "y"])),
        "annotationKeysMapping": st.dictionaries(st.just("b"), st.sampled_from(["x", "y"])),
        "schedulerName": st.just("koord-scheduler"),
        "qosClass": st.sampled_from(["BE", "LS", "LSR"]),
        "priorityClassName": st.sampled_from(sorted(CLASSES)),
        "koordinatorPriority": st.integers(-9, 9),
        "probability": st.sampled_from([0, 30, "70%", 100]),
        "patch": st.sampled_from([{"spec": {"containers": [{"name": "main", "env": [{"name": "A", "value": "b"}]}]}}]),
    },
)
"""Of which to apply one a second time says nothing new."""


@given(PODS, SETTLED)
def test_a_second_pass_changes_nothing(document: dict[str, Any], spec: dict[str, Any]) -> None:
    cluster = context(profile(**spec))
    once = mutation_of(document, cluster).pod
    assert mutation_of(once, cluster).pod == once


@given(PODS, SETTLED, st.dictionaries(KEYS, st.just("-x"), max_size=2))
def test_no_unknown_member_is_lost_and_the_pod_that_was_sent_is_not_changed(
    document: dict[str, Any], spec: dict[str, Any], suffixes: dict[str, str]
) -> None:
    before = copy.deepcopy(document)
    result = mutation_of(document, context(profile(**spec, labelSuffixes=suffixes))).pod
    assert document == before
    assert result["spec"]["unknown"] == UNKNOWN == result["spec"]["containers"][0]["unknown"]
    assert {"apiVersion", "kind"} <= result.keys()
    assert result["metadata"]["name"] == "job-x7"
    assert set(before["metadata"].get("labels") or {}) <= set(result["metadata"].get("labels") or {})


@given(st.recursive(st.none() | st.booleans() | st.integers(0, 3) | st.sampled_from(["cpu", "1"]),
                    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(
                        st.sampled_from(["metadata", "labels", "spec", "containers", "resources", "limits", "cpu"]),
                        inner, max_size=3), max_leaves=8).filter(lambda value: isinstance(value, dict)))  # fmt: skip
def test_whatever_the_document_is_it_is_mutated_or_refused(document: dict[str, Any]) -> None:
    cluster: AdmissionContext = context(profile(**BATCH, labels={"a": "b"}))
    try:
        result = mutation_of(document, cluster).pod
    except AdmissionError:
        return
    json.dumps(result)
    assert result["metadata"]["labels"]["a"] == "b"


def test_one_profile_applied_by_itself() -> None:
    result = apply(profile(**BATCH), pod(), CLASSES)
    assert (result["metadata"]["labels"], result["spec"]["priority"]) == ({QOS: "BE"}, 5000)

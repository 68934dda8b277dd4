"""ClusterColocationProfile: errors that name path and value, upstream's examples, and nothing lost."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given

from koord.model import profile, schema
from koord.model.profile import ClusterColocationProfile, ProfileSpec
from koord.model.qos import QoSClass
from koord.model.schema import SchemaError
from tests.support.kubernetes import QUICK_START_PROFILE
from tests.support.structs import documents, substance

EVERY_FIELD = {
    "namespaceSelector": {"matchExpressions": [{"key": "team", "operator": "In", "values": ["a", "b"]}]},
    "selector": {"matchLabels": {"app": "x"}},
    "probability": "70%",
    "qosClass": "LSR",
    "priorityClassName": "koord-prod",
    "koordinatorPriority": 1111,
    "labels": {"a": "1"},
    "annotations": {"b": "2"},
    "labelKeysMapping": {"old": "new"},
    "annotationKeysMapping": {"before": "after"},
    "labelSuffixes": {"a": "-x"},
    "schedulerName": "koord-scheduler",
    "patch": {"spec": {"tolerations": None, "terminationGracePeriodSeconds": 30}},
}


def of_spec(spec: Any, **members: Any) -> dict[str, Any]:
    return {"metadata": {"name": "p"}, "spec": spec, **members}


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ([], "ClusterColocationProfile: a list is not an object"),
        (of_spec([]), "spec: a list is not an object"),
        (of_spec({}, metadata=[]), "metadata: a list is not an object"),
        (of_spec({}, metadata={"labels": {"a": 1}}), "metadata.labels.a: 1 is not a string"),
        (of_spec({"qosClass": "be"}), "spec.qosClass: 'be' is not one of LSE, LSR, LS, BE, SYSTEM"),
        (of_spec({"koordinatorPriority": 2**31}), "spec.koordinatorPriority: 2147483648 is not in -2147483648..2147"),
        (of_spec({"koordinatorPriority": "1"}), "spec.koordinatorPriority: '1' is not a whole number"),
        (of_spec({"labels": {"a": True}}), "spec.labels.a: True is not a string"),
        (of_spec({"patch": "x"}), "spec.patch: 'x' is not an object"),
        (of_spec({"probability": 0.5}), "spec.probability: 0.5 is not a whole number"),
        (of_spec({"probability": True}), "spec.probability: True is not a whole number"),
        (of_spec({"probability": "70"}), "spec.probability: '70' is neither a whole number nor a percentage such as"),
        (of_spec({"probability": "7.5%"}), "spec.probability: '7.5%' is neither a whole number nor a percentage"),
        (of_spec({"probability": ""}), "spec.probability: '' is neither a whole number nor a percentage"),
        (of_spec({"probability": f"{'9' * 19}%"}), "is neither a whole number nor a percentage"),
        (of_spec({"selector": {"matchExpressions": [{"key": "a", "operator": "Gt"}]}}), "spec.selector.matchExp"),
        (of_spec({"namespaceSelector": {"matchLabels": {"a b": ""}}}), "spec.namespaceSelector.matchLabels: 'a b'"),
        ("{", "'{' is not JSON"),
    ],
)
def test_an_error_names_path_and_value(document: Any, message: str) -> None:
    with pytest.raises(SchemaError) as caught:
        profile.read(document)
    assert message in str(caught.value)


def test_the_quick_start_s_profile() -> None:
    read = profile.read(QUICK_START_PROFILE)
    spec = read.spec
    assert read.metadata.name == "batch-workload-profile"
    assert spec.namespace_selector is not None and spec.selector is not None
    assert spec.namespace_selector.matches({"koordinator.sh/enable-colocation": "true"})
    assert spec.selector.matches({"app-type": "batch"}) and not spec.selector.matches({})
    assert (spec.qos_class, spec.priority_class_name) == (QoSClass.BE, "koord-batch")
    assert (spec.scheduler_name, spec.labels) == ("koord-scheduler", {"koordinator.sh/mutated": "true"})
    assert (spec.probability_percent, spec.koordinator_priority, spec.patch) == (100, None, None)


def test_every_field_is_read_and_written_back() -> None:
    spec = profile.read(json.dumps(of_spec(EVERY_FIELD))).spec
    assert [*EVERY_FIELD] == [schema.json_name(name) for name in ProfileSpec.__struct_fields__]
    assert json.loads(schema.encode(spec)) == EVERY_FIELD
    assert spec.patch == EVERY_FIELD["patch"], "where null deletes"


@pytest.mark.parametrize(
    ("probability", "percent"),
    [
        (None, 100), (0, 0), (1, 1), (70, 70), (100, 100), (101, 100), (-1, 0),
        ("0%", 0), ("70%", 70), ("+70%", 70), ("-5%", 0), ("100%", 100), ("250%", 100),
    ],
)  # fmt: skip
def test_probability(probability: Any, percent: int) -> None:
    assert profile.read(of_spec({"probability": probability})).spec.probability_percent == percent


@pytest.mark.parametrize("absent", [None, {}])
def test_what_is_absent_selects_everything_and_gives_nothing(absent: Any) -> None:
    assert profile.read({"metadata": absent, "spec": absent}) == ClusterColocationProfile()


def test_selectors_that_are_empty_are_kept_apart_from_those_that_are_absent() -> None:
    spec = profile.read(of_spec({"selector": {}, "qosClass": ""})).spec
    assert spec.selector is not None and spec.selector.is_empty
    assert (spec.namespace_selector, spec.qos_class) == (None, None)


def test_unknown_keys_are_told_and_stop_nobody() -> None:
    told: list[str] = []
    metadata = {"name": "p", "generation": 2, "annotations": {"config.koordinator.sh/skip-update-resources": "true"}}
    document = of_spec({"objectSelector": {}, "labels": {"a": "b"}, "selector": {"x": 1}}, metadata=metadata)
    read = profile.read({"apiVersion": "config.koordinator.sh/v1alpha1", "status": {}, **document}, told.append)
    assert told == ["spec.objectSelector", "spec.selector.x"], "of the object's own members none is a typing error"
    assert read.spec.labels == {"a": "b"}
    assert read.metadata.annotations == {"config.koordinator.sh/skip-update-resources": "true"}


@given(documents(ProfileSpec))
def test_only_what_is_empty_gets_lost(document: dict[str, Any]) -> None:
    spec = schema.read(ProfileSpec, document)
    written = json.loads(schema.encode(spec))
    assert substance(written) == substance(document)
    assert schema.read(ProfileSpec, written) == spec


def test_all_that_is_wrong_is_told_and_the_rest_is_read() -> None:
    spec = {
        "qosClass": "be",
        "probability": "often",
        "priorityClassName": "koord-batch",
        "schedulerName": 5,
        "labels": {"a": 1, "b": "x", "c": None, "d": True},
        "selector": {
            "matchLabels": {"a b": ""},
            "matchExpressions": [{"key": "a", "operator": "Gt"}, {"key": "b", "operator": "In"}],
        },
        "namespaceSelector": {"matchLabels": {"team": "a"}},
        "prioritiClassName": "x",
    }
    unknown: list[str] = []
    read, wrong = profile.read_leniently(of_spec(spec, metadata={"name": "p", "labels": 3}), unknown.append)
    assert [error.path for error in wrong] == [
        "metadata.labels",
        "spec.qosClass",
        "spec.probability",
        "spec.schedulerName",
        "spec.labels.a",
        "spec.labels.d",
        "spec.selector.matchLabels",
        "spec.selector.matchExpressions[0]",
        "spec.selector.matchExpressions[1]",
    ]
    assert (read.metadata.name, read.spec.priority_class_name, read.spec.labels) == ("p", "koord-batch", {})
    assert read.spec.namespace_selector is not None and read.spec.selector is None
    assert unknown == ["spec.prioritiClassName"]


@pytest.mark.parametrize("part", ["metadata", "spec"])
def test_a_part_that_is_no_object_hides_not_the_other(part: str) -> None:
    document = {"metadata": {"name": "p"}, "spec": {"qosClass": "BE"}, part: 3}
    _, wrong = profile.read_leniently(document)
    assert [str(error) for error in wrong] == [f"{part}: 3 is not an object"]


@given(documents(ClusterColocationProfile))
def test_what_is_read_strictly_is_read_leniently_too(document: Any) -> None:
    """And the other way round: of what cannot be read something is wrong."""
    try:
        strict = profile.read(document)
    except SchemaError:
        assert profile.read_leniently(document)[1]
    else:
        assert profile.read_leniently(document) == (strict, ())

"""A CustomResourceDefinition of another release: what it drops, refuses and cannot serve, in a sentence."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koord.model import crdfit
from koord.model.crdfit import Fit

TEXT, NUMBER, FREE = {"type": "string"}, {"type": "integer"}, {"x-kubernetes-preserve-unknown-fields": True}
QUANTITY = {"anyOf": [{"type": "integer"}, {"type": "string"}], "x-kubernetes-int-or-string": True}


def object_of(**members: Any) -> dict[str, Any]:
    return {"type": "object", "properties": members}


def map_of(member: Any) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": member}


def list_of(item: Any) -> dict[str, Any]:
    return {"type": "array", "items": item}


def version(schema: Any, name: str = "v1alpha1", **members: Any) -> dict[str, Any]:
    return {
        "name": name,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "subresources": {"status": {}},
        **members,
    }


def definition(*versions: Any, **spec: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "nodemetrics.slo.koordinator.sh"},
        "spec": {"scope": "Cluster", "versions": list(versions), **spec},
    }


def fit(desired: Any, installed: Any) -> Fit:
    """Of two schemas, each of ``spec`` alone."""
    return crdfit.fit(definition(version(object_of(spec=desired))), definition(version(object_of(spec=installed))))


DESIRED = object_of(
    name=TEXT,
    usage=map_of(QUANTITY),
    pods=list_of(object_of(name=TEXT, usage=object_of(cpu=NUMBER))),
    extensions={"type": "object", **FREE},
)


def without(*path: str) -> dict[str, Any]:
    installed = copy.deepcopy(DESIRED)
    place: Any = installed
    for key in path[:-1]:
        place = place["items"] if key == "[]" else place["properties"][key]
    del place["properties"][path[-1]]
    return installed


@pytest.mark.parametrize(
    ("installed", "lacking"),
    [
        pytest.param(without("name"), ["spec.name"], id="a member"),
        pytest.param(without("pods"), ["spec.pods"], id="a list, by its topmost member alone"),
        pytest.param(without("pods", "[]", "name"), ["spec.pods[].name"], id="a member of items"),
        pytest.param(without("pods", "[]", "usage", "cpu"), ["spec.pods[].usage.cpu"], id="deep"),
        pytest.param(object_of(), ["spec.name", "spec.usage", "spec.pods", "spec.extensions"], id="everything below"),
        pytest.param({"type": "object"}, ["spec.name", "spec.usage", "spec.pods", "spec.extensions"], id="no members"),
        pytest.param(
            object_of(**{**DESIRED["properties"], "usage": object_of(a=QUANTITY)}), ["spec.usage{}"], id="map"
        ),
        pytest.param(
            object_of(**{**DESIRED["properties"], "extensions": object_of()}), ["spec.extensions"], id="what is free"
        ),
        pytest.param(
            object_of(**{**DESIRED["properties"], "extensions": map_of(TEXT)}), ["spec.extensions"], id="half free"
        ),
        pytest.param({**without("pods", "[]", "name"), **FREE}, ["spec.pods[].name"], id="kept above, not below"),
    ],
)
def test_what_is_dropped(installed: Any, lacking: list[str]) -> None:
    found = fit(DESIRED, installed)
    assert (list(found.lacking), found.mistyped, found.problems) == (lacking, (), ())
    assert not found.is_complete


@pytest.mark.parametrize(
    "installed",
    [
        pytest.param(DESIRED, id="the same"),
        pytest.param(object_of(**DESIRED["properties"], future=TEXT), id="more"),
        pytest.param({**without("name"), **FREE}, id="unlisted members are kept"),
        pytest.param(FREE, id="of any type"),
        pytest.param({"type": "object", "additionalProperties": True}, id="any member"),
        pytest.param(object_of(**{**DESIRED["properties"], "usage": {"type": "object", **FREE}}), id="a free map"),
    ],
)
def test_what_keeps_everything(installed: Any) -> None:
    found = fit(DESIRED, installed)
    assert (found.lacking, found.mistyped) == ((), ())
    assert found.is_complete and found.sentence() == ""


@pytest.mark.parametrize(
    ("desired", "installed", "refused"),
    [
        (TEXT, NUMBER, True),
        (NUMBER, TEXT, True),
        (QUANTITY, TEXT, True),
        (list_of(TEXT), map_of(TEXT), True),
        (object_of(b=TEXT), TEXT, True),
        (list_of(NUMBER), list_of(TEXT), True),
        (NUMBER, QUANTITY, False),
        (TEXT, QUANTITY, False),
        (NUMBER, {"type": "number"}, False),
        (NUMBER, FREE, False),
        (list_of(object_of(b=TEXT)), FREE, False),
    ],
)
def test_types_that_refuse_ours(desired: Any, installed: Any, refused: bool) -> None:
    found = fit(object_of(a=desired), object_of(a=installed))
    place = "spec.a[]" if "items" in desired and "items" in installed else "spec.a"
    assert (found.mistyped, found.lacking) == ((place,) if refused else (), ())


@pytest.mark.parametrize(
    ("installed", "problem"),
    [
        pytest.param(definition(version(DESIRED, "v1")), "does not serve v1alpha1 but v1", id="another version"),
        pytest.param(
            definition(version(DESIRED, served=False), version(DESIRED, "v1"), version(DESIRED, "v2")),
            "does not serve v1alpha1 but v1 and v2",
            id="not served",
        ),
        pytest.param(definition(), "does not serve v1alpha1", id="no version"),
        pytest.param({}, "does not serve v1alpha1", id="no definition"),
        pytest.param({"spec": []}, "does not serve v1alpha1", id="no specification"),
        pytest.param({"spec": {"versions": ["v1alpha1"]}}, "does not serve v1alpha1", id="no list of versions"),
        pytest.param(
            definition(version(DESIRED), scope="Namespaced"), "is of scope Namespaced, not Cluster", id="namespaced"
        ),
        pytest.param(definition(version(DESIRED, subresources={})), "has no status subresource", id="no status"),
        pytest.param(
            definition(version(DESIRED, subresources=None)), "has no status subresource", id="no subresources"
        ),
    ],
)
def test_what_is_not_served(installed: Any, problem: str) -> None:
    found = crdfit.fit(definition(version(DESIRED)), installed)
    assert found.problems == (problem,)
    assert found.sentence() == f"The installed CustomResourceDefinition nodemetrics.slo.koordinator.sh {problem}."


def test_a_definition_that_keeps_unknown_members_everywhere() -> None:
    installed = definition(version(object_of()), preserveUnknownFields=True)
    assert crdfit.fit(definition(version(DESIRED)), installed).is_complete


def test_a_version_without_a_schema_keeps_nothing() -> None:
    installed = definition({"name": "v1alpha1", "served": True, "subresources": {"status": {}}})
    assert crdfit.fit(definition(version(object_of(spec=DESIRED))), installed).lacking == ("spec",)


@pytest.mark.parametrize(
    ("found", "sentence"),
    [
        (Fit("x.y"), ""),
        (Fit("x.y", lacking=("a", "b")), "The installed CustomResourceDefinition x.y drops a, b."),
        (Fit("x.y", tuple("abcde")), "The installed CustomResourceDefinition x.y drops a, b, c, d, e."),
        (Fit("x.y", tuple("abcdefg")), "The installed CustomResourceDefinition x.y drops a, b, c, d, e, and 2 more."),
        (
            Fit("x.y", ("a",), ("b",), ("has no status subresource",)),
            "The installed CustomResourceDefinition x.y has no status subresource; it refuses objects with b; "
            "it drops a.",
        ),
    ],
)
def test_one_sentence_for_an_operator(found: Fit, sentence: str) -> None:
    assert found.sentence() == sentence


SCALARS = st.sampled_from([TEXT, NUMBER, QUANTITY, {"type": "object", **FREE}])
SCHEMAS = st.recursive(
    SCALARS,
    lambda below: (
        st.dictionaries(st.sampled_from("abc"), below, max_size=3).map(lambda members: object_of(**members))
        | below.map(map_of)
        | below.map(list_of)
    ),
    max_leaves=8,
)


@given(SCHEMAS)
def test_every_schema_serves_itself(schema: Any) -> None:
    assert fit(schema, schema).is_complete


@given(SCHEMAS, SCHEMAS, SCALARS)
def test_a_member_more_is_one_that_is_lacking(desired: Any, other: Any, added: Any) -> None:
    both = object_of(desired=desired, added=added)
    assert fit(both, object_of(desired=desired)).lacking == ("spec.added",)
    assert fit(object_of(desired=desired), both).is_complete
    assert fit(both, object_of(desired=desired, added=other)).is_complete or added != other

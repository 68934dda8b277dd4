"""Strategic merge of a Pod: wrong patches, every list's key, directives, order; and what holds of any patch."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koord.admission.strategicmerge import MERGE_KEYS, PatchError, merge


def spec(**members: Any) -> dict[str, Any]:
    return {"spec": members}


A, B, C = ({"name": name, "image": "old"} for name in "abc")


@pytest.mark.parametrize(
    ("patch", "message"),
    [
        pytest.param(spec(containers=[{"image": "x"}]), "spec.containers: name: None is neither", id="no-merge-key"),
        pytest.param(spec(containers=["a"]), "spec.containers: 'a' is not an object with a name", id="no-object"),
        pytest.param(spec(containers=[{"name": {}}]), "spec.containers: name: an object is neither", id="odd-key"),
        pytest.param(spec(containers=[{"$patch": "delete"}]), "spec.containers: name: None", id="delete-without-key"),
        pytest.param(
            spec(containers=[{"name": "a", "$patch": "merge"}]),
            "spec.containers.*merge.* is neither replace nor delete",
            id="unknown-directive-in-a-list",
        ),
        pytest.param({"spec": {"$patch": "drop"}}, "'drop' is neither replace nor delete", id="unknown-directive"),
        pytest.param(spec(tolerations=[{"$patch": "x"}]), "'x' is neither", id="unknown-directive-in-a-new-object"),
        pytest.param(spec(**{"$retainKeys": "a"}), "retainKeys.*'a' is not a list", id="retain-what"),
        pytest.param(spec(**{"$retainKeys": ["a"], "b": 1}), "does not name b, which the patch sets", id="unretained"),
        pytest.param(spec(**{"$setElementOrder/containers": "a"}), "'a' is not a list", id="order-of-what"),
        pytest.param(
            spec(**{"$setElementOrder/containers": [{"name": "a"}], "containers": [{"name": "z"}]}),
            "does not name 'z', which the patch has",
            id="order-lacks-an-item",
        ),
        pytest.param({"metadata": {"finalizers": [{}]}}, "metadata.finalizers: an object is neither", id="set"),
        pytest.param({"metadata": {"$deleteFromPrimitiveList/finalizers": "f"}}, "'f' is not a list", id="delete-what"),
    ],
)
def test_wrong_patches(patch: dict[str, Any], message: str) -> None:
    original = {"metadata": {"finalizers": ["f"]}, "spec": {"containers": [{"name": "a"}]}}
    with pytest.raises(PatchError, match=message):
        merge(original, patch)


@pytest.mark.parametrize(
    ("original", "patch", "merged"),
    [
        pytest.param({"a": {"b": 1, "c": 2}}, {"a": {"b": 3}}, {"a": {"b": 3, "c": 2}}, id="maps-merge"),
        pytest.param({"a": {"b": 1, "c": 2}}, {"a": {"b": None}}, {"a": {"c": 2}}, id="null-deletes"),
        pytest.param({}, {"a": None, "b": {"c": None, "d": 1}}, {"b": {"d": 1}}, id="null-of-what-is-not-there"),
        pytest.param({"a": None}, {"a": {"b": 1}}, {"a": {"b": 1}}, id="null-is-absent"),
        pytest.param({"a": [1]}, {"a": {"b": 1}}, {"a": {"b": 1}}, id="another-type-replaces"),
        pytest.param({"a": {"b": 1}}, {"a": {"$patch": "replace", "c": 2}}, {"a": {"c": 2}}, id="replace"),
        pytest.param({"a": {"b": 1}}, {"a": {"$patch": "delete"}}, {"a": {}}, id="delete-leaves-an-empty-one"),
        pytest.param({}, {"a": {"$patch": "replace", "c": 2}}, {"a": {"c": 2}}, id="replace-what-is-not-there"),
        pytest.param({"x": 1}, {"a": {"$patch": "delete", "c": 2}}, {"x": 1}, id="delete-what-is-not-there"),
        pytest.param(
            {"v": {"emptyDir": {}, "name": "a"}},
            {"v": {"$retainKeys": ["name", "hostPath"], "hostPath": {"path": "/"}}},
            {"v": {"name": "a", "hostPath": {"path": "/"}}},
            id="retain-keys",
        ),
        pytest.param({}, {"v": {"$retainKeys": ["name"], "name": "a"}}, {"v": {"name": "a"}}, id="retain-keys-of-new"),
        pytest.param(
            {"$x": 1, "l": [1]}, {"$setElementOrder/m": [2], "$deleteFromPrimitiveList/m": [1]}, {"$x": 1, "l": [1]},
            id="directives-for-no-list",
        ),
    ],
)  # fmt: skip
def test_objects(original: dict[str, Any], patch: dict[str, Any], merged: dict[str, Any]) -> None:
    assert merge(original, patch) == merged


@pytest.mark.parametrize(("field", "key"), list(MERGE_KEYS.items()))
def test_every_list_with_a_merge_key(field: str, key: str) -> None:
    def items(*values: int, **members: Any) -> list[dict[str, Any]]:
        return [{key: value, **members} for value in values]

    original, patch = {field: items(1, 2, x=0, y=0)}, {field: items(2, x=7)}
    assert merge(original, patch) == {field: [{key: 1, "x": 0, "y": 0}, {key: 2, "x": 7, "y": 0}]}


@pytest.mark.parametrize(
    "field", ["tolerations", "command", "args", "envFrom", "nodeSelectorTerms", "readinessGates", "sysctls"]
)
def test_every_other_list_is_replaced(field: str) -> None:
    assert merge({field: [{"name": "a"}, 1]}, {field: [{"name": "b", "x": None}]}) == {field: [{"name": "b"}]}


@pytest.mark.parametrize(
    ("original", "patch", "merged"),
    [
        pytest.param([A], [{"name": "a", "image": "new"}], [{"name": "a", "image": "new"}], id="by-name"),
        pytest.param([A], [B], [B, A], id="new-ones-first-as-kubectl-does"),
        pytest.param([A, B, C], [C, A], [B, C, A], id="known-ones-in-the-order-of-the-patch"),
        pytest.param([], [B, A], [B, A], id="none-before"),
        pytest.param(None, [B, A], [B, A], id="no-list-before"),
        pytest.param([A, B], [], [A, B], id="an-empty-patch-says-nothing"),
        pytest.param([A, B], [{"name": "a", "$patch": "delete"}], [B], id="delete-one"),
        pytest.param([A], [{"name": "z", "$patch": "delete"}], [A], id="delete-none"),
        pytest.param([A, B], [{"$patch": "replace"}, C], [C], id="replace-all"),
        pytest.param([A, B], [{"$patch": "replace"}], [], id="replace-by-nothing"),
        pytest.param([A], [{"name": "a", "$patch": "delete"}, A], [A], id="delete-then-add"),
        pytest.param([A], [{"name": "a", "image": None}], [{"name": "a"}], id="null-in-an-item"),
        pytest.param([A], [{"name": "b", "x": None}], [{"name": "b"}, A], id="null-in-a-new-item"),
        pytest.param(
            [{**A, "x": 1}, {**A, "y": 1}], [{"name": "a", "z": 1}], [{**A, "x": 1, "z": 1}, {**A, "y": 1}],
            id="twice-the-same-key-both-stay",
        ),
    ],
)  # fmt: skip
def test_lists_of_containers(original: Any, patch: list[Any], merged: list[Any]) -> None:
    assert merge(spec(containers=original), spec(containers=patch)) == spec(containers=merged)


@pytest.mark.parametrize(
    ("original", "order", "patch", "merged"),
    [
        pytest.param([A, B, C], "cb", None, [A, C, B], id="of-what-is-there"),
        pytest.param([A, B], "abc", [C], [A, B, C], id="a-new-one-last"),
        pytest.param([A, B], "cab", [C], [C, A, B], id="a-new-one-first"),
        pytest.param(None, "ba", [A, B], [B, A], id="of-a-new-list"),
        pytest.param([A, B], "b", [{"name": "a", "$patch": "delete"}], [B], id="the-deleted-need-no-place"),
        pytest.param(None, "a", None, None, id="of-no-list"),
    ],
)
def test_set_element_order(original: Any, order: str, patch: Any, merged: Any) -> None:
    members = {"$setElementOrder/containers": [{"name": name} for name in order], "containers": patch}
    said = {key: value for key, value in members.items() if value is not None}
    result = merge(spec(containers=original), spec(**said))
    assert result == spec(containers=merged)


@pytest.mark.parametrize(
    ("original", "patch", "merged"),
    [
        (["a"], {"finalizers": ["b", "a", "b"]}, ["b", "a"]),
        (["a", "b"], {"finalizers": ["b"]}, ["a", "b"]),
        (["a", "b"], {"$deleteFromPrimitiveList/finalizers": ["a", "z"]}, ["b"]),
        (["a", "b"], {"$deleteFromPrimitiveList/finalizers": ["a"], "finalizers": ["c"]}, ["c", "b"]),
        (["a"], {"$setElementOrder/finalizers": ["a", "b"], "finalizers": ["b"]}, ["a", "b"]),
    ],
)
def test_finalizers_are_a_set(original: list[str], patch: dict[str, Any], merged: list[str]) -> None:
    assert merge({"finalizers": original}, patch) == {"finalizers": merged}


SCALARS = st.integers(0, 3) | st.sampled_from(["x", "y"])
NAMED = st.lists(st.sampled_from("abc"), unique=True, max_size=3)


def _item(name: str, members: dict[str, Any]) -> dict[str, Any]:
    return {**members, "name": name}


def _documents(leaves: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    def deeper(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
        objects = st.dictionaries(st.sampled_from(["labels", "x"]), inner, max_size=2)
        items = st.lists(
            st.builds(_item, st.sampled_from("abc"), objects), max_size=2, unique_by=lambda each: each["name"]
        )
        lists = st.fixed_dictionaries(
            {},
            optional={
                "containers": items,
                "env": items,
                "tolerations": st.lists(objects, max_size=2),
                "finalizers": NAMED,
            },
        )
        return objects | lists

    return deeper(leaves | deeper(leaves))


DOCUMENTS, PATCHES = _documents(SCALARS), _documents(SCALARS | st.none())


@given(DOCUMENTS)
def test_an_empty_patch_changes_nothing(document: dict[str, Any]) -> None:
    assert merge(document, {}) == document


@given(DOCUMENTS, PATCHES)
def test_the_same_patch_twice_is_once(document: dict[str, Any], patch: dict[str, Any]) -> None:
    once = merge(document, patch)
    assert merge(once, patch) == once


@given(DOCUMENTS, PATCHES)
def test_neither_document_is_changed(document: dict[str, Any], patch: dict[str, Any]) -> None:
    before = copy.deepcopy((document, patch))
    merge(document, patch)
    assert (document, patch) == before

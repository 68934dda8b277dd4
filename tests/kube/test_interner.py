"""Equal parts of many objects: one of them is kept, in tables that do not grow without bound."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from koord.kube.interner import Interner, shared
from koord.kube.recent import Recent
from koord.model.core import Container, ObjectMeta, OwnerReference, Pod, PodSpec, ResourceRequirements


def pod(name: str, note: str = "same", cpu: str = "1") -> Pod:
    return msgspec.json.decode(
        msgspec.json.encode(
            Pod(
                ObjectMeta(
                    name=name,
                    labels={"app": "web"},
                    annotations={"note": note, "other": "text"},
                    owner_references=(OwnerReference("ReplicaSet", "web", "u"),),
                ),
                PodSpec(containers=(Container("main", ResourceRequirements({"cpu": cpu})),)),
            )
        ),
        type=Pod,
    )


def test_the_first_of_all_that_are_equal() -> None:
    interner = Interner()
    first, second = {"a": "1"}, {"a": "1"}
    assert interner.intern(first) is first
    assert interner.intern(second) is first
    assert interner.intern({"a": "2"}) == {"a": "2"}


@pytest.mark.parametrize(
    ("one", "other"), [((), []), ({"a": 1}, {"a": 1.0}), ({"a": 1}, {"a": True}), ("1", 1)], ids=str
)
def test_values_that_are_alike_and_not_the_same(one: Any, other: Any) -> None:
    interner = Interner()
    assert interner.intern(one) is one
    assert interner.intern(other) is other


def test_structs_of_a_key_share_what_they_have_in_common() -> None:
    interner = Interner()
    one, other = interner.intern_like("u", pod("a")), interner.intern_like("u", pod("b", note="own"))
    assert other == pod("b", note="own")
    assert one.metadata.labels is other.metadata.labels
    assert one.metadata.owner_references is other.metadata.owner_references
    assert one.metadata.annotations["other"] is other.metadata.annotations["other"]
    assert one.spec is other.spec
    assert interner.intern_like("u", pod("b", note="own")) is other


def test_the_first_of_another_key_shares_by_value() -> None:
    """The pods of a CronJob's Jobs have an owner each."""
    interner = Interner()
    one, other = interner.intern_like("job-1", pod("a")), interner.intern_like("job-2", pod("b"))
    assert one.spec.containers is other.spec.containers
    assert one.metadata.labels is other.metadata.labels


def test_structs_of_two_types_share_nothing() -> None:
    interner = Interner()
    interner.intern_like("u", pod("a"))
    assert interner.intern_like("u", ObjectMeta(name="a")) == ObjectMeta(name="a")


PODS = st.builds(pod, st.sampled_from("ab"), st.sampled_from(["", "x"]), st.sampled_from(["1", "2"]))


@given(PODS, PODS)
def test_what_is_shared_equals_what_was_given(value: Pod, like: Pod) -> None:
    assert shared(value, like) == value


@given(st.lists(st.tuples(st.sampled_from("uvw"), PODS)))
def test_what_is_interned_equals_what_was_given(seen: list[tuple[str, Pod]]) -> None:
    interner = Interner(most=4)
    for key, value in seen:
        assert interner.intern_like(key, value) == value


def test_mappings_of_other_keys_share_nothing() -> None:
    value = {"b": "1", "a": "1"}
    assert shared(value, {"a": "1", "b": "2"}) == value
    assert shared(value, {}) == value


@pytest.mark.parametrize("most", [1, 2, 10])
def test_tables_are_bounded(most: int) -> None:
    interner = Interner(most)
    for number in range(1000):
        assert interner.intern(str(number)) == str(number)
        interner.intern_like(number, pod(str(number)))
        assert len(interner) <= 2 * max(1, most // 2)


def test_what_is_met_again_and_again_is_never_forgotten() -> None:
    recent = Recent[str, int](10)
    recent.put("often", 1)
    for number in range(100):
        recent.put(str(number), number)
        assert recent.get("often") == 1
    assert recent.get("0") is None
    assert len(recent) <= 10


def test_a_value_that_is_put_again_is_known_once() -> None:
    recent = Recent[str, int](4)
    for name in "abc":
        recent.put(name, 1)
    recent.put("a", 2)
    assert (recent.get("a"), len(recent)) == (2, 3)

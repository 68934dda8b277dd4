"""The root of a quota tree by its profile: what nodes come to, and what of the object is written."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from koord.model import core
from koord.model.core import Node, ObjectMeta
from koord.model.elasticquota import ElasticQuota
from koord.model.quotaprofile import ElasticQuotaProfile
from koord.quota import pool
from koord.quota.pool import Pool

PREFIX = "quota.scheduling.koordinator.sh/"
AMOUNTS = st.dictionaries(st.sampled_from(["cpu", "memory", "gpu"]), st.integers(0, 2**50))


def profile(labels: Any = None, annotations: Any = None, **spec: Any) -> ElasticQuotaProfile:
    document = {
        "metadata": {"name": "gpu-profile", "namespace": "kube-system", "labels": labels, "annotations": annotations},
        "spec": {"quotaName": "gpu-root", "nodeSelector": {"matchLabels": {"pool": "gpu"}}, **spec},
    }
    return core.read(ElasticQuotaProfile, msgspec.json.encode(document))


def node(ready: str | None = "True", cordoned: bool = False) -> Node:
    conditions = [] if ready is None else [{"type": "Ready", "status": ready}]
    return core.read(
        Node, msgspec.json.encode({"spec": {"unschedulable": cordoned}, "status": {"conditions": conditions}})
    )


@pytest.mark.parametrize(
    ("metadata", "tree"),
    [
        (ObjectMeta("gpu-profile", "kube-system"), "760438705287993495"),
        (ObjectMeta("gpu-profile", "kube-system", labels={f"{PREFIX}tree-id": "t1"}), "t1"),
        (ObjectMeta("p", "kube-system", labels={f"{PREFIX}tree-id": ""}), pool.tree_id(ObjectMeta("p", "kube-system"))),
    ],
)
def test_the_tree(metadata: ObjectMeta, tree: str) -> None:
    assert pool.tree_id(metadata) == tree


@pytest.mark.parametrize(
    ("seen", "takes"),
    [
        (node(), True),
        (node("False"), False),
        (node("Unknown"), False),
        (node(None), False),
        (node(cordoned=True), False),
    ],
)
def test_which_nodes_take_pods(seen: Node, takes: bool) -> None:
    assert pool.is_schedulable(seen) is takes


def test_the_worked_example() -> None:
    """Two nodes of 8 CPUs at a ratio of 0.9."""
    has = pool.amounts({"cpu": "8", "memory": "16Gi", "broken": "lots"})
    found = pool.pool([(has, True), (has, False)], profile(resourceRatio="0.9").spec.ratio)
    assert found == Pool({"cpu": 14400, "memory": 32 * 2**30 * 9 // 10}, {"cpu": 7200, "memory": 16 * 2**30 * 9 // 10})
    root = pool.root(profile(resourceRatio="0.9"), found)
    assert root.spec.min == {"cpu": "14400m", "memory": "30923764531"}
    assert root.spec.max == {"cpu": "4611686018427387", "memory": "4611686018427387"}
    assert root.metadata.labels == {
        f"{PREFIX}profile": "gpu-profile",
        f"{PREFIX}tree-id": "760438705287993495",
        f"{PREFIX}is-root": "true",
    }
    assert root.metadata.annotations[f"{PREFIX}unschedulable-resource"] == '{"cpu":"7200m","memory":"15461882265"}'
    assert (root.metadata.namespace, root.metadata.name) == ("kube-system", "gpu-root")


@pytest.mark.parametrize(
    ("annotations", "keys"),
    [(None, ["cpu", "memory"]), ({f"{PREFIX}resource-keys": '["gpu","cpu","gpu"]'}, ["cpu", "gpu"])],
)
def test_which_resources_the_root_names(annotations: Any, keys: list[str]) -> None:
    """What no node has is 0 of it."""
    root = pool.root(profile(annotations=annotations), Pool({"cpu": 1000, "memory": 5}))
    assert (sorted(root.spec.min), sorted(root.spec.max)) == (keys, keys)
    assert root.spec.min.get("gpu", "0") == "0"


def test_the_labels_of_a_profile_come_along_but_not_those_that_say_what_the_root_is() -> None:
    labels = {f"{PREFIX}is-parent": "true", f"{PREFIX}tree-id": "mine", f"{PREFIX}is-root": "false"}
    found = pool.root(profile(quotaLabels=labels), Pool()).metadata.labels
    assert found[f"{PREFIX}is-parent"] == found[f"{PREFIX}is-root"] == "true"
    assert found[f"{PREFIX}tree-id"] == "760438705287993495"


@pytest.mark.parametrize(
    ("text", "ratio"),
    [("", 1), ("1", 1), ("1.0", 1), ("0.9", Fraction(9, 10)), (".25", Fraction(1, 4)), ("9e-1", Fraction(9, 10))],
)
def test_a_ratio(text: str, ratio: Fraction) -> None:
    assert profile(resourceRatio=text).spec.ratio == ratio


@pytest.mark.parametrize(
    "text", ["0", "0.0", "1.01", "-0.5", "o.9", "90%", "1/2", "1e99", " 1", "nan", "0." + "9" * 99]
)
def test_what_is_no_ratio(text: str) -> None:
    """Koordinator takes all of the nodes then."""
    with pytest.raises(ValueError, match=r"spec\.resourceRatio"):
        _ = profile(resourceRatio=text).spec.ratio


def test_resource_keys_that_are_none() -> None:
    with pytest.raises(ValueError, match="resource-keys"):
        pool.root(profile(annotations={f"{PREFIX}resource-keys": "cpu"}), Pool())


@given(st.lists(st.tuples(AMOUNTS, st.booleans()), max_size=5), st.fractions(Fraction(1, 1000), 1))
def test_a_pool_is_no_more_than_the_part_of_the_sum(nodes: list[tuple[dict[str, int], bool]], ratio: Fraction) -> None:
    found = pool.pool(nodes, ratio)
    for resource in {name for has, _ in nodes for name in has}:
        exact = sum(has.get(resource, 0) for has, _ in nodes) * ratio
        assert exact - 1 < found.total[resource] <= exact
        assert found.unschedulable.get(resource, 0) <= found.total[resource]


@given(AMOUNTS, AMOUNTS)
def test_what_was_changed_needs_no_change(before: dict[str, int], after: dict[str, int]) -> None:
    stored, desired = (pool.root(profile(), Pool(total)) for total in (before, after))
    patch = pool.change(stored, desired)
    document = msgspec.to_builtins(stored)
    metadata, spec = patch.get("metadata", {}), patch.get("spec", {})
    document["metadata"]["annotations"] |= metadata.get("annotations", {})
    for member, values in spec.items():
        document["spec"][member] |= values
    assert pool.change(core.read(ElasticQuota, msgspec.json.encode(document)), desired) == {}


def test_what_others_write_on_the_root_stays() -> None:
    desired = pool.root(profile(), Pool({"cpu": 1500}))
    document = msgspec.to_builtins(desired)
    document["metadata"]["labels"]["team"] = "x"
    document["metadata"]["annotations"][f"{PREFIX}runtime"] = "{}"
    document["spec"]["min"]["cpu"] = "1.5"
    stored = core.read(ElasticQuota, msgspec.json.encode(document))
    assert pool.change(stored, desired) == {}
    document["spec"]["min"] = {"gpu": "3"}
    stored = core.read(ElasticQuota, msgspec.json.encode(document))
    assert pool.change(stored, desired) == {"spec": {"min": {"gpu": None, "cpu": "1500m", "memory": "0"}}}

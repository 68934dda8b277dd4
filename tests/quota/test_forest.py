"""A forest of quotas: what goes up, what comes down, several trees, and quotas that are in none."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from koord.model.elasticquota import ElasticQuota
from koord.quota import names, spec
from koord.quota.forest import Forest, QuotaRules
from koord.quota.spec import QuotaSpec


def quota(name: str, low: int = 0, high: int = 1000, parent: str = names.ROOT, **more: Any) -> QuotaSpec:
    more.setdefault("weight", {"cpu": more.pop("share", high)})
    return QuotaSpec(name, parent=parent, minimum={"cpu": low}, maximum={"cpu": high}, **more)


def forest(*quotas: QuotaSpec, cpu: int = 100, rules: QuotaRules | None = None, **requests: Any) -> Forest:
    made = Forest(rules or QuotaRules())
    for each in quotas:
        made.put(each)
    for name, amount in requests.items():
        made.request(name, {"cpu": amount})
    made.put_cluster({"cpu": cpu})
    return made


def runtimes(made: Forest, *which: str) -> list[int | None]:
    return [made.runtime(found, "cpu") for name in which if (found := made.get(name)) is not None]


@pytest.mark.parametrize(
    ("quotas", "requests", "expected"),
    [
        pytest.param(
            [quota("p", 40), quota("a", 30, parent="p"), quota("b", 10, parent="p"), quota("z", 60)],
            {"a": 90, "z": 90}, {"p": 40, "a": 40, "b": 0, "z": 60},
            id="a child borrows from its sister within its parent's runtime",
        ),
        pytest.param(
            [quota("p", 40, 50), quota("a", 30, parent="p"), quota("z", 60)], {"a": 90}, {"p": 50, "a": 50, "z": 0},
            id="no more than the parent's maximum goes up",
        ),
        pytest.param(
            [quota("p", 40), quota("a", 30, parent="p", lends=False), quota("z", 60)], {"z": 90},
            {"p": 30, "a": 30, "z": 70}, id="what a child does not lend its parent requests",
        ),
        pytest.param(
            [quota("p", 40), quota("a", 30, 20, parent="p", lends=False)], {}, {"p": 20, "a": 20},
            id="a minimum above the maximum: no more than the parent has",
        ),
        pytest.param(
            [quota("p", 40), quota("a", 30, parent="p")], {"p": 25, "a": 20}, {"p": 45, "a": 20},
            id="a parent's own pods",
        ),
        pytest.param([quota("a", 80), quota("b", 120)], {"a": 90, "b": 150}, {"a": 40, "b": 60}, id="scaled minima"),
    ],
)  # fmt: skip
def test_up_and_down(quotas: list[QuotaSpec], requests: dict[str, int], expected: dict[str, int]) -> None:
    made = forest(*quotas, **requests)  # type: ignore[arg-type]
    assert dict(zip(expected, runtimes(made, *expected), strict=True)) == expected


def test_what_the_system_and_pods_of_no_quota_use_is_not_divided() -> None:
    made = forest(quota("a", 10), a=200)
    made.request(names.DEFAULT, {"cpu": 500})
    assert runtimes(made, "a") == [100], "what they request changes nothing"
    made.use(names.DEFAULT, {"cpu": 20})
    made.use(names.SYSTEM, {"cpu": 5})
    assert runtimes(made, "a", names.SYSTEM, names.DEFAULT) == [75, None, None]
    made.use(names.DEFAULT, {"cpu": 90})
    assert runtimes(made, "a") == [0], "less than nothing is nothing"


def test_the_quotas_outside_have_the_maxima_of_the_rules_unless_there_are_objects() -> None:
    made = forest(rules=QuotaRules(maximum={names.DEFAULT: {"cpu": 7}, names.SYSTEM: {"cpu": 8}}))
    made.put(QuotaSpec(names.SYSTEM, maximum={"cpu": 9}))
    assert runtimes(made, names.DEFAULT, names.SYSTEM) == [7, 9]


def test_trees_of_their_own() -> None:
    root = QuotaSpec("gpu", tree="t", minimum={"cpu": 30}, maximum={"cpu": 9999}, total={"cpu": 30})
    made = forest(root, quota("a", parent="gpu", tree="t"), quota("z"), a=50, z=500)
    assert runtimes(made, "gpu", "a", "z") == [30, 30, 70], "the tree's total is no longer the cluster's"
    made.put(root._replace(ignores_default_tree=True))
    assert runtimes(made, "gpu", "a", "z") == [30, 30, 100]
    made.remove("gpu")
    assert runtimes(made, "a", "z") == [0, 100]


def test_what_is_used_is_guaranteed_where_rules_say_so() -> None:
    for guarantees, expected in ((False, [50, 50]), (True, [80, 20])):
        made = forest(quota("a", 10, share=1), quota("b", 10, share=1), rules=QuotaRules(guarantees_usage=guarantees))
        made.request("a", {"cpu": 80})
        made.use("a", {"cpu": 80})
        made.request("b", {"cpu": 80})
        assert runtimes(made, "a", "b") == expected
        made.use("a", {"cpu": 80}, sign=-1)
        assert runtimes(made, "a", "b") == [50, 50]


@pytest.mark.parametrize(
    ("quotas", "problem"),
    [
        ([quota("a", parent="gone")], "its parent gone does not exist"),
        ([quota("a", parent="b"), quota("b", parent="gone")], "b, above it, has a parent that gone does not exist"),
        ([quota("a", parent="b"), quota("b", parent="a")], "b, above it, has a parent that a is below it"),
        ([quota("a", parent="a")], "its parent a is below it"),
        ([quota("a", parent="b"), quota("b", tree="t")], "its parent b is in tree 't' and not in ''"),
        ([quota("a", parent=names.DEFAULT)], f"its parent {names.DEFAULT} is no parent"),
    ],
)
def test_a_quota_that_is_in_no_tree_may_use_nothing_and_others_go_on(quotas: list[QuotaSpec], problem: str) -> None:
    made = forest(*quotas, quota("z"), a=50, z=500)
    found = made.get("a")
    assert found is not None and found.problem == problem
    assert runtimes(made, "a", "z") == [0, 100]


def test_why_a_quota_has_what_it_has() -> None:
    made = forest(quota("p", 40, 60), quota("a", 30, parent="p", share=1), quota("z", 60), a=90, z=90)
    found = made.get("a")
    assert found is not None
    assert [(level.parent, level.quota, level.share.runtime) for level in made.levels(found, "cpu")] == [
        (names.ROOT, "p", 40), ("p", "a", 40),
    ]  # fmt: skip


def test_an_object_in_numbers() -> None:
    found, problems = spec.of(
        _object(
            {"min": {"cpu": "1500m", "memory": "1Gi"}, "max": {"cpu": 2, "memory": "2Gi", "pods": "x"}},
            {"parent": "p", "is-parent": "true", "allow-lent-resource": "false", "tree-id": "7", "is-root": "true"},
            {"shared-weight": '{"cpu":"3"}', "namespaces": '["n1","n2"]', "total-resource": '{"cpu":"64"}'},
        )
    )
    assert found == QuotaSpec(
        "q", "ns", "p", "7", True, False,
        {"cpu": 1500, "memory": 2**30}, {"cpu": 2000, "memory": 2**31, "pods": 0},
        {"cpu": 3000, "memory": 2**31, "pods": 0}, ("n1", "n2"), {"cpu": 64_000},
    )  # fmt: skip
    assert [each.path for each in problems] == ["spec.max[pods]"]
    assert spec.json({"memory": 2**30, "cpu": 1500, "nvidia.com/gpu": 2000}) == (
        '{"cpu":"1500m","memory":"1Gi","nvidia.com/gpu":"2k"}'
    )


def _object(said: dict[str, Any], labels: dict[str, str], annotations: dict[str, str]) -> ElasticQuota:
    metadata = {
        "name": "q",
        "namespace": "ns",
        "labels": {f"quota.scheduling.koordinator.sh/{key}": value for key, value in labels.items()},
        "annotations": {f"quota.scheduling.koordinator.sh/{key}": value for key, value in annotations.items()},
    }
    return msgspec.convert({"metadata": metadata, "spec": said}, ElasticQuota)


@pytest.mark.parametrize("value", ["{", "[]", '{"cpu": "x"}', '{"cpu": "-1"}'])
def test_an_annotation_that_cannot_be_read_is_said_and_is_not_there(value: str) -> None:
    found, problems = spec.of(_object({"max": {"cpu": "4"}}, {}, {"shared-weight": value, "namespaces": value}))
    assert found.weight == {"cpu": 4000} and found.namespaces == ()
    assert len(problems) == (1 if value == "[]" else 2)

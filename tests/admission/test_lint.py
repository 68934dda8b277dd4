"""What is probably meant otherwise, finding by finding."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given

from koord.admission import ObjectProblem, lint_pod, lint_profiles
from koord.admission.documents import typed
from koord.model.profile import ClusterColocationProfile, ProfileSpec
from koord.model.selector import LabelSelector, Requirement
from tests.admission.objects import BATCH_CPU, BATCH_MEMORY, CLASSES, QOS, pod, profile
from tests.admission.test_mutation import PODS
from tests.support.kubernetes import QUICK_START_PROFILE, container

SELECTS: dict[str, Any] = {"selector": {"matchLabels": {"app": "x"}}}
LIMITS = {BATCH_CPU: "1k", BATCH_MEMORY: "1Gi"}
NEVER = LabelSelector(match_expressions=(Requirement(key="a", operator="Near"),))


def unchecked(**spec: Any) -> ClusterColocationProfile:
    """As no reader would let it through."""
    return ClusterColocationProfile(metadata=profile("p").metadata, spec=ProfileSpec(**spec))


@pytest.mark.parametrize(
    ("item", "path", "words"),
    [
        pytest.param(unchecked(selector=NEVER), "spec.selector", "matches no pod: .*operator 'Near'", id="selector"),
        pytest.param(
            unchecked(namespace_selector=NEVER), "spec.namespaceSelector", "matches no pod: .*'Near'", id="namespaces"
        ),
        pytest.param(profile(), "spec", "every pod of the cluster", id="no-selector"),
        pytest.param(profile(selector={}, namespaceSelector={}), "spec", "every pod of the cluster", id="empty-ones"),
        pytest.param(
            profile("p", {"config.koordinator.sh/order": "first"}, **SELECTS),
            "metadata.annotations",
            "order: 'first' is not a whole number",
            id="order",
        ),
        pytest.param(
            profile(probability=150, **SELECTS), "spec.probability", "150 is not in 0..100 and counts as 100", id="150"
        ),
        pytest.param(
            profile(probability="-5%", **SELECTS),
            "spec.probability",
            "'-5%' is not in 0..100 and counts as 0",
            id="-5%",
        ),
        pytest.param(profile(probability=0, **SELECTS), "spec.probability", "applied to no pod, yet resources", id="0"),
        pytest.param(
            unchecked(probability="most", selector=LabelSelector(match_labels={"a": "b"})),
            "spec.probability",
            "applied to no pod: 'most'",
            id="no-probability",
        ),
        pytest.param(
            profile(priorityClassName="gold", **SELECTS),
            "spec.priorityClassName",
            "PriorityClass 'gold' does not exist: each pod .* is refused",
            id="no-priority-class",
        ),
        pytest.param(
            profile(qosClass="BE", **SELECTS), "spec.priorityClassName", "missing: a pod that becomes BE", id="BE-alone"
        ),
        pytest.param(
            profile(qosClass="BE", priorityClassName="koord-prod", **SELECTS),
            "spec.priorityClassName",
            "koord-prod does not go with qosClass BE",
            id="BE-prod",
        ),
        pytest.param(
            profile(qosClass="LSR", priorityClassName="system", **SELECTS),
            "spec.priorityClassName",
            "no band of priorities does not go with qosClass LSR",
            id="LSR-none",
        ),
        pytest.param(
            profile(patch={"spec": {"containers": [{"image": "x"}]}}, **SELECTS),
            "spec.patch",
            "each pod that the profile matches is refused: spec.containers: name",
            id="patch",
        ),
        pytest.param(
            profile(patch={"spec": 3}, **SELECTS), "spec.patch", "is refused: pod cannot be read", id="patch-type"
        ),
    ],
)
def test_a_profile(item: ClusterColocationProfile, path: str, words: str) -> None:
    classes = {**CLASSES, "system": CLASSES["koord-prod"]._replace(value=2000000000)}
    (finding,) = lint_profiles([item], classes)
    assert (finding.object, finding.problem.path) == ("ClusterColocationProfile p", path)
    first, _, last = words.partition(".*")
    assert first in finding.problem.message and last in finding.problem.message


@pytest.mark.parametrize(
    "item",
    [
        profile("batch-workload-profile", **QUICK_START_PROFILE["spec"]),
        profile(probability=70, **SELECTS),
        profile(probability="100%", **SELECTS),
        profile(qosClass="LS", **SELECTS),
        profile(patch={"spec": {"tolerations": []}}, **SELECTS),
        profile("p", {"config.koordinator.sh/order": "3"}, **SELECTS),
    ],
)
def test_a_profile_that_is_as_it_should_be(item: ClusterColocationProfile) -> None:
    assert lint_profiles([item], CLASSES) == ()


@pytest.mark.parametrize(
    ("first", "last", "paths"),
    [
        pytest.param({"labels": {"t": "1"}}, {"labels": {"t": "2"}}, ["spec.labels.t"], id="label"),
        pytest.param({"labels": {"t": "1"}}, {"labels": {"t": "1", "u": "2"}}, [], id="the-same"),
        pytest.param(
            {"annotations": {"a.b/c": "1"}},
            {"annotations": {"a.b/c": "2"}},
            ["spec.annotations['a.b/c']"],
            id="annotation",
        ),
        pytest.param({"schedulerName": "a"}, {"schedulerName": "b"}, ["spec.schedulerName"], id="scheduler"),
        pytest.param({"labels": {"t": "1"}}, {"annotations": {"t": "2"}}, [], id="not-the-same-place"),
        pytest.param({"labels": {QOS: "LS"}}, {"qosClass": "LSR"}, [f"spec.labels['{QOS}']"], id="class-by-label"),
        pytest.param(
            {"labels": {"t": "1"}, "selector": {"matchLabels": {"app": "y"}}},
            {"labels": {"t": "2"}},
            [],
            id="no-pod-matches-both",
        ),
        pytest.param(
            {"labels": {"t": "1"}, "namespaceSelector": {"matchLabels": {"n": "1"}}},
            {"labels": {"t": "2"}, "namespaceSelector": {"matchLabels": {"n": "2"}}},
            [],
            id="no-namespace-matches-both",
        ),
        pytest.param(
            {"labels": {"t": "1"}, "namespaceSelector": {"matchLabels": {"n": "1"}}},
            {"labels": {"t": "2"}, "namespaceSelector": {"matchLabels": {"m": "2"}}},
            ["spec.labels.t"],
            id="one-may",
        ),
    ],
)
def test_two_profiles(first: dict[str, Any], last: dict[str, Any], paths: list[str]) -> None:
    items = [profile("b", **{**SELECTS, **last}), profile("a", **{**SELECTS, **first})]
    found = lint_profiles(items, CLASSES)
    assert [finding.problem.path for finding in found] == paths
    assert all(each.object == "ClusterColocationProfile a" for each in found)
    assert all("which b overwrites by" in each.problem.message for each in found)


@pytest.mark.parametrize(
    ("document", "path", "words"),
    [
        pytest.param(
            pod(container(limits=LIMITS), labels={QOS: "BE"}, priority=9000),
            f"labels.{QOS}",
            "cannot be used in combination",
            id="BE-prod",
        ),
        pytest.param(
            pod(container(limits={BATCH_MEMORY: "1Gi"})), f"labels.{QOS}", "must have the label", id="batch without BE"
        ),
        pytest.param(
            pod(container(requests={"cpu": "1"}, limits=LIMITS), labels={QOS: "BE"}, priority=5000),
            "spec",
            "has native cpu, which it takes from",
            id="native",
        ),
        pytest.param(
            pod(container(limits={**LIMITS, BATCH_CPU: "1"}), labels={QOS: "BE"}, priority=5000),
            f"spec.containers[0].resources.limits.{BATCH_CPU}",
            "'1' is 1 thousandths of a CPU: write 1000 if 1 CPUs are meant",
            id="doubt",
        ),
        pytest.param(
            pod(container(requests={BATCH_CPU: "x"}), priority=9000),
            f"spec.containers[0].resources.requests.{BATCH_CPU}",
            "'x' is not a quantity",
            id="amount",
        ),
    ],
)
def test_a_pod(document: dict[str, Any], path: str, words: str) -> None:
    (finding,) = lint_pod(typed(document))
    assert (finding.object, finding.problem.path) == ("Pod batch-demo/job-x7", path)
    assert words in finding.problem.message
    assert str(finding) == f"Pod batch-demo/job-x7: {path}: {finding.problem.message}"


@pytest.mark.parametrize(
    "document",
    [
        pod(),
        pod(container(limits=LIMITS), labels={QOS: "BE"}, priority=5000),
        pod(container(limits={"cpu": "2"}), labels={QOS: "LSR"}, priority=9000),
    ],
)
def test_a_pod_that_is_as_it_should_be(document: dict[str, Any]) -> None:
    assert lint_pod(typed(document)) == ()


@given(PODS)
def test_whatever_a_pod_says_nothing_is_raised(document: dict[str, Any]) -> None:
    assert all(isinstance(finding, ObjectProblem) for finding in lint_pod(typed(document)))

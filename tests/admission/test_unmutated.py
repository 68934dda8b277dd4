"""Pods that no webhook has seen: what is said of them, and of whom nothing is."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given

from koord.admission import missing_mutations
from koord.admission.documents import typed
from koord.model.profile import ClusterColocationProfile
from tests.admission.objects import (
    BATCH_CPU,
    QOS,
    SKIP,
    context,
    mutation_of,
    pod,
    profile,
)
from tests.admission.test_mutation import PODS, SETTLED
from tests.support.kubernetes import QUICK_START_PROFILE, container

QUICK = profile("batch-workload-profile", **QUICK_START_PROFILE["spec"])
AMOUNTS = {"cpu": "2", "memory": "4Gi"}
SUBMITTED = pod(container(requests=AMOUNTS, limits=AMOUNTS), labels={"app-type": "batch"}, priority=0)
BORN = "2026-11-25T09:00:00Z"
WANTS: dict[str, Any] = {"selector": {"matchLabels": {"app-type": "batch"}}}


def said(document: dict[str, Any], *items: ClusterColocationProfile, **facts: Any) -> str | None:
    return missing_mutations(typed(document), context(*items, **facts))


def aged(name: str, created: str, **spec: Any) -> ClusterColocationProfile:
    made = profile(name, **spec)
    metadata = type(made.metadata)(name=name, creation_timestamp=created)
    return ClusterColocationProfile(metadata=metadata, spec=made.spec)


def test_the_quick_starts_pod_after_a_dead_webhook() -> None:
    assert said(SUBMITTED, QUICK) == (
        "pod batch-demo/job-x7 lacks label koordinator.sh/mutated=true, label koordinator.sh/qosClass=BE, "
        "schedulerName=koord-scheduler, priorityClassName=koord-batch, which ClusterColocationProfile "
        "batch-workload-profile sets: no webhook answered when it was created, or its labels or the profile changed "
        "since; create it again"
    )


def test_the_quick_starts_pod_after_a_webhook() -> None:
    assert said(mutation_of(SUBMITTED, context(QUICK)).pod, QUICK) is None


@pytest.mark.parametrize(
    ("document", "items"),
    [
        pytest.param(SUBMITTED, [], id="no-profile"),
        pytest.param(pod(labels={"app-type": "web"}), [QUICK], id="another-pod"),
        pytest.param({**SUBMITTED, "status": {"phase": "Succeeded"}}, [QUICK], id="succeeded"),
        pytest.param({**SUBMITTED, "status": {"phase": "Failed"}}, [QUICK], id="failed"),
        pytest.param(
            {**SUBMITTED, "metadata": {"namespace": "kube-system"}}, [profile(labels={"t": "1"})], id="kube-system"
        ),
        pytest.param(
            pod(labels={"app-type": "batch"}, annotations={"kubernetes.io/config.mirror": "0a1b"}), [QUICK], id="mirror"
        ),
        pytest.param({**SUBMITTED, "metadata": {"namespace": "unknown"}}, [QUICK], id="unknown-namespace"),
        pytest.param(SUBMITTED, [profile(probability=99, labels={"t": "1"}, **WANTS)], id="by-lot"),
        pytest.param(
            SUBMITTED,
            [profile("a", labels={"t": "1"}), profile("b", probability=50, labels={"t": "2"})],
            id="another-may-have-overwritten-it",
        ),
        pytest.param(
            SUBMITTED, [profile("a", labels={"t": "1"}), profile("b", labelSuffixes={"t": "-x"})], id="suffixed"
        ),
        pytest.param(
            SUBMITTED, [profile("a", labels={"t": "1"}), profile("b", labelKeysMapping={"u": "t"})], id="mapped"
        ),
        pytest.param(
            SUBMITTED, [profile(labels={"t": "1"}, patch={"metadata": {"labels": {"t": None}}})], id="patched"
        ),
        pytest.param(
            SUBMITTED,
            [profile("a", labels={"app-type": "batch"}), profile("b", labels={"t": "1"}, **WANTS)],
            id="it-may-not-have-had-the-label-when-it-was-created",
        ),
        pytest.param(
            {**SUBMITTED, "metadata": {**SUBMITTED["metadata"], "creationTimestamp": BORN}},
            [aged("p", "2026-11-25T09:00:01Z", labels={"t": "1"})],
            id="the-profile-is-younger",
        ),
        pytest.param(
            pod(container(requests=AMOUNTS), priority=5000), [profile("p", {SKIP: ""})], id="resources-are-to-stay"
        ),
        pytest.param(pod(container(requests={"cpu": "x"}), labels={QOS: "LS"}), [profile()], id="unreadable-amounts"),
    ],
)
def test_of_whom_nothing_is_said(document: dict[str, Any], items: list[ClusterColocationProfile]) -> None:
    assert said(document, *items) is None


@pytest.mark.parametrize(
    ("document", "items", "lacking"),
    [
        pytest.param(pod(), [profile(annotations={"a": "b"})], "annotation a=b,", id="annotation"),
        pytest.param(pod(labels={"t": "0"}), [profile(labels={"t": "1"})], "label t=1,", id="another-value"),
        pytest.param(pod(), [profile(koordinatorPriority=7)], "label koordinator.sh/priority=7,", id="sub-priority"),
        pytest.param(
            pod(),
            [profile("a", labels={"t": "1"}), profile("b", labels={"t": "2"})],
            "label t=2,",
            id="the-last-one-counts",
        ),
        pytest.param(
            pod(),
            [profile("a", probability=1, labels={"t": "1"}), profile("b", labels={"t": "2"})],
            "label t=2,",
            id="after-a-lot",
        ),
        pytest.param(
            pod(container(requests={"memory": "1Gi"}), priority=7500),
            [profile("p")],
            "memory translated to the resource of its priority class,",
            id="untranslated",
        ),
        pytest.param(
            {**SUBMITTED, "metadata": {**SUBMITTED["metadata"], "creationTimestamp": BORN}},
            [aged("p", BORN, labels={"t": "1"})],
            "label t=1,",
            id="the-profile-is-as-old",
        ),
    ],
)
def test_what_is_said(document: dict[str, Any], items: list[ClusterColocationProfile], lacking: str) -> None:
    sentence = said(document, *items)
    assert sentence is not None and sentence.startswith(f"pod batch-demo/job-x7 lacks {lacking} which ")


def test_native_amounts_that_a_limit_range_brought_again() -> None:
    batch = {"kubernetes.io/batch-cpu": "500", "cpu": "100m"}
    sentence = said(pod(container(requests=batch, limits=batch), priority=5000), profile())
    assert sentence is not None and sentence.startswith("pod batch-demo/job-x7 has cpu beside the resources")
    assert "LimitRange" in sentence and "no webhook" not in sentence


@pytest.mark.parametrize(("is_on", "is_said"), [(True, False), (False, True)])
def test_the_gate_that_leaves_resources(is_on: bool, is_said: bool) -> None:
    document = pod(container(requests=AMOUNTS), priority=5000)
    gates = {"ColocationProfileSkipMutatingResources": is_on}
    assert (said(document, profile(), feature_gates=gates) is not None) is is_said


@given(PODS, SETTLED)
def test_a_pod_that_came_out_of_mutation_lacks_nothing(document: dict[str, Any], spec: dict[str, Any]) -> None:
    cluster = context(profile(**spec))
    result = mutation_of(document, cluster).pod
    assert missing_mutations(typed(result), cluster) is None


def test_a_pod_written_by_hand_lacks_nothing() -> None:
    labels = {"app-type": "batch", QOS: "BE", "koordinator.sh/mutated": "true"}
    by_hand = pod(
        container(requests={BATCH_CPU: "1k"}),
        labels=labels,
        priority=5000,
        priorityClassName="koord-batch",
        schedulerName="koord-scheduler",
    )
    assert said(by_hand, QUICK) is None

"""What changed profiles make of pods that wait for a node."""

from __future__ import annotations

from typing import Any

import pytest

from koord.admission import AdmissionContext, pending
from koord.admission.gates import SKIP_VALIDATING_PRIORITY
from koord.model.core import Pod
from koord.model.profile import ClusterColocationProfile, read
from tests.support import kubernetes

QOS, SUB = "koordinator.sh/qosClass", "koordinator.sh/priority"
MANAGED = {pending.LABEL_MANAGED: "true"}
APP = {"matchLabels": {"app": "job"}}


def profile(name: str = "p", **spec: Any) -> ClusterColocationProfile:
    return read({"metadata": {"name": name, "labels": MANAGED}, "spec": {"selector": APP, **spec}})


def pod(phase: str = "Pending", node: str = "", namespace: str = "jobs", deleted: bool = False, **labels: str) -> Pod:
    document = kubernetes.pod(
        name="w",
        namespace=namespace,
        labels={"app": "job", **labels},
        annotations={"note": "old"},
        metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"} if deleted else None,
        status={"phase": phase},
        nodeName=node,
    )
    return kubernetes.read(Pod, document)


def context(*profiles: ClusterColocationProfile, **gates: bool) -> AdmissionContext:
    return AdmissionContext(profiles=profiles, namespaces={"jobs": {"team": "a"}}, feature_gates=gates)


@pytest.mark.parametrize(
    ("waiting", "is_open"),
    [
        (pod(), True),
        (pod(phase=""), True),
        (pod(node="n1"), False),
        (pod(phase="Running"), False),
        (pod(phase="Failed"), False),
        (pod(deleted=True), False),
        (pod(namespace="kube-system"), False),
        (pod(namespace="koordinator-system"), False),
    ],
)
def test_pods_that_may_still_be_changed(waiting: Pod, is_open: bool) -> None:
    assert pending.is_open(waiting, context()) is is_open


@pytest.mark.parametrize(
    ("spec", "patch"),
    [
        ({}, {}),
        ({"labels": {"tier": "batch"}}, {"labels": {"tier": "batch"}}),
        ({"labels": {"app": "job"}}, {}),
        ({"annotations": {"note": "new"}}, {"annotations": {"note": "new"}}),
        ({"labelKeysMapping": {"app": "kind", "absent": "none"}}, {"labels": {"kind": "job"}}),
        ({"annotationKeysMapping": {"note": "copy"}}, {"annotations": {"copy": "old"}}),
        ({"labelSuffixes": {"app": "-x"}}, {}),
        ({"schedulerName": "s", "priorityClassName": "absent", "qosClass": "BE", "koordinatorPriority": 7}, {}),
        ({"labels": {QOS: "BE", SUB: "7", "tier": "batch"}}, {"labels": {"tier": "batch"}}),
        ({"patch": {"metadata": {"labels": {"app": "job", "x": "y"}}}}, {"labels": {"x": "y"}}),
        ({"patch": {"metadata": {"annotations": {"note": None}}}}, {"annotations": {"note": None}}),
        ({"patch": {"metadata": {"labels": {QOS: "LS"}, "finalizers": ["f"]}, "spec": {"hostNetwork": True}}}, {}),
        ({"patch": {"spec": {"schedulerName": "s"}}}, {}),
        ({"selector": None, "labels": {"x": "y"}}, {}),
        ({"selector": {}, "labels": {"x": "y"}}, {"labels": {"x": "y"}}),
        ({"selector": {"matchLabels": {"app": "other"}}, "labels": {"x": "y"}}, {}),
        ({"namespaceSelector": {"matchLabels": {"team": "a"}}, "labels": {"x": "y"}}, {"labels": {"x": "y"}}),
        ({"namespaceSelector": {"matchLabels": {"team": "b"}}, "labels": {"x": "y"}}, {}),
        ({"probability": 100, "labels": {"x": "y"}}, {"labels": {"x": "y"}}),
        ({"probability": "99%", "labels": {"x": "y"}}, {}),
        ({"probability": 0, "labels": {"x": "y"}}, {}),
    ],
)
def test_what_a_profile_changes(spec: dict[str, Any], patch: dict[str, Any]) -> None:
    update = pending.update(pod(), context(profile(**spec)))
    assert (update.patch, update.problems) == (patch, ())


@pytest.mark.parametrize(
    ("labels", "all_are_managed", "is_changed"),
    [(MANAGED, False, True), ({}, False, False), ({}, True, True), ({pending.LABEL_MANAGED: "false"}, False, False)],
)
def test_which_profiles_are_followed(labels: dict[str, str], all_are_managed: bool, is_changed: bool) -> None:
    update = pending.update(pod(), context(_labelled(labels)), all_are_managed)
    assert bool(update.patch) is is_changed


def _labelled(labels: dict[str, str]) -> ClusterColocationProfile:
    return read({"metadata": {"name": "p", "labels": labels}, "spec": {"selector": APP, "labels": {"x": "y"}}})


def test_the_sub_priority_follows_where_validation_lets_it_change() -> None:
    seven = profile(koordinatorPriority=7, qosClass="BE")
    update = pending.update(pod(), context(seven, **{SKIP_VALIDATING_PRIORITY: True}))
    assert update.patch == {"labels": {SUB: "7"}}


def test_two_profiles_that_set_the_same_do_not_take_turns() -> None:
    both = context(*(profile(name, annotations={"note": name}) for name in ("b", "a")))
    assert pending.update(pod(), both).patch == {"annotations": {"note": "b"}}


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ({"labelKeysMapping": {"app": "b", "b": "app"}}, "would change a pod again and again"),
        ({"patch": {"metadata": {"labels": ["x"]}}}, "ClusterColocationProfile p"),
    ],
)
def test_a_profile_that_cannot_be_applied_changes_nothing(spec: dict[str, Any], problem: str) -> None:
    update = pending.update(pod(b="1"), context(profile("p", **spec)))
    assert not update.patch
    assert problem in " ".join(update.problems)


def test_what_has_been_applied_changes_nothing_again() -> None:
    spec: dict[str, Any] = {
        "labels": {"tier": "batch"},
        "labelKeysMapping": {"tier": "kind"},
        "annotations": {"note": "new"},
    }
    changed = context(profile(**spec))
    patch = pending.update(pod(), changed).patch
    assert patch == {"labels": {"tier": "batch", "kind": "batch"}, "annotations": {"note": "new"}}
    done = pod(tier="batch", kind="batch")
    done.metadata.annotations["note"] = "new"  # type: ignore[index]
    assert not pending.update(done, changed).patch

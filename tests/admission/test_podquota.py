"""What a pod's quota asks of it: which quota a pod is in, parents, what never changes, and the nodes of a tree."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from koord.admission import AdmissionContext
from koord.admission.podquota import confine, errors
from koord.model import core
from koord.model.core import Pod
from koord.model.selector import LabelSelector, Requirement
from tests.admission.objects import context, pod, review, validate_pod
from tests.admission.quotaobjects import PREFIX, Document, parent, quota, tree_of

NAME, PREEMPTIBLE = f"{PREFIX}name", f"{PREFIX}preemptible"
QUOTAS = tree_of(
    parent("p"),
    quota("leaf", parent="p", tree_id="t1"),
    parent("teams", namespace="teams"),
    parent("elsewhere", namespace="teams"),
    parent("lister", annotations={"namespaces": '["listed"]'}),
    quota("koordinator-default-quota"),
)


def read(document: Document) -> Pod:
    return core.read(Pod, msgspec.json.encode(document))


def in_quota(name: str | None = None, namespace: str = "jobs", **labels: str) -> Document:
    own = {} if name is None else {NAME: name}
    return pod(namespace=namespace, labels={**own, **labels})


@pytest.mark.parametrize(
    ("labels", "namespace", "name", "with_labels_alone"),
    [
        ({NAME: "leaf"}, "teams", "leaf", "leaf"),
        ({NAME: "gone"}, "teams", "koordinator-default-quota", ""),
        ({NAME: "koordinator-root-quota"}, "jobs", "koordinator-default-quota", ""),
        ({}, "teams", "teams", ""),
        ({}, "elsewhere", "koordinator-default-quota", ""),
        ({}, "listed", "lister", ""),
        ({NAME: ""}, "listed", "lister", ""),
        ({}, "jobs", "koordinator-default-quota", ""),
    ],
)
def test_which_quota_a_pod_is_in(labels: dict[str, str], namespace: str, name: str, with_labels_alone: str) -> None:
    """Its label's; its namespace's own, there; one that lists the namespace; that of all others."""
    assert QUOTAS.name_for(labels, namespace) == name
    assert QUOTAS.name_for(labels, namespace, is_default_used=False) == with_labels_alone


@pytest.mark.parametrize(
    ("new", "old", "gates", "fields"),
    [
        (in_quota("p"), None, {}, [f"labels.{NAME}"]),
        (in_quota("p"), None, {"SupportParentQuotaSubmitPod": True}, []),
        (in_quota("leaf"), None, {}, []),
        (in_quota("gone"), None, {}, []),
        (in_quota(), None, {}, []),
        (in_quota(namespace="teams"), None, {}, [f"labels.{NAME}"]),
        (in_quota(namespace="teams"), None, {"DisableDefaultQuota": True}, []),
        (in_quota(namespace="listed"), None, {}, [f"labels.{NAME}"]),
        (in_quota("p"), in_quota("leaf"), {}, [f"labels.{NAME}"]),
        (in_quota("p", x="1"), in_quota("p"), {}, []),
        (in_quota("leaf", **{PREEMPTIBLE: "false"}), in_quota("leaf"), {}, [f"labels.{PREEMPTIBLE}"]),
        (in_quota("leaf"), in_quota("leaf", **{PREEMPTIBLE: "false"}), {}, [f"labels.{PREEMPTIBLE}"]),
        (in_quota("leaf", **{PREEMPTIBLE: "false"}), None, {}, []),
    ],
)
def test_what_a_pod_may_not_say(new: Document, old: Document | None, gates: dict[str, bool], fields: list[str]) -> None:
    found = errors(read(new), None if old is None else read(old), AdmissionContext(quotas=QUOTAS, feature_gates=gates))
    assert [each.problem.path for each in found] == fields


def test_the_webhook_says_so() -> None:
    response = validate_pod(review(in_quota("p")), context(quotas=QUOTAS))["response"]
    assert not response["allowed"]
    assert "ElasticQuota p is a parent, and takes no pods" in response["status"]["message"]


POOL = LabelSelector(
    match_labels={"pool": "gpu"}, match_expressions=(Requirement(key="virtual", operator="DoesNotExist"),)
)
IN_POOL = [
    {"key": "pool", "operator": "In", "values": ["gpu"]},
    {"key": "virtual", "operator": "DoesNotExist"},
]
ZONE = {"key": "zone", "operator": "In", "values": ["a"]}
IN_TREE = AdmissionContext(quotas=QUOTAS, pools={"t1": POOL})


def affine(*terms: dict[str, Any]) -> dict[str, Any]:
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}
    return {"affinity": {"nodeAffinity": required}}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({}, affine({"matchExpressions": IN_POOL})),
        (affine(), affine({"matchExpressions": IN_POOL})),
        (
            affine({"matchExpressions": [ZONE]}, {"matchFields": [ZONE]}, {}),
            affine({"matchExpressions": [ZONE, *IN_POOL]}, {"matchFields": [ZONE], "matchExpressions": IN_POOL}, {}),
        ),
        (affine({"matchExpressions": IN_POOL}), affine({"matchExpressions": IN_POOL})),
    ],
    ids=["none", "no term", "each term but an empty one, which selects nothing", "again"],
)
def test_pods_of_a_tree_go_to_its_nodes(before: dict[str, Any], after: dict[str, Any]) -> None:
    document = in_quota("leaf")
    document["spec"] |= before
    sent = msgspec.json.encode(document)
    assert {key: confine(document, "jobs", IN_TREE)["spec"].get(key) for key in after} == after
    assert msgspec.json.encode(document) == sent


@pytest.mark.parametrize(
    ("document", "facts"),
    [
        (in_quota("p"), IN_TREE),
        (in_quota(), IN_TREE),
        (in_quota("leaf"), AdmissionContext(quotas=QUOTAS)),
        (in_quota("leaf"), AdmissionContext(quotas=QUOTAS, pools={"t1": LabelSelector()})),
    ],
    ids=["no tree of its own", "no quota", "no profile", "all nodes"],
)
def test_other_pods_go_anywhere(document: Document, facts: AdmissionContext) -> None:
    assert confine(document, "jobs", facts) is document

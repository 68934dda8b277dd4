"""ElasticQuotas and ElasticQuotaProfiles with koord-manager on a real API server, by its own CRDs and rights."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from integration.cluster import controlplane, manager, objects
from integration.cluster.api import Api, ApiError, Object
from integration.cluster.controlplane import ControlPlane
from integration.cluster.manager import Replica
from integration.harness.processes import wait_for

PREFIX = "quota.scheduling.koordinator.sh/"
QUOTAS = "/apis/scheduling.sigs.k8s.io/v1alpha1/namespaces/default/elasticquotas"
PROFILES = "/apis/quota.koordinator.sh/v1alpha1/namespaces/default/elasticquotaprofiles"
VALIDATE = "/validate-scheduling-sigs-k8s-io-v1alpha1-elasticquota"
SOON_S = 30.0


@dataclass
class Managed:
    plane: ControlPlane
    api: Api
    replica: Replica

    def create(self, name: str, low: str = "0", high: str = "100", **labels: str) -> Object:
        return self.api.create(QUOTAS, quota(name, low, high, **labels))

    def root(self) -> Object:
        """The quota of the profile; its CPU in the minimum."""
        return self.api.get(f"{QUOTAS}/pool") if self.api.exists(f"{QUOTAS}/pool") else {"spec": {"min": {}}}

    def reviews(self) -> int:
        name = "koord_manager_webhook_duration_seconds_count{"
        lines = [line for line in self.replica.page("metrics").splitlines() if line.startswith(name)]
        return sum(int(float(line.split()[-1])) for line in lines if f'"{VALIDATE}"' in line)


def quota(name: str, low: str = "0", high: str = "100", **labels: str) -> Object:
    named = {f"{PREFIX}{key.replace('_', '-')}": value for key, value in labels.items()}
    return {
        "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
        "kind": "ElasticQuota",
        "metadata": {"name": name, "labels": named},
        "spec": {"min": {"cpu": low}, "max": {"cpu": high}},
    }


@pytest.fixture(scope="module")
def managed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Managed]:
    with controlplane.private(tmp_path_factory.mktemp("quotas") / "plane") as plane, plane.api() as api:
        manager.install(plane)
        gates = "--feature-gates=MultiQuotaTree=true"
        with manager.asked_replica(plane, api, "manager-quotas", gates) as replica:
            yield Managed(plane, api, replica)


def test_a_tree_is_completed_and_kept_in_shape(managed: Managed) -> None:
    """Each quota at once after its parent, as kubectl applies a file."""
    managed.create("p", "40", is_parent="true", tree_id="t1")
    made = managed.create("a", "30", parent="p")
    assert made["metadata"]["labels"][f"{PREFIX}tree-id"] == "t1"
    assert made["metadata"]["annotations"][f"{PREFIX}shared-weight"] == '{"cpu":"100"}'
    with pytest.raises(ApiError, match=r"11 and 30 of the parent's other children are more than spec\.min of p, 40"):
        managed.create("b", "11", parent="p")
    with pytest.raises(ApiError, match="'t2' cannot be instead of 't1'"):
        managed.api.merge(f"{QUOTAS}/a", {"metadata": {"labels": {f"{PREFIX}tree-id": "t2"}}})
    with pytest.raises(ApiError, match="p is the parent of a"):
        managed.api.delete(f"{QUOTAS}/p")
    managed.api.create("/api/v1/namespaces", {"metadata": {"name": "other"}})
    with pytest.raises(ApiError, match="'a' is the name of an ElasticQuota in namespace default"):
        managed.api.create(QUOTAS.replace("default", "other"), quota("a"))


def test_a_dry_run_is_no_quota(managed: Managed) -> None:
    for name in ("dry1", "dry2"):
        managed.api.create(f"{QUOTAS}?dryRun=All", quota(name, "10", parent="p"))
    assert managed.create("wet", "10", parent="p")["metadata"]["labels"][f"{PREFIX}tree-id"] == "t1"
    managed.api.delete(f"{QUOTAS}/wet")


def test_what_the_scheduler_writes_never_waits_for_the_manager(managed: Managed) -> None:
    before = managed.reviews()
    for number in range(5):
        written = {"annotations": {f"{PREFIX}runtime": json.dumps({"cpu": number})}}
        managed.api.merge(f"{QUOTAS}/a", {"metadata": written, "status": {"used": {"cpu": str(number)}}})
    assert managed.reviews() == before
    managed.api.merge(f"{QUOTAS}/a", {"metadata": {"annotations": {f"{PREFIX}namespaces": '["jobs"]'}}})
    managed.api.merge(f"{QUOTAS}/a", {"spec": {"max": {"cpu": "90"}}, "metadata": {"labels": {"x": "1"}}})
    assert managed.reviews() == before + 2


def test_a_profiles_root_has_what_its_nodes_have(managed: Managed) -> None:
    """By the rights of the manifests; and pods of the tree go to these nodes."""
    profile: Mapping[str, Any] = {
        "apiVersion": "quota.koordinator.sh/v1alpha1",
        "kind": "ElasticQuotaProfile",
        "metadata": {"name": "pool-profile", "labels": {f"{PREFIX}tree-id": "t2"}},
        "spec": {
            "quotaName": "pool",
            "nodeSelector": {"matchLabels": {"pool": "x"}},
            "resourceRatio": "0.5",
            "quotaLabels": {f"{PREFIX}is-parent": "true"},
        },
    }
    managed.api.create(PROFILES, profile)
    wait_for(lambda: managed.root()["spec"]["min"].get("cpu") == "0", SOON_S, "a root without nodes")
    objects.create_nodes(managed.plane.api, [objects.node("n1", {"cpu": "8", "pods": "9"}, labels={"pool": "x"})])
    wait_for(lambda: managed.root()["spec"]["min"].get("cpu") == "4", SOON_S, "half of what the node has")
    labels = managed.root()["metadata"]["labels"]
    assert (labels[f"{PREFIX}is-root"], labels[f"{PREFIX}tree-id"]) == ("true", "t2")
    managed.api.create(QUOTAS, _of_both(quota("leaf", parent="pool")))
    pod = objects.pod("w", {"cpu": "1"})
    pod["metadata"]["labels"] = {**pod["metadata"].get("labels", {}), f"{PREFIX}name": "leaf"}
    made = managed.api.create(objects.pods_of("default"), pod)
    required = made["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    wanted = {"key": "pool", "operator": "In", "values": ["x"]}
    assert all(wanted in term["matchExpressions"] for term in required["nodeSelectorTerms"])
    pod["metadata"] = {**pod["metadata"], "name": "v", "labels": {f"{PREFIX}name": "pool"}}
    with pytest.raises(ApiError, match="ElasticQuota pool is a parent, and takes no pods"):
        managed.api.create(objects.pods_of("default"), pod)
    with pytest.raises(ApiError, match="pods are in leaf: default/w"):
        managed.api.delete(f"{QUOTAS}/leaf")


def _of_both(document: Object) -> Object:
    """With the resources of a profile's root."""
    document["spec"]["max"]["memory"] = "1Gi"
    return document

"""Quota trees by their profiles: what is written, when nodes come and go, and what is left alone."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from koord_manager.controllers import quotaprofiles
from koord_manager.controllers.quotaprofiles import QuotaProfileController
from tests.koord_manager.support import Cluster
from tests.kube.server import Fault
from tests.kube.support import client
from tests.support.cluster import NODES

QUOTAS = "/apis/scheduling.sigs.k8s.io/v1alpha1/elasticquotas"
QUOTA_PROFILES = "/apis/quota.koordinator.sh/v1alpha1/elasticquotaprofiles"
PREFIX = "quota.scheduling.koordinator.sh/"
GPU = {"labels": {"pool": "gpu"}}


def put_profile(cluster: Cluster, name: str = "gpu-profile", labels: Any = None, **spec: Any) -> None:
    spec = {"quotaName": "gpu-root", "nodeSelector": {"matchLabels": GPU["labels"]}, "resourceRatio": "0.9", **spec}
    cluster.server.put(QUOTA_PROFILES, "kube-system", name, metadata={"labels": labels or {}}, spec=spec)


def put_node(cluster: Cluster, name: str, cordoned: bool = False, ready: str = "True", **metadata: Any) -> None:
    status = {"allocatable": {"cpu": "8", "memory": "16Gi"}, "conditions": [{"type": "Ready", "status": ready}]}
    spec = {"unschedulable": True} if cordoned else {}
    cluster.server.put(NODES, "", name, metadata=metadata or dict(GPU), spec=spec, status=status)


def root(cluster: Cluster) -> dict[str, Any]:
    return cluster.object(QUOTAS, "gpu-root", "kube-system") or {"spec": {"min": {}}, "metadata": {"annotations": {}}}


def cpu(cluster: Cluster) -> tuple[str | None, str | None]:
    """Of the root: the minimum, and what is on nodes that take no pods."""
    unschedulable = root(cluster)["metadata"]["annotations"].get(f"{PREFIX}unschedulable-resource", "{}")
    return root(cluster)["spec"]["min"].get("cpu"), json.loads(unschedulable).get("cpu")


@pytest.fixture
async def pools(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Cluster]:
    """A manager that leads, and looks at a profile as often as something changes."""
    monkeypatch.setattr(cluster.controllers.quota_profiles, "_pace_s", 0.0)
    await cluster.lead()
    yield cluster


async def test_a_root_has_what_its_nodes_have(pools: Cluster) -> None:
    """The worked example: two nodes of 8 CPUs, ratio 0.9."""
    for name in ("n1", "n2"):
        put_node(pools, name)
    put_node(pools, "other", labels={"pool": "cpu"})
    put_profile(pools, quotaLabels={f"{PREFIX}is-parent": "true"})
    await pools.settled(lambda: cpu(pools) == ("14400m", None))
    made = root(pools)
    assert made["spec"]["max"]["cpu"] == "4611686018427387"
    assert made["metadata"]["labels"] == {
        f"{PREFIX}profile": "gpu-profile",
        f"{PREFIX}tree-id": "760438705287993495",
        f"{PREFIX}is-root": "true",
        f"{PREFIX}is-parent": "true",
    }
    assert json.loads(made["metadata"]["annotations"][f"{PREFIX}total-resource"])["cpu"] == "14400m"
    profile = pools.object(QUOTA_PROFILES, "gpu-profile", "kube-system")
    assert profile is not None and profile["metadata"]["labels"] == {f"{PREFIX}tree-id": "760438705287993495"}
    await pools.quiet()


async def test_nodes_come_and_go(pools: Cluster) -> None:
    put_profile(pools, resourceRatio="")
    await pools.settled(lambda: cpu(pools) == ("0", None))
    put_node(pools, "n1")
    await pools.settled(lambda: cpu(pools) == ("8", None))
    put_node(pools, "n2", ready="Unknown")
    await pools.settled(lambda: cpu(pools) == ("16", "8"))
    put_node(pools, "n1", cordoned=True)
    await pools.settled(lambda: cpu(pools) == ("16", "16"))
    put_node(pools, "n2", labels={"pool": "none"})
    await pools.settled(lambda: cpu(pools) == ("8", "8"))
    pools.server.delete(NODES, "", "n1")
    await pools.settled(lambda: cpu(pools) == ("0", None))


async def test_only_what_differs_is_written_and_what_others_write_stays(pools: Cluster) -> None:
    put_node(pools, "n1")
    put_profile(pools)
    await pools.settled(lambda: cpu(pools)[0] == "7200m")
    await pools.quiet()
    stored = root(pools)
    stored["metadata"]["annotations"][f"{PREFIX}runtime"] = "{}"
    stored["spec"]["min"] = {"cpu": "1"}
    before = pools.server.count("patch")
    pools.server.put(QUOTAS, "kube-system", "gpu-root", metadata=stored["metadata"], spec=stored["spec"])
    await pools.settled(lambda: cpu(pools)[0] == "7200m")
    await pools.quiet()
    assert root(pools)["metadata"]["annotations"][f"{PREFIX}runtime"] == "{}"
    assert pools.server.count("patch") == before + 1
    put_node(pools, "n1", labels={**GPU["labels"], "another": "label"})
    assert not await pools.writes()


async def test_a_quota_that_is_gone_is_made_again_and_one_whose_profile_is_gone_stays(pools: Cluster) -> None:
    put_profile(pools)
    await pools.settled(lambda: cpu(pools)[0] == "0")
    pools.server.delete(QUOTAS, "kube-system", "gpu-root")
    await pools.settled(lambda: cpu(pools)[0] == "0")
    pools.server.delete(QUOTA_PROFILES, "kube-system", "gpu-profile")
    await pools.quiet()
    assert cpu(pools)[0] == "0"


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ({"resourceRatio": "o.9"}, "spec.resourceRatio: 'o.9' is not a decimal number above 0, at most 1"),
        ({"nodeSelector": {"matchExpressions": [{"key": "a", "operator": "Near"}]}}, "operator 'Near' is not one of"),
    ],
)
async def test_a_profile_that_cannot_be_applied_changes_nothing(pools: Cluster, spec: Any, why: str) -> None:
    put_node(pools, "n1")
    put_profile(pools)
    await pools.settled(lambda: cpu(pools)[0] == "7200m")
    put_profile(pools, **spec)
    await pools.settled(lambda: pools.events(quotaprofiles.NOT_APPLIED))
    assert why in pools.events(quotaprofiles.NOT_APPLIED)[0]
    put_node(pools, "n2")
    await pools.quiet()
    assert cpu(pools)[0] == "7200m"


async def test_of_two_profiles_of_one_quota_the_second_is_told_so(pools: Cluster) -> None:
    put_profile(pools)
    await pools.settled(lambda: cpu(pools)[0] == "0")
    put_profile(pools, "another", resourceRatio="0.1")
    await pools.settled(lambda: pools.events(quotaprofiles.NOT_APPLIED))
    assert "'gpu-root' is the quota of ElasticQuotaProfile gpu-profile" in pools.events(quotaprofiles.NOT_APPLIED)[0]
    assert root(pools)["metadata"]["labels"][f"{PREFIX}profile"] == "gpu-profile"


async def test_a_refused_write_is_told_and_tried_again(pools: Cluster) -> None:
    await pools.quiet()
    pools.server.faults.append(Fault("create", 403))
    put_profile(pools)
    await pools.settled(lambda: pools.events(quotaprofiles.CREATE_FAILED))
    await pools.settled(lambda: cpu(pools)[0] == "0")


async def test_a_profile_is_looked_at_no_more_often_than_its_pace(cluster: Cluster) -> None:
    async with client(cluster.server.url) as api:
        controller = QuotaProfileController(api, cluster.view, cluster.recorder, pace_s=60.0)
        put_profile(cluster)
        await cluster.settled(lambda: cluster.view.quota_profiles.objects)
        (key,) = cluster.view.quota_profiles.objects
        assert await controller.reconcile(key) is None
        wait_s = await controller.reconcile(key)
        assert wait_s is not None and 59.0 < wait_s <= 60.0

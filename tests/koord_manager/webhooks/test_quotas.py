"""The webhooks of ElasticQuotas as the API server meets them: events are late, and replicas are several."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from koord.admission.quotas import RESOURCE
from koord.webhook.reviews import OverloadedError
from koord_manager.quotaview import MOST_PODS
from koord_manager.webhooks.judges import MUTATE_QUOTA, VALIDATE_POD, VALIDATE_QUOTA
from tests.admission.quotaobjects import PREFIX, Document, parent, quota
from tests.koord_manager.support import Cluster
from tests.koord_manager.webhooks.rig import Rig, patched, review
from tests.support.cluster import PODS
from tests.support.waiting import until

QUOTAS = "/apis/scheduling.sigs.k8s.io/v1alpha1/elasticquotas"
QUOTA_PROFILES = "/apis/quota.koordinator.sh/v1alpha1/elasticquotaprofiles"


def put(cluster: Cluster, document: Document) -> None:
    metadata = document["metadata"]
    members = {"labels": metadata["labels"], "annotations": metadata["annotations"]}
    cluster.server.put(QUOTAS, metadata["namespace"], metadata["name"], metadata=members, spec=document["spec"])


def quota_review(new: Document | None, old: Document | None = None, dry_run: bool = False) -> dict[str, Any]:
    operation = "DELETE" if new is None else "CREATE" if old is None else "UPDATE"
    document = review("teams", operation=operation)
    group, _, plural = RESOURCE.partition("/")
    document["request"] |= {
        "resource": {"group": group, "version": "v1alpha1", "resource": plural},
        "object": new,
        "oldObject": old,
        "dryRun": dry_run,
    }
    return document


async def known(rig: Rig, *names: str) -> None:
    await until(lambda: set(names) <= rig.cluster.view.quotas.tree().quotas.keys())


async def test_a_quota_gets_what_its_parent_has(rig: Rig) -> None:
    put(rig.cluster, parent("p", tree_id="t1"))
    await known(rig, "p")
    changes = patched(await rig.ask(MUTATE_QUOTA, quota_review(quota("a", parent="p"))))
    assert changes[f"/metadata/labels/{PREFIX.replace('/', '~1')}tree-id"] == "t1"


async def test_children_that_are_created_at_once_are_counted_both(rig: Rig) -> None:
    """And with a parent of the same moment, of which no event has told."""
    assert (await rig.ask(VALIDATE_QUOTA, quota_review(parent("p", "40"))))["allowed"]
    assert (await rig.ask(VALIDATE_QUOTA, quota_review(quota("a", "30", parent="p"))))["allowed"]
    response = await rig.ask(VALIDATE_QUOTA, quota_review(quota("b", "30", parent="p")))
    assert not response["allowed"]
    assert "30 and 30 of the parent's other children" in response["status"]["message"]


async def test_a_dry_run_counts_for_nothing(rig: Rig) -> None:
    put(rig.cluster, parent("p", "40"))
    await known(rig, "p")
    for name in ("a", "b"):
        assert (await rig.ask(VALIDATE_QUOTA, quota_review(quota(name, "30", parent="p"), dry_run=True)))["allowed"]


async def test_a_parent_that_another_replica_let_pass_is_waited_for(rig: Rig) -> None:
    asked = asyncio.create_task(rig.ask(VALIDATE_QUOTA, quota_review(quota("a", parent="p"))))
    await asyncio.sleep(0)
    put(rig.cluster, parent("p"))
    assert (await asked)["allowed"]


async def test_quotas_that_are_not_known_yet_refuse_none(rig: Rig) -> None:
    rig.cluster.view.elastic_quotas.synced.clear()
    with pytest.raises(OverloadedError, match="not known yet"):
        await rig.ask(VALIDATE_QUOTA, quota_review(quota("a")))


async def test_pods_keep_their_quota(rig: Rig) -> None:
    labels = {f"{PREFIX}name": "a"}
    for number in range(MOST_PODS + 2):
        rig.cluster.server.put(PODS, "jobs", f"w{number}", metadata={"labels": labels}, status={"phase": "Running"})
    rig.cluster.server.put(
        PODS, "jobs", "ended", metadata={"labels": {f"{PREFIX}name": "b"}}, status={"phase": "Failed"}
    )
    rig.cluster.server.put(PODS, "listed", "w", status={"phase": "Pending"})
    listing = {"namespaces": '["listed"]'}
    await until(lambda: len(rig.cluster.view.pods.objects) == MOST_PODS + 4)
    refused = [
        quota_review(None, quota("a")),
        quota_review(parent("a"), quota("a")),
        quota_review(parent("c", annotations=listing), quota("c", annotations=listing)),
        quota_review(parent("listed"), quota("listed")),
    ]
    for asked in refused:
        assert "pods are in" in (await rig.ask(VALIDATE_QUOTA, asked))["status"]["message"]
    assert (await rig.ask(VALIDATE_QUOTA, quota_review(None, quota("b"))))["allowed"]
    view = rig.cluster.view
    for question in (("a", ()), ("b", ()), ("c", ("c", "listed")), ("a", ("listed",))):
        assert view.pods_now()(*question) == view.pods_in(*question), "what another process is told is the same"


async def test_a_pod_is_refused_by_a_parent(rig: Rig) -> None:
    put(rig.cluster, parent("p"))
    await known(rig, "p")
    response = await rig.ask(VALIDATE_POD, review("jobs", {f"{PREFIX}name": "p"}))
    assert "ElasticQuota p is a parent" in response["status"]["message"]


async def test_of_several_profiles_of_a_tree_the_first_says_which_nodes_it_has(rig: Rig) -> None:
    for name, tree, nodes in (("b", "t1", "second"), ("a", "t1", "first"), ("c", "t2", "other")):
        metadata = {"labels": {f"{PREFIX}tree-id": tree}}
        spec = {"quotaName": name, "nodeSelector": {"matchLabels": {"pool": nodes}}}
        rig.cluster.server.put(QUOTA_PROFILES, "teams", name, metadata=metadata, spec=spec)
    await until(lambda: len(rig.cluster.view.quota_profiles.objects) == 3)
    pools = rig.cluster.view.admission().pools
    assert {tree: selector.match_labels for tree, selector in pools.items()} == {
        "t1": {"pool": "first"},
        "t2": {"pool": "other"},
    }

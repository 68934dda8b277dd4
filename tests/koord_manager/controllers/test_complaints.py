"""What is wrong with what a node states: one Event for each, for as long as it is so."""

from __future__ import annotations

from typing import Any

import pytest

from koord.overcommit import ratios
from koord.sloconfig.colocation import ANNOTATION_STRATEGY
from koord_manager.controllers import complaints
from koord_manager.controllers.complaints import Complaint
from tests.koord_manager.support import CONFIG, Cluster
from tests.support.cluster import CONFIG_MAPS, METRICS, NODES, PROFILES

AHEAD = "the node's clock is 3600 s ahead"
BAD_STRATEGY: dict[str, Any] = {"annotations": {ANNOTATION_STRATEGY: "{bad"}}
BAD_RATIO: dict[str, Any] = {"labels": {"node.koordinator.sh/cpu-reclaim-ratio": "high"}}


@pytest.mark.parametrize(
    ("metadata", "ahead_s", "reason", "said"),
    [
        (BAD_STRATEGY, 0, "OvercommitProblem", ANNOTATION_STRATEGY),
        (BAD_RATIO, 0, "OvercommitProblem", "cpu-reclaim-ratio: 'high' is not a ratio"),
        ({}, 3600, "OvercommitProblem", AHEAD),
        ({"labels": {ratios.NORMALIZATION_ENABLED: "true"}}, 0, "CPUNormalizationUnknown", "has no annotation"),
    ],
    ids=["annotation", "label", "clock", "normalization"],
)
async def test_what_is_wrong_with_a_node_is_said_once(
    cluster: Cluster, metadata: dict[str, Any], ahead_s: float, reason: str, said: str
) -> None:
    cluster.put_config()
    cluster.put_node(**metadata)
    cluster.now_s += ahead_s
    cluster.report()
    cluster.now_s -= ahead_s
    await cluster.lead()
    await cluster.settled(lambda: cluster.events(reason))
    for _ in range(3):
        cluster.now_s += 7
        await cluster.controllers.resources.reconcile("n1")
        cluster.now_s += ahead_s + 1
        cluster.report()
        cluster.now_s -= ahead_s
        await cluster.view.synced()
        await cluster.quiet()
    (message,) = cluster.events(reason)
    assert said in message
    assert cluster.recorder.reasons.count(reason) == 1
    cluster.put_node(labels={"node.koordinator.sh/memory-reclaim-ratio": "low"})
    await cluster.settled(lambda: any("'low' is not a ratio" in each for each in cluster.events("OvercommitProblem")))


async def test_resources_that_another_manager_left_on_a_node_are_said_and_stay(cluster: Cluster) -> None:
    cluster.put_config()
    cluster.put_node()
    cluster.report()
    amounts = {"cpu": "8", "memory": "16Gi", "nvidia.com/gpu": "2", "koordinator.sh/gpu-core": "200"}
    cluster.server.put(NODES, "", "n1", status={"capacity": amounts, "allocatable": amounts})
    await cluster.lead()
    await cluster.settled(lambda: cluster.events("DeviceResourcesUnmanaged") and cluster.offered())
    await cluster.quiet()
    (message,) = cluster.events("DeviceResourcesUnmanaged")
    assert message == (
        "shows koordinator.sh/gpu-core, which koord-manager does not keep up to date: see docs/migration.md"
    )
    node = cluster.object(NODES, "n1")
    assert node is not None and node["status"]["allocatable"]["koordinator.sh/gpu-core"] == "200"


@pytest.mark.parametrize("was_read", [True, False])
async def test_a_report_that_cannot_be_read_is_said_at_once(cluster: Cluster, was_read: bool) -> None:
    cluster.put_config()
    cluster.put_node()
    if was_read:
        cluster.report()
        await cluster.lead()
        await cluster.settled(cluster.offered)
    cluster.server.put(METRICS, "", "n1", status={"nodeMetric": []})
    if not was_read:
        await cluster.settled(lambda: cluster.view.unread_metric_of("n1"))
        await cluster.lead()
    await cluster.settled(lambda: cluster.events("OvercommitProblem"))
    await cluster.quiet()
    (message,) = cluster.events("OvercommitProblem")
    assert message.startswith("NodeMetric n1: cannot be read: ") and "$.status.nodeMetric" in message
    assert message.endswith("the last one that could be read counts" if was_read else "it counts as none")
    assert bool(cluster.offered()) == was_read
    cluster.report()
    await cluster.settled(lambda: cluster.offered() and not cluster.view.unread_metric_of("n1"))
    await cluster.quiet()
    assert cluster.recorder.reasons.count("OvercommitProblem") == 1


async def test_what_the_config_map_says_to_nobody_is_an_event_on_it(cluster: Cluster) -> None:
    cluster.put_config({"colocation-confg": "{}", "system-config": "{"})
    await cluster.lead()
    await cluster.settled(lambda: cluster.events("UnknownConfig") and cluster.events("SLOCfgUnmarshalFailed"))
    (message,) = cluster.events("UnknownConfig")
    assert message == "colocation-confg: there is no such key (did you mean colocation-config?): it is ignored"


@pytest.mark.parametrize("comes", ["before", "after"])
async def test_a_profile_that_is_not_applied_is_an_event_on_it(cluster: Cluster, comes: str) -> None:
    """Whether it is there when a replica comes to lead, or comes later; one that nobody can read, and another."""
    if comes == "after":
        await cluster.lead()
    unread = {"matchExpressions": [{"key": "a", "operator": "in"}]}
    cluster.server.put(PROFILES, "", "unread", spec={"selector": unread})
    cluster.server.put(PROFILES, "", "certain", spec={"probability": "70"})
    cluster.server.put(PROFILES, "", "good", spec={"probability": "70%"})
    if comes == "before":
        await cluster.lead()
    await cluster.settled(lambda: len(cluster.events("ProfileNotApplied")) == 2)
    assert sorted(each.split()[1] for each in cluster.events("ProfileNotApplied")) == ["certain", "unread"]
    assert any("unread is not applied" in each for each in cluster.view.admission().unread_profiles)


async def test_kubectl_finds_the_events_of_the_config_map(cluster: Cluster) -> None:
    """``kubectl describe`` selects them by name, namespace, kind and UID."""
    cluster.put_config({"system-config": "{"})
    await cluster.settled(lambda: not cluster.view.absence_of_policy)
    await cluster.lead()
    await cluster.settled(lambda: cluster.events("SLOCfgUnmarshalFailed"))
    config_map = cluster.object(CONFIG_MAPS, CONFIG.name, CONFIG.namespace)
    assert config_map is not None
    (event,) = cluster.server.objects["/api/v1", "events"].values()
    assert event["involvedObject"] == {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "namespace": CONFIG.namespace,
        "name": CONFIG.name,
        "uid": config_map["metadata"]["uid"],
        "resourceVersion": config_map["metadata"]["resourceVersion"],
    }


async def test_a_bad_annotation_is_said_where_colocation_is_off_too(cluster: Cluster) -> None:
    cluster.put_config({})
    cluster.put_node(**BAD_STRATEGY)
    await cluster.lead()
    await cluster.settled(lambda: cluster.events("OvercommitProblem"))


@pytest.mark.parametrize(
    ("before", "now", "said"),
    [
        ("", "the clock is 61 s ahead", True),
        ("the clock is 61 s ahead", "the clock is 3600 s ahead", False),
        ("pod web-1 has no CPU", "pod web-2 has no CPU", True),
        ("100 snails", "101 snails", True),
    ],
)
def test_what_is_news(before: str, now: str, said: bool) -> None:
    kept = complaints.kept([Complaint("R", before)])
    found = [Complaint("R", now)]
    assert complaints.news(found, kept) == tuple(found * said)
    assert complaints.news([Complaint("Other", before)], kept)

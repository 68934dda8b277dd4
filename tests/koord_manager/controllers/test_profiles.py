"""Changed profiles and the pods that wait: what is written, to whom, and how fast."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from koord.kube.recorder import EventRecorder
from koord_manager.controllers.leading import Controllers
from koord_manager.controllers.profiles import ProfileController
from koord_manager.freshusage import FreshFigures
from tests.koord_manager.support import Cluster
from tests.kube.server import Fault
from tests.kube.support import client
from tests.support.cluster import PODS, PROFILES
from tests.support.waiting import until

NAMESPACES = "/api/v1/namespaces"
MANAGED = {"config.koordinator.sh/controller-managed": "true"}


def put_profile(cluster: Cluster, tier: str, **spec: Any) -> None:
    spec = {"selector": {"matchLabels": {"app": "job"}}, "labels": {"tier": tier}, **spec}
    cluster.server.put(PROFILES, "", "p", metadata={"labels": MANAGED}, spec=spec)


def put_pod(cluster: Cluster, name: str = "w", node: str = "", phase: str = "Pending") -> None:
    metadata = {"labels": {"app": "job"}}
    cluster.server.put(PODS, "jobs", name, metadata=metadata, spec={"nodeName": node}, status={"phase": phase})


def tier_of(cluster: Cluster, name: str = "w") -> str | None:
    found = cluster.object(PODS, name, "jobs")
    assert found is not None
    tier: str | None = found["metadata"]["labels"].get("tier")
    return tier


@asynccontextmanager
async def leading(cluster: Cluster, qps: float = 100.0, burst: int = 100) -> AsyncIterator[None]:
    async with client(cluster.server.url) as api:
        profiles = ProfileController(api, cluster.view, False, qps, burst)
        figures, recorder = FreshFigures(lambda: 0.0), EventRecorder(api, "koord-manager", "test", time.time)
        controllers = Controllers(api, cluster.view, figures, recorder, lambda: cluster.now_s, profiles)
        task = asyncio.create_task(controllers.run())
        yield
        task.cancel()
        await asyncio.wait((task,))


async def test_pods_that_wait_follow_and_no_others(cluster: Cluster) -> None:
    put_pod(cluster)
    put_pod(cluster, "placed", node="n1")
    put_pod(cluster, "ended", phase="Failed")
    put_profile(cluster, "one")
    async with leading(cluster):
        await cluster.settled(lambda: tier_of(cluster) == "one")
        put_profile(cluster, "two")
        await cluster.settled(lambda: tier_of(cluster) == "two")
        put_pod(cluster, "late")
        await cluster.settled(lambda: tier_of(cluster, "late") == "two")
        await cluster.quiet()
    assert (tier_of(cluster, "placed"), tier_of(cluster, "ended")) == (None, None)
    assert cluster.server.count("patch") == 3


async def test_a_namespace_that_changes_counts(cluster: Cluster) -> None:
    put_pod(cluster)
    put_profile(cluster, "one", namespaceSelector={"matchLabels": {"team": "a"}})
    cluster.server.put(NAMESPACES, "", "jobs")
    async with leading(cluster):
        await cluster.quiet()
        assert tier_of(cluster) is None
        cluster.server.put(NAMESPACES, "", "jobs", metadata={"labels": {"team": "a"}})
        await cluster.settled(lambda: tier_of(cluster) == "one")


def invalid(field: str) -> Fault:
    """What a real API server says to a patch that changes ``field``, and must not."""
    causes = [{"reason": "FieldValueInvalid", "message": "Invalid value: field is immutable", "field": field}]
    status = {"kind": "Status", "code": 422, "reason": "Invalid", "message": "invalid", "details": {"causes": causes}}
    return Fault("patch", status=422, body=json.dumps(status).encode())


@pytest.mark.parametrize(
    "is_another", [Fault("patch", status=409, reason="Conflict"), invalid("metadata.uid")], ids=["conflict", "UID"]
)
@pytest.mark.parametrize("refusal", [Fault("patch", status=403), invalid("metadata.labels")], ids=["right", "label"])
async def test_a_pod_that_is_another_by_now_is_not_changed_and_a_refusal_is_repeated(
    cluster: Cluster, is_another: Fault, refusal: Fault
) -> None:
    put_profile(cluster, "one")
    cluster.server.faults = [is_another, refusal]
    put_pod(cluster, "a")
    await until(lambda: bool(cluster.view.pods.objects and cluster.view.admission().profiles))
    async with leading(cluster):
        await until(lambda: len(cluster.server.faults) == 1)
        await cluster.quiet()
        assert tier_of(cluster, "a") is None, "its event is waited for"
        put_pod(cluster, "b")
        await cluster.settled(lambda: tier_of(cluster, "b") == "one")
    assert not cluster.server.faults


async def test_no_faster_than_the_limit(cluster: Cluster) -> None:
    for number in range(6):
        put_pod(cluster, f"w{number}")
    put_profile(cluster, "one")
    await until(lambda: len(cluster.view.pods.objects) == 6 and bool(cluster.view.admission().profiles))
    begun_s = asyncio.get_running_loop().time()
    async with leading(cluster, qps=10.0, burst=2):
        await cluster.settled(lambda: all(tier_of(cluster, f"w{number}") == "one" for number in range(6)))
    assert asyncio.get_running_loop().time() - begun_s >= 0.39

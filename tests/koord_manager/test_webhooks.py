"""The webhooks as the API server meets them: with the cluster that the caches hold at that moment."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from koord.kube.webhookserver import Response, allow
from koord_manager.options import PROGRAM
from koord_manager.webhooks import Webhooks
from tests.koord_manager.support import PROFILES, Cluster
from tests.kube.support import client, until

NAMESPACES = "/api/v1/namespaces"
CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
COLOCATED = {"labels": {"koordinator.sh/enable-colocation": "true"}}
SPEC = {
    "namespaceSelector": {"matchLabels": COLOCATED["labels"]},
    "qosClass": "BE",
    "priorityClassName": "koord-batch",
}


def review(namespace: str, labels: dict[str, str] | None = None, operation: str = "CREATE") -> dict[str, Any]:
    pod = {
        "metadata": {"name": "p", "namespace": namespace, "labels": labels or {}},
        "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "1"}}}]},
    }
    return {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "u1",
            "operation": operation,
            "namespace": namespace,
            "resource": {"group": "", "version": "v1", "resource": "pods"},
            "object": pod,
        },
    }


def patched(response: Response) -> dict[str, Any]:
    """The values of the response's patch by their paths."""
    operations = json.loads(base64.b64decode(response["patch"])) if "patch" in response else []
    return {operation["path"]: operation.get("value") for operation in operations}


class Rig:
    def __init__(self, cluster: Cluster, webhooks: Webhooks) -> None:
        self.cluster, self._handlers = cluster, webhooks.handlers

    async def ask(self, path: str, document: dict[str, Any]) -> Response:
        answer = self._handlers[path](document)
        return answer if isinstance(answer, dict) else await answer  # type: ignore[misc]


@pytest.fixture
async def rig(cluster: Cluster) -> AsyncIterator[Rig]:
    """With the profile, its PriorityClass and a namespace that it selects."""
    cluster.server.put(CLASSES, "", "koord-batch", value=5000, preemptionPolicy="PreemptLowerPriority")
    cluster.server.put(NAMESPACES, "", "jobs", metadata=dict(COLOCATED))
    cluster.server.put(PROFILES, "", "batch", spec=SPEC)
    async with client(cluster.server.url) as api:
        await until(lambda: bool(cluster.view.admission().profiles and "jobs" in cluster.view.admission().namespaces))
        yield Rig(cluster, Webhooks(api, cluster.view, PROGRAM.load(PROGRAM.parse([]))))


async def test_a_profile_is_applied(rig: Rig) -> None:
    changes = patched(await rig.ask("/mutate-pod", review("jobs")))
    assert changes["/spec/priorityClassName"] == "koord-batch"
    assert changes["/spec/priority"] == 5000


async def test_one_that_came_or_went_counts_with_its_event(rig: Rig) -> None:
    rig.cluster.server.delete(PROFILES, "", "batch")
    await until(lambda: not rig.cluster.view.admission().profiles)
    assert patched(await rig.ask("/mutate-pod", review("jobs"))) == {}


async def test_a_namespace_that_no_event_has_told_of_is_looked_up(rig: Rig) -> None:
    context = rig.cluster.view.admission()
    rig.cluster.server.put(NAMESPACES, "", "brand-new", metadata=dict(COLOCATED))
    assert "brand-new" not in context.namespaces
    changes = patched(await rig.ask("/mutate-pod", review("brand-new")))
    assert changes["/spec/priorityClassName"] == "koord-batch"


async def test_a_namespace_that_does_not_exist_has_no_profile(rig: Rig) -> None:
    response = await rig.ask("/mutate-pod", review("nowhere"))
    assert response["allowed"] is True
    assert patched(response) == {}


async def test_a_profile_that_cannot_be_read_stops_no_other(rig: Rig) -> None:
    rig.cluster.server.put(PROFILES, "", "a-broken", spec={**SPEC, "probability": "often"})
    rig.cluster.server.put(PROFILES, "", "labels", spec={"labels": {"seen": "yes"}})
    await until(lambda: len(rig.cluster.view.admission().profiles) == 2)
    changes = patched(await rig.ask("/mutate-pod", review("jobs")))
    assert changes["/spec/priority"] == 5000


async def test_what_cannot_be_is_refused(rig: Rig) -> None:
    labels = {"koordinator.sh/qosClass": "BE", "koordinator.sh/priority-class": "koord-prod"}
    response = await rig.ask("/validate-pod", review("jobs", labels))
    assert response["allowed"] is False
    assert "koord-prod" in response["status"]["message"]


@pytest.mark.parametrize(
    ("flag", "allowing"),
    [
        ("", {"/mutate-node-status"}),
        ("PodMutatingWebhook=false", {"/mutate-pod", "/mutate-node-status"}),
        ("PodValidatingWebhook=false,NodeMutatingWebhook=true", {"/validate-pod"}),
    ],
)
async def test_a_path_whose_gate_is_off_lets_everything_pass(rig: Rig, flag: str, allowing: set[str]) -> None:
    options = PROGRAM.load(PROGRAM.parse([f"--feature-gates={flag}"] if flag else []))
    async with client(rig.cluster.server.url) as api:
        handlers = Webhooks(api, rig.cluster.view, options).handlers
    assert {path for path, handler in handlers.items() if handler is allow} == allowing

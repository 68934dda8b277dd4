"""The webhooks as the API server meets them: with the cluster that the caches hold at that moment."""

from __future__ import annotations

import asyncio
import base64
import json
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest

from koord.kube.webhookserver import Response, allow
from koord_manager import webhooks
from koord_manager.options import PROGRAM
from koord_manager.webhooks import Webhooks
from tests.koord_manager.support import CONFIG, PROFILES, Cluster
from tests.kube.support import client, until
from tests.waiting import HANG_S

NAMESPACES = "/api/v1/namespaces"
GATES = "--feature-gates=ConfigMapValidatingWebhook=true,NodeValidatingWebhook=true"
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


def config_review(data: dict[str, str], name: str = CONFIG.name, old: dict[str, str] | None = None) -> dict[str, Any]:
    document = review(CONFIG.namespace, operation="CREATE" if old is None else "UPDATE")
    metadata = {"name": name, "namespace": CONFIG.namespace}
    document["request"] |= {
        "resource": {"group": "", "version": "v1", "resource": "configmaps"},
        "object": {"metadata": metadata, "data": data},
        "oldObject": None if old is None else {"metadata": metadata, "data": old},
    }
    return document


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
        yield Rig(
            cluster,
            Webhooks(api, cluster.view, PROGRAM.load(PROGRAM.parse([GATES]))),
        )


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
    ("data", "message"),
    [
        ({"colocation-config": "{bad"}, "ParseConfigFail"),
        ({"colocation-config": '{"degradeTimeMinutes": 0}'}, "colocation-config.degradeTimeMinutes"),
    ],
)
async def test_a_config_map_that_cannot_be_followed_is_refused(rig: Rig, data: dict[str, str], message: str) -> None:
    response = await rig.ask("/validate-configmap", config_review(data))
    assert (response["allowed"], response["status"]["code"]) == (False, 400)
    assert message in response["status"]["message"]


async def test_a_config_map_is_judged_with_the_nodes_that_there_are(rig: Rig) -> None:
    rig.cluster.put_node("n1", labels={"a": "1", "b": "1"})
    await until(lambda: bool(rig.cluster.view.nodes.objects))
    entries = [{"name": key, "nodeSelector": {"matchLabels": {key: "1"}}} for key in ("a", "b")]
    document = config_review({"colocation-config": json.dumps({"nodeConfigs": entries})})
    response = await rig.ask("/validate-configmap", document)
    assert '"exampleNodes":["n1"]' in response["status"]["message"]


@pytest.mark.parametrize(
    "document",
    [
        config_review({"colocation-config": '{"enable": true}'}),
        config_review({"colocation-config": "{bad"}, name="another"),
        config_review({"colocation-config": "{bad", "system-config": "{}"}, old={"colocation-config": "{bad"}),
    ],
    ids=["right", "another ConfigMap", "wrong before"],
)
async def test_a_config_map_that_passes(rig: Rig, document: dict[str, Any]) -> None:
    assert (await rig.ask("/validate-configmap", document))["allowed"] is True


async def test_pods_are_judged_while_a_large_config_map_is(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, may_end = threading.Event(), threading.Event()

    def slow(*_: object) -> dict[str, Any]:
        begun.set()
        assert may_end.wait(HANG_S)
        return {"response": {"uid": "u1", "allowed": True}}

    monkeypatch.setattr(webhooks, "validate_config_map", slow)
    large = asyncio.create_task(rig.ask("/validate-configmap", config_review({})))
    await until(begun.is_set)
    assert (await rig.ask("/validate-pod", review("jobs")))["allowed"]
    assert not large.done()
    may_end.set()
    assert (await large)["allowed"]


async def test_what_a_config_map_says_to_nobody_is_warned_of(rig: Rig) -> None:
    data = {"colocation-confg": "{}", "colocation-config": '{"enabled": true}', **{f"x{i}": "" for i in range(9)}}
    response = await rig.ask("/validate-configmap", config_review(data))
    assert response["allowed"] is True
    assert response["warnings"] == [
        "colocation-confg: there is no such key (did you mean colocation-config?): it is ignored",
        *(f"x{i}: there is no such key: it is ignored" for i in range(4)),
        "and 6 more: koordctl lint lists them",
    ]


def node_review(labels: dict[str, str], old: dict[str, str] | None) -> dict[str, Any]:
    document = review("", operation="CREATE" if old is None else "UPDATE")
    document["request"] |= {
        "resource": {"group": "", "version": "v1", "resource": "nodes"},
        "object": {"metadata": {"name": "n1", "labels": labels}},
        "oldObject": None if old is None else {"metadata": {"name": "n1", "labels": old}},
    }
    return document


async def test_a_nodes_labels_are_judged_by_the_policy_in_force(rig: Rig) -> None:
    both = {"a": "1", "b": "1"}
    assert (await rig.ask("/validate-node", node_review(both, {})))["allowed"] is True
    entries = [{"name": key, "nodeSelector": {"matchLabels": {key: "1"}}} for key in ("a", "b")]
    rig.cluster.put_config({"colocation-config": json.dumps({"nodeConfigs": entries})})
    await until(lambda: bool(rig.cluster.view.config.colocation.entries))
    response = await rig.ask("/validate-node", node_review(both, {"a": "1"}))
    assert (response["allowed"], response["status"]["code"]) == (False, 400)
    assert '"strategies":["a","b"],"exampleNodes":["n1"]' in response["status"]["message"]


@pytest.mark.parametrize(
    ("flag", "allowing"),
    [
        ("", {"/mutate-node-status", "/validate-node", "/validate-configmap"}),
        ("PodMutatingWebhook=false", {"/mutate-pod", "/mutate-node-status", "/validate-node", "/validate-configmap"}),
        (
            "PodValidatingWebhook=false,NodeMutatingWebhook=true",
            {"/validate-pod", "/validate-node", "/validate-configmap"},
        ),
        ("ConfigMapValidatingWebhook=true", {"/mutate-node-status", "/validate-node"}),
        ("NodeValidatingWebhook=true", {"/mutate-node-status", "/validate-configmap"}),
    ],
)
async def test_a_path_whose_gate_is_off_lets_everything_pass(rig: Rig, flag: str, allowing: set[str]) -> None:
    options = PROGRAM.load(PROGRAM.parse([f"--feature-gates={flag}"] if flag else []))
    async with client(rig.cluster.server.url) as api:
        handlers = Webhooks(api, rig.cluster.view, options).handlers
    assert {path for path, handler in handlers.items() if handler is allow} == allowing

"""The manager's webhooks on a view of an API server in memory, and the reviews that it asks for."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from koord.kube.client import Client
from koord.sloconfig import checks
from koord.webhook import reviews
from koord_manager.options import PROGRAM
from koord_manager.webhooks.webhooks import Webhooks
from tests.koord_manager.support import CONFIG, Cluster

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


def patched(response: Mapping[str, Any]) -> dict[str, Any]:
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


def many_pairs() -> dict[str, str]:
    """A ConfigMap that takes as long as one can: it has as many pairs of bandwidths as are checked, and each is."""

    def entries(key: str, strategies: list[dict[str, Any]]) -> str:
        found = [
            {"nodeSelector": {"matchExpressions": [{"key": f"{key}{number}", "operator": "Exists"}]}} | strategy
            for number, strategy in enumerate(strategies)
        ]
        return json.dumps({"nodeStrategies": found})

    def asking(request: str, limit: str) -> dict[str, Any]:
        bandwidths = {"ingressRequest": request, "ingressLimit": limit, "egressRequest": request, "egressLimit": limit}
        names = "lsrClass", "lsClass", "beClass", "systemClass"
        return {name: {"networkQOS": {"enable": True, **bandwidths}} for name in names}

    users = [asking("2M", "1"), *[asking("1k", "2k")] * (checks.MOST_ENTRIES - 1)]
    systems = [{"totalNetworkBandwidth": f"{number}G"} for number in range(1, checks.MOST_ENTRIES + 1)]
    return {"resource-qos-config": entries("a", users), "system-config": entries("b", systems)}


def node_review(labels: dict[str, str], old: dict[str, str] | None) -> dict[str, Any]:
    document = review("", operation="CREATE" if old is None else "UPDATE")
    document["request"] |= {
        "resource": {"group": "", "version": "v1", "resource": "nodes"},
        "object": {"metadata": {"name": "n1", "labels": labels}},
        "oldObject": None if old is None else {"metadata": {"name": "n1", "labels": old}},
    }
    return document


@dataclass
class Rig:
    cluster: Cluster
    api: Client
    webhooks: Webhooks

    def others(self, *flags: str) -> Webhooks:
        """Of a manager that has these flags."""
        return Webhooks(self.api, self.cluster.view, PROGRAM.load(PROGRAM.parse(list(flags))))

    async def ask(self, path: str, document: dict[str, Any]) -> Any:
        """The response in the answer, on the event loop."""
        asked = reviews.decode(json.dumps(document).encode())
        answer: Any = self.webhooks.handlers[path](asked.request)
        if callable(answer):
            answer = (await answer("127.0.0.1"))()
        return json.loads(reviews.answered(path, asked, answer).body)["response"]

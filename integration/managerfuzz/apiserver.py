"""The cluster of the attacked manager: an API server in memory, in a process of its own.

Prints its URL, and ends with its standard input. It believes what a request for a certificate says of its requester.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from typing import Any

from koord.model.nodelink import NODE_GROUP, NODE_USER, SIGNER
from tests.koord_manager.nodelink.rig import APIServer

NAMESPACE, CONFIG_MAP = "koordinator-system", "slo-controller-config"
ATTACKER, OTHER = "attacker", "other"
"""Nodes that no load reports for."""
FEW, FEW_LABEL = 20, "few"
"""Nodes for which the policy has an entry, and their label."""
PROFILE_NAME, PROFILE_LABEL = "batch", "koordinator.sh/mutated"
PROFILE = {
    "selector": {"matchLabels": {"batch": "yes"}},
    "qosClass": "BE",
    "priorityClassName": "koord-batch",
    "labels": {PROFILE_LABEL: "true"},
}


def pod_of(node: str) -> tuple[str, str, str]:
    """Namespace, name and UID of the one pod of ``node``, which a budget protects."""
    return "shop", f"web-{node}", f"u-{node}"


def policy(threshold_percent: int) -> dict[str, str]:
    """The ConfigMap's data, with ``cpuSuppressThresholdPercent`` of ``FEW`` nodes."""
    entry = {"nodeSelector": {"matchLabels": {FEW_LABEL: "yes"}}, "cpuSuppressThresholdPercent": threshold_percent}
    thresholds = {"clusterStrategy": {"enable": True}, "nodeStrategies": [entry]}
    return {"colocation-config": '{"enable": true}', "resource-threshold-config": json.dumps(thresholds)}


def request_of(node: str, name: str, request: str) -> dict[str, Any]:
    """A CertificateSigningRequest of ``node``'s kubelet."""
    requester = {"username": NODE_USER + node, "groups": [NODE_GROUP, "system:authenticated"]}
    spec = {"request": request, "signerName": SIGNER, "usages": ["client auth", "digital signature"], **requester}
    return {"metadata": {"name": name}, "spec": spec}


def fill(server: APIServer, nodes: int) -> None:
    """``nodes`` Nodes and those of the attacker and of the other, each with a pod, and Koord's objects."""
    server.bookmark_s = 2.0
    amounts = {"cpu": "64", "memory": "256Gi"}
    for number, name in enumerate([*(f"node-{number}" for number in range(nodes)), ATTACKER, OTHER]):
        labels = {FEW_LABEL: "yes"} if number < FEW else {}
        status = {"capacity": amounts, "allocatable": amounts}
        server.put("/api/v1/nodes", "", name, metadata={"labels": labels}, status=status)
        namespace, web, uid = pod_of(name)
        spec = {"nodeName": name, "containers": [{"name": "c", "resources": {}}]}
        server.put("/api/v1/pods", namespace, web, metadata={"uid": uid}, spec=spec, status={"phase": "Running"})
        server.protected.add(web)
    for name in ("default", "kube-system", NAMESPACE, "shop"):
        server.put("/api/v1/namespaces", "", name, metadata={"labels": {"kubernetes.io/metadata.name": name}})
    for name, value in (("koord-prod", 9000), ("koord-batch", 5000)):
        server.put("/apis/scheduling.k8s.io/v1/priorityclasses", "", name, value=value)
    server.put("/apis/config.koordinator.sh/v1alpha1/clustercolocationprofiles", "", PROFILE_NAME, spec=PROFILE)
    server.put("/api/v1/configmaps", NAMESPACE, CONFIG_MAP, data=policy(65))


async def run(nodes: int) -> None:
    server = APIServer()
    fill(server, nodes)
    async with server.serving() as url:
        print(url, flush=True)
        ended = asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
        while not ended.done():
            await asyncio.sleep(1)
            server.requests.clear()
            if len(server.history) > 100_000:
                server.compact()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="The cluster of the attacked manager.")
    parser.add_argument("--nodes", type=int, required=True)
    asyncio.run(run(parser.parse_args().nodes))

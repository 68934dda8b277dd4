"""The cluster of the attacked manager: an API server in memory, in a process of its own.

Prints its URL, and ends with its standard input.
"""

from __future__ import annotations

import argparse
import asyncio
import sys

from tests.koord_manager.nodelink.rig import APIServer

NAMESPACE = "koordinator-system"
PROFILE = {
    "selector": {"matchLabels": {"batch": "yes"}},
    "qosClass": "BE",
    "priorityClassName": "koord-batch",
    "labels": {"koordinator.sh/mutated": "true"},
}


def fill(server: APIServer, nodes: int) -> None:
    """``nodes`` Nodes, each with a pod that is protected by a budget, and Koord's objects. All requests for
    certificates are of the first node."""
    server.bookmark_s = 2.0
    amounts = {"cpu": "64", "memory": "256Gi"}
    for number in range(nodes):
        name, web = f"node-{number}", f"web-{number}"
        server.put("/api/v1/nodes", "", name, status={"capacity": amounts, "allocatable": amounts})
        spec = {"nodeName": name, "containers": [{"name": "c", "resources": {}}]}
        server.put("/api/v1/pods", "shop", web, metadata={"uid": f"u{number}"}, spec=spec, status={"phase": "Running"})
        server.protected.add(web)
    for name in ("default", "kube-system", NAMESPACE, "shop"):
        server.put("/api/v1/namespaces", "", name, metadata={"labels": {"kubernetes.io/metadata.name": name}})
    for name, value in (("koord-prod", 9000), ("koord-batch", 5000)):
        server.put("/apis/scheduling.k8s.io/v1/priorityclasses", "", name, value=value)
    server.put("/apis/config.koordinator.sh/v1alpha1/clustercolocationprofiles", "", "batch", spec=PROFILE)
    config = {"colocation-config": '{"enable": true}'}
    server.put("/api/v1/configmaps", NAMESPACE, "slo-controller-config", data=config)
    server.requester = {"username": "system:node:node-0", "groups": ["system:nodes", "system:authenticated"]}


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

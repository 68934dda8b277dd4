"""A cluster that colocates, of an API server in memory, which koordctl asks through its command line."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any

import yaml

from tests.koordctl.runs import koordctl
from tests.kube.server import Server
from tests.support.cluster import CONFIG_MAPS, EVENTS, METRICS, NODES, PODS

BATCH = {"kubernetes.io/batch-cpu": "2000", "kubernetes.io/batch-memory": "4Gi"}
LABELS = {"koordinator.sh/qosClass": "BE"}


class Cluster:
    """One that colocates: node-1 reports and offers, unless a test says otherwise."""

    def __init__(self) -> None:
        self.server = Server()
        self.node("node-1")
        self.report("node-1")
        self.config(enable=True)

    def node(
        self,
        name: str,
        batch: Mapping[str, str] = BATCH,
        ready: str = "True",
        labels: Mapping[str, str] = MappingProxyType({}),
        **spec: Any,
    ) -> None:
        capacity = {"cpu": "8", "memory": "16Gi"}
        conditions = [{"type": "Ready", "status": ready}]
        status = {"capacity": capacity, "allocatable": {**capacity, **batch}, "conditions": conditions}
        self.server.put(NODES, "", name, metadata={"labels": {"zone": "a", **labels}}, spec=spec, status=status)

    def report(self, name: str, ago_s: float = 10.0) -> None:
        usage = {"resources": {"cpu": "1500m", "memory": "3Gi"}}
        status = {"updateTime": time_before(ago_s), "nodeMetric": {"nodeUsage": usage, "systemUsage": usage}}
        self.server.put(METRICS, "", name, spec={"metricCollectPolicy": {"reportIntervalSeconds": 60}}, status=status)

    def config(self, namespace: str = "koordinator-system", **colocation: Any) -> None:
        data = {"colocation-config": json.dumps(colocation)}
        self.server.put(CONFIG_MAPS, namespace, "slo-controller-config", data=data)

    def move_config(self, namespace: str) -> None:
        self.server.delete(CONFIG_MAPS, "koordinator-system", "slo-controller-config")
        self.config(namespace, enable=True)

    def pod(
        self, name: str, cpu: int = 1000, node: str = "", phase: str = "Pending", status: Any = None, **spec: Any
    ) -> None:
        requests = {"kubernetes.io/batch-cpu": cpu, "kubernetes.io/batch-memory": "1Gi"} if cpu else {}
        container = {"name": "main", "resources": {"requests": requests, "limits": requests}}
        members = {"containers": [container], "priority": 5000, **spec} | ({"nodeName": node} if node else {})
        metadata = {"labels": LABELS, "uid": f"uid-{name}", **spec.pop("metadata", {})}
        members.pop("metadata", None)
        self.server.put(PODS, "jobs", name, metadata=metadata, spec=members, status={"phase": phase, **(status or {})})

    def event(
        self, pod: str, reason: str, message: str, ago_s: float = 120.0, count: int = 1, type: str = "Normal"
    ) -> None:
        involved = {"kind": "Pod", "namespace": "jobs", "name": pod, "uid": f"uid-{pod}"}
        members = {"reason": reason, "message": message, "lastTimestamp": time_before(ago_s), "count": count}
        self.server.put(EVENTS, "jobs", f"{pod}.{reason}", involvedObject=involved, type=type, **members)

    @asynccontextmanager
    async def flags(self, directory: Path, **context: str) -> AsyncIterator[str]:
        """``--kubeconfig`` for as long as the server serves. ``context``: more members of the kubeconfig's."""
        async with self.server.serving() as url:
            config = {
                "current-context": "c",
                "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u", **context}}],
                "clusters": [{"name": "c", "cluster": {"server": url}}],
                "users": [{"name": "u", "user": {}}],
            }
            file = directory / "kubeconfig"
            await asyncio.to_thread(file.write_text, yaml.safe_dump(config))
            yield f"--kubeconfig={file}"

    async def run(self, directory: Path, *arguments: str) -> tuple[int, str, str]:
        async with self.flags(directory) as flag:
            return await koordctl(*arguments, flag)


def time_before(ago_s: float) -> str:
    return datetime.fromtimestamp(time.time() - ago_s, UTC).isoformat()
